"""A store that is a Python library: timed here, in this process.

Idea: a store says how a batch is appended and how values are iterated; when the clock runs is the same for all.

Contract: opening and closing are not counted, what makes a batch durable is. Values are drained in C, so that a store
pays for nothing but itself.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import metadata
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from penstock.storage.errors import way_to_install

Append = Callable[[Sequence[bytes]], object]


class InProcessStore(ABC):
    """The base of Python stores. `module` is the import, `package` its distribution."""

    name: str
    checks = False
    durabilities = frozenset({"durable", "written"})
    chunk: int
    module = ""
    package = ""

    def absent(self) -> str:
        if self.module and find_spec(self.module) is None:
            return f"{self.package} is not installed: {way_to_install('bench')}"
        return ""

    def versions(self) -> dict[str, str]:
        return {self.package: metadata.version(self.package)} if self.package else {}

    @abstractmethod
    def appending(self, directory: Path, *, durable: bool) -> AbstractContextManager[Append]:
        """Open the store in `directory`; yields a function that appends one batch, synced when `durable`."""

    @abstractmethod
    def reading(self, directory: Path) -> AbstractContextManager[Iterator[bytes]]:
        """Open the store in `directory`; yields its values from the oldest."""

    def append_ns(self, directory: Path, values: Sequence[bytes], batch: int, *, durable: bool) -> float:
        with self.appending(directory, durable=durable) as append:
            begun = time.perf_counter()
            for first in range(0, len(values), batch):
                append(values[first : first + batch])
            return (time.perf_counter() - begun) / len(values) * 1e9

    def read_ns(self, directory: Path, count: int) -> float:
        with self.reading(directory) as values:
            begun = time.perf_counter()
            deque(islice(values, count), maxlen=0)
            return (time.perf_counter() - begun) / count * 1e9

    def read(self, directory: Path, count: int) -> list[bytes]:
        with self.reading(directory) as values:
            return list(islice(values, count))
