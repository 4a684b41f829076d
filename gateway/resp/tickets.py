"""Replies that wait for records to be appended.

Idea: records that one connection appended one behind the other share a ticket, as far as they share a batch. Their
replies are written together: they differ only in the offset.

Contract: `reply` is called once the batch is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from ...clients.producing.pending import Pending
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
    """Records on their way: `count` of a batch, from number `first` on."""

    __slots__ = ("batch", "count", "first")

    def __init__(self, batch: SharedBatch, first: int, count: int) -> None:
        self.batch = batch
        self.first = first
        self.count = count

    async def settled(self) -> None:
        """Wait until it is known what became of the records."""
        waiting = _TicketWait()
        if not self.batch.settled:
            self.batch.tellers[waiting] = None
            await waiting.done

    def reply(self) -> bytes:
        """What the client gets: for each record its place, or the error that prevented it."""
        return b"".join([self._outcome(*each) for each in self.batch.outcomes(self.first, self.count)])

    def _outcome(self, pending: Pending, first: int, count: int) -> bytes:
        error = pending.error
        if error is not None:
            return replies.error(sentence_of(error)) * count
        first += pending.offset
        return self._places(pending.time_us // 1000, first, first + count)

    def _places(self, time_ms: int, first: int, end: int) -> bytes:
        """Replies of records at the offsets from `first` on and below `end`."""
        raise NotImplementedError


class Tickets(list[Ticket]):
    """In place of a reply: those of records, in order."""

    __slots__ = ()


class EntryTicket(Ticket):
    """Of XADD: the ids of entries."""

    __slots__ = ()

    def _places(self, time_ms: int, first: int, end: int) -> bytes:
        start = b"%d-" % time_ms
        found = [
            _each(b"$%d\r\n%b%b" % (len(start) + len(head) + len(tails[0]), start, head), tails)
            for head, tails in _digits(first, end)
        ]
        return b"".join(found)


class OffsetTicket(Ticket):
    """Of ENQUEUE: the offsets."""

    __slots__ = ()

    def _places(self, time_ms: int, first: int, end: int) -> bytes:
        return b"".join([_each(b":" + head, tails) for head, tails in _digits(first, end)])


def _each(head: bytes, tails: Sequence[bytes]) -> bytes:
    """Lines that all begin with `head`."""
    return head + (b"\r\n" + head).join(tails) + b"\r\n"


_SMALL = [b"%d" % number for number in range(1000)]
_THREE = [b"%03d" % number for number in range(1000)]


def _digits(first: int, end: int) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """Numbers from `first` on and below `end`: what some have in common, and how each goes on, in as many digits."""
    while first < end:
        thousands, least = divmod(first, 1000)
        most = 1000 if thousands else 10 ** len(_SMALL[least])
        stop = min(end, 1000 * thousands + most)
        tails = (_THREE if thousands else _SMALL)[least : stop - 1000 * thousands]
        yield b"%d" % thousands if thousands else b"", tails
        first = stop
