"""Throttling: holds the connections of principals to their quotas (decision 105).

Idea: a request that fits its quota goes on. One that puts its principal into debt goes on too, and its connection sits
out until the debt is paid: its client is slowed down, and hears of no error. quotas.py says what is refused instead.

Contract: what ends something, or keeps a session alive, is counted and never refused. Peers without a quota cost
nothing. Time is an argument. Must not know sockets.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..transport import messages as m
from .errors import NotLent
from .quotas import SIT_OUT_S, Meters

if TYPE_CHECKING:
    from .rights import Principal

ENDING: frozenset[type] = frozenset({
    m.Hello, m.Ping, m.Leave, m.Release, m.Commit, m.SettleTasks, m.SettleRecords, m.ExtendLeases, m.GiveBack,
    m.Moved, m.DropStages, m.NameRequest,
})  # fmt: skip
"""Requests that are not refused: refusing them would keep alive what costs more."""

Peer = TypeVar("Peer", bound=Hashable)


class Throttle(Generic[Peer]):
    """See the module."""

    def __init__(self) -> None:
        self.meters = Meters[Peer]()
        self.pauses = 0
        """Times that a connection was told to sit out."""
        self.refused = 0
        """Requests that were refused."""
        self.until_s: dict[Peer, float] = {}
        """Connections that sit out, and until when."""

    def admit(self, peer: Peer, principal: Principal, message: Any, size: int, now_s: float) -> None:
        """Count a request of a principal with a quota. Raises Overloaded, NotLent."""
        assert principal.quota is not None, "others are not asked about"
        meter = self.meters.of(principal.name, principal.quota)
        request = getattr(message, "request", 0)
        try:
            self.meters.connect(peer, meter)
            if type(message) is m.Lend:
                raise NotLent(f"user {principal.name} has a quota, which the broker alone can count")
            if request and type(message) not in ENDING:
                meter.check_debt(now_s)
                meter.begin(peer, request)
        except Exception:
            self.refused += 1
            size = 0
            raise
        finally:
            meter.take(size, now_s)

    def sits_out(self, peer: Peer, now_s: float) -> bool:
        """Whether a peer whose request was counted sits out from now on."""
        meter = self.meters.by_peer.get(peer)
        debt_s = 0.0 if meter is None else meter.debt_s(now_s)
        if not debt_s:
            return False
        self.pauses += 1
        self.until_s[peer] = now_s + min(debt_s, SIT_OUT_S)
        return True

    def holds(self, peer: Peer) -> bool:
        """Whether a peer sits out."""
        return peer in self.until_s

    def released(self, now_s: float) -> list[Peer]:
        """Peers that have sat out, told once each."""
        if not self.until_s:
            return []
        found = [peer for peer, until_s in self.until_s.items() if until_s <= now_s]
        for peer in found:
            del self.until_s[peer]
        return found

    def next_s(self) -> float | None:
        """When to ask for the released next."""
        return min(self.until_s.values(), default=None)

    def lost(self, peer: Peer) -> None:
        """A connection is gone."""
        self.until_s.pop(peer, None)
        self.meters.lost(peer)
