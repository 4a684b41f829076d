"""Quotas: what each principal may take of a broker or a gateway, whatever else it may do (decision 105).

Idea: a rate is one number, the time until which what was taken is paid for. A principal that takes more is in debt, and
sits out until it is paid: a connection that is not read holds its client back without an error. Only what cannot wait
is refused, as Overloaded with the time after which to try again: a debt that is too long, a connection, one beside
too many others.

Contract: all connections of a principal share its meter, which outlives a changed file. Time is an argument. Memory:
the requests in flight, which the quota bounds, and a meter for each principal. Knows no messages. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from ..storage.units import count_text
from .errors import Overloaded

BURST_S = 1.0
"""A principal that took nothing may take as much at once as its rates allow in so long."""

SIT_OUT_S = 1.0
"""The longest time that a connection is not read, well below any timeout of a session. A longer debt is refused."""

TRY_AGAIN_S = 0.1
"""When to try again what waits for other requests or connections of the same principal to end."""

Peer = TypeVar("Peer", bound=Hashable)


class Quota(Struct, frozen=True):
    """Bounds of one principal; 0: none."""

    bytes_s: int = 0
    requests_s: int = 0
    connections: int = 0
    in_flight: int = 0


class Rate:
    """What was taken of something that has a rate."""

    __slots__ = ("_paid_s",)

    def __init__(self) -> None:
        self._paid_s = float("-inf")

    def take(self, count: int, per_s: int, now_s: float) -> None:
        """Take so much, at a rate of which 0 is none."""
        if per_s:
            self._paid_s = max(self._paid_s, now_s - BURST_S) + count / per_s

    def debt_s(self, now_s: float) -> float:
        """How long until what was taken is paid for."""
        return max(0.0, self._paid_s - now_s)


class Meter(Generic[Peer]):
    """What one principal has taken, over all of its connections."""

    def __init__(self, name: str, quota: Quota) -> None:
        self.quota = quota
        self._name = name
        self._bytes, self._requests = Rate(), Rate()
        self._open: dict[Peer, set[int]] = {}  # connections, and their requests that are not answered
        self._in_flight = 0

    def take(self, size: int, now_s: float, requests: int = 1) -> None:
        """Take requests of so many bytes together."""
        self._bytes.take(size, self.quota.bytes_s, now_s)
        self._requests.take(requests, self.quota.requests_s, now_s)

    def debt_s(self, now_s: float) -> float:
        """How long to sit out from now on; 0.0 within the quota."""
        return max(self._bytes.debt_s(now_s), self._requests.debt_s(now_s))

    def check_debt(self, now_s: float, most_s: float = SIT_OUT_S) -> None:
        """Raise Overloaded when the debt is too long to sit out; `most_s`: of a door where nothing sits out, 0.0."""
        debt_s = self.debt_s(now_s)
        if debt_s > most_s:
            rates = ((self.quota.bytes_s, "bytes/s"), (self.quota.requests_s, "requests/s"))
            bounds = " and ".join(f"{bound} {what}" for bound, what in rates if bound)
            said = f"user {self._name} is over its quota of {bounds}: ask again in {debt_s:.1f} s"
            raise Overloaded(said, retry_after=debt_s)

    def connect(self, peer: Peer) -> None:
        """Count a connection, at its first request. Raises Overloaded."""
        most = self.quota.connections
        if peer not in self._open:
            if most and len(self._open) >= most:
                said = f"user {self._name} has {count_text(most, 'connection')}, its quota"
                raise Overloaded(said, retry_after=TRY_AGAIN_S)
            self._open[peer] = set()

    def begin(self, peer: Peer, request: int) -> None:
        """Count a request until it is answered. Raises Overloaded."""
        most = self.quota.in_flight
        if most and self._in_flight >= most:
            said = f"user {self._name} has {count_text(most, 'request')} in flight, its quota"
            raise Overloaded(said, retry_after=TRY_AGAIN_S)
        open_ = self._open[peer]
        if request not in open_:
            open_.add(request)
            self._in_flight += 1

    def answered(self, peer: Peer, request: int, size: int, now_s: float) -> None:
        """A request is answered, with so many bytes."""
        self._bytes.take(size, self.quota.bytes_s, now_s)
        open_ = self._open.get(peer)
        if open_ is not None and request in open_:
            open_.remove(request)
            self._in_flight -= 1

    def lost(self, peer: Peer) -> None:
        """A connection is gone, and with it what it waited for."""
        self._in_flight -= len(self._open.pop(peer, ()))


class Meters(Generic[Peer]):
    """The meters of all principals with a quota, by name; and of their connections."""

    def __init__(self) -> None:
        self.by_peer: dict[Peer, Meter[Peer]] = {}
        self._by_name: dict[str, Meter[Peer]] = {}

    def of(self, name: str, quota: Quota) -> Meter[Peer]:
        """The meter of a principal, whose quota is this one now."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Meter(name, quota)
        found.quota = quota
        return found

    def connect(self, peer: Peer, meter: Meter[Peer]) -> None:
        """A request came over a connection, perhaps of another principal than the one before. Raises Overloaded."""
        meter.connect(peer)
        if (before := self.by_peer.get(peer, meter)) is not meter:
            before.lost(peer)
        self.by_peer[peer] = meter

    def lost(self, peer: Peer) -> None:
        """A connection is gone."""
        meter = self.by_peer.pop(peer, None)
        if meter is not None:
            meter.lost(peer)
