"""Overdrafts: connections that used more of a turn than their share sit out.

Idea: one request may cost milliseconds, and a turn cannot end within one. Time used beyond the share is an overdraft.
While other connections are active and within their shares, the connection is not heard until MULTIPLE times as long
has passed. All such connections wait in one line, so that however many there are, the others have most of the time.
Silent connections are owed nothing: a lone connection, or several that all ask for much, lose nothing.

Contract: a connection sits out for SIT_OUT_S at most, and for ACTIVE_S once no other one is active. Time is an
argument. Memory: connections, until they are gone, or silent when another one comes. Must not know sockets and
messages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Generic, TypeVar

SHARE_S = 0.00025
"""Of one turn, for each connection that has something: some ten small requests, or one large batch."""

MULTIPLE = 3
"""A connection sits out so many times as long as its overdraft: what asks for much has a quarter of the time."""

ACTIVE_S = 0.005
"""A connection that was heard within this is active: clients that wait for an answer ask again within it."""

CHARGE_S = 0.02
"""Of one turn that counts at most: a broker that was stopped in one charges no connection for it."""

SIT_OUT_S = 0.5
"""A connection sits out at most, however many stand in the line."""

Peer = TypeVar("Peer")


class Overdrafts(Generic[Peer]):
    """See the module.

    Invariant: who is held is overdrawn, and who is overdrawn is not among the active.
    """

    def __init__(self) -> None:
        self._active: OrderedDict[Peer, float] = OrderedDict()  # within their shares, and when last heard, oldest first
        self._overdrawn: OrderedDict[Peer, float] = OrderedDict()  # and until when
        self.held: dict[Peer, float] = {}
        """Connections that sit out, and until when."""
        self._due: list[tuple[float, int, Peer]] = []  # held ones and forgotten ones
        self._number = 0
        self._line_s = 0.0  # until when those in the line sit out

    def __len__(self) -> int:
        """How many connections are remembered."""
        return len(self._active) + len(self._overdrawn)

    def settle(self, over_s: Mapping[Peer, float], begun_s: float, now_s: float) -> tuple[list[Peer], list[Peer]]:
        """A turn has ended. Returns which connections sit out from now on, and which are heard again.

        Args:
            over_s: what each connection that had something of the turn used beyond its share, 0.0 for many.
            begun_s: when the turn began. No connection could be heard since, so silence is counted up to here.
        """
        if self._overdrawn:
            self._forget_paid(now_s)
        overdrawn: list[Peer] = []
        for peer, each_s in over_s.items():
            if each_s > 0.0:
                overdrawn.append(peer)
                self._active.pop(peer, None)
            elif self._overdrawn.get(peer, now_s) <= now_s:
                if self._overdrawn:
                    self._overdrawn.pop(peer, None)
                if peer in self._active:
                    self._active.move_to_end(peer)
                else:
                    self._is_crowded(begun_s)  # forgets the silent
                self._active[peer] = now_s
        if not (overdrawn or self._due):
            return [], []
        is_crowded = self._is_crowded(begun_s)
        for peer in overdrawn:
            self._charge(peer, over_s[peer], is_crowded, now_s)
        return (overdrawn if is_crowded else []), self._released(is_crowded, now_s)

    def _charge(self, peer: Peer, over_s: float, is_crowded: bool, now_s: float) -> None:
        begin_s = max(now_s, self._line_s) if is_crowded else now_s
        until_s = min(begin_s + MULTIPLE * min(over_s, CHARGE_S), now_s + SIT_OUT_S)
        self._overdrawn[peer] = until_s
        self._overdrawn.move_to_end(peer)
        if is_crowded:
            self._line_s = self.held[peer] = until_s
            self._number += 1
            heappush(self._due, (until_s, self._number, peer))

    def _released(self, is_crowded: bool, now_s: float) -> list[Peer]:
        if not is_crowded:
            released = list(self.held)
            self._due.clear()
            self.held.clear()
            return released
        released = []
        while self._due and self._due[0][0] <= now_s:
            until_s, _, peer = heappop(self._due)
            if self.held.get(peer) == until_s:
                del self.held[peer]
                released.append(peer)
        return released

    def holds(self, peer: Peer) -> bool:
        """Whether a connection sits out."""
        return peer in self.held

    def next_s(self) -> float | None:
        """When to ask for the released next; None while all are heard."""
        if not self.held:
            return None
        last_s = next(reversed(self._active.values()), 0.0)
        return min(self._due[0][0], last_s + ACTIVE_S)

    def forget(self, peer: Peer) -> None:
        """A connection is gone."""
        self._active.pop(peer, None)
        self._overdrawn.pop(peer, None)
        self.held.pop(peer, None)

    def _is_crowded(self, begun_s: float) -> bool:
        """Whether a connection that is not overdrawn is active."""
        active = self._active
        while active and next(iter(active.values())) <= begun_s - ACTIVE_S:
            active.popitem(last=False)
        return bool(active)

    def _forget_paid(self, now_s: float) -> None:
        overdrawn = self._overdrawn
        while overdrawn and next(iter(overdrawn.values())) <= now_s:
            overdrawn.popitem(last=False)
