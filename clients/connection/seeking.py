"""Stays with the leader: leaves a node that does not lead, cannot be reached or answers nothing, for the next.

Idea: what is known of nodes is `Search`; this adds what the channel tells, and time. A client with one address keeps
asking it, and believes for a while what it said of another leader.

Contract: never waits. The connection says what it hears, and, where there are several addresses, asks in each turn
whether the node is to be left: only then are `left`, `turn` and `due` called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...broker.errors import NoLeader, NotLeader
from ...storage.errors import Error
from .search import Search
from .steps import FOREVER

if TYPE_CHECKING:
    from .channel import ClientChannel

log = logging.getLogger("penstock.clients.connection")

NOT_LEADING = frozenset({NoLeader.code, NotLeader.code})
"""Codes of a node that does not lead."""

REACH_S = 1.0
"""A node of several that does not greet the client within so long is left for the next."""

REACH_AGAIN_S = 0.1
"""The same, of a node that could not be reached before; doubles up to REACH_S. It may be starting: then it takes
connections before it answers, while another one leads."""

SILENCE_S = 1.0
"""One that owes an answer and says nothing for so long is sent a Ping."""

PROBE_S = 3.0
"""One that does not answer the Ping for so long is left."""

NEWS_S = 1.0
"""For so long a client with one address believes that another node leads; then it asks again."""


class Seeking:
    """See the module. `turn_to` has the channel begin anew with another address; None where there is one address."""

    def __init__(
        self,
        channel: ClientChannel,
        url: str,
        addresses: Sequence[str],
        turn_to: Callable[[str], None] | None,
        now: float,
    ) -> None:
        self.search = Search(addresses)
        self._channel = channel
        self._url = url
        self._turn_to = turn_to
        self._leave_at = now + REACH_S  # unless the node greets us; FOREVER once it is left
        self._reach_s: dict[str, float] = {}  # by address, how long it has; REACH_S where nothing is said
        self._serves = False  # the node, since it greeted us
        self._was_found = False  # there was such a node
        self._refuses = False  # the node that was left will never let us in: it may be of another cluster
        self._heard = now
        self._probed = FOREVER  # when a Ping was sent that is not answered yet
        self.news: NotLeader | None = None
        """That another node leads, said to a client that knows one address; it is believed for NEWS_S."""
        self._news_until = 0.0

    def elsewhere(self, now: float) -> NotLeader | None:
        """The error of a client that knows one address, while another node leads."""
        return self.news if now < self._news_until else None

    def found(self, now: float, term: int) -> None:
        """The node leads, and serves us."""
        if self._was_found:
            log.info("connected again, to the broker at %s", self.search.address)
        self._serves = self._was_found = True
        self.search.found(now, term)
        self.news, self._heard, self._probed = None, now, FOREVER
        self._reach_s.clear()

    def lost(self) -> None:
        """The connection to the node is a new one."""
        if self._serves:
            log.warning("the connection to the broker at %s is lost: connecting again", self.search.address)
            self._serves = False

    @property
    def has_left(self) -> bool:
        """Whether the channel's node is left already, and the next is not turned to yet."""
        return self._leave_at == FOREVER

    def missed(
        self, now: float, why: str, *, term: int = 0, leader: Sequence[str] = (), refusal: Error | None = None
    ) -> float:
        """The node does not lead us. Returns when to greet it again: FOREVER if another is asked, or none will do."""
        if self._serves:
            log.warning("the broker at %s is left: %s", self.search.address, why)
            self._serves = False
        self._refuses = refusal is not None
        is_news = bool(leader) and term >= self.search.term
        self.search.missed(now, why, term=term, leader=leader, refusal=refusal)
        if self._turn_to is not None:
            self._leave_at = FOREVER
            return FOREVER
        self.news = self._other_leader(why, term, leader) if is_news else None
        self._news_until = now + NEWS_S
        return self.search.at if refusal is None else FOREVER

    def told(self, now: float, term: int, leader: Sequence[str]) -> None:
        """The node, which did not lead us, says who leads by now."""
        if self.has_left and not self._refuses:
            self.search.told(now, term, leader)

    def _other_leader(self, why: str, term: int, leader: Sequence[str]) -> NotLeader:
        error = NotLeader(
            f"{self._url}: {why}; {' or '.join(leader)} leads: connect there, or give the addresses of several nodes"
        )
        error.where, error.term = leader[0], term
        return error

    def left(self, now: float, is_ready: bool) -> str:
        """Why the present node is to be left now; "" if it is not. `is_ready`: it has greeted us."""
        if self.has_left:
            return ""
        channel = self._channel
        if is_ready:
            return "" if channel.connected else "the connection is lost"
        address = self.search.address
        if channel.unreachable:
            self._reach_s[address] = REACH_AGAIN_S
        elif now < self._leave_at:
            return ""
        else:
            self._reach_s[address] = min(2 * self._reach_s.get(address, REACH_S), REACH_S)
        return "it does not answer a greeting" if channel.connected else "no connection"

    def turn(self, now: float, is_ready: bool) -> bool:
        """Turn to the next node, if it is time. Returns whether that was done."""
        assert self._turn_to is not None
        if is_ready or not self.has_left or now < self.search.at or self.search.refused:
            return False
        self._leave_at = now + self._reach_s.get(self.search.address, REACH_S)
        try:
            self._turn_to(self.search.address)
        except Error as error:  # no descriptor is left for now, or its key is missing
            self.missed(now, error.message)
            return False
        return True

    def due(self, is_ready: bool) -> float:
        """When `left` or `turn` has something to do, though nothing arrives."""
        if is_ready or self.search.refused:
            return FOREVER
        if self.has_left:
            return self.search.at
        return 0.0 if self._channel.unreachable else self._leave_at

    # -- nodes that were stopped, or cut off without a word -----------------------------------------------

    def heard(self, now: float) -> None:
        """Something has arrived."""
        self._heard, self._probed = now, FOREVER

    def should_ask(self, now: float) -> bool:
        """Whether a Ping is due, of a connection that expects an answer."""
        return self._turn_to is not None and self._probed == FOREVER and now - self._heard >= SILENCE_S

    def asked(self, now: float) -> None:
        """A Ping was sent."""
        self._probed = now

    def is_silent(self, now: float) -> bool:
        """Whether a Ping has had no answer for too long."""
        return now - self._probed >= PROBE_S
