"""The topics a query reads, and where their partitions begin and end now.

Idea: one question to the broker returns the ends of all partitions of all topics, and may wait until one of them
moves. It carries the known topic ids: a topic that was deleted and made again is another one. Topics found by a
pattern are listed again from time to time, because the broker does not announce new ones.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ..broker.errors import UnknownTopic
from ..clients import Client
from ..clients.descriptions import TopicEnds
from .errors import InvalidOption
from .offsets import PartitionKey, Position, SourceOffsets
from .planning import PlannedTopic
from .source_options import SourceOptions

LIST_PERIOD_S = 1.0
"""How often topics are listed anew for a pattern."""


class Subscription:
    """See the module. `client` gives the process's client; it is asked for with each question."""

    def __init__(
        self,
        options: SourceOptions,
        client: Callable[[], Client],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._clock = clock
        self._pause = pause
        self._pattern = re.compile(options.subscribe_pattern) if options.subscribe_pattern else None
        self._assigned = options.assign
        self._names = list(options.subscribe or options.assign or ())
        self._told: dict[str, TopicEnds] = {}
        self._listed_at: float | None = None

    def covers(self, name: str) -> bool:
        """Whether a topic of this name is, or would be, read."""
        return bool(self._pattern.fullmatch(name)) if self._pattern else name in self._names

    def left_out(self, offsets: SourceOffsets) -> list[str]:
        """Sentences about topics and partitions that the query has read and its options no longer name."""
        found = [f"topic {name} is" for name in sorted(offsets.topics) if not self.covers(name)]
        for name, partitions in sorted((self._assigned or {}).items()):
            known = offsets.topics[name].partitions if name in offsets.topics else {}
            found += [f"{PartitionKey(name, number)} is" for number in sorted(known.keys() - set(partitions))]
        return [f"{each} in the checkpoint, and option {self._option} does not name it any more" for each in found]

    def topics(self, wait_s: float = 0.0) -> list[PlannedTopic]:
        """The topics that exist, with their ends. Waits up to `wait_s` while nothing differs from the last answer."""
        names = self._wanted()
        found = self._ends(names, self._told, wait_s)
        if wait_s and (len(found) < len(names) or not names):
            self._pause(wait_s)  # the broker has no wait for a topic that does not exist
        self._told = found
        return [_chosen(topic, self._assigned) for topic in _topics(found)]

    def now(self, offsets: SourceOffsets) -> list[PlannedTopic]:
        """The topics that offsets speak of, whatever is subscribed to by now."""
        known = {name: TopicEnds(positions.id, []) for name, positions in offsets.topics.items()}
        return list(_topics(self._ends(list(known), known, 0.0)))

    def check(self, topics: Sequence[PlannedTopic]) -> None:
        """All that was asked for by name is there. Raises UnknownTopic, InvalidOption."""
        there = {topic.name: topic for topic in topics}
        for name in self._names:
            if name not in there:
                raise UnknownTopic(f"there is no topic {name}: create it, or correct option {self._option}")
            for partition in (self._assigned or {}).get(name, ()):
                if partition not in there[name].ends:
                    raise InvalidOption(f"option assign names {name}-{partition}, which topic {name} does not have")

    @property
    def _option(self) -> str:
        return "assign" if self._assigned else "subscribePattern" if self._pattern else "subscribe"

    def times(self, topic: PlannedTopic, millis: int) -> Mapping[int, Position]:
        """The first record appended at a time or later, or else the end, by partition."""
        moment = datetime.fromtimestamp(millis / 1000, UTC)
        found = self._client().positions(topic.name, moment, id=topic.id)
        return {number: Position(*position) for number, position in found.items()}

    def _wanted(self) -> list[str]:
        """Names of topics that may be there."""
        if self._pattern is None:
            return self._names
        now = self._clock()
        if self._listed_at is None or now - self._listed_at >= LIST_PERIOD_S:
            self._listed_at = now
            self._names = [topic.name for topic in self._client().topics() if self._pattern.fullmatch(topic.name)]
        return self._names

    def _ends(self, names: Sequence[str], known: Mapping[str, TopicEnds], wait_s: float) -> dict[str, TopicEnds]:
        """The ends of those that are there; under another id where the one that was known is gone."""
        if not names:
            return {}
        try:
            return self._client().ends(names, known={name: known[name] for name in names if name in known}, wait=wait_s)
        except UnknownTopic:
            if len(names) == 1:
                return {}
        return {name: end for each in names for name, end in self._ends([each], known, 0.0).items()}


def _topics(found: Mapping[str, TopicEnds]) -> Iterator[PlannedTopic]:
    for name, topic in found.items():
        yield PlannedTopic(name, topic.id, dict(enumerate(topic.partitions)))


def _chosen(topic: PlannedTopic, assigned: Mapping[str, Sequence[int]] | None) -> PlannedTopic:
    if assigned is None:
        return topic
    return topic._replace(ends={number: end for number, end in topic.ends.items() if number in assigned[topic.name]})
