"""The life of a consumer's session: joining, heartbeats, losing it, joining again.

    joining -> reading -> (connection lost, evicted, a delivery lost, a silent endpoint) -> joining ...

Idea: readers do not notice a lost session. It joins again automatically, with another delivery if files cannot be
mapped or a push endpoint does not get through. Only permanent errors (another consumer took the name, the topic was
deleted) become `failure`, which every verb raises.

Contract: the reader is told before a session is dropped and after a new one has joined. Heartbeats are sent only while
the application has called within `max_processing_s`. The end leaves whichever session the broker may have: the present
one, one that was lost, and one that is being joined.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from ...broker.errors import LimitReached, SessionReplaced, UnknownTopic
from ...storage.errors import Error
from ...transport.consumer_session import ConsumerSession, Delivery
from ...transport.errors import DeliveryGap
from ...transport.failures import error_from
from ...transport.messages import (
    Answer,
    Assigned,
    Credit,
    Deliver,
    Evicted,
    Failure,
    Join,
    Joined,
    Leave,
    ListTopics,
    Topic,
    Topics,
)
from ..connection.question import Question, raised
from ..connection.steps import FOREVER
from ..errors import MappedUnavailable

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ..connection.connection import Connection
    from ..reading.mapped import MappedSource

log = logging.getLogger("penstock.clients.consumers")

REJOIN_MIN_S, REJOIN_MAX_S = 0.05, 2.0
"""Between two tries to join again."""

SAY_AGAIN_S = 0.1
"""After a grant that could not be sent: sooner would spin while the broker is away."""

SIGN_MAX_S = 60.0
"""Between two signs of life at most: brokers take a longer `session_timeout` for five minutes."""

SILENCE_S = 2.0
"""A push endpoint that says nothing for so long is asked about: is there anything it should have brought? When
it has not come after as long again, the endpoint is abandoned."""


MAPPED_PARTITIONS = 256
"""Partitions that "auto" maps at most, as each costs a descriptor: beyond that the broker delivers."""


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer reads. `group` is "" for one that reads alone."""

    group: str
    member: str
    start: int
    positions: dict[int, int]
    delivery: str  # push, control or mapped
    fallbacks: tuple[str, ...]  # the ways to take instead, one after the other, when the one before does not work
    auto_commit_s: float | None
    session_timeout_s: float
    max_processing_s: float
    window_bytes: int
    window_records: int
    verify: bool  # every column against its checksum before it is handed out


class SessionReader(Protocol):
    """The part that hands out a session's records."""

    def losing(self, session: ConsumerSession) -> None:
        """Stop handing out anything of this session."""
        ...

    def gained(self, session: ConsumerSession) -> None:
        """Handle a new session, or new partitions of it."""
        ...

    def received(self, deliveries: Iterable[Delivery]) -> None:
        """Take deliveries, in order, ready for the application."""
        ...

    def resume_positions(self) -> Mapping[int, int]:
        """The positions to resume from in a session without a group."""
        ...


