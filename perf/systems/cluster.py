"""The interface of every replicated system in the lab: three servers on this machine, and what one client gets of them.

Contract:
- A value counts once a majority of the three has it, at the level that `durability` names: `durable` is fsynced.
- `serve` binds loopback or Unix sockets only, keeps everything under `directory`, and stops what it started.
- `one` returns when its value is acknowledged; `many` when all are, of which `window` are on their way at a time.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple


class Puts(NamedTuple):
    """A connected client."""

    one: Callable[[bytes], None]
    many: Callable[[Sequence[bytes], int], None]
    """Values, and the window."""
    batches: Callable[[Sequence[bytes]], None]
    """Values, in whatever way the client is fastest."""


async def in_window(put: Callable[[bytes], Awaitable[object]], values: Sequence[bytes], window: int) -> None:
    """Put values by a client of asyncio, `window` of them on their way at a time."""
    left = iter(values)

    async def one_after_the_other() -> None:
        for value in left:
            await put(value)

    await asyncio.gather(*(one_after_the_other() for _ in range(window)))


class Cluster(ABC):
    """One replicated system."""

    name: str
    durability: str
    chunk: int
    """Values of 100 bytes that `batches` takes about a second for."""

    @abstractmethod
    def absent(self) -> str:
        """Why it cannot run on this machine, as a sentence; "" when it can."""

    @abstractmethod
    def serve(self, directory: Path) -> AbstractContextManager[str]:
        """Run three servers during the block; yields the address that `client` takes."""

    @abstractmethod
    def client(self, address: str) -> AbstractContextManager[Puts]:
        """A client, in this process."""
