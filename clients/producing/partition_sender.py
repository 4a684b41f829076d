"""A sender: the records of one producer for one partition.

Idea: records gather here; the session (transport/producer_session.py) decides when they go and tracks their outcome.
With nothing in flight a record goes at once. Otherwise records gather until they are worth a batch, or until an answer
comes back, so batches grow with load and idle producers add no delay. An application that sends without a pause keeps
the interpreter from other threads, so it looks for answers itself: at the first record gathered and at each doubling.
No record then waits for longer than twice the time to its answer, and a full batch costs a dozen looks.

Contract: never waits. A batch that cannot be sent now stays in the session and is tried at every turn; batches that
may be lost are resent with the same sequences, and the broker deduplicates them. A sender registers with the
connection only while it has something to retry, so idle senders cost nothing per turn.

A broker forgets unnamed producers that are silent for long, and those of which there are too many. It did nothing with
the next batch of such a one, which is sent again under another id, with those behind it.

One record that the broker refuses does not fail others: its batch is sent again in halves, each alone, until the record
is a batch of its own, and then the batches behind it are sent again. That happens only where the broker cannot get the
refused batch any more, so no record is appended twice (docs/decisions/062).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ...broker.errors import UnknownProducer
from ...storage.batch import Codec, encode
from ...storage.errors import Error, InvalidBatch, StorageFull
from ...storage.header import of_producer
from ...transport.failures import error_from
from ...transport.messages import Answer, Failure, OpenProducer, Produce, Produced, ProducerOpened, Topic
from ...transport.producer_session import TARGET_BYTES, InFlight, ProducerSession
from ..connection.connection import LOOK_PERIOD_S
from ..connection.question import Question, raised
from ..connection.steps import FOREVER
from .pending import Owner, Pending
from .queued import queue_columns

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.05, 2.0
"""Between two tries of what the broker refused for now (its disk is full, for example)."""

PATIENCE_S = 10.0
"""A batch without an answer for so long is sent again: a broker drops answers that it cannot get rid of."""


BY_ONE_RECORD = frozenset({"record_too_large", "batch_too_large", "invalid_batch", "limit_reached"})
"""Codes of refusals that may be about one record, or its dedup key. The broker judged the batch and did nothing."""


class SentBack(Struct, eq=False):
    """Records to be sent again: the bytes of a batch behind a refused one, or None for records of a refused one.

    `refused`: as they are, so they go in halves.
    """

    pending: Pending
    batch: Buffer | None = None
    refused: bool = False


class SendingProducer(Owner, Protocol):
    """The producer of a sender."""

    topic: Topic
    name: str
    codec: Codec
    kind: int

    def new_id(self) -> int:
        """A unique producer id."""
        ...

    def new_session(self, opened: ProducerOpened | None = None) -> ProducerSession:
        """A session under a fresh id, or as the broker opened it for the producer's name."""
        ...


