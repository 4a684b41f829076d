"""LevelDB through plyvel: a write batch per batch, keys that count up, an iterator of values that checks its blocks.

Compression is off: the other stores have none, and these records would not shrink.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from .in_process import Append, InProcessStore

KEY = struct.Struct(">Q")  # big-endian: in order of bytes is in order of numbers
WRITE_BUFFER_BYTES = 64 << 20


class LevelDB(InProcessStore):
    name = "LevelDB (plyvel)"
    checks = True
    chunk = 300_000
    module = package = "plyvel"

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        import plyvel

        made = plyvel.DB(str(directory), create_if_missing=True, compression=None, write_buffer_size=WRITE_BUFFER_BYTES)
        with closing(made) as database:
            keys = map(KEY.pack, count())

            def append(values: Sequence[bytes]) -> None:
                with database.write_batch(sync=durable) as batch:
                    put = batch.put
                    for value, key in zip(values, keys):  # noqa: B905 (keys never end; values first, so none is lost)
                        put(key, value)

            yield append

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        import plyvel

        opened = plyvel.DB(str(directory), compression=None, write_buffer_size=WRITE_BUFFER_BYTES)
        with (
            closing(opened) as database,
            database.iterator(include_key=False, verify_checksums=True, fill_cache=False) as values,
        ):
            yield values


STORE = LevelDB()
