"""Rests: what could not be done for one target, why, and when to try again.

Contract: the pause doubles with each failure of a target, up to a limit, and ends with a success. Times are log time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from .....storage.errors import Error

RETRY_S = 1.0
RETRY_MOST_S = 60.0
"""Delay before something is tried again; doubles each time."""

Target = TypeVar("Target")


class Setback(NamedTuple):
    """Why something waits, until when, and for how long the next time."""

    until_us: int
    wait_s: float
    error: Error


class Rests(Generic[Target]):
    """The targets that rest, of one source."""

    def __init__(self) -> None:
        self.by_target: dict[Target, Setback] = {}

    def failed(self, target: Target, error: Error, now_us: int) -> int:
        """Something failed for a target. Returns when to try it again."""
        known = self.by_target.get(target)
        wait_s = RETRY_S if known is None else min(2 * known.wait_s, RETRY_MOST_S)
        until_us = now_us + round(wait_s * 1e6)
        self.by_target[target] = Setback(until_us, wait_s, error)
        return until_us

    def succeeded(self, target: Target) -> None:
        """Something was done for a target."""
        self.by_target.pop(target, None)

    def at(self, now_us: int) -> set[Target]:
        """The targets that rest at a time."""
        return {target for target, rest in self.by_target.items() if rest.until_us > now_us}

    def next_us(self, now_us: int) -> int | None:
        """When the next one is to be tried again."""
        return min((rest.until_us for rest in self.by_target.values() if rest.until_us > now_us), default=None)
