"""persist-queue's SQLite queue: every `put` is a transaction in WAL mode, and SQLite's default is to sync each.

There is no way to put many at once and none to sync less, so it has no `written`. `get` selects one row; what was taken
is not deleted, as no other store here deletes either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from .in_process import Append, InProcessStore


class PersistQueueSQLite(InProcessStore):
    name = "persist-queue (SQLite)"
    durabilities = frozenset({"durable"})
    chunk = 1_000
    module = "persistqueue"
    package = "persist-queue"

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        import persistqueue

        with closing(persistqueue.SQLiteQueue(str(directory), auto_commit=False)) as queue:
            put = queue.put

            def append(values: Sequence[bytes]) -> None:
                for value in values:
                    put(value)

            yield append

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        import persistqueue

        with closing(persistqueue.SQLiteQueue(str(directory), auto_commit=False)) as queue:
            yield (queue.get() for _ in range(queue.qsize()))


STORE = PersistQueueSQLite()
