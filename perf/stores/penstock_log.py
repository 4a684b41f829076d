"""penstock's own Log, as one store among the others: batches through `append`, values through the iterator of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import penstock

from .in_process import Append, InProcessStore


class PenstockLog(InProcessStore):
    name = "penstock.Log"
    checks = True
    chunk = 1_000_000

    def versions(self) -> dict[str, str]:
        return {"penstock": penstock.__version__}

    @contextmanager
    def appending(self, directory: Path, *, durable: bool) -> Iterator[Append]:
        with penstock.Log(directory / "log", commit="durable" if durable else "written") as log:
            yield log.append

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Iterator[bytes]]:
        with penstock.Log(directory / "log", read_only=True) as log:
            yield log.values()


STORE = PenstockLog()
