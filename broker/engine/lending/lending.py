"""Lending: gives producers grants, and sees that nothing that the broker says or does lags behind what they appended.

Idea: two gates. Before a message is handled, everything that moved is followed, so no answer lags what its asker may
know; and a message that cannot stand beside a grant waits until that is taken back. Before a flush appends to a lent
log, it is borrowed or taken back (loan.py).

Contract: messages wait in the order they came. While `active` is empty there is nothing to ask here. A partition that
was taken back because another producer or the broker appends is not lent for CALM_S.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ....storage.errors import Error, StorageError
from ....storage.header import producer_of
from ....transport.messages import Checkpoint, GiveBack, Lend, Lent, Moved, Produce
from ...errors import InvalidRequest, NotLent, SequenceGap
from ...rights import authorize
from ..logs.partition import Partition
from ..ports import Handlers, Now, Payload, Peer, Port, Randomness
from ..producing.judging import judge
from ..tables import effects as fx
from ..turns.marks import take
from ..turns.replies import Gather, refusing
from .conditions import named, why_not
from .loan import Clock, Loan, Tally

if TYPE_CHECKING:
    from ....storage.batch import Batch
    from ....storage.lending.grant import LogGrant
    from ....storage.log import LogWriter
    from ....transport.messages import Request
    from ...rights import Principal
    from ..guard import Guard
    from ..logs.clock import LogTime
    from ..logs.overlay import Overlay
    from ..logs.overlays import Overlays
    from ..logs.topics import Topics
    from ..ports import LentLogs

CHANGING = "something else is being written"

CALM_S = 10.0
"""So long a partition is not lent after batches of another writer ended a grant."""

OF_ITS_OWN = "give each producer a partition of its own"
"""What to do about several producers of a partition."""

AHEAD_US = 60_000_000
"""A producer's clock goes so far beyond the log time of its grant (GOOD_S), which is no later than any turn's."""

LOOK_S, LOOKING_S = 0.002, 0.05
"""Lent logs are looked at so often, for so long after one of them moved."""

ROUND_S = 1.0
"""Until all lent logs are looked at for what ends a grant though nothing moves: poison, settings."""


class Waiting(NamedTuple):
    """A message that has not been handled. `principal`: on whose behalf, if there are users."""

    peer: Peer
    message: Request
    payload: Payload
    principal: Principal | None = None


class Lending:
    """The grants of one office."""

    def __init__(
        self,
        topics: Topics,
        overlays: Overlays,
        port: Port,
        time: LogTime,
        randomness: Randomness,
        guard: Guard,
        lenders: LentLogs | None,
        apply: Callable[[Overlay[Any]], None],
    ) -> None:
        """`lenders`: None where there is no producer on the same machine. `apply`: what is committed of an overlay."""
        self.handlers: Handlers = {Lend: self.lend, Moved: self.moved, GiveBack: self.give_back}
        self.loans: dict[LogWriter, Loan] = {}
        self.waiting: list[Waiting] = []
        self.active: set[object] = set()  # empty: nothing is lent and no message waits
        self._tally = Tally()
        self._topics = topics
        self._overlays = overlays
        self._port = port
        self._time = time
        self._randomness = randomness
        self._guard = guard
        self._lenders = lenders
        self._apply = apply
        self._clock = Clock()
        self._busy: dict[Loan, None] = {}  # to be tried again
        self._calm_s: dict[LogWriter, float] = {}  # when a log may be lent again
        self._distrusted: set[Peer] = set()
        self._asking: dict[object, Peer] = {}  # peers whose questions wait for what is queued on their partition
        self._again_s = self._looking_s = self._round_s = 0.0
        overlays.gates = self.loans

    # -- requests -------------------------------------------------------------------------------------

    def lend(self, peer: Peer, message: Lend, payload: Payload, now: Now) -> None:
        """Give a grant. Raises NotLent, Fenced, UnknownProducer, InvalidRequest, Forbidden."""
        partition, owner = self._topics.partition(message.topic, message.partition), self._guard.proof
        principal = self._guard.principal
        self._check(peer, message, partition, now, principal)
        begun_before = partition.log.ready and partition.log.in_term
        if principal is not None and partition.latest.producers.owner(message.producer_id) != principal.name:
            partition.propose_in_order(fx.ProducerOwned(message.producer_id, message.epoch, principal.name))
        if begun_before and partition.idle:
            self._grant(peer, owner, message, partition, now)
            return
        refuse, asking = refusing(self._port, peer, message.request), object()
        self._asking[asking] = peer

        def begun() -> None:
            try:
                if self._asking.pop(asking, None) is None:  # a grant would outlast what ends it
                    raise NotLent("the rights or the connection of its producer have changed since it asked")
                self._check(peer, message, partition, now, principal)
                self._grant(peer, owner, message, partition, now)
            except Error as error:
                refuse(error)

        if not begun_before:
            partition.propose_nothing()  # the first append after opening begins a term, and takes a clean mark away
        partition.barrier(Gather(begun, refuse, lambda: self._asking.pop(asking, None)))

    def moved(self, peer: Peer, message: Moved, payload: Payload, now: Now) -> None:
        """The gate has followed already."""

    def give_back(self, peer: Peer, message: GiveBack, payload: Payload, now: Now) -> None:
        """Take a log back that its producer does not need."""
        loan = self.loans.get(self._topics.partition(message.topic, message.partition).log)
        if loan is not None and (loan.peer, loan.number) == (peer, message.number):
            self._take_back(loan)

    def _check(self, peer: Peer, message: Lend, partition: Partition, now: Now, principal: Principal | None) -> None:
        """Raise NotLent where a partition cannot be lent now, Fenced, UnknownProducer or Forbidden as Produce does."""
        if self._lenders is None:
            raise NotLent("this broker does not lend logs")
        if not message.producer_id:
            raise InvalidRequest("a log is lent to a producer with an id only")
        if peer in self._distrusted:
            raise NotLent("batches that this producer appended by itself could not stand")
        if partition.log in self.loans:
            raise NotLent(f"{partition!r} is lent to another producer: {OF_ITS_OWN}")
        if now.monotonic_s < self._calm_s.get(partition.log, 0.0):
            raise NotLent(f"others write to {partition!r}, too: {OF_ITS_OWN}")
        reason = why_not(partition) or ("" if self._overlays.catalogue.idle else CHANGING)
        if reason:
            raise NotLent(f"{partition!r} cannot be lent: {reason}")
        producers, sequence = partition.committed.producers, message.next_sequence
        owner = partition.latest.producers.owner(message.producer_id)
        self._guard.check_owner(principal, owner, f"producer {message.producer_id:#x}")
        try:
            repeated = producers.judge(message.producer_id, message.epoch, sequence, 1)
        except SequenceGap as gap:
            raise NotLent(gap.message) from gap
        if repeated is not None:
            raise NotLent(f"the producer's sequence {sequence} is in {partition!r} already")

    def _grant(self, peer: Peer, owner: str, message: Lend, partition: Partition, now: Now) -> None:
        assert self._lenders is not None, "it was checked"
        if not partition.idle:
            raise NotLent(f"{partition!r} cannot be lent: {CHANGING}")
        log, number = partition.log, int.from_bytes(self._randomness(8), "little") >> 2 or 1

        def fits(batch: Batch) -> None:
            judge(batch.buffer, log.options.max_batch_bytes, partition.settings.max_record_bytes, now)

        try:
            found = self._lenders.lend(
                log, number, producer_id=message.producer_id, epoch=message.epoch, sequence=message.next_sequence,
                judge=fits, now=Now(self._time.read(now), now.monotonic_s),
            )  # fmt: skip
        except OSError as error:
            raise StorageError(f"{log.path} cannot be lent: {error}") from error
        if found is None:
            raise NotLent(f"{partition!r} cannot be lent now: a stopped producer has it, or its segment is full")
        lent, grant = found
        self.at(now)
        loan = Loan(
            partition,
            peer,
            owner,
            message.producer_id,
            number,
            lent,
            self._overlays,
            self._clock,
            self._tally,
            self._try_again,
            self._is_over,
        )
        self.loans[log] = loan
        self.active.add(loan)
        self._tally.given += 1
        partition.lent.begin(partition.committed.producers.called(message.producer_id), message.process)
        directory, most = log.path, partition.settings.max_record_bytes
        if not self._port.reply(peer, _lent(message.request, grant, directory, most)):
            loan.recall()

    # -- the gate before messages ---------------------------------------------------------------------

    def admit(self, message: Waiting, now: Now) -> list[Waiting]:
        """What to handle now: this message and those that waited, but for what a grant is in the way of."""
        self.follow(now)
        self.waiting.append(message)
        self._clear_way(message)
        return self._ready()

    def _clear_way(self, message: Waiting) -> None:
        for loan in self._in_the_way(message):
            if type(message.message) is Produce and producer_of(message.payload) != loan.producer_id:
                loan.for_another = True
            self._take_back(loan)

    def _take_back(self, loan: Loan) -> None:
        """End a grant as soon as that can be."""
        loan.recall()
        self._apply(loan.partition.overlay)

    def _in_the_way(self, message: Waiting) -> list[Loan]:
        """The grants that cannot stand beside a message."""
        peer, request = message.peer, message.message
        if type(request) is Checkpoint:  # followed one by one, the places of lent logs are not of one moment
            return list(self.loans.values())
        found: list[Loan] = []
        for topic_id, number in named(request):
            topic = self._topics.by_id.get(topic_id)
            for partition in topic.readable if topic is not None else ():
                loan = self.loans.get(partition.log)
                if loan is not None and number in (None, partition.number):
                    found.append(loan)
        if type(request) is Lend:
            return [loan for loan in found if (loan.peer, loan.producer_id) == (peer, request.producer_id)]
        return found

    def _ready(self) -> list[Waiting]:
        """Take what waits for no grant any more. The others keep their payload as long as they wait."""
        waiting, self.waiting, ready = self.waiting, [], []
        for each in waiting:
            if self._in_the_way(each):
                self.waiting.append(each._replace(payload=bytes(each.payload)))
            else:
                ready.append(each)
        self._note_waiting()
        return ready

    def _note_waiting(self) -> None:
        (self.active.add if self.waiting else self.active.discard)("waiting")

    # -- what a turn does -----------------------------------------------------------------------------

    def follow(self, now: Now) -> None:
        """Take over, and apply, what producers appended."""
        self.at(now)
        moved = self._lenders.moved() if self._lenders is not None and self.loans else ()
        for log in moved:
            loan = self.loans.get(log)
            if loan is not None:
                loan.follow()
                self._apply(loan.partition.overlay)
        if moved:
            self._looking_s = now.monotonic_s + LOOKING_S

    def at(self, now: Now) -> None:
        """The time that counts from here on."""
        self._clock.latest_us = self._time.read(now) + AHEAD_US
        self._clock.monotonic_s = now.monotonic_s

    def due(self, now: Now) -> list[Waiting]:
        """Follow, and try again what was not possible. Returns messages to handle now."""
        self.follow(now)
        if self._busy and now.monotonic_s >= self._again_s:
            self._again_s = now.monotonic_s + LOOK_S
            for loan in take(self._busy):
                loan.again()
                self._apply(loan.partition.overlay)
        if now.monotonic_s >= self._round_s:
            self._round_s = now.monotonic_s + ROUND_S
            for loan in list(self.loans.values()):
                if why_not(loan.partition):
                    self._take_back(loan)
        for each in self.waiting:
            self._clear_way(each)
        return self._ready()

    def wait(self, now: Now) -> float:
        """Seconds until the next look."""
        if self._busy or self.waiting or now.monotonic_s < self._looking_s:
            return LOOK_S
        return ROUND_S if self.loans else math.inf

    def _try_again(self, loan: Loan) -> None:
        self._busy[loan] = None

    def _is_over(self, loan: Loan) -> None:
        log = loan.partition.log
        self._tally.recalled += 1
        loan.partition.lent.over()
        del self.loans[log]
        self.active.discard(loan)
        self._busy.pop(loan, None)
        if self._lenders is not None:
            self._lenders.over(log)
        if loan.for_another:
            self._calm_s[log] = self._clock.monotonic_s + CALM_S
        if loan.refused:
            self._tally.refused += 1
            self._distrusted.add(loan.peer)

    def stats(self) -> dict[str, int]:
        """Numbers for people."""
        return {"lending.lent": len(self.loans)} | {
            f"lending.{name}": getattr(self._tally, name)
            for name in ("given", "refused", "recalled", "borrowed", "batches", "records")
        }

    # -- what the office tells ------------------------------------------------------------------------

    def disconnect(self, peer: Peer) -> None:
        """A peer is gone, and its grants with it."""
        self.waiting = [each for each in self.waiting if each.peer != peer]
        self._note_waiting()
        self._asking = {asking: each for asking, each in self._asking.items() if each != peer}
        for loan in [loan for loan in self.loans.values() if loan.peer == peer]:
            self._take_back(loan)
        self._distrusted.discard(peer)

    def judge(self, current: Callable[[str], Principal]) -> None:
        """Take back logs whose producers may not write them any more. `current`: principals by what they proved.

        Those that ask for a log now are to ask again.
        """
        self._asking.clear()
        for loan in list(self.loans.values()):
            if not authorize(current(loan.owner), "write", f"topic:{loan.partition.topic}"):
                self._take_back(loan)

    def end(self, partition: Partition) -> None:
        """Take a log back at once: it is closed next."""
        loan = self.loans.get(partition.log)
        if loan is not None:
            loan.end()
        self._calm_s.pop(partition.log, None)

    def end_all(self) -> None:
        """Take all logs back at once."""
        for loan in list(self.loans.values()):
            loan.end()


def _lent(request: int, grant: LogGrant, directory: str, max_record_bytes: int) -> Lent:
    """A grant as it travels."""
    end = grant.end
    return Lent(
        request, grant.number, grant.incarnation, grant.row, grant.log_id, directory, grant.base_seq,
        grant.generation, end.seq, end.position, end.offset, end.checksum, end.time_us, end.term,
        grant.segment_bytes, grant.max_batch_bytes, max_record_bytes, grant.time_us, grant.monotonic_s,
        list(grant.files),
    )  # fmt: skip
