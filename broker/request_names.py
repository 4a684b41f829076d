"""Requests that have a name: what the broker's log says of them (decision 135).

Idea: a client names a request before it sends it, and all that the log says of that request has the name. Requests
without one cost a look whether there are any with one.

Contract: a name is kept until its request is answered or its connection has ended. Memory: `NAMED_MOST` names of a
connection, the oldest goes first, and `ALL_MOST` of all, beyond which names are not taken. Lines: `WARNINGS_MOST` and
`LINES_MOST` a second, and the next one says how many were left out. Time is an argument. Must not know what requests
mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..transport.messages import Failure, NameRequest
from .diagnostics import say

if TYPE_CHECKING:
    from ..transport.messages import Answer

NAMED_MOST = 1024
ALL_MOST = 65_536

SLOW_S = 1.0
"""A request that takes longer, beside the time that it asked to wait, is told as a warning."""

WARNINGS_MOST = 10
LINES_MOST = 1000


class NamedRequest(Struct, eq=False):
    """A request that was announced under its ids. `kind` is "" until it arrives."""

    ids: list[str]
    since_s: float
    kind: str = ""
    patience_s: float = 0.0
    answered: bool = False


class LineLimit:
    """So many lines a second; counts those beyond."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._since_s = float("-inf")
        self._lines = 0
        self.left_out = 0

    def allows(self, now_s: float) -> bool:
        """Whether another line may be written."""
        if now_s - self._since_s >= 1.0:
            self._since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= self._most:
            return True
        self.left_out += 1
        return False


class RequestNames:
    """See the module. `open` has the named requests of each connection, by number; it is empty where there are none."""

    def __init__(self, tell: Callable[[str, int], None] = say) -> None:
        self.open: dict[Hashable, dict[int, NamedRequest]] = {}
        self.fresh: list[NamedRequest] = []
        """Of this turn."""
        self._count = 0
        self._tell = tell
        self._warnings, self._lines = LineLimit(WARNINGS_MOST), LineLimit(LINES_MOST)

    def heard(self, peer: Hashable, message: Any, now_s: float) -> None:
        """A connection sent a name, or another message while some requests have names."""
        if type(message) is NameRequest:
            self._name(peer, message, now_s)
        elif (named := self.open.get(peer)) and (found := named.get(getattr(message, "request", 0))):
            found.kind, found.since_s = type(message).__name__, now_s
            found.patience_s = getattr(message, "wait_ms", 0) / 1000
            self.fresh.append(found)

    def _name(self, peer: Hashable, message: NameRequest, now_s: float) -> None:
        named = self.open.get(peer)
        if named is not None and len(named) >= NAMED_MOST:
            del named[next(iter(named))]
            self._count -= 1
        if self._count >= ALL_MOST:
            return
        named = self.open.setdefault(peer, {})
        self._count += message.number not in named
        named[message.number] = NamedRequest(message.ids, now_s)

    def answered(self, peer: Hashable, answer: Answer, now_s: float) -> None:
        """An answer leaves: say what became of its request, if it has a name."""
        named = self.open.get(peer)
        found = None if named is None else named.pop(getattr(answer, "request", 0), None)
        if named is None or found is None:
            return
        self._count -= 1
        if not named:
            del self.open[peer]
        found.answered = True
        took_s = now_s - found.since_s
        level, outcome = logging.DEBUG, f"{type(answer).__name__} after {took_s:.3g} s"
        if isinstance(answer, Failure):
            level, outcome = logging.INFO, f"{answer.code} after {took_s:.3g} s: {answer.message}"
        if took_s - found.patience_s >= SLOW_S or (isinstance(answer, Failure) and answer.code == "forbidden"):
            level = logging.WARNING
        for each in found.ids:
            self._line(f"request {each}: {found.kind or 'announced'}: {outcome}", level, now_s)

    def _line(self, sentence: str, level: int, now_s: float) -> None:
        limit = self._warnings if level >= logging.WARNING else self._lines
        if not limit.allows(now_s):
            return
        left_out, limit.left_out = limit.left_out, 0
        self._tell(f"{sentence} ({left_out} such lines were left out before)" if left_out else sentence, level)

    def take_waiting(self) -> list[str]:
        """The ids of requests that came since the last call and have no answer yet, which wait for a sync."""
        fresh, self.fresh = self.fresh, []
        return [each for found in fresh if not (found.answered or found.patience_s) for each in found.ids]

    def promised(self, peer: Hashable) -> str:
        """The id of what a connection announced last and has not sent; "" without one."""
        named = self.open.get(peer)
        found = named[next(reversed(named))] if named else None
        return "" if found is None or found.kind else found.ids[0]

    def lost(self, peer: Hashable) -> None:
        """A connection has ended."""
        self._count -= len(self.open.pop(peer, ()))
