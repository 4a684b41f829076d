"""Files that go once a checkpoint of the order covers why: of deleted topics, and segments that retention took.

Idea: rule 2, nothing is unlinked that an entry above the newest checkpoint names; and what an opening knows as
committed then includes the deletion, or the first offset, that the files go for.

Contract: each is noted with the entry that was applied at that moment, and given back once for a checkpoint at or
above it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...storage.log import LogWriter
    from ...storage.segment import SegmentRef


class Retired(NamedTuple):
    """A segment that may go: the entry that was applied then, and how large it may be."""

    entry: int
    size: int


class Departing:
    """See the module."""

    def __init__(self) -> None:
        self.topics: dict[bytes, int] = {}
        """Deleted topics, and the entry that was applied then."""
        self._segments: dict[LogWriter, dict[SegmentRef, Retired]] = {}
        self.bytes = 0
        """What the segments may have together."""

    def __bool__(self) -> bool:
        """Whether anything waits for a checkpoint."""
        return bool(self.topics or self._segments)

    def delete(self, topic: bytes, logs: Iterable[LogWriter], entry: int) -> None:
        """A topic is deleted, with its logs, which are closed: all of their files go together."""
        self.topics[topic] = entry
        for log in logs:
            self._forget(self._segments.pop(log, {}).values())

    def retire(self, log: LogWriter, segments: Iterable[SegmentRef], entry: int) -> None:
        """Segments of an open log may go. Those that are noted keep their entry."""
        noted = self._segments.setdefault(log, {})
        for segment in segments:
            if segment not in noted:
                noted[segment] = Retired(entry, log.options.segment_bytes)
                self.bytes += log.options.segment_bytes

    def take_topics(self, entry: int) -> list[bytes]:
        """Topics whose deletion a checkpoint of `entry` covers."""
        found = [topic for topic, at in self.topics.items() if at <= entry]
        for topic in found:
            del self.topics[topic]
        return found

    def take_segments(self, entry: int) -> Iterator[tuple[LogWriter, list[SegmentRef]]]:
        """Segments that go with a checkpoint of `entry`, by log."""
        for log, noted in list(self._segments.items()):
            found = [segment for segment, retired in noted.items() if retired.entry <= entry]
            self._forget(noted.pop(segment) for segment in found)
            if not noted:
                del self._segments[log]
            if found:
                yield log, found

    def _forget(self, segments: Iterable[Retired]) -> None:
        self.bytes -= sum(each.size for each in segments)
