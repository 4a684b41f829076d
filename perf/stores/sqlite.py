"""SQLite in WAL mode: a transaction and one `executemany` per batch, one ordered `SELECT`.

`durable` is synchronous=FULL, which syncs the WAL at each commit; `written` is synchronous=OFF. Frames of the WAL have
checksums, pages of the database have none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path

from .in_process import Append, InProcessStore


class SQLite(InProcessStore):
    name = "SQLite (WAL)"
    chunk = 300_000

    def versions(self) -> dict[str, str]:
        return {"sqlite": sqlite3.sqlite_version}

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        with closing(sqlite3.connect(directory / "log.db")) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            database.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, value BLOB NOT NULL)")

            def append(values: Sequence[bytes]) -> None:
                with database:
                    database.executemany("INSERT INTO log (value) VALUES (?)", zip(values, strict=True))

            yield append

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        with closing(sqlite3.connect(directory / "log.db")) as database:
            yield map(itemgetter(0), database.execute("SELECT value FROM log ORDER BY number"))


STORE = SQLite()
