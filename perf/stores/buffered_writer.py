"""A plain file through `io.BufferedWriter`: records behind their lengths, flushed once per batch, no checksum."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .frames import framed, values_of
from .in_process import Append, InProcessStore

BUFFER_BYTES = 1 << 20


class BufferedWriter(InProcessStore):
    name = "io.BufferedWriter"
    chunk = 1_000_000

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        with open(directory / "log", "ab", buffering=BUFFER_BYTES) as file:

            def append(values: Sequence[bytes]) -> None:
                file.writelines(map(framed, values))
                file.flush()
                if durable:
                    os.fdatasync(file.fileno())

            yield append

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        with open(directory / "log", "rb") as file:
            yield values_of(file.read)


STORE = BufferedWriter()
