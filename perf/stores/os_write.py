"""A plain file and one `os.write` for each record, behind its length: no buffer, no checksum."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .frames import framed, values_of
from .in_process import Append, InProcessStore


class OsWrite(InProcessStore):
    name = "os.write"
    chunk = 300_000

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        file = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def append(values: Sequence[bytes]) -> None:
            for value in values:
                os.write(file, framed(value))
            if durable:
                os.fdatasync(file)

        try:
            yield append
        finally:
            os.close(file)

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        file = os.open(directory / "log", os.O_RDONLY)
        try:
            yield values_of(partial(os.read, file))
        finally:
            os.close(file)


STORE = OsWrite()
