"""persist-queue's file queue, as its README has it: `put` pickles into a chunk file and renames a new info file.

It syncs a chunk when the next one begins and the info file never, so it has no `durable`. Values are taken with `get`;
where the reader stands is not saved, as no other store here saves it either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .in_process import Append, InProcessStore

CHUNK_RECORDS = 10_000


class PersistQueueFiles(InProcessStore):
    name = "persist-queue (files)"
    durabilities = frozenset({"written"})
    chunk = 3_000
    module = "persistqueue"
    package = "persist-queue"

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        import persistqueue

        put = persistqueue.Queue(str(directory), chunksize=CHUNK_RECORDS, tempdir=str(directory)).put

        def append(values: Sequence[bytes]) -> None:
            for value in values:
                put(value)

        yield append

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        import persistqueue

        queue = persistqueue.Queue(str(directory), chunksize=CHUNK_RECORDS, tempdir=str(directory))
        yield (queue.get() for _ in range(queue.qsize()))


STORE = PersistQueueFiles()
