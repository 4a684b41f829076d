"""Measuring: how far so many bytes of some partitions reach.

Idea: cutting a terabyte takes a second or two of looking into indexes, so it is done a slice at a time between other
work, the questions in turn.

Contract: no batch is read. An answer is about the records that were committed when it was asked. Memory: the pieces
of one answer, which are limited, per question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...storage.errors import Corrupt, Error, OutOfBounds
from ...storage.measure import PIECES_MOST, pieces
from ...transport.messages import Measure, Measured
from ..errors import InvalidRequest, LimitReached
from .replies import failure

if TYPE_CHECKING:
    from ...transport.messages import Span
    from .partition import Partition
    from .ports import Handlers, Now, Payload, Peer, Port
    from .topics import Topic, Topics

SLICE = 200
"""Pieces found, or segments looked into, in one turn: some ms."""

Part = tuple[int, tuple[int, int] | None]
"""A piece of the span numbered so; None when none ended in a segment, which took as long to see."""


class Job:
    """One question that is worked on."""

    __slots__ = ("cut", "found", "left", "peer", "request", "topic")

    def __init__(self, peer: Peer, request: int, topic: Topic, cut: Iterator[Part], spans: int) -> None:
        self.peer = peer
        self.request = request
        self.topic = topic
        self.cut = cut
        self.found: list[list[tuple[int, int]]] = [[] for _ in range(spans)]
        self.left = PIECES_MOST

    def work(self) -> bool:
        """Go on for a slice. Returns whether it is done. Raises LimitReached, OutOfBounds, Corrupt."""
        for _ in range(SLICE):
            part = next(self.cut, None)
            if part is None:
                return True
            number, piece = part
            if piece is not None:
                self.found[number].append(piece)
                self.left -= 1
            if self.left < 0:
                raise too_many()
        return False


class Measuring:
    """Handler of Measure, and the questions that are not answered yet."""

    def __init__(self, topics: Topics, port: Port) -> None:
        self.handlers: Handlers = {Measure: self.measure}
        self._topics = topics
        self._port = port
        self._jobs: deque[Job] = deque()

    def measure(self, peer: Peer, message: Measure, payload: Payload, now: Now) -> None:
        """Begin with it. Raises UnknownPartition, OutOfBounds, InvalidRequest."""
        topic = self._topics.get(message.topic)
        spans = [(topic.partition(span.partition), span) for span in message.spans]
        for partition, span in spans:
            _check(partition, span)
        self._jobs.append(Job(peer, message.request, topic, _cut(spans, message.piece_bytes), len(spans)))
        self.work()

    def work(self) -> bool:
        """Go on with the question whose turn it is. Returns whether there is more to do."""
        if not self._jobs:
            return False
        job = self._jobs.popleft()
        try:
            if job.work():
                self._port.reply(job.peer, Measured(job.request, job.found))
            else:
                self._jobs.append(job)
        except Error as error:
            self._port.reply(job.peer, failure(job.request, error))
        except OSError as error:
            told = Corrupt(f"the index of topic {job.topic.name} cannot be read: {error}")
            self._port.reply(job.peer, failure(job.request, told))
        return bool(self._jobs)

    def topic_deleted(self, topic: Topic, error: Error) -> None:
        """Fail what is asked about a topic that is about to go."""
        for job in [job for job in self._jobs if job.topic is topic]:
            self._jobs.remove(job)
            self._port.reply(job.peer, failure(job.request, error))

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer has asked."""
        for job in [job for job in self._jobs if job.peer == peer]:
            self._jobs.remove(job)


def too_many() -> LimitReached:
    """The error of an answer that would be too long."""
    return LimitReached(f"there are more than {PIECES_MOST} pieces: ask for larger ones, or about fewer spans")


def _check(partition: Partition, span: Span) -> None:
    if span.end < span.offset:
        raise InvalidRequest(f"a span of {partition!r} ends at {span.end}, before it begins at {span.offset}")
    partition.check_offset(span.offset)
    if span.end > partition.end:
        error = OutOfBounds(f"{partition!r} ends at {partition.end}: the span to {span.end} goes beyond it")
        error.offset = partition.end
        raise error


def _cut(spans: list[tuple[Partition, Span]], piece_bytes: int) -> Iterator[Part]:
    """The pieces of all spans, in order."""
    limits = [partition.seq for partition, _ in spans]
    for number, (partition, span) in enumerate(spans):
        for piece in pieces(partition.reader, span.offset, span.end, piece_bytes, limits[number]):
            yield number, piece
