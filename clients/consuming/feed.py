"""The feed: turns deliveries and mapped segments into batches the application may receive.

Idea: a batch leaves the feed once it is decoded. One that cannot be decoded stays in front, and `next` raises the
reason each time it is called. After reporting damage to the application, the caller calls `pass_over`; an accepted
loss is passed with a warning.

Contract: a batch comes out once, and only while its partition is ours under the same epoch. Dropped batches are
returned to the credit. Good batches around bad ones are never lost: earlier ones came out before, damage and records
that retention took are skipped alone, and a batch of a codec that is not installed waits until it is. A batch of
an unknown kind ends the reading, because it must not be skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from ...storage.accepted import passed
from ...storage.batch import Batch, batches
from ...storage.errors import AcceptedLoss, Corrupt, Error, InvalidBatch, OutOfBounds
from ...transport.consumer_session import REMOVED, ConsumerSession, Delivery
from ..errors import MappedUnavailable
from ..reading.readable import damaged, missing, readable, removed
from .session_life import SessionLife

Decoded = TypeVar("Decoded")


class Feed:
    """See the module."""

    def __init__(self, life: SessionLife) -> None:
        self._life = life
        self._verify_all = life.options.verify
        self._queue: deque[Delivery] = deque()
        self._delivery: Delivery | None = None
        self._batches: deque[Batch] = deque()  # what is left of `_delivery`
        self._error: Error | None = None  # what stands behind these

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Append deliveries, in order."""
        self._queue.extend(deliveries)

    def clear(self) -> None:
        """Drop everything: the session ended."""
        self._queue.clear()
        self._batches.clear()
        self._delivery = self._error = None

    def next(self, decode: Callable[[Delivery, Batch], Decoded], look: bool) -> Decoded | None:
        """The next available batch, decoded; None if there is none now. `look`: see MappedSource.next.

        Raises Corrupt, NewerFormat, and what `decode` raises, MissingCodec for example.
        """
        session = self._life.session
        if session is None:
            return None
        while True:
            delivery, left = self._delivery, self._batches
            if delivery is None:
                if not self._begin(session, look):
                    return None
            elif not session.is_current(delivery):
                self._finish(session, delivery)
            elif left:
                try:
                    if self._verify_all:
                        left[0].check()
                    found = decode(delivery, left[0])
                except InvalidBatch as error:
                    raise damaged(left[0], delivery.partition, self._life.topic.name, error) from error
                left.popleft()
                if not left and self._error is None:
                    self._finish(session, delivery)
                return found
            elif isinstance(self._error, AcceptedLoss):
                passed(self._error)
                self.pass_over(self._error)
            elif self._error is not None:
                raise self._error
            else:
                self._finish(session, delivery)

    def pass_over(self, error: Error) -> None:
        """Skip the loss of `error`, which `next` raised and the application was told of."""
        session, delivery = self._life.session, self._delivery
        if session is None or delivery is None:
            return
        behind = error.next_offset if isinstance(error, Corrupt) else delivery.next_offset
        if isinstance(error, Corrupt | OutOfBounds) and behind is not None:
            session.handed_out(delivery, min(behind, delivery.next_offset))
            if self._batches:
                self._batches.popleft()
            else:
                self._error = None
            if not self._batches and self._error is None:
                self._finish(session, delivery)
        elif error is self._error:
            self._life.failure = error

    def _begin(self, session: ConsumerSession, look: bool) -> bool:
        """Begin the next delivery. Returns whether there is one. Raises MappedUnavailable."""
        if self._queue:
            delivery = self._queue.popleft()
            found: Iterable[Batch] = batches(delivery.payload)
        else:
            try:
                read = None if self._life.mapped is None else self._life.mapped.next(session, look=look)
            except MappedUnavailable:
                if not self._life.fall_back():
                    raise  # no other way is left
                return False
            if read is None:
                return False
            delivery, found = read
        self._delivery = delivery
        kept, self._error = readable(found, delivery.offset, delivery.next_offset)
        self._batches = deque(kept)
        if delivery.missing:
            where = delivery.offset, delivery.next_offset, delivery.partition, self._life.topic.name
            kind = AcceptedLoss if delivery.accepted else Corrupt
            self._error = removed(*where) if delivery.missing == REMOVED else missing(*where, delivery.missing, kind)
        return True

    def _finish(self, session: ConsumerSession, delivery: Delivery) -> None:
        """Finish a delivery that is used up or void."""
        self._delivery = self._error = None
        self._batches.clear()
        if delivery.records and session.finished(delivery):
            self._life.send_credit(session.credit_due())
