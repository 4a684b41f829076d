"""The verbs for planning over whole topics, as steps: ends, sizes, positions, cursors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...transport.messages import (
    AskCursors,
    AskEnds,
    BeginGroup,
    Begun,
    Commit,
    Cursors,
    Done,
    Ends,
    FindOffsets,
    Known,
    ListTopics,
    Measure,
    Measured,
    Offsets,
    Position,
    Span,
    Topics,
)  # fmt: skip
from ..arguments.quantities import Duration, Size, Start, seconds, size_bytes, start_time
from ..connection.connection import Connection
from ..connection.steps import Steps
from ..descriptions import TopicEnds, ends_of
from ..errors import InvalidArgument


class RangeVerbs:
    """The range verbs of both kinds of clients, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def ends(
        self, topics: Iterable[str], known: Mapping[str, TopicEnds] | None, wait: Duration
    ) -> Steps[dict[str, TopicEnds]]:
        """The bounds of topics. A known topic whose id is gone is looked up by its name again."""
        names, known, wait_s = _names(topics), known or {}, seconds(wait, "wait")
        deadline = self.connection.deadline() + wait_s
        ids = {name: topic_id(known[name].id) for name in names if name in known}
        ids |= yield from self._ids([name for name in names if name not in ids], deadline)
        found = yield from self._ends(ids, known, wait_s, deadline)
        gone = [name for name in names if not found[name].partitions]
        if gone:
            found |= yield from self._ends((yield from self._ids(gone, deadline)), {}, 0.0, deadline)
        return {name: found[name] for name in names}

    def _ids(self, names: list[str], deadline: float) -> Steps[dict[str, bytes]]:
        """Topic ids by name. Raises UnknownTopic."""
        if not names:
            return {}
        answer = yield from self.connection.ask(
            lambda request: ListTopics(request, names), Topics, deadline=deadline, what="looking up topics"
        )
        return {name: topic.topic for name, topic in zip(names, answer.topics, strict=True)}

    def _ends(
        self, ids: Mapping[str, bytes], known: Mapping[str, TopicEnds], wait_s: float, deadline: float
    ) -> Steps[dict[str, TopicEnds]]:
        told = {name: [end.end for end in ends.partitions] for name, ends in known.items()}
        asked = [Known(id_, told.get(name, [])) for name, id_ in ids.items()]
        answer = yield from self.connection.ask(
            lambda request: AskEnds(request, asked, round(wait_s * 1000)),
            Ends,
            deadline=deadline,
            what="asking where topics end",
        )
        return {name: ends_of(ids[name], ends) for name, ends in zip(ids, answer.topics, strict=True)}

    def positions(self, name: str, at: Start, id_: str | None) -> Steps[dict[int, tuple[int, int]]]:
        """The first offset at a time, or an end, and the term of the record before it, by partition."""
        time_us, deadline = start_time(at, "at"), self.connection.deadline()
        topic = yield from id_of(self.connection, name, id_, deadline)
        found = yield from self.connection.ask(
            lambda request: FindOffsets(request, topic, time_us),
            Offsets,
            deadline=deadline,
            what=f"finding offsets of topic {name}",
        )
        return dict(enumerate(found.offsets))

    def measure(
        self, name: str, spans: Iterable[tuple[int, int, int]], piece_bytes: Size, id_: str | None
    ) -> Steps[list[list[tuple[int, int]]]]:
        """The ends of pieces of spans, and their bytes."""
        size, deadline = size_bytes(piece_bytes, "piece_bytes"), self.connection.deadline()
        wanted = _spans(spans)
        topic = yield from id_of(self.connection, name, id_, deadline)
        answer = yield from self.connection.ask(
            lambda request: Measure(request, topic, wanted, size),
            Measured,
            deadline=deadline,
            what=f"measuring topic {name}",
        )
        return answer.pieces

    def begin_group(
        self, name: str, group: str, positions: Mapping[int, int], id_: str | None
    ) -> Steps[dict[int, tuple[int, int]]]:
        """Give a group its first cursors."""
        deadline, given = self.connection.deadline(), list(positions.items())
        topic = yield from id_of(self.connection, name, id_, deadline)
        answer = yield from self.connection.ask(
            lambda request: BeginGroup(request, topic, group, given),
            Begun,
            deadline=deadline,
            what=f"beginning group {group} of topic {name}",
        )
        return dict(enumerate(answer.positions))

    def committed(self, name: str, group: str) -> Steps[list[tuple[int, int, str]]]:
        """Cursors with their notes."""
        deadline, found, first = self.connection.deadline(), list[tuple[int, int, str]](), 0
        topic, what = (yield from id_of(self.connection, name, None, deadline)), f"reading the cursors of group {group}"
        while first >= 0:
            answer = yield from self.connection.ask(
                lambda request, first=first: AskCursors(request, topic, group, first),
                Cursors,
                deadline=deadline,
                what=what,
            )
            found += answer.cursors
            first = answer.next_partition
        return found

    def commit_group(
        self, name: str, group: str, positions: Mapping[int, int], note: str, id_: str | None
    ) -> Steps[None]:
        """Move cursors of a group without members."""
        deadline = self.connection.deadline()
        given = [Position(partition, offset, 0, note) for partition, offset in positions.items()]
        topic = yield from id_of(self.connection, name, id_, deadline)
        yield from self.connection.ask(
            lambda request: Commit(request, 0, topic, group, given),
            Done,
            deadline=deadline,
            what=f"committing for group {group} of topic {name}",
        )


def id_of(connection: Connection, name: str, id_: str | None, deadline: float) -> Steps[bytes]:
    """The given id, or else the topic's present one. Raises InvalidArgument, UnknownTopic."""
    if id_ is not None:
        return topic_id(id_)
    return (yield from connection.find_topic(name, deadline)).topic


def topic_id(text: str) -> bytes:
    """A topic's id as on the wire. Raises InvalidArgument."""
    try:
        found = bytes.fromhex(text)
    except (ValueError, TypeError):
        found = b""
    if len(found) != 16:
        raise InvalidArgument(f"{text!r} is no id of a topic: those are 32 hexadecimal digits")
    return found


def _spans(spans: Iterable[tuple[int, int, int]]) -> list[Span]:
    try:
        return [Span(*span) for span in spans]
    except TypeError:
        raise InvalidArgument(f"spans={spans!r} are no spans: each is (partition, first offset, end)") from None


def _names(topics: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(topics))
