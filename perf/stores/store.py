"""The interface of every embedded store: append records in order, read them back in order.

Contract:
- `append` writes all values one after the other in the way its users would write many (a transaction, a write batch),
  and at `durable` returns when they are synced: once per `batch` values. At `written` nothing is synced, and the bytes
  are with the kernel, where the death of this process does not reach them.
- `read` returns how many values it saw, each as a `bytes` object in Python (or in the store's own language, for those
  that are not Python), from the oldest.
- `checks` says whether reading verifies the bytes against a checksum: rows that do not are not compared with goals.
- `durabilities` names the levels a store really has; nothing is compared across them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Store(Protocol):
    """One embedded store."""

    name: str
    """As it stands in tables: "LevelDB (plyvel)"."""

    checks: bool
    """Whether `read` verifies what it reads."""

    durabilities: frozenset[str]
    """Of {"durable", "written"}."""

    chunk: int
    """100-byte records that one `append_ns` takes about half a second for."""

    def absent(self) -> str:
        """Why it cannot run on this machine, as a sentence; "" when it can. May build it, once."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the library and its binding."""
        ...

    def append_ns(self, directory: Path, values: Sequence[bytes], batch: int, *, durable: bool) -> float:
        """Nanoseconds per value of appending all to a store in `directory`, empty before; opening is not counted."""
        ...

    def read_ns(self, directory: Path, count: int) -> float:
        """Nanoseconds per value of reading `count` values that `append_ns` wrote there; opening is not counted."""
        ...

    def read(self, directory: Path, count: int) -> list[bytes]:
        """The same values, to compare with what was appended."""
        ...
