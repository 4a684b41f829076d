"""Answers questions about ends and sizes of a directory's logs without its lock.

Idea: the writer does not know of questions that wait here, so they are checked periodically until their time is up.

Contract: as the engine answers (PROTOCOL.md, section 8.10). Nothing is locked or written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from ...broker.engine.streams.ends import is_news
from ...broker.engine.streams.measuring import too_many
from ...broker.engine.turns.replies import failure
from ...broker.errors import InvalidRequest, UnknownPartition, UnknownTopic
from ...storage import units
from ...storage.errors import Error, OutOfBounds
from ...storage.measure import PIECES_MAX, pieces
from ...storage.reader import LogReader
from ...transport.messages import Answer, AskEnds, End, Ends, Measure, Measured, Span, Topic
from ..connection.steps import FOREVER
from .peek import Peek

LOOK_S = 0.02
"""How often a question that waits is looked at."""


class WaitingEnds(NamedTuple):
    """A question that waits, and its deadline."""

    asked: AskEnds
    until: float


class PeekedEnds:
    """Answers AskEnds, at once or later."""

    def __init__(self, peek: Peek, clock: Callable[[], float]) -> None:
        self._peek = peek
        self._clock = clock
        self._waiting: list[WaitingEnds] = []
        self._look_at = FOREVER

    def ask(self, asked: AskEnds) -> Answer | None:
        """The answer, or None if it has to wait."""
        found = self._found(asked)
        if not asked.wait_ms or is_news(asked.topics, found.topics):
            return found
        now = self._clock()
        self._waiting.append(WaitingEnds(asked, now + asked.wait_ms / 1000))
        self._look_at = min(self._look_at, now + LOOK_S)
        return None

    def look(self) -> list[Answer]:
        """Answers to questions that waited, if it is time to look."""
        if not self._waiting or (now := self._clock()) < self._look_at:
            return []
        answers: list[Answer] = []
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            answer = self._answer(question, now)
            if answer is None:
                self._waiting.append(question)
            else:
                answers.append(answer)
        self._look_at = now + LOOK_S if self._waiting else FOREVER
        return answers

    def due(self) -> float:
        """When to look again."""
        return self._look_at

    def _answer(self, question: WaitingEnds, now: float) -> Answer | None:
        try:
            found = self._found(question.asked)
        except Error as error:
            return failure(question.asked.request, error)
        return found if now >= question.until or is_news(question.asked.topics, found.topics) else None

    def _found(self, asked: AskEnds) -> Ends:
        return Ends(asked.request, [self._of_topic(known.topic) for known in asked.topics])

    def _of_topic(self, id_: bytes) -> list[End]:
        try:
            topic = self._peek.topic(id_)
        except UnknownTopic:
            return []
        readers = [self._peek.reader(partition.directory) for partition in topic.partitions]
        return [self._end_of(reader) for reader in readers]

    def _end_of(self, reader: LogReader) -> End:
        first, end = reader.first_offset, reader.end_offset
        return End(first, end, self._peek.term_before(reader, end))


def measured(peek: Peek, asked: Measure) -> Measured:
    """Pieces of spans of a topic. Raises UnknownTopic, UnknownPartition, OutOfBounds, InvalidRequest, LimitReached."""
    topic, left = peek.topic(asked.topic), PIECES_MAX
    found: list[list[tuple[int, int]]] = []
    for span in asked.spans:
        cut = (piece for piece in _pieces(peek, topic, span, asked.piece_bytes) if piece is not None)
        found.append(list(islice(cut, left + 1)))
        left -= len(found[-1])
        if left < 0:
            raise too_many()
    return Measured(asked.request, found)


def _pieces(peek: Peek, topic: Topic, span: Span, piece_bytes: int) -> Iterator[tuple[int, int] | None]:
    if span.partition >= len(topic.partitions):
        raise UnknownPartition(f"topic {topic.name} has no partition {span.partition}")
    if span.end < span.offset:
        raise InvalidRequest(f"a span of topic {topic.name} ends at {span.end}, before it begins at {span.offset}")
    reader = peek.reader(topic.partitions[span.partition].directory)
    first, end = reader.first_offset, reader.end_offset
    if not first <= span.offset <= span.end <= end:
        raise OutOfBounds(
            f"records {span.offset} to {span.end - 1} of partition {span.partition} of topic {topic.name} are not all "
            f"there: it has {units.span_text(first, end)}"
        )
    return pieces(reader, span.offset, span.end, piece_bytes, reader.limit())
