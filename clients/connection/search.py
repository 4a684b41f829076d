"""Which of several addresses to ask next for the leader of a cluster.

Idea: ask any; follow the leader that an answer names; the newest term wins; rest after each round in which none led,
until the node that was asked last tells who does.

Contract: the caller asks `address` from `at` on, and says what came of it: `missed` or `found`. `at` is on the caller's
clock, and no address is asked twice without a rest, or such news, in between. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...storage.errors import Error
from ...transport.errors import InvalidUrl
from ...transport.url import connect_url, reachable

REST_MIN_S, REST_MAX_S = 0.05, 0.4
"""After a round without a leader; doubles."""


class Search:
    """See the module."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.address = addresses[0]
        self.at = 0.0
        self.term = 0
        """The highest that any node has told."""
        self.several = len(addresses) > 1
        self.refused: Error | None = None
        """Why none of the addresses will ever let this client in."""
        self._addresses = list(addresses)
        self._cluster = ""
        self._missed: set[str] = set()  # in this round
        self._said: dict[str, str] = {}  # what came of each address lately
        self._refusals: dict[str, Error] = {}
        self._rest_s = 0.0
        self._found_at: float | None = None

    @property
    def state(self) -> str:
        """What came of the addresses lately, for people."""
        return "; ".join(f"{address}: {why}" for address, why in self._said.items())

    def missed(
        self, now: float, why: str, *, term: int = 0, leader: Sequence[str] = (), refusal: Error | None = None
    ) -> None:
        """`address` does not lead, or not any more: `leader` of `term` does, as far as it knows.

        `why` is for people; `refusal`, if the address will never let this client in.
        """
        if self._found_at is not None and now - self._found_at >= REST_MAX_S:
            self._missed, self._rest_s = set(), 0.0  # a leader that lasted: this is another search
        self._found_at = None
        self._missed.add(self.address)
        self._said[self.address] = why
        if refusal is not None:
            self._refusals[self.address] = refusal
            self.refused = refusal if self._refusals.keys() >= set(self._addresses) else None
        named = self._usable(leader) if term >= self.term else ""
        is_news = term > self.term  # what came of the leader before is of an older term
        self.term = max(self.term, term)
        self.at = now
        if named and (is_news or named not in self._missed):
            self.address = named
        else:
            self._go_round(now)

    def told(self, now: float, term: int, leader: Sequence[str]) -> None:
        """A node that did not lead says, unasked, who leads by now: ask that one at once, in a new round."""
        if term >= self.term and (named := self._usable(leader)):
            self.address, self.at, self.term, self._missed = named, now, term, set()

    def _go_round(self, now: float) -> None:
        """The next address that was not asked in this round; else a rest, and another round."""
        known = self._addresses
        place = known.index(self.address) if self.address in known else -1
        ring = known[place + 1 :] + known[: place + 1]
        left = [address for address in ring if address not in self._missed]
        if left:
            self.address = left[0]
            return
        self._rest_s = min(max(2 * self._rest_s, REST_MIN_S), REST_MAX_S)
        self.address, self.at = ring[0], now + self._rest_s
        self._missed = set()
        self._said = {address: why for address, why in self._said.items() if address in known}

    def _usable(self, leader: Sequence[str]) -> str:
        """The first address of a leader that is of our kind, as seen from here; "" without one."""
        if not self.several:
            return ""
        scheme = self.address.partition("://")[0]
        for address in leader:
            try:
                if address.startswith(f"{scheme}://"):
                    return str(connect_url(reachable(address, self.address)))
            except InvalidUrl:
                continue  # a newer node's idea of an address
        return ""

    def found(self, now: float, term: int) -> None:
        """`address` leads in `term`."""
        self.term, self._found_at, self._refusals = term, now, {}

    def is_ours(self, cluster: str) -> bool:
        """Whether a node belongs to the cluster of the first one that answered. One address may become that of another
        broker."""
        if self._cluster == "" or not self.several:
            self._cluster = cluster
        return self._cluster == cluster