class SessionLife:
    """See the module. `session` is None while there is none."""

    def __init__(self, connection: Connection, topic: Topic, options: ConsumerOptions, reader: SessionReader) -> None:
        self.topic = topic
        self.options = options
        self.session: ConsumerSession | None = None
        self.failure: Error | None = None
        self.delivery = options.delivery
        self._fallbacks = list(options.fallbacks)
        self.mapped: MappedSource | None = None
        self.touched = connection.clock()
        """When the application last called."""
        self.half_lost = False
        """`lose` was interrupted: `rejoin` has to do it again."""
        self.ended = False
        """It is to be left for good."""
        self._connection = connection
        self._reader = reader
        self._question: Question | None = None  # joining, or looking where the files are
        self._join_at = 0.0
        self._backoff_s = 0.0
        self._endpoint = ""
        self._heard = 0.0
        self._sign_at = FOREVER
        self._sign_every_s = min(options.session_timeout_s / 3, SIGN_MAX_S)
        self._asking: Question | None = None
        self._joined_last = 0  # the session that the broker may know, though it may be lost here
        self._leaving: Question | None = None
        self._missed: dict[int, int] = {}  # ends by partition, as the broker had them one silence ago

    # -- joining ----------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Ask for a session; a mapped one needs the present place of the files."""
        if self.delivery == "mapped":
            name = self.topic.name
            self._post(Question(self._connection, lambda request: ListTopics(request, [name]), self._listed))
        else:
            self._post(Question(self._connection, self._join_message, self._joined))
        self._join_at = FOREVER  # last: Ctrl-C may come with the return of any call

    def _post(self, question: Question) -> None:
        before, self._question = self._question, question
        self._connection.post(question)
        if before is not None:
            before.cancel()  # it may be told again after Ctrl-C, and is to ask nothing then

    def _listed(self, answer: Answer) -> None:
        if self.ended:
            self._question = None
            return
        if isinstance(answer, Topics) and answer.topics[0].topic == self.topic.topic:
            self.topic = answer.topics[0]
        self._post(Question(self._connection, self._join_message, self._joined))

    def _join_message(self, request: int) -> Join:
        options = self.options
        positions = [] if options.group else list({**options.positions, **self._reader.resume_positions()}.items())
        return Join(
            request,
            self.topic.topic,
            options.group,
            options.member,
            self.delivery,
            options.start,
            positions,
            round(options.session_timeout_s * 1000),
            options.window_bytes,
            options.window_records,
        )

    def _joined(self, answer: Answer) -> None:
        if self.ended:
            if isinstance(answer, Joined):
                self._leave(answer.session)
        else:
            self.lose()  # of the same answer, when Ctrl-C had the question asked again
            self._take_on(answer)
        self._question = None  # last: until then it is asked again

    def _take_on(self, answer: Answer) -> None:
        if not isinstance(answer, Joined):
            assert isinstance(answer, Failure), f"a join was answered with {type(answer).__name__}"
            self._not_joined(answer)
            return
        try:
            self._open_sources(answer)
        except Error as error:
            self._connection.post(Question(self._connection, lambda request: Leave(request, answer.session)))
            if not self.fall_back():
                self.failure = error
            return
        options, now = self.options, self._connection.clock()
        self.session = ConsumerSession(answer, window_bytes=options.window_bytes, window_records=options.window_records)
        self._joined_last = answer.session
        self._backoff_s = 0.0
        self._heard = now
        self._sign_at = now + self._sign_every_s
        self._connection.sessions[answer.session] = self
        self._reader.gained(self.session)

    def _open_sources(self, joined: Joined) -> None:
        channel = self._connection.channel
        if self.delivery == "mapped":
            welcome = self._connection.welcome
            assert welcome is not None, "a session has a broker that welcomed us"
            if self._fallbacks:
                _check_worth_mapping(joined)
            self.mapped = channel.open_source(welcome, self.topic, joined)
        elif joined.endpoint:
            channel.listen(joined.endpoint)
            self._endpoint = joined.endpoint

    def _not_joined(self, failure: Failure) -> None:
        if failure.code == LimitReached.code and self.delivery == "mapped" and self.fall_back():
            return
        if failure.retry:
            self._join_later(failure)
        else:
            self.failure = raised(failure)

    def _join_later(self, failure: Failure) -> None:
        self._backoff_s = min(max(2 * self._backoff_s, REJOIN_MIN_S), REJOIN_MAX_S)
        self._join_at = self._connection.clock() + max(self._backoff_s, failure.after_ms / 1000)

    # -- losing -----------------------------------------------------------------------------------------

    def lose(self) -> None:
        """Drop the session, if there is one."""
        session = self.session
        if session is None:
            return
        self.half_lost = True
        self._reader.losing(session)
        self._connection.sessions.pop(session.session, None)
        if self._endpoint:
            self._connection.channel.unlisten(self._endpoint)
            self._endpoint = ""
        if self.mapped is not None:
            self.mapped.close()
            self.mapped = None
        self.session, self.half_lost = None, False

    def rejoin(self) -> None:
        """Drop the session and join again at the next turn."""
        self._join_at = 0.0
        self.lose()

    def try_again(self, failure: Failure) -> None:
        """Drop the session, in which something was refused, and join again a little later."""
        self.lose()
        self._join_later(failure)

    def restored(self) -> None:
        """Rejoin over a new connection: messages on the old one may be lost, so the session is not to be trusted."""
        if self._question is None:
            self.rejoin()

    def end(self) -> None:
        """Leave for good. `left` says when the broker has confirmed it; `forget` stops waiting for that."""
        self.ended = True
        if self._joined_last:  # asked again after an interrupt: leaving twice is no error
            self._leave(self._joined_last)
        self.lose()
        self._join_at = FOREVER
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _leave(self, session: int) -> None:
        self._leaving = Question(self._connection, lambda request: Leave(request, session))
        self._connection.post(self._leaving)

    @property
    def left(self) -> bool:
        """Whether the broker has confirmed, after the `end`, that there is no session any more."""
        return self._question is None and (self._leaving is None or self._leaving.answer is not None)

    def forget(self) -> None:
        """Want no more answers."""
        for question in (self._question, self._leaving):
            if question is not None:
                question.cancel()

    # -- what comes -------------------------------------------------------------------------------------

    def told(self, message: Assigned | Deliver | Evicted, payload: Buffer) -> None:
        """Handle a message to the session."""
        session = self.session
        if session is None:
            return
        if isinstance(message, Deliver):
            self._heard = self._connection.clock()
            self._missed = {}
            try:
                self._reader.received(session.receive(message, payload))
            except DeliveryGap:
                self.rejoin()
        elif isinstance(message, Assigned):
            self._say_what_changed(session, message)
            self._reader.received(session.assigned(message))
            self._reader.gained(session)
            if self.mapped is not None and max(session.partitions, default=0) >= len(self.topic.partitions):
                self.rejoin()  # the topic has grown: look again where the files are
        elif message.code in (SessionReplaced.code, UnknownTopic.code):
            self.failure = error_from(message.code, message.message)
            self.lose()
        else:
            log.warning("%s lost its session and joins again: %s", self._name, message.message)
            self.rejoin()

    def _say_what_changed(self, session: ConsumerSession, message: Assigned) -> None:
        """Log a rebalance. A seek is none: its partition was ours before."""
        given = [each.partition for each in message.assignments if each.partition not in session.partitions]
        if given or message.revoked:
            log.info("%s was given partitions %s and is to release %s", self._name, given, list(message.revoked))

    @property
    def _name(self) -> str:
        return f"consumer {self.options.member} of topic {self.topic.name}, group {self.options.group or '(none)'}"

    # -- keeping going ------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Do what is due."""
        if self.session is None:
            is_due = self.failure is None and now >= self._join_at and self._is_alive(now)
            if is_due and not self._connection.awaits(self._question):
                self._join()
            return
        self.send_credit(self.session.credit_due())
        if now >= self._sign_at:
            self._sign_of_life(self.session, now)
        if self._endpoint and now - self._heard >= SILENCE_S:
            self._ask_about_silence(now)

    def due(self) -> float:
        """When `turn` has something to do."""
        if self.failure is not None:
            return FOREVER
        if self.session is None:
            return self._join_at if self._is_alive(self._connection.clock()) else FOREVER
        return min(self._sign_at, self._heard + SILENCE_S if self._endpoint else FOREVER)

    def _is_alive(self, now: float) -> bool:
        """Whether the application called lately; one that hangs gets no partitions and sends no heartbeats."""
        return now - self.touched < self.options.max_processing_s

    def _sign_of_life(self, session: ConsumerSession, now: float) -> None:
        self._sign_at = now + self._sign_every_s
        if self._is_alive(now):
            self.send_credit(session.sign_of_life())

    def send_credit(self, credit: Credit | None) -> None:
        """Send a grant; if it cannot be sent now, the total is resent a little later."""
        if credit is not None and not self._connection.send(credit):
            self._sign_at = self._connection.clock() + SAY_AGAIN_S

    def _ask_about_silence(self, now: float) -> None:
        """Ask whether the log ended: silence is fine there, and a broken path otherwise."""
        self._heard = now
        if not self._connection.awaits(self._asking):
            name = self.topic.name
            self._asking = Question(self._connection, lambda request: ListTopics(request, [name]), self._told_ends)
            self._connection.post(self._asking)

    def _told_ends(self, answer: Answer) -> None:
        self._asking = None
        session = self.session
        if session is None or not self._endpoint or not isinstance(answer, Topics) or any(session.outstanding):
            return
        # What was missing a silence ago has had all that time to come; what is missing since may be on its way.
        reading = [view for view in session.partitions.values() if not view.closed]
        if any(view.fetched < self._missed.get(view.partition, 0) for view in reading):
            if not self.fall_back():
                self.rejoin()
        else:
            self._missed = {found.partition: found.end for found in answer.topics[0].partitions}

    def fall_back(self) -> bool:
        """Rejoin with the next way of delivery. Returns False when none is left."""
        self._missed = {}
        if not self._fallbacks:
            return False
        self.delivery = self._fallbacks.pop(0)
        self.rejoin()
        return True


def _check_worth_mapping(joined: Joined) -> None:
    """Raise MappedUnavailable if another way is better, as far as a session can know."""
    if len(joined.assignments) > MAPPED_PARTITIONS:
        raise MappedUnavailable(f"{len(joined.assignments)} partitions are many to map, over {MAPPED_PARTITIONS}")
