"""The consumer, written once: joining, what was delivered, what was handed out, what is committed.

    joining -> reading -> (connection lost, evicted, delivery lost) -> joining ...

Idea: the session (transport/consumer_session.py) knows what may be handed out; this keeps one open: joins
again when it is lost, gives partitions back when asked, stays alive while the application works, and turns
deliveries into what the application asked for.

Contract: nothing is handed out of a partition that went to somebody else. Positions are exact to the record.
An application that does not call for `max_processing_s` is taken for dead: no more signs of life are sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from ..broker.errors import Fenced, SessionReplaced
from ..storage.batch import KINDS_OF_STREAMS, Batch, Kind, batches
from ..storage.errors import Closed, Error, NewerFormat
from ..storage.record import Record, records
from ..transport.consumer_session import ConsumerSession, Delivery
from ..transport.errors import DeliveryGap
from ..transport.failures import error_from
from ..transport.messages import (
    Answer,
    Assigned,
    Commit,
    Credit,
    Deliver,
    Done,
    Evicted,
    Failure,
    FindOffsets,
    Join,
    Joined,
    Leave,
    ListTopics,
    Offsets,
    Position,
    SeekTo,
    Topic,
    Topics,
)  # fmt: skip
from .connection import Question, raised
from .errors import InvalidArgument, NoGroup, NotAssigned
from .handout import Handout
from .steps import FOREVER, Pause, Sleeper, Steps

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .connection import Connection
    from .mapped import MappedSource

REJOIN_MIN_S, REJOIN_MAX_S = 0.05, 2.0
"""Between two tries to join again."""

SILENCE_S = 2.0
"""A push endpoint that says nothing for so long is asked about: is there anything it should have brought?"""

LEAVE_PATIENCE_S = 5.0
"""How long closing waits for the broker; a session that it did not hear of ends by its timeout."""


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer reads. `group` is "" for one that reads alone."""

    group: str
    member: str
    start: int
    positions: dict[int, int]
    delivery: str  # push, control or mapped
    may_fall_back: bool  # to control, when push stays silent
    auto_commit_s: float | None
    session_timeout_s: float
    max_processing_s: float
    window_bytes: int
    window_records: int


