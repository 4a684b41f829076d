"""The pace of scrubbing in the keeper: a piece now and then, so that all is read about once in `scrub_s`.

Idea: what closed segments there are is measured first, a log at each step; that and the time for it give a rate, which
has a limit. A step reads one piece, and the next is due when its bytes are used up. A pass may take a week, and what it
is to read grows meanwhile, so it is measured again now and then.

Contract: a step takes as long as one piece, or one look at a log. Must not know the link, processes, clocks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ...storage.errors import Error
from ...storage.scrubbing import Rot, ScrubbedPiece, closed_bytes, log_paths, scrub

if TYPE_CHECKING:
    from ...storage.files import Files
    from ..config import KeeperOptions

LEAST_S = 0.05
"""Between two steps."""

REST_S = 3600.0
"""After a pass that found nothing to read, or the time for all where that is less. No piece is waited for longer: what
there is may have grown."""

MEASURES = 8
"""In the time for all."""


class Scrubbing:
    """See the module."""

    def __init__(self, files: Files, data: str, options: KeeperOptions, now_s: float) -> None:
        self._files = files
        self._data = data
        self._options = options
        self._rate = 0.0  # bytes a second
        self._now_s = self._measured_s = now_s
        self._steps = self._passes()
        self._due_s = now_s + LEAST_S

    def wait(self, now_s: float) -> float:
        """Seconds until a step is due."""
        return max(0.0, self._due_s - now_s)

    def step(self, now_s: float) -> Rot | None:
        """Read some more. Returns what does not verify."""
        self._now_s = now_s
        found, rests = next(self._steps), LEAST_S
        if found is None:
            rests = min(REST_S, self._options.scrub_s)
        elif isinstance(found, ScrubbedPiece) and found.size:
            rests = min(found.size / self._rate, REST_S)
        self._due_s = now_s + max(LEAST_S, rests)
        return found if isinstance(found, Rot) else None

    def _passes(self) -> Iterator[ScrubbedPiece | Rot | None]:
        while True:
            size = yield from self._measure()
            for found in scrub(self._files, self._data) if size else ():
                yield found
                if self._now_s - self._measured_s >= max(REST_S, self._options.scrub_s / MEASURES):
                    yield from self._measure()
            yield ScrubbedPiece(0) if size else None

    def _measure(self) -> Generator[ScrubbedPiece, None, int]:
        """Set the rate by what there is, if there is anything. Returns its bytes."""
        size = 0
        for path in log_paths(self._files, self._data):
            with suppress(Error, OSError):
                size += closed_bytes(self._files, path)
            yield ScrubbedPiece(0)
        if size:
            self._rate = min(size / self._options.scrub_s, self._options.scrub_most)
        self._measured_s = self._now_s
        return size