class PartitionSender:
    """See the module. `gather` holds what is not a batch yet, `trigger` the size at which it becomes one."""

    def __init__(self, core: SendingProducer, partition: int) -> None:
        self.partition = partition
        self.gather = Pending(core, partition)
        self.trigger = 0
        self.session: ProducerSession | None = None
        self.ended: Error | None = None  # why this sender can never send again
        self.trouble: Failure | None = None  # what a retry is waiting to get over
        self._core = core
        self._connection = core.connection
        self._topic = core.topic.topic
        self._opening: Question | None = None
        self._backoff_s = 0.0
        self._retry_at = 0.0
        self._soon = False  # an interrupt left something
        self._returned: tuple[SentBack, ...] = ()  # go before what is gathered
        self._progress_at = 0.0
        if not core.name:
            self.session = core.new_session()

    # -- sending --------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether gathered records make a batch that has no room."""
        return self.gather.size >= TARGET_BYTES

    @property
    def met_full(self) -> bool:
        """Whether what is sent is refused, because the storage of the broker is full."""
        return self.trouble is not None and self.trouble.code == StorageFull.code

    @property
    def unsettled(self) -> list[Pending]:
        """Records that are gathered, in flight, or left to report."""
        found, session = [each.pending for each in self._returned], self.session
        if session is not None:
            found += [batch.handle for batch in (*session.settled, *session.in_flight)]
        return [*found, self.gather] if self.gather.values else found

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self.unsettled

    def has_room(self, size: int) -> bool:
        """Whether a batch can be added now. Raises what ended the sender."""
        if self.ended is not None:
            raise self.ended
        session = self.session
        if session is None:
            self.open()
            return False
        if session.broken is not None and not self._renew():
            return False
        if self._returned and not self._send_returned(session):
            return False
        return not session.in_flight or session.has_room(size)

    def ship(self) -> None:
        """Make a batch of gathered records if there is room. Refuses it once the sender has ended."""
        session = self.session
        if session is not None and session.settled:  # an interrupt came before it was told
            self._tell_settled(session)
        gathered = self.gather
        if not (gathered.values or self._returned):
            return
        if self.ended is not None:
            self._refuse_gathered(self.ended)
            return
        if not self.has_room(gathered.size):
            self.trigger = TARGET_BYTES
            return
        if not gathered.values:
            return
        session, fresh = self.session, Pending(self._core, self.partition)
        assert session is not None, "a sender with room has a session"
        first, batch = session.next_sequence, self._encoded(gathered, session)
        self.gather = fresh
        try:
            self.add(batch, len(gathered.values), gathered)
        except BaseException:  # Ctrl-C before the session had them: they are gathered as before
            if session.next_sequence == first and not (gathered.settled or self._returned):
                self.gather = gathered
            self.try_soon()
            raise

    def _encoded(self, records: Pending, session: ProducerSession) -> Buffer | Error:
        """The next batch of a session, or why the records cannot be one."""
        try:
            return encode(
                records.values,
                keys=records.keys,
                headers=records.headers,
                event_times=records.times,
                **({} if records.queued is None else queue_columns(records.queued)),
                codec=self._core.codec,
                kind=self._core.kind,
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                first_sequence=session.next_sequence,
            )
        except (InvalidBatch, TypeError) as error:
            return error if isinstance(error, Error) else InvalidBatch(f"records that cannot be encoded: {error}")

    def add(self, batch: Buffer | Error, count: int, pending: Pending) -> None:
        """Put a batch on its way that was encoded for this sender's session, or refuse one that is too large, or none.

        Other records of a refused batch go without the one that keeps them from being a batch.
        """
        session, connection = self.session, self._connection
        assert session is not None, "a batch is encoded for a session"
        welcome = connection.welcome
        if not isinstance(batch, Error) and welcome is not None and len(batch) > welcome.max_frame_bytes:
            batch = connection.too_large(batch, count) or batch
        if isinstance(batch, Error):
            self._refuse(batch, pending)
            return
        if not session.in_flight:
            self._progress_at = FOREVER  # counts from when it is asked for
        try:
            session.add(batch, count, pending)
            self.trigger = 1
            self._push(session)
        except BaseException:  # Ctrl-C: it may be on its way, and its records are not to wait for the next ones
            self.try_soon()
            raise

    def _refuse(self, error: Error, records: Pending) -> None:
        if self.halves(records):
            self._returned = (SentBack(records, refused=True), *self._returned)
            self.try_soon()
        else:
            records.settle(-1, 0, error)

    def halves(self, records: Pending) -> bool:
        """Whether records that are refused together go again in two batches."""
        return len(records.values) > 1

    def _push(self, session: ProducerSession) -> None:
        """Send unsent batches. The rest is retried at the next turn."""
        connection = self._connection
        if not self._retry_at or connection.clock() >= self._retry_at:
            self._retry_at = 0.0
            try:
                while session.unsent and (batch := session.to_send()) is not None:
                    message = Produce(connection.next_request(), self._topic, self.partition)
                    if not connection.send(message, batch.batch, asker=self, ids=batch.handle.ids):
                        break
                    session.sent(batch, message.request)
            except BaseException:  # Ctrl-C: as in `add`
                self.try_soon()
                raise
        if session.unsent:
            self._try_later()

    def _try_later(self) -> None:
        """Have `turn` called until nothing is left to try."""
        self._connection.parts[self] = None

    def try_soon(self) -> None:
        """Have the next turn send what an interrupted call left, even if that was to wait."""
        self._soon = True
        self._connection.parts[self] = None

    def _refuse_gathered(self, error: Error) -> None:
        for each in self._returned:
            if not each.pending.settled:
                each.pending.settle(-1, 0, error)
        self._returned = ()
        gathered, self.gather = self.gather, Pending(self._core, self.partition)
        try:
            if gathered.values:
                gathered.settle(-1, 0, error)
        except BaseException:  # Ctrl-C before it was: they are to be refused, or sent, by the next call
            if not gathered.settled:
                self.gather = gathered
            raise

    # -- answers --------------------------------------------------------------------------------------

    def answered(self, answer: Answer) -> None:
        session = self.session
        if session is None:
            return  # to a batch behind a refused one: its name is claimed again
        self._progress_at = self._connection.now
        if isinstance(answer, Produced):
            self.trouble, self._backoff_s = None, 0.0
            session.produced(answer)
            self._tell_settled(session)
        else:
            assert isinstance(answer, Failure), f"a batch was answered with {type(answer).__name__}"
            self._failed(session, answer)
        if self.gather.values or self._returned:
            self.ship()
        if not session.in_flight:
            self.trigger = 0

    def _failed(self, session: ProducerSession, failure: Failure) -> None:
        if failure.retry:
            self._put_off(failure)
        session.failed(failure)
        if session.broken is failure:
            if failure.code == "fenced":
                self.ended = raised(failure)
            if failure.code in BY_ONE_RECORD or failure.code == UnknownProducer.code:
                self._take_back([batch for batch in session.settled if batch.failure is failure], failure.code)
        self._tell_settled(session)
        if session.unsent:
            self._try_later()

    def _put_off(self, failure: Failure) -> None:
        """Have the next try wait: longer each time, and as long as the broker says."""
        self.trouble = failure
        self._backoff_s = min(max(2 * self._backoff_s, BACKOFF_MIN_S), BACKOFF_MAX_S)
        self._retry_at = self._connection.clock() + max(self._backoff_s, failure.after_ms / 1000)

    # -- refused with others ----------------------------------------------------------------------------

    def _take_back(self, ending: list[InFlight], code: str) -> None:
        """Have the other records of a refused batch, and the batches behind it, sent again; all of them where the
        broker has forgotten a producer that was silent for long."""
        refused, *behind = ending
        is_forgotten = code == UnknownProducer.code
        if refused.copied or (is_forgotten and not refused.first_sequence):
            return  # a copy is under way, which may be taken after all, and those behind it with it
        found = tuple(SentBack(batch.handle, batch.batch) for batch in behind)
        if is_forgotten:
            found = (SentBack(refused.handle, refused.batch), *found)
        elif self.halves(refused.handle):
            found = (SentBack(refused.handle, refused=True), *found)
        self._returned = (*found, *self._returned)

    def _is_returned(self, pending: Pending) -> bool:
        return pending.parts is not None or pending in [each.pending for each in self._returned]

    def _send_returned(self, session: ProducerSession) -> bool:
        """Send again what was refused with others, parts of a refused batch each alone. True once nothing is left."""
        while self._returned:
            first, *rest = self._returned
            pending = first.pending
            if first.refused:
                self._returned = (*map(SentBack, pending.halve()), *rest)
                continue
            if session.in_flight and (first.batch is None or not self._may_follow(first.batch, session)):
                return False
            sequence = session.next_sequence
            batch = self._encoded(pending, session) if first.batch is None else self._again(first.batch, session)
            before, self._returned = self._returned, tuple(rest)
            try:
                self.add(batch, pending.count or len(pending.values), pending)
            except BaseException:  # Ctrl-C before the session had them: as in `ship`
                if session.next_sequence == sequence and not pending.settled:
                    self._returned = before
                self.try_soon()
                raise
        return True

    def _may_follow(self, batch: Buffer, session: ProducerSession) -> bool:
        return session.has_room(len(batch)) and session.in_flight[0].handle.whole is None

    def _again(self, batch: Buffer, session: ProducerSession) -> Buffer:
        return of_producer(batch, session.producer_id, session.epoch, session.next_sequence)

    def _tell_settled(self, session: ProducerSession) -> None:
        """Settle the records of batches that the session has settled, each removed once its records are told."""
        settled = session.settled
        while settled:
            batch = settled[0]
            pending: Pending = batch.handle
            if pending.settled:
                pass  # an interrupt came before it was taken off
            elif batch.produced is not None:
                pending.settle(batch.produced.offset, batch.produced.time_us, None, dict(batch.produced.repeats))
            elif not self._is_returned(pending):
                assert batch.failure is not None, "a batch settles one way or the other"
                pending.settle(-1, 0, self.refusal(batch.failure))
            settled.popleft()

    def refusal(self, failure: Failure) -> Error:
        """Handle batches that the broker refused."""
        return error_from(failure.code, failure.message, retry=failure.retry)

    def lost(self) -> None:
        """Resend over a new connection: the broker may not have got batches in flight."""
        session = self.session
        if session is not None:
            self.try_soon()  # first: Ctrl-C may come with the return of any call
            session.lost()
            self._tell_settled(session)
            self._progress_at = self._connection.clock()
            self._push(session)

    def unanswered(self, now: float) -> None:
        """See Asker."""
        self._progress_at = min(self._progress_at, now)
        if now - self._progress_at > PATIENCE_S:
            self._connection.forget_asker(self)
            self.lost()

    def turn(self, now: float) -> None:
        """Send what could not be sent before. See Part."""
        session = self.session
        if session is not None:
            self._tell_settled(session)
            self._push(session)
        elif now >= self._retry_at:
            self._retry_at, self._soon = 0.0, True  # the name is claimed again for what is gathered
        if self._soon:
            self.ship()
            self._soon = False
        if not (self._retry_at if session is None else session.unsent):
            self._connection.parts.pop(self, None)

    def due(self) -> float:
        """When to call `turn`: at the next try, or when the channel takes more. See Part."""
        if self._soon:
            return 0.0
        return self._retry_at or self._connection.now + LOOK_PERIOD_S

    def restored(self) -> None:
        """Do nothing: a sender hears of it as an asker. See Part."""

    def abandon(self, failure: Failure) -> None:
        """Abandon everything: it may or may not have been appended."""
        self._connection.forget_asker(self)
        if self._opening is not None:
            self._opening.cancel()
        if self.session is not None:
            self.session.abandon(failure)
            self._tell_settled(self.session)
        self._connection.parts.pop(self, None)
        self._refuse_gathered(self.refusal(failure))

    # -- the session ----------------------------------------------------------------------------------

    def _renew(self) -> bool:
        """Continue after a failure. Where the refused sequence is free, it is used; else a producer begins anew, and a
        named one claims its name again. False until that is done."""
        session = self.session
        assert session is not None, "only a session can be broken"
        if session.in_flight:
            return False
        assert session.broken is not None, "it is broken"
        if session.free_sequence is not None and session.broken.code in BY_ONE_RECORD:
            session.restart(session.producer_id, epoch=session.epoch, next_sequence=session.free_sequence)
            return True
        if self._core.name:
            self.session = None
            self.open()
            return False
        session.restart(self._core.new_id())
        return True

    def open(self) -> None:
        """Claim the producer's name on this partition."""
        if self._opening is None:
            if self._connection.clock() < self._retry_at:
                self._try_later()
                return
            self._retry_at, core = 0.0, self._core
            self._opening = Question(
                self._connection,
                lambda request: OpenProducer(request, core.topic.topic, self.partition, core.name),
                self._opened,
            )
        if self._opening.answer is not None:
            self._opened(self._opening.answer)
        elif not self._connection.holds(self._opening):  # it is new, or Ctrl-C came before it was posted
            self._connection.post(self._opening)

    def _opened(self, answer: Answer) -> None:
        opening = self._opening
        if opening is None:
            return  # told again: Ctrl-C came before the connection forgot the question
        self.try_soon()
        opening.cancel()  # asked again, the broker would fence what is sent under this answer; `open` goes on with it
        if isinstance(answer, ProducerOpened):
            self.trouble, self._backoff_s = None, 0.0
            session = self._core.new_session(answer)
            self.session, self._opening = session, None
            self.ship()
            return
        self._opening = None
        assert isinstance(answer, Failure), f"a claim was answered with {type(answer).__name__}"
        if answer.retry:
            self._put_off(answer)
            return
        self.trouble, self.ended = answer, raised(answer)
        self._refuse_gathered(self.ended)
