"""Plans the micro-batches of a stream: how far each goes, and the spans it reads.

Idea: Spark asks repeatedly how far the source is, and writes the answer for a micro-batch into the checkpoint before
it runs, so each decision is made once. The answer (offsets.py) is complete: where the micro-batch ends, and where it
begins if not where the last one ended. When there is nothing new the broker waits for a moment, so that an idle query
sleeps.

Contract: `next` returns the offsets it was given when there is nothing to do. It honours the user's options: limits,
the minimum worth a micro-batch, the handling of lost records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..broker.errors import UnknownTopic
from ..clients import Client
from ..clients.descriptions import End
from ..storage.errors import OutOfBounds
from .limits import Limits
from .losses import settle
from .offsets import UNKNOWN_TERM, PartitionKey, Position, Positions, SourceOffsets
from .planning import PlannedSpan, PlannedTopic, QueryStart, beginning, divide, end_of, offsets, spans, together
from .source_options import LATEST, SourceOptions
from .starting import by_topic, latest, starting
from .subscription import Subscription

IDLE_WAIT_S = 0.2
"""How long the broker may keep a question while there is nothing new; a query is stopped no sooner."""

NEVER = float("-inf")


class MicroBatches:
    """See the module. One of a query's run, in the process that plans it."""

    def __init__(
        self,
        options: SourceOptions,
        client: Callable[[], Client],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._client = client
        self._clock = clock
        self._pause = pause
        self._subscription = Subscription(options, client, clock, pause)
        self._limits = Limits(options, client)
        self._seen: list[PlannedTopic] | None = None  # when the broker was asked last
        self._pinned: list[PlannedTopic] | None = None  # where a query ends that reads what is there
        self._decided_at = NEVER
        self._cursors: dict[str, dict[int, int]] = {}  # by topic: where they were put last

    # -- how far ----------------------------------------------------------------------------------------

    def pin(self) -> None:
        """Read what is there by now, and no more."""
        self._pinned = self._look()

    def next(self, start: SourceOffsets, *, limited: bool) -> SourceOffsets:
        """The end of the micro-batch that begins at `start`; `start` itself when there is nothing to do.

        Raises DataLoss, and says what is wrong with the topics or with where to begin.
        """
        topics = self._look() if self._pinned is None else self._pinned
        if start.new:
            self._subscription.check(topics)
            return self._decided(topics, self._first(topics), limited)
        self.commit(start)
        begin = self._going_on(start, topics)
        until = self._clock() + IDLE_WAIT_S
        while not self._is_due(topics, begin):
            left = until - self._clock()
            if left <= 0 or self._pinned is not None:
                return start
            topics = self._awaited(left)
            begin = self._going_on(start, topics)
        settle(begin.losses, self._options.fail_on_data_loss)
        return self._decided(topics, begin, limited)

    def newest(self) -> SourceOffsets | None:
        """The ends of the topics at the last look."""
        if self._seen is None:
            return None
        return by_topic(self._seen, {place: latest(end) for place, end in end_of(self._seen).items()})

    def _look(self, wait_s: float = 0.0) -> list[PlannedTopic]:
        self._seen = self._subscription.topics(wait_s)
        return self._seen

    def _awaited(self, wait_s: float) -> list[PlannedTopic]:
        """The topics once there is news, or after `wait_s`. Where it takes many records to be worth a micro-batch, one
        is no news: the broker would be asked again for each."""
        if self._options.min_rows is None:
            return self._look(wait_s)
        self._pause(wait_s)
        return self._look()

    def _going_on(self, start: SourceOffsets, topics: Sequence[PlannedTopic]) -> QueryStart:
        """The start of a resumed query. Topics that its options no longer name are losses, as with Kafka's source."""
        covered = {name: found for name, found in start.topics.items() if self._subscription.covers(name)}
        begin = beginning(SourceOffsets(covered), topics)
        begin.losses.extend(self._subscription.left_out(start))
        return begin

    def _first(self, topics: Sequence[PlannedTopic]) -> QueryStart:
        """The start of a new query: at its cursor, if it has one, wherever options would have it begin."""
        cursor = self._options.cursor
        if cursor and all(min(topic.ends) in self._client().committed(topic.name, cursor) for topic in topics):
            begin = QueryStart({place: Position(end.first) for place, end in end_of(topics).items()}, set(), [])
        else:
            begin = self._settled(starting(self._options, LATEST, topics, self._subscription.times), topics)
        if cursor:
            begin = self._settled(SourceOffsets({topic.name: self._begun(topic, begin) for topic in topics}), topics)
        return begin._replace(moved=set(begin.positions))

    def _settled(self, start: SourceOffsets, topics: Sequence[PlannedTopic]) -> QueryStart:
        found = beginning(start, topics)
        settle(found.losses, self._options.fail_on_data_loss)
        return found

    def _begun(self, topic: PlannedTopic, wanted: QueryStart) -> Positions:
        """The cursor's positions in a topic, which it gets now if it has none."""
        at = {number: wanted.positions[PartitionKey(topic.name, number)].offset for number in topic.ends}
        found = self._client().begin_group(topic.name, self._options.cursor, at, id=topic.id)
        return Positions(topic.id, {number: Position(*found[number]) for number in topic.ends})

    def _is_due(self, topics: Sequence[PlannedTopic], begin: QueryStart) -> bool:
        """Whether there is enough for a micro-batch, or anything but records to write down."""
        if begin.losses or begin.moved:
            return True
        rows = sum(end.end - begin.positions[place].offset for place, end in end_of(topics).items())
        least = self._options.min_rows or 1
        if self._pinned is not None or self._clock() - self._decided_at >= self._options.max_delay_s:
            least = 1
        return rows >= least

    def _decided(self, topics: Sequence[PlannedTopic], begin: QueryStart, limited: bool) -> SourceOffsets:
        self._decided_at = self._clock()
        ends = end_of(topics)
        found = {place: _reached(begin.positions[place], end) for place, end in ends.items()}
        if limited:
            cut = self._limits.ends(topics, begin.positions)
            found |= {
                place: self._limits.position(topics, place, begin.positions[place], offset)
                for place, offset in cut.items()
                if offset < ends[place].end
            }
        return offsets(topics, begin, found)

    # -- what is read, and what is done -------------------------------------------------------------------

    def plan(self, start: SourceOffsets, end: SourceOffsets) -> list[PlannedSpan]:
        """The spans of a micro-batch. Raises DataLoss."""
        found, losses = spans(start, end, self._subscription.now(end))
        settle(losses, self._options.fail_on_data_loss)
        return divide(found, self._options.min_partitions, self._options.max_partition_rows)

    def tasks(self, start: SourceOffsets, end: SourceOffsets) -> list[list[PlannedSpan]]:
        """The same by task. Few records of several partitions are one task's, unless options ask for more of them."""
        found, asked = self.plan(start, end), self._options.min_partitions or self._options.max_partition_rows
        return [[span] for span in found] if asked else together(found)

    def commit(self, end: SourceOffsets) -> None:
        """Everything up to `end` is done: the cursor moves there."""
        for name, found in end.topics.items() if self._options.cursor else ():
            wanted = {number: position.offset for number, position in found.partitions.items()}
            if self._cursors.get(name) != wanted:
                self._move_cursor(name, found.id, wanted)
                self._cursors[name] = wanted

    def _move_cursor(self, name: str, id_: str, wanted: dict[int, int]) -> None:
        try:
            self._client().commit_group(name, self._options.cursor, wanted, id=id_)
        except (UnknownTopic, OutOfBounds):
            return  # the topic, or its tail, is gone: planning the next micro-batch reports it


def _reached(begin: Position, end: End) -> Position:
    """The end of a partition. Where nothing is read up to there its term stays the one that was read: if it differs
    from the present one, others were written in place of lost records, and what reads on from here notices."""
    return begin if begin.offset == end.end and begin.term != UNKNOWN_TERM else latest(end)
