"""The interface of every message system in the lab, so that one load drives all of them.

Idea: a system is started in a directory at one durability, gives an address, and is driven through the Python client
that its users would use, in the way that is fastest there (pipelines, batches, confirms in a window). The server runs
in processes of its own; the functions run in the measuring process, or in an agent (../load/agents.py).

Contract:
- `durable`: acknowledged values have been fsynced. `written`: they are in the page cache, where the death of the
  server does not reach them. `durabilities` names the levels a system really has; nothing is compared across them.
- `serve` binds loopback or a Unix socket only, on a free port, keeps everything under `directory`, and stops what it
  started by its process id, however the block ends.
- `produce` returns when every value is acknowledged. `consume` returns when at least that many have been received,
  from the oldest, as objects an application could use (bytes at least), and acknowledged where the system wants that.
  A queue forgets consumed values; a log returns them again.
- A `Sender` takes values that are due now, as one batch where the client can; it waits for no acknowledgement if the
  client can pipeline. A `Receiver` waits for a value, not much longer than a second if it can, and returns the values
  that have arrived.
- The sender of `acknowledged` returns when every value it was given is acknowledged: one record, closed loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

Sender = Callable[[Sequence[bytes]], None]
Receiver = Callable[[], Sequence[bytes]]


class System(Protocol):
    """One message system."""

    name: str
    """As it stands in tables: "Redis Streams"."""

    durabilities: frozenset[str]
    """Of {"durable", "written"}."""

    chunk: int
    """100-byte records that one `produce` or `consume` takes about half a second for."""

    def absent(self) -> str:
        """Why it cannot run on this machine, as a sentence; "" when it can."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the server and the Python client."""
        ...

    def serve(self, directory: Path, durability: str) -> AbstractContextManager[str]:
        """Run a server during the block; yields its address."""
        ...

    def create(self, address: str, stream: str) -> None:
        """An empty stream (topic, queue, tube) of one partition."""
        ...

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        """Send all and wait until all are acknowledged."""
        ...

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        """Receive `count` values from the oldest on, and return them: every client has them in hand anyway."""
        ...

    def sender(self, address: str, stream: str) -> AbstractContextManager[Sender]:
        """A connected sender."""
        ...

    def acknowledged(self, address: str, stream: str) -> AbstractContextManager[Sender]:
        """A connected sender that waits for the acknowledgement of what it is given."""
        ...

    def receiver(self, address: str, stream: str) -> AbstractContextManager[Receiver]:
        """A connected receiver of what is sent from now on."""
        ...
