"""The core of sync and async consumers: deliveries, records handed out, and commits.

Idea: session_life.py keeps a session open; the session (transport/consumer_session.py) knows which records may be
handed out; this module converts deliveries to the form the application asked for and tracks its position to the
record.

Contract: no records of a partition are handed out after another member got it. A partition is released between two
calls of the application, after its records are committed if commits are automatic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

from ...broker.errors import Fenced, UnknownSession
from ...storage.arguments import INT_MAX
from ...storage.batch import Batch
from ...storage.errors import Closed, Error
from ...storage.record import Record, records
from ...transport.consumer_session import ConsumerSession, Delivery
from ...transport.messages import Answer, Commit, Done, Position, Topic
from ..arguments.checking import count
from ..connection.question import Question
from ..connection.steps import FOREVER, Pause, Steps
from ..connection.unavailable import UnavailablePartitions, is_closed
from ..errors import NoGroup
from .columnar import Convert
from .feed import Feed
from .handout import Handout, Load, LoadingRun
from .kept_places import KeptPlaces, read_on
from .pauses import hold
from .places import done_with, explicit, noted
from .read_terms import ReadTerms
from .session_life import ConsumerOptions, SessionLife
from .telling import AssignmentNews

if TYPE_CHECKING:
    from ..connection.connection import Connection

T = TypeVar("T")


class ConsumerCore:
    """See the module."""

    def __init__(self, connection: Connection, topic: Topic, options: ConsumerOptions) -> None:
        self.connection = connection
        self.topic = topic
        self.options = options
        self.closed = False
        self.ended = False
        """Closing is done: an interrupted one is finished by the next."""
        self.life = SessionLife(connection, topic, options, self)
        self._feed = Feed(self.life)
        self._unavailable = UnavailablePartitions(connection, topic, is_closed)
        self._handout: Handout | None = None
        self._one_by_one = False
        self.begun: dict[int, int] = {}  # where this call began to hand out, by partition
        self.back_to: dict[int, int] = {}  # the same of a call that was interrupted before its records were given
        self._torn = False  # the feed was interrupted, and may have let go of something
        self.kept = KeptPlaces(options.group)
        self._is_asking = False  # `commit` waits for its answer: a later commit of less would take it back
        self._safe: dict[int, tuple[int, int]] = {}  # epoch and position that the application is done with
        self._terms = ReadTerms(topic, options.group)
        self.paused: set[int] = set()  # partitions of which the application wants nothing for now
        self.telling: AssignmentNews | None = None  # the application, of partitions given and taken
        self.load: Load | None = None  # makes the records that the application gets of those with bytes
        self._held_in: ConsumerSession | None = None  # the session whose broker knows of these
        self._holding: list[Question] = []  # what it was asked about them: their epochs change
        self._commit_at = FOREVER if options.auto_commit_s is None else connection.clock() + options.auto_commit_s
        self._committing: Question | None = None
        self._releasing: Question | None = None  # the commit behind which partitions are released
        connection.parts[self] = None

    @property
    def session(self) -> ConsumerSession | None:
        """The session, while there is one."""
        return self.life.session

    @property
    def is_settled(self) -> bool:
        """Whether there is a session, and the broker has answered what it was asked to hold in it."""
        return self.session is not None and all(question.answer is not None for question in self._holding)

    # -- as SessionReader ---------------------------------------------------------------------------------

    def losing(self, session: ConsumerSession) -> None:
        """See SessionReader."""
        self._take_back()
        self._note()
        self.kept.keep(session.partitions.values())
        self._feed.clear()
        self._drop_handout()
        self._safe = {}

    def gained(self, session: ConsumerSession) -> None:
        """Resume where the application is, in partitions whose cursor was not moved meanwhile. See SessionReader."""
        welcome = self.connection.welcome
        assert welcome is not None, "a session has a broker that welcomed us"
        self._keep_taken(session)
        may_go_on = not self._terms.may_differ(welcome.incarnation)
        if not may_go_on:
            self.life.failure = self._terms.difference(session, self.kept.positions) or self.life.failure
        sought, anew = self.kept.resume(session, may_go_on=may_go_on)
        if self.telling is not None:
            self.telling.known.difference_update(anew)
        is_new, self._held_in = session is not self._held_in, session
        asked = hold(self.connection, self.life, self.paused, sought, session, is_new=is_new)
        self._holding = [question for question in self._holding if question.answer is None] + asked
        self._release_idle()

    def _keep_taken(self, session: ConsumerSession) -> None:
        """Partitions went to another member and came back, perhaps while the application works on their records."""
        for view in session.taken:
            handout = self._handout
            if handout is not None and handout.delivery.partition == view.partition:
                view.position = max(view.position, handout.position)
                self._drop_handout()
        self.kept.give_up(session.taken)
        session.taken = []

    def received(self, deliveries: Iterable[Delivery]) -> None:
        """See SessionReader."""
        self._feed.add(deliveries)

    def resume_positions(self) -> Mapping[int, int]:
        """See SessionReader."""
        return self.kept.positions

    # -- as Part ------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """See Part."""
        self._mend()
        self.life.turn(now)
        if now >= self._commit_at:
            self._auto_commit(now)

    def due(self) -> float:
        """See Part."""
        return min(self.life.due(), self._commit_at)

    def restored(self) -> None:
        """See Part."""
        self.life.restored()
        self._unavailable.restored()

    # -- handing out --------------------------------------------------------------------------------------

    def next_list(self, deadline: float, *, one_by_one: bool) -> Steps[Handout | None]:
        """The next run of records; None when there is none by the deadline.

        `one_by_one`: the application works on the record it was given last, not on the whole run.
        """
        self.enter(one_by_one)
        found = self.run_there()
        return found if found is not None else (yield from self._first_of(self.run_there, deadline))

    def _first_of(self, there: Callable[[], T | None], deadline: float) -> Steps[T | None]:
        """Wait until something is there, which was not just now; None when nothing comes by the deadline."""
        while True:
            yield self.pause(deadline)
            if self.telling is not None:
                self.telling.check(self.session)
            found = there()
            if found is not None or self.connection.clock() >= deadline:
                return found

    def run_there(self, *, holds: bool = False) -> Handout | None:
        """The rest of the present run, or the next available one. If the caller `holds` records: see `_taken`."""
        if not holds and (self.closed or self.connection.forked or self.life.failure is not None):
            self.check_open()
        self._note()
        run = self._handout or self._taken(self._hand_out, holds=holds, look=not holds)
        if run is not None:
            self.begun.setdefault(run.delivery.partition, run.position)
        return run

    def fetch(self, max_records: int, deadline: float) -> Steps[list[Record[Any]]]:
        """At most `max_records` records: what is there, or what comes first by the deadline."""
        if type(max_records) is not int or not 0 <= max_records <= INT_MAX:
            count("max_records", max_records)
        self.enter()
        taken = self.records_there(max_records)
        if not taken and max_records > 0:
            taken = yield from self._first_of(lambda: self.records_there(max_records) or None, deadline)
        return taken or []

    def records_there(self, most: int, *, holds: bool = False) -> list[Record[Any]]:
        """At most `most` records of those that are there now, not of those that come meanwhile: they are handed out.

        If the caller `holds` records, an error is raised by its next call.
        """
        if not holds and (self.closed or self.connection.forked or self.life.failure is not None):
            self.check_open()
        taken: list[Record[Any]] = []
        handout, look = self._handout, True
        while len(taken) < most:
            if handout is None:
                handout, look = self._taken(self._hand_out, holds=holds or bool(taken), look=look), False
                if handout is None:
                    break
            taken += self._take(handout, most - len(taken))
            handout = self._handout
        return taken

    def _take(self, handout: Handout, most: int) -> list[Record[Any]]:
        self.begun.setdefault(handout.delivery.partition, handout.position)
        taken = handout.take(most)
        self._note()
        return taken

    def next_batch(self, convert: Convert, deadline: float) -> Steps[Any]:
        """The result of `convert` for the next batch. Its records count as handed out."""
        found = self.batch_there(convert)
        return found if found is not None else (yield from self._first_of(lambda: self.batch_there(convert), deadline))

    def batch_there(self, convert: Convert) -> Any:
        """As `next_batch`, without waiting."""
        self.enter()
        self.check_open()
        if self.load is not None:
            return self.run_there()  # whose records are loaded without the lock
        if self._handout is not None and self._handout.left:
            return self._rest_of(self._handout, convert)
        return self._taken(lambda delivery, batch: self._hand_out_whole(delivery, batch, convert))

    def _hand_out_whole(self, delivery: Delivery, batch: Batch, convert: Convert) -> Any:
        assert self.session is not None, "only a session delivers"
        start, end = max(delivery.offset, batch.base_offset), batch.base_offset + batch.record_count
        found = convert(batch, start, delivery.partition, self.topic.name)
        if self._terms.noted:
            self._terms.note(delivery.partition, start, batch.term)
        self.begun[delivery.partition] = start
        self.session.handed_out(delivery, min(end, delivery.next_offset))
        return found

    def _rest_of(self, handout: Handout, convert: Convert) -> Any:
        """The rest of a run begun record by record, as a batch."""
        found = convert(handout.batch, handout.position, handout.delivery.partition, self.topic.name)
        self._take(handout, handout.left)
        return found

    def _taken(self, decode: Callable[[Delivery, Batch], T], *, holds: bool = False, look: bool = True) -> T | None:
        """The next batch of the feed, decoded. If the caller `holds` records, an error is raised by its next call.

        `look`: see MappedSource.next.
        """
        if self._unavailable.untold and not holds:
            self._unavailable.raise_next()
        try:
            return self._feed.next(decode, look)
        except Error as error:
            if holds:
                return None
            self._feed.pass_over(error)
            raise
        except BaseException:
            self._torn = True
            raise

    def pause(self, deadline: float) -> Pause:
        """Before a call waits: a partition that was taken is released if the application has nothing of it."""
        self.life.touched = self.connection.clock()
        self._release_idle()
        return Pause(deadline, self.life.mapped)

    def enter(self, one_by_one: bool = False) -> None:
        """Note a call of the application: it is done with what it got before. `one_by_one`: see `next_list`."""
        if self._torn or self.back_to or self.life.half_lost:
            self._mend()
        if self._handout is not None:
            self._note()
        self._one_by_one, self.life.touched = one_by_one, self.connection.clock()
        session = self.life.session
        if session is None:
            return
        if self.telling is not None:
            self.telling.check(session)
            self.kept.lost.clear()  # it was told, and begins them anew
        if self.options.auto_commit_s is not None:
            self._safe = {view.partition: (view.epoch, view.position) for view in session.partitions.values()}
        if session.revoked:
            self._release(session.revoked)

    def _hand_out(self, delivery: Delivery, batch: Batch) -> Handout:
        start, end = max(delivery.offset, batch.base_offset), batch.base_offset + batch.record_count
        found = records(batch, start=start, partition=delivery.partition, topic=self.topic.name)
        if self._terms.noted:
            self._terms.note(delivery.partition, start, batch.term)
        if end > delivery.next_offset:
            del found[delivery.next_offset - start :]
            end = delivery.next_offset
        run = iter(found) if self.load is None else LoadingRun(found, self.load)
        handout = self._handout = Handout(delivery, batch, run, end)
        return handout

    def _note(self) -> None:
        """Tell the session the application's positions."""
        handout = self._handout
        if handout is None:
            return
        session, left = self.life.session, length_hint(handout.iterator)
        if session is not None:
            session.handed_out(handout.delivery, handout.end - left)
        if not left:
            self._handout = None

    def _drop_handout(self) -> None:
        """Take back the run that the application is in the middle of."""
        if self._handout is not None:
            self._handout.drop()
            self._handout = None

    # -- after an interrupt: each step may be interrupted again, and is then repeated from the first one ------

    def _mend(self) -> None:
        """Read again, in another session, what an interrupted call took or the feed has let go of."""
        if self._torn or self.back_to or self.life.half_lost:
            self._torn = True
            self.life.rejoin()
            self._torn = False

    def _take_back(self) -> None:
        """Move positions back over records that an interrupted call took and the application never got."""
        if not self.back_to:
            return
        self._note()
        self._drop_handout()
        self._feed.clear()
        self._torn = True
        for partition, position in self.back_to.items():
            view = None if self.session is None else self.session.partitions.get(partition)
            if view is not None:
                view.position = position
        self.kept.move(self.back_to)
        self.back_to = {}

    # -- releasing ----------------------------------------------------------------------------------------

    def _release_idle(self) -> None:
        """Release revoked partitions of which the application has no records in hand."""
        session = self.session
        if session is None or not session.revoked:
            return
        self._note()
        partitions = session.partitions
        untold = set[int]() if self.telling is None else self.telling.known  # they may still be committed
        idle = [p for p in session.revoked if p not in untold and partitions[p].position == partitions[p].committed]
        if idle:
            self._release(idle)

    def _release(self, partitions: list[int]) -> None:
        """Release partitions, after committing their records if commits are automatic."""
        session = self.session
        assert session is not None, "only a session has partitions"
        if self._handout is not None and self._handout.delivery.partition in partitions:
            self._drop_handout()
        if self.options.auto_commit_s is not None:
            moved = [position for position in session.to_commit() if position.partition in partitions]
            if moved:
                waiting = self._releasing
                if waiting is None or waiting.times_sent or not self.connection.holds(waiting):
                    waiting = self._releasing = self.commit_quietly(session, moved)
                if not waiting.times_sent:
                    return  # the channel takes nothing for now: the next call releases them, behind what has left then
        # Behind the commit on the same connection, so the broker moves the cursor before it gives them away.
        self.connection.send(session.release(partitions))

    # -- committing ---------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[int, int] | None, note: str, deadline: float) -> Steps[None]:
        """Make the cursor durable: exactly what was handed out, or explicit next offsets."""
        self.check_group()
        yield from self.in_a_session(lambda session: self._commit(session, positions, note, deadline), deadline)
        if positions is None and (lost := self.kept.take_lost()):
            self.check_open()
            raise read_on(lost, self.topic.name, self.options.group)

    def _commit(
        self, session: ConsumerSession, positions: Mapping[int, int] | None, note: str, deadline: float
    ) -> Steps[None]:
        self._note()
        if positions is not None and (lost := self.kept.take_lost(positions)):
            raise read_on(lost, self.topic.name, self.options.group)
        moved = [each for each in session.to_commit() if each.partition not in self.kept.lost]
        wanted = noted(moved if positions is None else explicit(session, positions), note)
        if not wanted:
            return
        self.kept.ask(wanted)
        self._is_asking = True
        what = f"committing group {self.options.group} on topic {self.topic.name}"
        try:
            yield from self.connection.ask(self._commit_of(session, wanted), Done, deadline=deadline, what=what)
        except Fenced:
            taken = session.revoked  # asked back, and taken since: what is left can be committed
            self.connection.send(session.release(taken))
            raise
        finally:
            self._is_asking = False
        self.kept.committed(session, wanted)

    def _commit_of(self, session: ConsumerSession, positions: list[Position]) -> Callable[[int], Commit]:
        return lambda request: Commit(request, session.session, self.topic.topic, self.options.group, positions)

    def _auto_commit(self, now: float) -> None:
        """Commit everything but the record or list that the application works on."""
        every, session = self.options.auto_commit_s, self.session
        assert every is not None, "due only when asked for"
        self._commit_at = now + every
        if session is not None and self._committing is None and not self._is_asking and (done := self.done(session)):
            self._committing = self.commit_quietly(session, done)

    def done(self, session: ConsumerSession) -> list[Position]:
        """The cursors of everything but the record or list that the application works on."""
        return done_with(session, self._safe, self._handout if self._one_by_one else None)

    def all_done(self, session: ConsumerSession) -> list[Position]:
        """The cursors of everything that the application was given."""
        self._note()
        return session.to_commit()

    def commit_quietly(self, session: ConsumerSession, positions: list[Position]) -> Question:
        """Commit without waiting. What comes too late is read again by another member."""

        def committed(answer: Answer) -> None:
            self._committing = None
            if isinstance(answer, Done):
                self.kept.committed(session, positions)

        self.kept.ask(positions)
        question = Question(self.connection, self._commit_of(session, positions), committed)
        self.connection.post(question)
        return question

    # -- places -------------------------------------------------------------------------------------------

    def joined(self, deadline: float) -> Steps[None]:
        """Wait for the first session."""
        yield from self._in_session(deadline)

    def _in_session(self, deadline: float) -> Steps[ConsumerSession]:
        self._mend()
        self.life.touched = self.connection.clock()
        while self.session is None or not self.is_settled:
            self.check_open()
            self.connection.check(deadline, f"joining topic {self.topic.name}")
            yield Pause(deadline)
        return self.session

    def in_a_session(self, act: Callable[[ConsumerSession], Steps[None]], deadline: float) -> Steps[None]:
        """Act in the session, and again in the next one if it turns out to be over."""
        while True:
            session = yield from self._in_session(deadline)
            try:
                return (yield from act(session))
            except UnknownSession:
                if self.session is session:
                    self.life.rejoin()

    def let_go(self, partition: int) -> None:
        """Hand out no more of the run in hand if it is of this partition."""
        self._note()
        if self._handout is not None and self._handout.delivery.partition == partition:
            self._drop_handout()

    def positions(self) -> dict[int, int]:
        """The next offset to be handed out, by partition. Of a lost session, where the next one is to go on."""
        self._take_back()
        self._note()
        if self.session is not None:
            return dict(sorted(self.session.positions()))
        return {} if self.life.ended or self.life.failure is not None else self.kept.held

    # -- the end ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise what ended this consumer."""
        self.connection.check_ours()
        if self.closed:
            raise Closed(f"the consumer of topic {self.topic.name} was closed; open another one")
        if self.life.failure is not None:
            raise self.life.failure

    def check_group(self) -> None:
        """Raise NoGroup without a group."""
        self.check_open()
        if not self.options.group:
            raise NoGroup("a consumer without a group has nothing to commit; keep its `position`, or give it a group")

    def end_reading(self) -> bool:
        """Hand out nothing any more. Returns whether that was so before. See leaving.py."""
        again, self.closed = self.closed, True
        self._take_back()
        self._torn = False
        self.connection.ended.append(self)
        return again
