"""Direct append: a producer on the broker's machine writes the log of a partition by itself.

    nothing in flight -> Lend; hold back -> Lent -> append, append, ... -> taken back -> Lend again
                                       \\-> refused: through the broker, and ask again later

Idea: a lane is a sender that first asks for the log (storage/lending/). While it has it, a batch stands when the call
that wrote it returns; to the session it was sent and answered in one go. Whatever the appender cannot finish, the
lane sends through the broker under the same sequence, which takes the log back first and knows repeats.

Contract: a lane appends only with nothing in flight before. An interrupted append ends the grant. Where records come
one upon the other they gather as with answers on their way, for one turn at most.
Must not know: how appenders and the broker keep apart.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage.errors import Error
from ...storage.files import Files
from ...storage.layout import LOCK
from ...storage.lending.attaching import MISSING, attach
from ...storage.lending.grant import LogGrant
from ...storage.recovery import LogEnd
from ...transport.messages import Answer, Failure, GiveBack, Lend, Lent, Moved, Produced
from ...transport.producer_session import TARGET_BYTES, InFlight, ProducerSession
from ...transport.url import addresses
from ..connection.question import Question
from .core import ProducerCore
from .partition_sender import PartitionSender

if TYPE_CHECKING:
    from ...storage.lending.appending import DirectAppender
    from ...transport.messages import Topic
    from ..connection.shell import Shell
    from ..connection.steps import Pause
    from .pending import Pending

log = logging.getLogger("penstock.clients")

ASK_MIN_S, ASK_MAX_S = 10.0, 300.0
"""Between a refusal and the next question."""

WORTH = 32
"""Batches that a grant has to be good for: giving it costs the broker a sync. A producer that ends one sooner, because
its records are not plain, say, asks for the next one as after a refusal."""

PAUSE_S, PAUSE_MAX_S, PAUSES = 0.0001, 0.001, 100
"""The broker borrows a log for a moment, mostly some 100 us: how long it is waited for at first, each time twice as
long up to the most, and how often before the batch goes through it. A broker that was kept from the processor while it
borrows would answer no sooner, and the grant would be over."""

DENSE_S, FIRST, FASTER = 25e-6, 2, 4
"""A record that is sent so soon after the append of the one before, which its sender did not wait for, has the next
ones gather: two at first, and four times as many as before as long as they come as soon, each. A sender that was late
by two records so delays one more, by one pause. How long an append takes is not part of it: a slow machine appends in
60 us, and there above all a producer that is behind must not append its records one by one."""

NOT_ASKED = "nothing was sent to it yet: the log is asked for with the first record"

NOT_ITS_USER = "only processes of the broker's user, and of root, may write its files"

REASONS = 64
"""The most reasons that a producer remembers it told of."""

LOST = "the broker took the log back: it is asked for again with the next record"


class Direct(msgspec.Struct, frozen=True):
    """Which partitions a producer appends to by itself now. It is true if there are any.

    `reasons`: of every other partition, why its records go through the broker.
    """

    partitions: list[int]
    reasons: dict[int, str]

    def __bool__(self) -> bool:
        return bool(self.partitions)


def direct_of(core: ProducerCore) -> Direct:
    """What `Producer.direct` says."""
    reasons = {
        sender.partition: sender.reason if isinstance(sender, DirectLane) else "direct=True was not given"
        for sender in core.senders
    }
    return Direct([partition for partition, why in reasons.items() if not why], {
        partition: why for partition, why in reasons.items() if why
    })  # fmt: skip


def never(url: str, *, may_append: bool) -> str:
    """Why no log can be lent to a client of `url`; "" if one may be."""
    first, *others = addresses(url)
    scheme = first.partition("://")[0]
    if others:
        return "nodes of a cluster lend no logs: each record goes through the leader"
    if scheme != "unix":
        return f"only clients of a broker's unix:// address append by themselves, and this one uses {scheme}://"
    if not may_append:
        return "an event loop does not write files: use penstock.connect"
    return f"producers append by themselves {MISSING}" if MISSING else ""


class DirectProducer(ProducerCore):
    """A producer whose lanes append by themselves where they can."""

    def __init__(self, shell: Shell, topic: Topic, **options: Any) -> None:
        """See ProducerCore."""
        self._told = shell.told
        self._reasons: dict[str, set[int]] = {}  # told of; the partitions that each is the reason for
        super().__init__(shell, topic, **options)
        reason = never(shell.connection.url, may_append=shell.may_append)
        if reason:
            self._forbid(reason)

    def new_lane(self, partition: int) -> PartitionSender:
        """See ProducerCore."""
        return DirectLane(self, partition, self._largest)

    def refused(self, partition: int, reason: str) -> None:
        """Tell of a reason once, and again when it is that of ten, a hundred, a thousand partitions."""
        name = self.topic.name
        general = reason.replace(f"partition {partition} of topic {name}", f"a partition of topic {name}")
        if len(self._reasons) >= REASONS and general not in self._reasons:
            self._reasons.clear()
        partitions = self._reasons.setdefault(general, set())
        before = len(partitions)
        partitions.add(partition)
        if len(partitions) == before:
            return
        if not before:
            log.warning("records of topic %s for partition %d go through the broker: %s", name, partition, reason)
        elif str(len(partitions)).strip("0") == "1":
            log.warning("records of topic %s for %d partitions go through the broker: %s", name, before + 1, general)

    def _forbid(self, reason: str) -> None:
        """Have all records go through the broker."""
        for sender in self.senders:
            if isinstance(sender, DirectLane):
                sender.forbid(reason)
        log.warning("records of topic %s go through the broker: %s", self.topic.name, reason)

    def _ship(self, sender: PartitionSender) -> None:
        super()._ship(sender)
        if self.connection.ended:  # by an append: other threads may wait for it
            self._told()

    def awaited(self, pending: Pending, deadline: float) -> Pause | None:
        """See ProducerCore."""
        sender = self.senders[pending.partition]
        if isinstance(sender, DirectLane):
            sender.awaited()
        return super().awaited(pending, deadline)


class DirectLane(PartitionSender):
    """See the module. `why` records go through the broker now; "" while the log is lent."""

    def __init__(self, core: DirectProducer, partition: int, largest: int) -> None:
        self.why = NOT_ASKED
        self._forbidden = False
        self._on_refused = core.refused
        self._largest = largest
        self._appender: DirectAppender | None = None
        self._asking: Question | None = None
        self._trying: InFlight | None = None  # since an append began; an interrupt leaves it
        self._ask_at = 0.0
        self._wait_s = ASK_MIN_S
        self._pauses = 0
        self._dense = 0  # bytes that gather before they are appended; 0: each record goes by itself
        self._appended_at = 0.0
        self._appended = 0  # batches, under this grant
        self._told_asleep = 0
        super().__init__(core, partition)

    # -- appending ------------------------------------------------------------------------------------

    def _push(self, session: ProducerSession) -> None:
        if self._trying is not None:
            self._repair(session, self._trying)
        if self._forbidden or not self._append(session):
            super()._push(session)

    def _append(self, session: ProducerSession) -> bool:
        """Append what is in flight, or hold it back for now. False: it goes through the broker."""
        waiting = session.in_flight
        if self._pauses and self._connection.clock() < self._retry_at:
            return True
        if session.unsent < len(waiting) or (self._retry_at and not self._pauses) or (waiting and waiting[0].copied):
            return False
        while waiting:
            begun = self._connection.clock()
            appender = self._grant_for(session, begun)
            if appender is None:
                return self._asking is not None
            batch = self._trying = waiting[0]
            place = appender.append(batch.batch)
            if place is None:
                self._trying = None
                if not self._after_failure(appender, batch):
                    return False
                if self._pauses:
                    return True
                continue
            request, end = self._connection.next_request(), appender.last
            session.sent(batch, request)
            session.produced(Produced(request, place.base_offset, end.term, end.time_us))
            self._trying = None
            self._tell_settled(session)
            self._after_append(appender, batch, begun)
        return True

    def _after_append(self, appender: DirectAppender, batch: InFlight, begun: float) -> None:
        """Have records gather if they come one upon the other, and a broker woken that sleeps."""
        if begun - self._appended_at < batch.count * DENSE_S:
            self._dense = min(self._dense * FASTER or batch.handle.size * FIRST, TARGET_BYTES)
        else:
            self._dense = 0
        self.trigger = self._dense
        if self._dense:
            self.try_soon()
        self._appended_at = self._connection.clock()
        self._appended += 1
        self._pauses, self._retry_at = 0, 0.0
        asleep = appender.asleep
        if asleep and asleep != self._told_asleep and self._connection.send(Moved(asleep)):
            self._told_asleep = asleep

    def _after_failure(self, appender: DirectAppender, batch: InFlight) -> bool:
        """What to do with a batch that was not appended. True: try again, after a pause if there are `_pauses`."""
        if appender.paused and self._pauses < PAUSES:
            pause_s = min(PAUSE_S * 2**self._pauses, PAUSE_MAX_S)
            self._pauses += 1
            self._retry_at = self._connection.clock() + pause_s
            self._try_later()
            return True
        self._pauses, self._retry_at = 0, 0.0
        if appender.ended and not appender.in_doubt and appender.trouble is None:
            return True  # the log was taken back before: it may be had again
        batch.copied = batch.copied or appender.in_doubt
        trouble = appender.trouble
        self._end(f"appending failed: {type(trouble).__name__}: {trouble}" if trouble else appender.why)
        if trouble is not None or self._appended < WORTH:
            self._on_refused(self.partition, self.why)
            self._ask_later()
        return False

    def _repair(self, session: ProducerSession, batch: InFlight) -> None:
        """An append was interrupted: its batch goes through the broker, which knows whether it stands."""
        batch.copied = True
        self._end("an append was interrupted")
        session.lost()
        self._trying = None
        self._tell_settled(session)

    def awaited(self) -> None:
        """A caller waits for its record: what comes next is not sent without a pause."""
        self._appended_at, self._dense = 0.0, 0

    def turn(self, now: float) -> None:
        """See PartitionSender; what gathered is appended."""
        super().turn(now)
        session = self.session
        if session is not None and not session.in_flight:
            if self.gather.values or self._returned:
                self.ship()
            self._dense = self.trigger = 0

    # -- the grant ------------------------------------------------------------------------------------

    def _grant_for(self, session: ProducerSession, now: float) -> DirectAppender | None:
        """The appender of this session's producer; None after asking for it, and while the broker refuses."""
        appender = self._appender
        if appender is not None:
            grant = appender.grant
            if (
                not appender.ended
                and grant.producer_id == session.producer_id and grant.epoch == session.epoch
            ):  # fmt: skip
                return appender
            self._end("the log is being asked for")
        if self._asking is None and now >= self._ask_at:
            self._asking = Question(self._connection, self._question, self._lent)
        if self._asking is not None and not self._connection.holds(self._asking):  # or Ctrl-C came before it was
            self._connection.post(self._asking)
        return None

    def _question(self, request: int) -> Lend:
        session = self.session
        assert session is not None, "a lane asks for what its session is to append"
        first = session.in_flight[0].first_sequence if session.in_flight else session.next_sequence
        return Lend(request, self._topic, self.partition, session.producer_id, session.epoch, first, os.getpid())

    def _lent(self, answer: Answer) -> None:
        if self._asking is None:
            return  # told again: Ctrl-C came before the connection forgot the question
        self.try_soon()
        if isinstance(answer, Lent):
            self._use(answer)
        else:
            assert isinstance(answer, Failure), f"a question for a log was answered with {type(answer).__name__}"
            self._refused(answer.message)
        self._asking = None

    def _use(self, lent: Lent) -> None:
        """Open the log that is lent; give it back where that cannot be."""
        connection, session = self._connection, self.session
        assert session is not None, "only for a session a log is asked for"
        assert connection.welcome is not None, "the broker that answers has greeted"
        self._end("")  # told again: see `_lent`
        try:
            if lent.max_record_bytes < self._largest:
                raise ValueError("the topic's max_record_bytes was lowered: make another producer")
            self._appender = attach(
                grant_of(lent, session), directory=lent.directory, lock=f"{connection.welcome.data}/{LOCK}",
                board=connection.welcome.board, files=Files(),
            )  # fmt: skip
        except (Error, OSError, ValueError) as error:
            connection.send(GiveBack(self._topic, self.partition, lent.number))
            self._refused(f"{NOT_ITS_USER}: {error}" if isinstance(error, PermissionError) else str(error))
            return
        self._appended = 0
        self._wait_s, self.why = ASK_MIN_S, ""

    def _refused(self, reason: str) -> None:
        if reason != self.why:
            self._on_refused(self.partition, reason)
        self.why = reason
        self._ask_later()

    def _ask_later(self) -> None:
        self._ask_at = self._connection.clock() + self._wait_s
        self._wait_s = min(2 * self._wait_s, ASK_MAX_S)

    def _end(self, why: str) -> None:
        """Give up what was lent, if it was."""
        appender = self._appender
        if appender is not None:
            appender.end()
            self._appender, self.why = None, why

    @property
    def reason(self) -> str:
        """Why records go through the broker now; "" if they do not."""
        appender = self._appender
        return LOST if appender is not None and not appender.has_grant else self.why

    def forbid(self, reason: str) -> None:
        """Send everything through the broker."""
        self._forbidden, self.why = True, reason

    def abandon(self, failure: Failure) -> None:
        """See PartitionSender; the log is given back."""
        appender = self._appender
        self._end("the producer is closed")
        if self._asking is not None:
            self._asking.cancel()
        if appender is not None:
            self._connection.send(GiveBack(self._topic, self.partition, appender.grant.number))
        super().abandon(failure)


def grant_of(lent: Lent, session: ProducerSession) -> LogGrant:
    """A grant as storage has it."""
    segment, index, lock = lent.files
    return LogGrant(
        number=lent.number, incarnation=lent.incarnation, row=lent.row, log_id=lent.log_id, base_seq=lent.base_seq,
        generation=lent.generation,
        end=LogEnd(lent.seq, lent.position, lent.offset, lent.checksum, lent.last_us, lent.term),
        producer_id=session.producer_id, epoch=session.epoch, segment_bytes=lent.segment_bytes,
        max_batch_bytes=lent.max_batch_bytes, time_us=lent.time_us, monotonic_s=lent.monotonic_s,
        files=(segment, index, lock),
    )  # fmt: skip
