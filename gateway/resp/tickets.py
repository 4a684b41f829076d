"""Replies that wait for a record to be appended.

Contract: `reply` is called once the batch is settled. The ids of a batch share what comes before the offset.
"""

from __future__ import annotations

import asyncio

from ...storage.errors import Error
from ..appending import SharedBatch
from . import replies
from .refusals import sentence_of


class _TicketWait:
    """See Told."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Ticket:
    """One record on its way."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: SharedBatch, index: int) -> None:
        self.batch = batch
        self.index = index

    async def settled(self) -> None:
        """Wait until it is known what became of the record."""
        waiting = _TicketWait()
        if not self.batch.settled:
            self.batch.tellers[waiting] = None
            await waiting.done

    def reply(self) -> bytes:
        """What the client gets: the record's place, or the error that prevented it."""
        try:
            return self._place(*self.batch.place(self.index))
        except Error as error:
            return replies.error(sentence_of(error))

    def _place(self, time_ms: int, offset: int) -> bytes:
        raise NotImplementedError


class EntryTicket(Ticket):
    """Of XADD: the id of the entry."""

    __slots__ = ()

    def _place(self, time_ms: int, offset: int) -> bytes:
        id_ = b"%d-%d" % (time_ms, offset)
        return b"$%d\r\n%b\r\n" % (len(id_), id_)


class OffsetTicket(Ticket):
    """Of ENQUEUE: the offset."""

    __slots__ = ()

    def _place(self, time_ms: int, offset: int) -> bytes:
        return b":%d\r\n" % offset
