"""The verbs of a client, written once as steps: topics, groups, and opening producers and consumers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..broker.errors import InvalidSettings, TopicExists, UnknownGroup, UnknownTopic
from ..storage.accepted import passed
from ..storage.batch import Batch, batches
from ..storage.errors import AcceptedLoss, Corrupt, MissingCodec, NewerFormat
from ..storage.record import Record
from ..transport.messages import (
    AlterTopic,
    Checkpoint,
    Checkpointed,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    Done,
    Fetch,
    Fetched,
    FindOffsets,
    Group,
    Groups,
    ListGroups,
    ListTopics,
    Offsets,
    Ping,
    ResetGroup,
    Stats,
    StatsReply,
    Topic,
    Topics,
    Trim,
    TrimmedPartition,
    TrimmedTopic,
    TrimRule,
)  # fmt: skip
from .arguments.quantities import (
    Duration,
    Start,
    seconds,
    setting_values,
    start_time,
)
from .connection.asking_again import gone
from .connection.connection import Connection
from .connection.pages import all_pages, all_topics
from .connection.question import BatchesQuestion, Question
from .connection.steps import Steps
from .errors import InvalidArgument
from .reading.readable import checked_records, readable

READ_BYTES = 1 << 20


class Verbs:
    """The verbs of both kinds of clients, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def _deadline(self) -> float:
        return self.connection.deadline()

    # -- topics -----------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, if_missing: bool, settings: Mapping[str, Any]) -> Steps[Topic]:
        """Create a topic. If the connection was lost meanwhile, an existing topic counts as created.

        Raises InvalidSettings for one that was there, with `if_missing`, and is other than wanted.
        """
        given = setting_values(settings)
        what = f"creating topic {name}"
        question = Question(self.connection, lambda request: CreateTopic(request, name, partitions, given))
        deadline = self._deadline()
        yield from self.connection.ready(deadline)
        try:
            made = yield from self.connection.wait_for(question, Topics, deadline=deadline, what=what)
        except TopicExists:
            if question.times_sent < 2 and not if_missing:
                raise
            found = yield from self.connection.find_topic(name, deadline)
            if if_missing:
                _check_same(found, partitions, given)
            return found
        return made.topics[0]

    def topics(self, names: list[str]) -> Steps[list[Topic]]:
        """All topics, or those named, each once."""
        names, deadline, what = list(dict.fromkeys(names)), self._deadline(), "listing topics"
        if not names:
            return (yield from all_topics(self.connection, deadline, what))
        answer = yield from self.connection.ask(
            lambda request: ListTopics(request, names), Topics, deadline=deadline, what=what
        )
        return answer.topics

    def alter_topic(self, name: str, partitions: int, settings: Mapping[str, Any]) -> Steps[Topic]:
        """Change settings or add partitions."""
        given, deadline = setting_values(settings), self._deadline()
        if not given and not partitions:
            raise InvalidArgument(f"nothing to change of topic {name}: give a setting, or partitions above 0")
        topic = yield from self.connection.find_topic(name, deadline)
        answer = yield from self.connection.ask(
            lambda request: AlterTopic(request, topic.topic, given, partitions),
            Topics,
            deadline=deadline,
            what=f"altering topic {name}",
        )
        return answer.topics[0]

    def delete_topic(self, name: str) -> Steps[None]:
        """Delete a topic and all its records."""
        deadline = self._deadline()
        topic = yield from self.connection.find_topic(name, deadline)
        question = Question(self.connection, lambda request: DeleteTopic(request, topic.topic))
        yield from gone(self.connection, question, UnknownTopic, deadline=deadline, what=f"deleting topic {name}")

    def trim(
        self, name: str, partition: int | None, records: int | None, before: int | Start | None
    ) -> Steps[list[TrimmedPartition]]:
        """Let partitions begin later."""
        if (records is None) == (before is None):
            raise InvalidArgument("a trim needs one rule: records=, how many stay, or before=, the offset or time")
        deadline = self._deadline()
        topic = yield from self.connection.find_topic(name, deadline)
        if isinstance(before, int) and partition is None and len(topic.partitions) > 1:
            raise InvalidArgument(f"before={before} is an offset of one partition of topic {name}: give that, too")
        number = -1 if partition is None else partition
        if records is not None:
            rule, value = TrimRule.RECORDS, records
        elif isinstance(before, int):
            rule, value = TrimRule.OFFSET, before
        else:
            assert before is not None
            rule, value = TrimRule.TIME, start_time(before, "before")
        answer = yield from self.connection.ask(
            lambda request: Trim(request, topic.topic, rule, value, number),
            TrimmedTopic,
            deadline=deadline,
            what=f"trimming topic {name}",
        )
        return answer.partitions

    def offsets(self, name: str, at: Start) -> Steps[dict[int, int]]:
        """The first offset at a time, or an end, by partition."""
        time_us, deadline = start_time(at, "at"), self._deadline()
        topic = yield from self.connection.find_topic(name, deadline)
        found = yield from self.connection.ask(
            lambda request: FindOffsets(request, topic.topic, time_us),
            Offsets,
            deadline=deadline,
            what=f"finding offsets of topic {name}",
        )
        return {number: offset for number, (offset, _) in enumerate(found.offsets)}

    def read(self, name: str, partition: int, offset: int, max_records: int, wait: Duration) -> Steps[list[Record]]:
        """Records from an offset on, without a session."""
        wait_s, deadline = seconds(wait, "wait"), self._deadline()
        topic = yield from self.connection.find_topic(name, deadline)
        taken: list[Record] = []
        while len(taken) < max_records:
            wait_ms = 0 if taken else round(wait_s * 1000)
            question = FetchQuestion(self.connection, topic.topic, partition, offset, wait_ms)
            try:
                answer = yield from self.connection.wait_for(
                    question, Fetched, deadline=self._deadline() + wait_s, what=f"reading topic {name}"
                )
                for batch in _readable(question.batches, offset, answer.next_offset):
                    taken += checked_records(batch, offset, partition, name)
            except AcceptedLoss as loss:
                offset = passed(loss)
                continue
            except (Corrupt, MissingCodec, NewerFormat) as error:
                if taken:
                    break  # a call that begins behind these meets it
                if isinstance(error, Corrupt):
                    error.topic, error.partition = name, partition
                raise
            if answer.next_offset == offset:
                break
            offset = answer.next_offset
        return taken[:max_records]

    # -- groups -----------------------------------------------------------------------------------------

    def groups(self, topic: str | None) -> Steps[list[Group]]:
        """All groups, or those of one topic."""
        deadline, id_ = self._deadline(), b""
        if topic is not None:
            id_ = (yield from self.connection.find_topic(topic, deadline)).topic
        pages = yield from all_pages(
            self.connection, lambda request, after: ListGroups(request, id_, after), Groups,
            deadline=deadline, what="listing groups",
        )  # fmt: skip
        return [group for page in pages for group in page.groups]

    def group(self, topic: str, name: str) -> Steps[Group]:
        """One group. Raises UnknownGroup."""
        found = yield from self.groups(topic)
        for group in found:
            if group.group == name:
                return group
        known = ", ".join(sorted(group.group for group in found)) or "none"
        raise UnknownGroup(f"topic {topic} has no group {name!r}; it has: {known}")

    def reset_group(self, topic: str, name: str, to: Start | Mapping[int, int]) -> Steps[None]:
        """Move the cursors of a group without members."""
        deadline = self._deadline()
        positions = list(to.items()) if isinstance(to, Mapping) else []
        time_us = 0 if isinstance(to, Mapping) else start_time(to, "to")
        if isinstance(to, Mapping) and not positions:
            raise InvalidArgument('to={} moves nothing: give offsets by partition, "earliest", "latest" or a datetime')
        found = yield from self.connection.find_topic(topic, deadline)
        yield from self.connection.ask(
            lambda request: ResetGroup(request, found.topic, name, time_us, positions),
            Done,
            deadline=deadline,
            what=f"resetting group {name} on topic {topic}",
        )

    def delete_group(self, topic: str, name: str) -> Steps[None]:
        """Delete a group without members. If the connection was lost meanwhile, a missing group counts as deleted."""
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        question = Question(self.connection, lambda request: DeleteGroup(request, found.topic, name))
        what = f"deleting group {name} of topic {topic}"
        yield from gone(self.connection, question, UnknownGroup, deadline=deadline, what=what)

    # -- the broker ---------------------------------------------------------------------------------------

    def stats(self) -> Steps[dict[str, Any]]:
        """Counters and sizes of the broker, by dotted name."""
        answer = yield from self.connection.ask(Stats, StatsReply, deadline=self._deadline(), what="asking for stats")
        return answer.values

    def checkpoint(self) -> Steps[Checkpointed]:
        """How far every log is committed, all at one moment."""
        what = "asking for a checkpoint"
        return (yield from self.connection.ask(Checkpoint, Checkpointed, deadline=self._deadline(), what=what))

    def ping(self) -> Steps[float]:
        """Time one round trip, in seconds."""
        deadline = self._deadline()
        yield from self.connection.ready(deadline)
        begun = self.connection.clock()
        yield from self.connection.ask(Ping, Done, deadline=deadline, what="pinging")
        return self.connection.clock() - begun


class FetchQuestion(BatchesQuestion):
    """Asks for records from an offset on."""

    def __init__(
        self, connection: Connection, topic: bytes, partition: int, offset: int, wait_ms: int,
        max_bytes: int = READ_BYTES,
    ) -> None:  # fmt: skip
        super().__init__(connection, lambda request: Fetch(request, topic, partition, offset, -1, max_bytes, wait_ms))


def _readable(payload: bytes, offset: int, end: int) -> Iterator[Batch]:
    """Readable records, then the error that keeps the rest from being read."""
    found, error = readable(batches(payload), offset, end)
    yield from found
    if error is not None:
        raise error


def _check_same(topic: Topic, partitions: int, wanted: dict[str, Any]) -> None:
    """Raise InvalidSettings unless an existing topic is as wanted."""
    known = {"partitions": len(topic.partitions), **topic.settings}
    others = [
        f"{name}={known.get(name)!r}, not {value!r}"
        for name, value in {"partitions": partitions, **wanted}.items()
        if known.get(name) != value
    ]
    if others:
        raise InvalidSettings(f"topic {topic.name} exists with {', '.join(others)}: use it so, or alter it")
