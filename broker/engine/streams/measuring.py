"""Measuring: divides spans of partitions into pieces of about so many bytes.

Idea: dividing a terabyte takes a second or two of reading indexes, so it is done a slice at a time (portions.py).

Contract: reads no batch. An answer covers the records committed when it was asked. Memory: the pieces of one answer,
which are limited, per question.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....storage.errors import OutOfBounds, ReadFailed
from ....storage.measure import PIECES_MAX, pieces
from ....transport.messages import Measure, Measured
from ...errors import InvalidRequest, LimitReached

if TYPE_CHECKING:
    from ....transport.messages import Span
    from ..logs.partition import Partition
    from ..logs.topics import Topics
    from ..ports import Handlers, Now, Payload, Peer, Port, Work

SLICE = 16
"""Pieces found, segments looked into, or spans checked, in one step."""

Part = tuple[int, tuple[int, int] | None]
"""A piece of the span numbered so. None behind each span and where none ended in a segment: it took as long to see."""


class Measuring:
    """Handler of Measure."""

    def __init__(self, topics: Topics, port: Port) -> None:
        self.handlers: Handlers = {Measure: self.measure}
        self._topics = topics
        self._port = port

    def measure(self, peer: Peer, message: Measure, payload: Payload, now: Now) -> Work:
        """Cut, a slice at a time.

        Raises UnknownPartition, OutOfBounds, InvalidRequest, LimitReached, Corrupt, ReadFailed.
        """
        topic = self._topics.get(message.topic)
        spans: list[tuple[Partition, Span]] = []
        for span in message.spans:
            partition = topic.partition(span.partition)
            _check(partition, span)
            spans.append((partition, span))
            if len(spans) % SLICE == 0:
                yield
                self._topics.get(message.topic)
        found: list[list[tuple[int, int]]] = [[] for _ in spans]
        left = PIECES_MAX
        try:
            for parts, (number, piece) in enumerate(_cut(spans, message.piece_bytes), 1):
                if piece is not None:
                    found[number].append(piece)
                    left -= 1
                if left < 0:
                    raise too_many()
                if parts % SLICE == 0:
                    yield
                    self._topics.get(message.topic)
        except OSError as error:
            raise ReadFailed(f"the index of topic {topic.name} cannot be read now: {error}") from error
        self._port.reply(peer, Measured(message.request, found))


def too_many() -> LimitReached:
    """The error of an answer that would be too long."""
    return LimitReached(f"there are more than {PIECES_MAX} pieces: ask for larger ones, or about fewer spans")


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
        yield number, None
