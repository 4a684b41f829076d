"""Runs one query by DuckDB, over topics as tables.

Idea: each query has a connection of its own to one empty database in memory, where the topics that it names are
tables; making a database for each would cost more than a small query. What reading raises is raised here, though
DuckDB says it in words of its own.

Contract: the query reaches neither files nor the network, nor variables of the program. It runs in a thread of its own,
as DuckDB notices Ctrl-C in between only where it has no work: the caller's thread waits, and interrupts the query, also
where the task of a loop that asked for it was cancelled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ...storage.batch import Batch
from ...storage.errors import Error, InvalidArgument, MissingLibrary, way_to_install
from ..descriptions import Topic
from ..errors import InvalidQuery
from .tables import Read, table

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "TimeZone": "UTC",
    "lock_configuration": True,
}
"""Of the database; the last keeps a query from changing the others."""


INTERRUPT_S = 0.05


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise MissingLibrary(f"SQL needs pyarrow and duckdb: {way_to_install('sql')}") from None
    return duckdb


@lru_cache(maxsize=1)
def _database(process: int) -> Any:
    """The database of this process: a forked child has none of DuckDB's threads."""
    made = _duckdb().connect(":memory:")
    for name, value in SETTINGS.items():
        made.execute(f"set global {name} = {value!r}")
    return made


def table_names(query: str) -> list[str]:
    """The tables that a query reads. Raises InvalidQuery, InvalidArgument, MissingLibrary."""
    if not isinstance(query, str):
        raise InvalidArgument(f"query={query!r} is no text")
    duckdb = _duckdb()
    try:
        kinds = [statement.type.name for statement in duckdb.extract_statements(query)]
        if kinds != ["SELECT"]:
            raise InvalidQuery(f"{query[:100]!r} is no query: one statement that selects rows is")
        return sorted(duckdb.get_table_names(query))
    except duckdb.Error as error:
        raise InvalidQuery(str(error)) from error


def run_query(query: str, topics: Sequence[Topic], read: Read, given_up: Future[None]) -> pa.Table:
    """The rows of a query over topics. Raises InvalidQuery, MissingLibrary, and what reading raises.

    `given_up`: done once no caller wants the rows any more. It raises CancelledError then.
    """
    duckdb, failures = _duckdb(), list[Error]()
    over: SimpleQueue[Any] = SimpleQueue()  # Ctrl-C may come anywhere, and leaves no lock behind as futures.wait may

    def reading(topic: str, partition: int, start: int, end: int, columns: Sequence[str]) -> Iterator[Batch]:
        try:
            yield from read(topic, partition, start, end, columns)
        except Error as error:
            failures.append(error)
            raise

    with _database(os.getpid()).cursor() as database, ThreadPoolExecutor(1) as aside:
        for topic in topics:
            database.register(topic.name, table(topic, reading))
        running = aside.submit(lambda: database.sql(query).to_arrow_table())
        try:
            running.add_done_callback(over.put)
            given_up.add_done_callback(over.put)
            over.get()
            if not running.done():
                raise CancelledError
            return running.result()
        except (duckdb.Error, OSError, ValueError) as error:
            if failures:
                raise failures[0] from error
            raise InvalidQuery(str(error)) from error
        finally:
            _end(database, running, over)


def _end(database: Any, running: Future[Any], over: SimpleQueue[Any]) -> None:
    """End a query that is not waited for any more. One that has not begun yet hears nothing, so it is told again."""
    while not running.done():
        database.interrupt()
        with suppress(Empty):
            over.get(timeout=INTERRUPT_S)
