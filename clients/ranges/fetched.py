"""A range fetched in pieces over the client's own connection.

Idea: the broker says where pieces of a good size end, so two can be requested at a time: it reads one while another is
in flight and a third is in the application's hands.

Contract: as `ranges.Reading`. Memory: the answers to two requests. A lost connection or a restarted broker costs only
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ...broker.errors import LimitReached
from ...storage.batch import Batch, batches
from ...storage.errors import Error, OutOfBounds
from ...transport.messages import Fetch, Fetched, Measure, Measured, Span
from ..connection.connection import Connection
from ..connection.question import Question
from ..connection.steps import Steps
from ..reading.readable import readable

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ...transport.messages import Answer

PIECE_BYTES = 2 << 20
"""Asked for at once."""

AHEAD = 2
"""Questions out at once."""


class FetchedPart(Question):
    """One question for batches, which keeps those that come with the answer."""

    def __init__(self, reading: FetchedRange, offset: int, size: int, term: int = -1) -> None:
        topic, partition, columns = reading.topic, reading.partition, reading.columns
        super().__init__(
            reading.connection,
            lambda request: Fetch(request, topic, partition, offset, term, size, 0, columns),
            self._keep,
        )
        self.payload: Buffer = b""

    def _keep(self, answer: Answer) -> None:
        self.payload = self._connection.payload


class FetchedPiece:
    """Records from `offset` on, asked for by one part after the other; `end` is None while unknown."""

    __slots__ = ("bytes", "end", "offset", "part")

    def __init__(self, reading: FetchedRange, offset: int, end: int | None, size: int, term: int = -1) -> None:
        self.offset = offset
        self.end = end
        self.bytes = size
        self.part = FetchedPart(reading, offset, size, term)
        reading.connection.post(self.part)


class FetchedRange:
    """See the module."""

    def __init__(
        self, connection: Connection, topic: bytes, partition: int, start: int, end: int, term: int,
        columns: Collection[int],
    ) -> None:  # fmt: skip
        self.connection = connection
        self.topic = topic
        self.partition = partition
        self.columns = sorted(columns)
        self._start = start
        self._end = end
        self._term = term
        self._pieces: deque[FetchedPiece] = deque()
        self._cuts: Iterator[tuple[int, int]] | None = None
        self._error: Error | None = None  # what stands behind the batches that were returned last
        self._asked: int | None = start  # where the next piece begins; None while the end of the latest is not known

    def _measured(self) -> Steps[Iterator[tuple[int, int]]]:
        """Ends of pieces; empty for a range with too many, which are then read in turn."""
        span = Span(self.partition, self._start, self._end)
        try:
            answer = yield from self.connection.ask(
                lambda request: Measure(request, self.topic, [span], PIECE_BYTES),
                Measured,
                deadline=self.connection.deadline(),
                what=f"measuring partition {self.partition} from offset {self._start} to {self._end}",
            )
        except LimitReached:
            return iter(())
        return iter(answer.pieces[0])

    def more(self) -> Steps[list[Batch]]:
        """See Reading."""
        if self._error is not None:
            raise self._error
        if self._cuts is None:
            self._cuts = yield from self._measured()
            self._ask_ahead(self._cuts, self._term)
        while self._pieces:
            piece = self._pieces[0]
            what = f"reading partition {self.partition} from offset {piece.offset} on"
            deadline = self.connection.deadline()
            answer = yield from self.connection.answer_to(piece.part, Fetched, deadline=deadline, what=what)
            payload, offset, end = piece.part.payload, piece.offset, piece.end
            self._go_on(piece, answer, self._cuts)
            found, self._error = readable(batches(payload), offset, self._end if end is None else end)
            if found:
                return found
            if self._error is not None:
                raise self._error
        return []

    def _go_on(self, piece: FetchedPiece, answer: Fetched, cuts: Iterator[tuple[int, int]]) -> None:
        """Ask for the next part before the caller reads this one."""
        if answer.next_offset <= piece.offset:
            error = OutOfBounds(f"partition {self.partition} ends at {answer.end}, before the range does: {self._end}")
            error.offset = answer.end
            raise error
        piece.offset = answer.next_offset
        if piece.end is None:
            self._pieces.popleft()
            self._asked = piece.offset
        elif piece.offset >= piece.end:
            self._pieces.popleft()
        else:
            piece.part = FetchedPart(self, piece.offset, piece.bytes)
            self.connection.post(piece.part)
        self._ask_ahead(cuts)

    def _ask_ahead(self, cuts: Iterator[tuple[int, int]], term: int = -1) -> None:
        while len(self._pieces) < AHEAD and self._asked is not None and self._asked < self._end:
            begin = self._asked
            self._asked, size = next(cuts, (None, PIECE_BYTES))
            self._pieces.append(FetchedPiece(self, begin, self._asked, size, term))
            term = -1  # it is that of the record before the first piece

    def close(self) -> None:
        """See Reading."""
        for piece in self._pieces:
            piece.part.cancel()
        self._pieces.clear()
