"""The agenda of streams: the groups and sessions that a turn must process.

Contract: plain sets of marks (turns/marks.py). Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..ports import Port
    from .delivery import Outlet, Stream


class Balanced(Protocol):
    """A group whose members or their partitions changed."""

    def rebalance(self, now_s: float) -> None:
        """Recompute the assignment."""
        ...


class Listener(Protocol):
    """A session with news or deliveries."""

    outlet: Outlet
    is_stray: bool

    @property
    def way(self) -> Hashable:
        """The outlet of deliveries."""
        ...

    def send_news(self, port: Port) -> None:
        """Tell the peer what happened since the last time."""
        ...

    def pump(self, port: Port) -> bool:
        """Deliver. Returns whether to come again in the next turn."""
        ...

    def wake(self) -> None:
        """Mark the session: there may be something to deliver."""
        ...

    def return_(self) -> None:
        """The client has named it again."""
        ...


class Agenda:
    """Marks of the streams of one node."""

    __slots__ = ("failing", "mail", "memberships", "ready")

    def __init__(self) -> None:
        self.memberships: dict[Balanced, None] = {}  # groups whose assignment must be recomputed
        self.mail: dict[Listener, None] = {}  # has news that it was not told yet
        self.ready: dict[Listener, None] = {}  # may have something to be delivered
        self.failing: dict[Stream, None] = {}  # could not read, to be tried again
