"""LMDB: a transaction per batch, appended in key order by one call of a cursor; values of a cursor's iterator.

At `written` the environment is opened without sync; its pages are written at each commit, not mapped for writing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from .in_process import Append, InProcessStore

KEY = struct.Struct(">Q")
MAP_BYTES = 16 << 30  # a bound, not a size: the file grows as it is written


class LMDB(InProcessStore):
    name = "LMDB"
    chunk = 300_000
    module = package = "lmdb"

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        import lmdb

        with closing(lmdb.open(str(directory), map_size=MAP_BYTES, sync=durable)) as environment:
            keys = map(KEY.pack, count())

            def append(values: Sequence[bytes]) -> None:
                with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                    pairs = ((key, value) for value, key in zip(values, keys))  # noqa: B905 (keys never end)
                    cursor.putmulti(pairs, append=True)

            yield append

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        import lmdb

        with (
            closing(lmdb.open(str(directory), map_size=MAP_BYTES, readonly=True)) as environment,
            environment.begin() as transaction,
            transaction.cursor() as cursor,
        ):
            yield cursor.iternext(keys=False, values=True)


STORE = LMDB()
