"""The feed: from what was delivered, or is mapped, to batches of records that may be handed out now.

Contract: a batch comes out once, and only while its partition is ours under the same epoch. What is dropped
instead is given back to the credit. A damaged batch is raised once and then passed over; a batch of a kind
that this version does not know ends the reading, because nobody may skip it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..storage.batch import Batch, batches
from ..storage.errors import Error
from ..transport.consumer_session import ConsumerSession, Delivery
from .errors import MappedUnavailable
from .readable import readable, verify
from .session_life import SessionLife

if TYPE_CHECKING:
    from .mapped import MappedSource


class Feed:
    """See the module."""

    def __init__(self, life: SessionLife) -> None:
        self._life = life
        self._verify_all = life.options.verify
        self._queue: deque[Delivery] = deque()
        self._delivery: Delivery | None = None
        self._batches: deque[Batch] = deque()  # what is left of `_delivery`

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """In order."""
        self._queue.extend(deliveries)

    def clear(self) -> None:
        """The session is over, and with it all of this."""
        self._queue.clear()
        self._batches.clear()
        self._delivery = None

    def next(self) -> tuple[Delivery, Batch] | None:
        """The next batch that may be handed out; None when there is none now. Raises BadChecksum, NewerFormat."""
        session = self._life.session
        if session is None:
            return None
        while True:
            delivery, left = self._delivery, self._batches
            if delivery is None:
                if not self._begin(session):
                    return None
            elif left and session.is_current(delivery):
                batch = left.popleft()
                if not left:
                    self._finish(session, delivery)
                if self._verify_all:
                    verify(batch, delivery.partition, self._life.topic.name)
                return delivery, batch
            else:
                self._finish(session, delivery)

    def _begin(self, session: ConsumerSession) -> bool:
        """Go on with the next delivery. False when there is none."""
        if self._queue:
            delivery = self._queue.popleft()
            found: Iterable[Batch] = batches(delivery.payload)
        else:
            read = None if self._life.mapped is None else self._read(self._life.mapped, session)
            if read is None:
                return False
            delivery, found = read
        self._delivery = delivery
        try:
            self._batches = deque(readable(found, delivery.offset, delivery.next_offset))
        except Error as error:
            self._life.failure = error
            raise
        return True

    def _read(self, mapped: MappedSource, session: ConsumerSession) -> tuple[Delivery, list[Batch]] | None:
        """What a mapped session finds by itself. Raises MappedUnavailable when there is no other way."""
        try:
            return mapped.next(session)
        except MappedUnavailable:
            if not self._life.fall_back():
                raise
            return None

    def _finish(self, session: ConsumerSession, delivery: Delivery) -> None:
        """A delivery is used up, or void."""
        self._delivery = None
        self._batches.clear()
        if session.finished(delivery):
            self._life.send_credit(session.credit_due())
