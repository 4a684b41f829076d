"""Leases as their worker knows them, and outcomes of their tasks on the way to the broker.

Idea: verbs only note outcomes of tasks; a `Gathering` collects those of one lease that are to be sent together, and
becomes ranges when it is sent. Callers that want the result wait for a `SettleFuture`.

Contract: pure bookkeeping, under the client's lock. A gathering names a lease as a whole only when it holds every task
of the lease, so that resending it, in any order with others, never settles a task by mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...storage.errors import Error
from ...transport.queue_messages import FOREVER_US, Extended, Leased, Settle, Verb
from ..connection.steps import Once, Steps
from ..unpicklable import unpicklable

if TYPE_CHECKING:
    from ...transport.messages import Topic
    from ..arguments.quantities import Duration
    from ..connection.connection import Connection


class LeaseHolder(Protocol):
    """The worker with a lease, as its tasks and futures see it."""

    connection: Connection
    topic: Topic
    run: Callable[[Steps[Any]], Any]
    do: Callable[[Callable[[], Any]], Any]

    def settle_now(
        self,
        tasks: Sequence[Any],
        verb: Verb,
        *,
        delay: Duration | None = None,
        reason: str = "",
        result: bytes | None = None,
    ) -> Steps[None]:
        """Settle tasks and wait until that is committed."""
        ...

    def settled(self, future: SettleFuture, deadline: float) -> Steps[None]:
        """Wait until the outcome is known."""
        ...

    def extend(self, task: Any, lease: Duration | None, *, progress: bytes | None = None) -> Steps[None]:
        """Extend a task's lease and report its progress."""
        ...

    def lose(self, lease: Held) -> None:
        """Mark a lease as over."""
        ...


PACE_MS = 30_000
"""A lease without an end is extended as often as one of this length: that is how its worker hears what became of it."""


class Held:
    """One lease of this worker. `open`: offsets not settled yet; `lease_ms`: its usual length, 0 without end."""

    __slots__ = (
        "beat_at", "cancelled", "core", "count", "handed", "lease_ms", "lost", "open", "partition", "place", "token",
        "until",
    )  # fmt: skip

    def __init__(self, core: LeaseHolder, partition: int, token: int, lease_ms: int, offsets: set[int]) -> None:
        self.core = core
        self.partition = partition
        self.token = token
        self.place = partition, token  # as the wire names it
        self.lease_ms = lease_ms
        self.open = offsets
        self.count = len(offsets)
        self.cancelled: set[int] = set()
        self.handed = False  # the application has or had some of it
        self.lost = False
        self.until = 0.0  # on the client's clock
        self.beat_at = 0.0

    def keep(self, now: float, lease_ms: int) -> None:
        """Hold the lease for `lease_ms` from `now` on, 0 for ever, and extend it after a third of its usual time."""
        if not (self.lease_ms and lease_ms):
            self.lease_ms = lease_ms  # it has an end now, or none any more
        self.until = now + lease_ms / 1000 if lease_ms else math.inf
        self.beat_at = now + (lease_ms or PACE_MS) / 1000 - (self.lease_ms or PACE_MS) / 1500

    @property
    def pace_ms(self) -> int:
        """Its usual length, as far as heartbeats go."""
        return self.lease_ms or PACE_MS

    def at_least(self, lease_ms: int, now: float) -> int:
        """A length that does not shorten the lease."""
        return max(lease_ms, round((self.until - now) * 1000)) if self.lease_ms else 0


@unpicklable("what `exception()` says")
class SettleFuture:
    """The future of tasks that were settled without waiting. Made by `Worker.ack_nowait`."""

    __slots__ = ("_callbacks", "_core", "_error", "_seen", "left")

    def __init__(self, core: LeaseHolder) -> None:
        self._core = core
        self.left = 0
        """Gatherings with tasks of this future that are not settled."""
        self._error: Error | None = None
        self._seen = False
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Whether the outcome is known."""
        return not self.left

    def result(self, timeout: float | None = None) -> None:
        """Wait until it is committed, at most `timeout` seconds (None: the client's).

        Raises LeaseLost when another worker has a task by now, or what else prevented it; TimedOut.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error

    def exception(self, timeout: float | None = None) -> Error | None:
        """Wait like `result`, at most `timeout` seconds; returns the error, None if committed."""
        if self.left:
            self._core.run(self._core.settled(self, self._core.connection.deadline(timeout)))
        self._seen = True
        return self._error

    def add_done_callback(self, callback: Callable[[SettleFuture], Any]) -> None:
        """Call `callback(self)` once the outcome is known, in whichever thread learns of it; at once if it is."""
        if not self._core.do(lambda: self._remember(callback)):
            callback(self)

    def _remember(self, callback: Callable[[SettleFuture], Any]) -> bool:
        if self.left:
            self._core.connection.check_ours()
            self._callbacks.append(Once(callback, self))
        return bool(self.left)

    # -- for the core ---------------------------------------------------------------------------------

    def refuse(self, error: Error) -> None:
        """Note the `error` of a refused task; the first is kept."""
        if self._error is None:
            self._error = error

    def told(self) -> None:
        """Count a gathering that was settled, either way."""
        self.left -= 1
        if not self.left:
            self._core.connection.finished += self._callbacks
            self._callbacks = []

    def ignore(self) -> None:
        """Do not raise its errors."""
        self._seen = True

    @property
    def seen(self) -> bool:
        """Whether its error was raised or read."""
        return self._seen

    def raise_error(self) -> None:
        """Raise the error, if there is one."""
        self._seen = True
        if self._error is not None:
            raise self._error


class Gathering:
    """Tasks of one lease with the same outcome."""

    __slots__ = ("_delay_ms", "_reason", "_verb", "futures", "lease", "offsets", "results")

    def __init__(self, lease: Held, verb: int, delay_ms: int, reason: str) -> None:
        self.lease = lease
        self._verb = verb
        self._delay_ms = delay_ms
        self._reason = reason
        self.offsets: list[int] = []
        self.results: list[tuple[int, bytes]] = []
        self.futures: dict[SettleFuture, None] = {}

    def add(self, offsets: Sequence[int], future: SettleFuture) -> None:
        """Add tasks."""
        if future not in self.futures:
            self.futures[future] = None
            future.left += 1
        self.offsets += offsets

    def settle(self) -> Settle:
        """The message for the wire."""
        offsets = self.offsets
        whole = len(offsets) >= self.lease.count and len(set(offsets)) == self.lease.count
        ranges = [] if whole else ranges_of(offsets)
        return Settle(*self.lease.place, self._verb, ranges, self._delay_ms, self._reason, self.results)

    def ended(self, error: Error | None = None) -> None:
        """End it: committed, or refused."""
        for future in self.futures:
            if error is not None:
                future.refuse(error)
            future.told()


def ranges_of(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Offsets as (first, how many), in order and each once."""
    found = sorted(set(offsets))
    if found and found[-1] - found[0] + 1 == len(found):
        return [(found[0], len(found))]
    ranges: list[tuple[int, int]] = []
    first = last = -2
    for offset in found:
        if offset != last + 1:
            if last >= 0:
                ranges.append((first, last - first + 1))
            first = offset
        last = offset
    if last >= 0:
        ranges.append((first, last - first + 1))
    return ranges


def length_ms(answer: Leased | Extended, lease_ms: int) -> int:
    """The length of a lease as `Held` counts it: 0 for one without an end, and only for that."""
    return 0 if answer.until_us >= FOREVER_US else max(lease_ms, 1)