class ConsumerCore:
    """See the module. `open_mapped` makes the source of a mapped session."""

    def __init__(
        self,
        connection: Connection,
        topic: Topic,
        options: ConsumerOptions,
        open_mapped: Callable[[Topic, Joined], MappedSource],
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.options = options
        self.closed = False
        self.session: ConsumerSession | None = None
        self.delivery = options.delivery
        self.fenced = 0  # automatic commits that came too late: their records were read by somebody else
        self._open_mapped = open_mapped
        self._failure: Error | None = None
        self._joining: Question | None = None
        self._join_at = 0.0
        self._backoff_s = 0.0
        self._endpoint = ""
        self._mapped: MappedSource | None = None
        self._queue: deque[Delivery] = deque()
        self._batches: deque[Batch] = deque()  # what is left of `_delivery`
        self._delivery: Delivery | None = None
        self._handout: Handout | None = None
        self._one_by_one = False
        self._kept: dict[int, tuple[int, int]] = {}  # committed and position by partition, of a lost session
        self._safe: dict[int, tuple[int, int]] = {}  # epoch and position that the application is done with
        now = connection.clock()
        self._touched = now
        self._heard = now
        self._sign_at = FOREVER
        self._commit_at = FOREVER if options.auto_commit_s is None else now + options.auto_commit_s
        self._committing: Question | None = None
        self._asking: Question | None = None
        connection.parts[self] = None

    # -- joining ----------------------------------------------------------------------------------------

    def join(self) -> None:
        """Ask for a session; mapped ones need to know where the files are now."""
        self._join_at = FOREVER
        if self.delivery == "mapped":
            name = self.topic.name
            self._joining = Question(self.connection, lambda request: ListTopics(request, [name]), self._listed)
        else:
            self._joining = Question(self.connection, self._join_message, self._joined)
        self.connection.post(self._joining)

    def _listed(self, answer: Answer) -> None:
        if isinstance(answer, Topics) and answer.topics[0].topic == self.topic.topic:
            self.topic = answer.topics[0]
        self._joining = Question(self.connection, self._join_message, self._joined)
        self.connection.post(self._joining)

    def _join_message(self, request: int) -> Join:
        options = self.options
        positions = [] if options.group else list((options.positions | self._solo_positions()).items())
        return Join(
            request, self.topic.topic, options.group, options.member, self.delivery, options.start, positions,
            round(options.session_timeout_s * 1000), options.window_bytes, options.window_records,
        )  # fmt: skip

    def _solo_positions(self) -> dict[int, int]:
        return {partition: position for partition, (_, position) in self._kept.items()}

    def _joined(self, answer: Answer) -> None:
        self._joining = None
        if not isinstance(answer, Joined):
            assert isinstance(answer, Failure), f"a join was answered with {type(answer).__name__}"
            self._not_joined(answer)
            return
        options = self.options
        session = ConsumerSession(answer, window_bytes=options.window_bytes, window_records=options.window_records)
        try:
            if self.delivery == "mapped":
                self._mapped = self._open_mapped(self.topic, answer)
            elif answer.endpoint:
                self.connection.channel.listen(answer.endpoint)
                self._endpoint = answer.endpoint
        except Error as error:
            self._failure = error
            return
        self.session = session
        self._backoff_s = 0.0
        self._heard = self.connection.clock()
        self._sign_at = self._heard + options.session_timeout_s / 3
        self.connection.sessions[session.session] = self
        self._resume()

    def _not_joined(self, failure: Failure) -> None:
        if failure.retry:
            self._join_later()
        else:
            self._failure = raised(failure)

    def _join_later(self) -> None:
        self._backoff_s = min(max(2 * self._backoff_s, REJOIN_MIN_S), REJOIN_MAX_S)
        self._join_at = self.connection.clock() + self._backoff_s

    def _resume(self) -> None:
        """Go on where the application is, in partitions whose cursor nobody has moved meanwhile."""
        session = self.session
        assert session is not None, "only a session has partitions"
        for partition, view in session.partitions.items():
            committed, position = self._kept.pop(partition, (-1, -1))
            if committed == view.committed and position > view.position and not self.options.group == "":
                view.position = view.fetched = position

    def _lose(self) -> None:
        """The session is over: nothing of it may be handed out any more."""
        self._note()
        session, self.session = self.session, None
        if session is None:
            return
        self._kept.update({view.partition: (view.committed, view.position) for view in session.partitions.values()})
        self._drop_deliveries()
        self.connection.sessions.pop(session.session, None)
        self._safe = {}
        self._close_sources()

    def _drop_deliveries(self) -> None:
        self._queue.clear()
        self._batches.clear()
        self._delivery = None
        if self._handout is not None:
            self._handout.drop()
            self._handout = None

    def _close_sources(self) -> None:
        if self._endpoint:
            self.connection.channel.unlisten(self._endpoint)
            self._endpoint = ""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None

    def restored(self) -> None:
        """See Part: what was told over the old connection may be lost, so the session is not to be trusted."""
        if self._joining is None and not self.closed:
            self._lose()
            self._join_at = 0.0

    # -- what comes -------------------------------------------------------------------------------------

    def told(self, message: Assigned | Deliver | Evicted, payload: Buffer) -> None:
        """See Session."""
        session = self.session
        if session is None:
            return
        if type(message) is Deliver:
            self._heard = self.connection.clock()
            try:
                self._queue.extend(session.receive(message, payload))
            except DeliveryGap:
                self._lose()
                self._join_at = 0.0
        elif isinstance(message, Assigned):
            self._note()
            self._queue.extend(session.assigned(message))
            self._resume()
            self._release_idle()
        elif isinstance(message, Evicted):
            self._evicted(message)

    def _evicted(self, message: Evicted) -> None:
        self._lose()
        if message.code in (SessionReplaced.code, "unknown_topic"):
            self._failure = error_from(message.code, message.message)
        else:
            self._join_at = 0.0

    # -- keeping going ------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """See Part."""
        if self.session is None:
            if self._joining is None and self._failure is None and now >= self._join_at:
                self.join()
            return
        self._send_credit(self.session.credit_due())
        if now >= self._sign_at:
            self._sign_of_life(now)
        if now >= self._commit_at:
            self._auto_commit(now)
        if self._endpoint and now - self._heard >= SILENCE_S:
            self._ask_about_silence(now)

    def due(self) -> float:
        """See Part."""
        if self._failure is not None:
            return FOREVER
        if self.session is None:
            return self._join_at
        silence = self._heard + SILENCE_S if self._endpoint else FOREVER
        return min(self._sign_at, self._commit_at, silence)

    def _sign_of_life(self, now: float) -> None:
        assert self.session is not None, "only a session is kept alive"
        self._sign_at = now + self.options.session_timeout_s / 3
        if now - self._touched < self.options.max_processing_s:
            self._send_credit(self.session.sign_of_life())

    def _send_credit(self, credit: Credit | None) -> None:
        if credit is not None and not self.connection.send(credit):
            self._sign_at = 0.0  # said again at the next turn

    def _ask_about_silence(self, now: float) -> None:
        """Silence is fine at the end of the log, and a broken path when the broker has more."""
        self._heard = now
        if self._asking is None:
            name = self.topic.name
            self._asking = Question(self.connection, lambda request: ListTopics(request, [name]), self._told_ends)
            self.connection.post(self._asking)

    def _told_ends(self, answer: Answer) -> None:
        self._asking = None
        session = self.session
        if session is None or not isinstance(answer, Topics) or self.connection.clock() - self._heard < SILENCE_S / 2:
            return
        ends = {found.partition: found.end for found in answer.topics[0].partitions}
        behind = any(
            view.fetched < ends.get(view.partition, 0) and not view.revoked for view in session.partitions.values()
        )
        if behind and not any(session.outstanding) and not self._queue:
            self._fall_back(ends)

    def _fall_back(self, ends: Mapping[int, int]) -> None:
        """The broker has records for us that do not come: take another way, or a fresh endpoint."""
        if self.options.may_fall_back:
            self.delivery = "control"
        self._lose()
        self._join_at = 0.0

    # -- handing out --------------------------------------------------------------------------------------

    def next_list(self, deadline: float, *, one_by_one: bool) -> Steps[Handout | None]:
        """The next run of records; None when there is none by the deadline.

        `one_by_one`: the application works on the record it was given last, not on the whole run.
        """
        self._enter()
        self._one_by_one = one_by_one
        while True:
            self.check_open()
            if self._handout is not None and self._handout.left:
                return self._handout
            found = self._next_batch()
            if found is not None:
                return self._hand_out(*found)
            if self.connection.clock() >= deadline:
                return None
            yield self._pause(deadline)

    def fetch(self, max_records: int, deadline: float) -> Steps[list[Record]]:
        """At most `max_records` records: what is there, or what comes first by the deadline."""
        taken: list[Record] = []
        run = yield from self.next_list(deadline, one_by_one=False)
        while run is not None and len(taken) < max_records:
            taken += run.take(max_records - len(taken))
            if run.left:
                break
            self._note()
            found = self._next_batch() if len(taken) < max_records else None
            run = None if found is None else self._hand_out(*found)
        self._note()
        return taken

    def next_batch(self, deadline: float) -> Steps[tuple[Batch, int, int] | None]:
        """The next batch, the offset it is to be read from, and its partition. Its records count as handed out."""
        self._enter()
        if self._handout is not None and self._handout.left:
            raise InvalidArgument(
                f"{self._handout.left} records of the last batch are not iterated yet; take them with fetch before batches()"
            )
        while True:
            self.check_open()
            found = self._next_batch()
            if found is not None:
                delivery, batch = found
                assert self.session is not None, "only a session delivers"
                start = max(delivery.offset, batch.base_offset)
                self.session.handed_out(delivery, min(batch.end_offset, delivery.next_offset))
                return batch, start, delivery.partition
            if self.connection.clock() >= deadline:
                return None
            yield self._pause(deadline)

    def _pause(self, deadline: float) -> Pause:
        self._touched = self.connection.clock()
        self._release_idle()
        sleeper: Sleeper | None = self._mapped
        return Pause(deadline, sleeper)

    def _enter(self) -> None:
        """The application calls: what it was given before, it is done with."""
        self._note()
        self._touched = self.connection.clock()
        session = self.session
        if session is not None:
            self._safe = {view.partition: (view.epoch, view.position) for view in session.partitions.values()}
            if session.revoked:
                self._release(session.revoked)

    def _hand_out(self, delivery: Delivery, batch: Batch) -> Handout:
        start = max(delivery.offset, batch.base_offset)
        found = records(batch, start=start, partition=delivery.partition, topic=self.topic.name)
        end = batch.end_offset
        if end > delivery.next_offset:
            del found[delivery.next_offset - start :]
            end = delivery.next_offset
        self._handout = Handout(delivery, found, end)
        return self._handout

    def _note(self) -> None:
        """Tell the session how far the application is."""
        handout = self._handout
        if handout is None:
            return
        if self.session is not None:
            self.session.handed_out(handout.delivery, handout.position)
        if not handout.left:
            self._handout = None

    def _next_batch(self) -> tuple[Delivery, Batch] | None:
        """The next batch of records that may be handed out."""
        session = self.session
        if session is None:
            return None
        while True:
            delivery = self._delivery
            if delivery is not None and self._batches and session.is_current(delivery):
                batch = self._batches.popleft()
                if not self._batches:
                    self._finish(session)
                return delivery, batch
            if delivery is not None:
                self._finish(session)
            self._delivery = self._queue.popleft() if self._queue else self._read_mapped(session)
            if self._delivery is None:
                return None
            self._batches = deque(_of_stream(self._delivery))

    def _finish(self, session: ConsumerSession) -> None:
        """The current delivery is used up, or void."""
        assert self._delivery is not None, "something was delivered"
        session.finished(self._delivery)
        self._delivery = None
        self._batches.clear()
        self._send_credit(session.credit_due())

    def _read_mapped(self, session: ConsumerSession) -> Delivery | None:
        return None if self._mapped is None else self._mapped.next(session)

    # -- giving back --------------------------------------------------------------------------------------

    def _release_idle(self) -> None:
        """Give back what was asked for and is not in the application's hands."""
        session = self.session
        if session is None:
            return
        self._note()
        partitions = session.partitions
        idle = [p for p in session.revoked if partitions[p].position == partitions[p].committed]
        if idle:
            self._release(idle)

    def _release(self, partitions: list[int]) -> None:
        """Give partitions back, once what was handed out of them is committed when that is ours to do."""
        session = self.session
        assert session is not None, "only a session has partitions"
        if self.options.auto_commit_s is not None:
            moved = [position for position in session.to_commit() if position.partition in partitions]
            if moved:
                self._commit_quietly(session, moved)
        if self._handout is not None and self._handout.delivery.partition in partitions:
            self._handout.drop()
            self._handout = None
        # Behind the commit on the same connection, so the broker moves the cursor before it gives them away.
        self.connection.send(session.release(partitions))

    # -- committing ---------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[int, int] | None, deadline: float) -> Steps[None]:
        """Make the cursor durable: exactly what was handed out, or explicit next offsets."""
        self._check_group()
        session = yield from self._in_session(deadline)
        self._note()
        wanted = session.to_commit() if positions is None else self._explicit(session, positions)
        lost, self._kept = [p for p, (done, at) in self._kept.items() if at > done], {}
        if wanted:
            what = f"committing group {self.options.group} on topic {self.topic.name}"
            yield from self.connection.ask(self._commit_of(session, wanted), Done, deadline=deadline, what=what)
            session.committed(wanted)
        if lost and positions is None:
            raise Fenced(
                f"partitions {lost} of topic {self.topic.name} went to other members of group {self.options.group} before "
                "this commit: what was handed out of them since the last one is read again"
            )

    def _commit_of(self, session: ConsumerSession, positions: list[Position]) -> Callable[[int], Commit]:
        topic, group = self.topic.topic, self.options.group
        return lambda request: Commit(request, session.session, topic, group, positions)

    def _explicit(self, session: ConsumerSession, positions: Mapping[int, int]) -> list[Position]:
        missing = [partition for partition in positions if partition not in session.partitions]
        if missing:
            raise NotAssigned(
                f"partitions {missing} are not assigned to this consumer, which reads {sorted(session.partitions)}"
            )
        return [Position(p, offset, session.partitions[p].epoch) for p, offset in positions.items()]

    def _auto_commit(self, now: float) -> None:
        """Commit what the application is done with: all but the record or the list it works on."""
        assert self.options.auto_commit_s is not None and self.session is not None, "due only when asked for"
        self._commit_at = now + self.options.auto_commit_s
        done = self._done(self.session)
        if done and self._committing is None:
            self._committing = self._commit_quietly(self.session, done)

    def _done(self, session: ConsumerSession) -> list[Position]:
        safe = dict(self._safe)
        handout = self._handout
        if handout is not None and self._one_by_one:
            partition, position = handout.delivery.partition, handout.position - 1
            epoch, before = safe.get(partition, (handout.delivery.epoch, -1))
            if epoch == handout.delivery.epoch:
                safe[partition] = (epoch, max(before, position))
        return [
            Position(view.partition, safe[view.partition][1], view.epoch)
            for view in session.partitions.values()
            if safe.get(view.partition, (0, -1))[0] == view.epoch and safe[view.partition][1] > view.committed
        ]

    def _commit_quietly(self, session: ConsumerSession, positions: list[Position]) -> Question:
        def committed(answer: Answer) -> None:
            self._committing = None
            if isinstance(answer, Done):
                session.committed(positions)
            else:
                self.fenced += 1

        question = Question(self.connection, self._commit_of(session, positions), committed)
        self.connection.post(question)
        return question

    # -- places -------------------------------------------------------------------------------------------

    def joined(self, deadline: float) -> Steps[None]:
        """Wait for the first session."""
        yield from self._in_session(deadline)

    def _in_session(self, deadline: float) -> Steps[ConsumerSession]:
        self._touched = self.connection.clock()
        while self.session is None:
            self.check_open()
            if self._failure is not None:
                raise self._failure
            self.connection.check(deadline, f"joining topic {self.topic.name}")
            yield Pause(deadline)
        return self.session

    def seek(self, place: int, is_time: bool, partition: int | None, deadline: float) -> Steps[None]:
        """Go on elsewhere: at an offset, or where a time (or an end) is."""
        session = yield from self._in_session(deadline)
        self._note()
        chosen = sorted(session.partitions) if partition is None else [partition]
        if partition is not None and partition not in session.partitions:
            raise NotAssigned(
                f"partition {partition} is not assigned to this consumer, which reads {sorted(session.partitions)}"
            )
        if not is_time and len(chosen) > 1:
            raise InvalidArgument(f"an offset is of one partition: say which of {chosen} with partition=")
        targets = dict.fromkeys(chosen, place)
        if is_time:
            found = yield from self.connection.ask(
                lambda request: FindOffsets(request, self.topic.topic, place),
                Offsets,
                deadline=deadline,
                what="seeking",
            )
            targets = {number: found.offsets[number][0] for number in chosen}
        for number, offset in targets.items():
            yield from self._seek_one(session, number, offset, deadline)

    def _seek_one(self, session: ConsumerSession, partition: int, offset: int, deadline: float) -> Steps[None]:
        if self._handout is not None and self._handout.delivery.partition == partition:
            self._handout.drop()
            self._handout = None
        yield from self.connection.ask(
            lambda request: SeekTo(request, session.session, partition, offset), Done, deadline=deadline, what="seeking"
        )

    def positions(self) -> dict[int, int]:
        """The next offset to be handed out, by partition."""
        self._note()
        return {} if self.session is None else dict(sorted(self.session.positions()))

    def lag(self, deadline: float) -> Steps[dict[int, int]]:
        """Records between position and committed end, by partition, as the broker has it now."""
        session = yield from self._in_session(deadline)
        topic = yield from self.connection.find_topic(self.topic.name, deadline)
        self._note()
        ends = {found.partition: found.end for found in topic.partitions}
        return {p: max(ends[p] - position, 0) for p, position in sorted(session.positions()) if p in ends}

    # -- the end ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise what ended this consumer."""
        if self.closed:
            raise Closed(f"the consumer of topic {self.topic.name} was closed; open another one")
        if self._failure is not None:
            raise self._failure

    def _check_group(self) -> None:
        self.check_open()
        if not self.options.group:
            raise NoGroup("a consumer without a group has nothing to commit; keep its `position`, or give it a group")

    def close(self, deadline: float, *, failed: bool) -> Steps[None]:
        """Commit when that is automatic (all but the record in hand when the application `failed`), then leave."""
        if self.closed:
            return
        session = self.session
        if session is not None and self.options.auto_commit_s is not None:
            if not failed:
                self._enter()
            done = self._done(session)
            if done:
                self._commit_quietly(session, done)
        self.closed = True
        self._lose()
        self.connection.parts.pop(self, None)
        for question in (self._joining, self._asking):
            if question is not None:
                question.cancel()
        if session is not None and self.connection.channel.connected:
            limit = min(deadline, self.connection.deadline(LEAVE_PATIENCE_S))
            leave = Question(self.connection, lambda request: Leave(request, session.session))
            yield from self._leave(leave, limit)

    def _leave(self, leave: Question, limit: float) -> Steps[None]:
        """Wait for the answer, so that a commit before it is known to have arrived; without one, not for ever."""
        self.connection.post(leave)
        while leave.answer is None and self.connection.clock() < limit and self.connection.channel.connected:
            yield Pause(limit)
        leave.cancel()


def _of_stream(delivery: Delivery) -> Iterable[Batch]:
    """The batches of records a delivery holds for the application, every column verified.

    Raises BadChecksum, InvalidBatch; NewerFormat for kinds of the future.
    """
    for batch in batches(delivery.payload):
        if batch.kind not in KINDS_OF_STREAMS:
            if batch.kind not in Kind._value2member_map_:
                raise NewerFormat(
                    f"batch {batch.seq} is of kind {batch.kind}, unknown to this version; upgrade penstock"
                )
        elif batch.end_offset > delivery.offset and batch.base_offset < delivery.next_offset:
            batch.check()
            yield batch
