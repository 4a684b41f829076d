"""The audit log of refusals: who was refused what, in a bounded number of lines.

Idea: a client that is refused tries again, and a hostile one as fast as it can, so each line stands for all refusals
since the one before, and shows the last of them. One line a second and kind of refusal at most.

Contract: sentences have no secret, only names, addresses and public keys. What came from a peer is made printable.
"""

from __future__ import annotations

from collections.abc import Callable

from .diagnostics import say

PERIOD_S = 1.0
SHOWN_MOST = 200
"""Characters of a sentence."""


class Refusals:
    """See the module. `what` is counted: "refused connections"."""

    def __init__(self, what: str, tell: Callable[[str], None] = say, *, period_s: float = PERIOD_S) -> None:
        self._what = what
        self._period_s = period_s
        self._tell = tell
        self.count = 0
        """Since the start."""
        self._told = 0
        self._last = ""
        self._due_s = float("-inf")

    def note(self, sentence: str) -> None:
        """Another one was refused."""
        self.count += 1
        self._last = sentence

    def refused(self, sentence: str, now_s: float) -> None:
        """Another one was refused: write the line if it is time."""
        self.note(sentence)
        self.show(now_s)

    @property
    def untold(self) -> bool:
        """Whether some are in no line yet."""
        return self.count != self._told

    def show(self, now_s: float) -> None:
        """Write the line if there is something to tell, and it is time."""
        if not self.untold or now_s < self._due_s:
            return
        refused, self._told, self._due_s = self.count - self._told, self.count, now_s + self._period_s
        shown = "".join(each if each.isprintable() else "?" for each in self._last[:SHOWN_MOST])
        self._tell(f"{self._what}: {refused}, the last: {shown}")
