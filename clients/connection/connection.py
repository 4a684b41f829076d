"""The connection: requests and their answers over one channel, kept up across lost connections and leaders.

Idea: every request has an id and an asker. On a new connection the channel greets again, and every asker without an
answer is told that its request may be lost. The asker decides how to recover (resend the same bytes, join again),
because only it knows which requests are idempotent. What was asked of a node that does not lead counts as lost, too:
seeking.py finds the one that does.

Contract: nothing here waits. `turn` takes arrived messages and does what is due; `due` says when it must be called
next. Callbacks of applications are only collected here, in `finished`, and outcomes that threads may wait for in
`ended`, closed objects among them: the driver runs the former without the lock and wakes the waiters.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from ...broker.errors import WrongCluster
from ...storage import units
from ...storage.errors import BatchTooLarge, Closed, Error
from ...transport.codec import VERSION
from ...transport.errors import ProtocolError
from ...transport.failures import error_of
from ...transport.messages import (
    Answer,
    Assigned,
    Deliver,
    Evicted,
    Failure,
    Hello,
    LeaderMoved,
    ListTopics,
    Message,
    NameRequest,
    Ping,
    Topic,
    Topics,
    Welcome,
)  # fmt: skip
from ..errors import TimedOut
from .asking_again import sat_out
from .question import Question, expect
from .request_ids import current_ids
from .seeking import NOT_LEADING, Seeking
from .steps import FOREVER, Pause, Steps

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .askers import Asker, ConnectionSession, Part
    from .channel import ClientChannel

A = TypeVar("A")

log = logging.getLogger("penstock.clients.connection")

GREETING_PATIENCE_S = 5.0
"""A greeting without an answer is sent again after so long."""

LOOK_PERIOD_S = 1.0
"""How often askers whose answers are out are told so."""

SILENT_S = 2.0
"""A client that waits longer than this for its broker says so in the log."""

FOLLOWER = "follower"
"""Role of a node that greets and does not serve."""

AWAY_S = 2 * LOOK_PERIOD_S
"""A process that did not look for this long was stopped, not just busy."""


class Connection:
    """See the module."""

    def __init__(
        self,
        channel: ClientChannel,
        *,
        url: str,
        name: str,
        timeout: float,
        clock: Callable[[], float],
        addresses: Sequence[str] = (),
        turn_to: Callable[[str], None] | None = None,
    ) -> None:
        """`addresses` of `url`, where it names several; `turn_to` has the channel begin anew with one of them."""
        self.channel = channel
        self.url = url
        self.timeout = timeout
        self.ends_at = FOREVER  # what closes a client sets it: all that is closed has one timeout together
        self.forked = False  # this process is a child of the one that connected
        self.clock = clock
        self.welcome: Welcome | None = None
        self.turns = 0
        self.now = clock()  # when the latest turn began
        self._emptied = self.now  # everything that had arrived by then was taken
        self.next_request = count(1).__next__  # an id that was never used on this connection
        self.finished: list[Callable[[], None]] = []  # called again after Ctrl-C in them: each knows what is left
        self.ended: list[object] = []  # outcomes known since a driver last woke the waiters
        self.parts: dict[Part, None] = {}
        self.sessions: dict[int, ConnectionSession] = {}
        self._name = name
        self._ready = False
        self._was_reached = False  # a broker has answered a greeting, perhaps that it does not lead
        self._torn = False  # a call was interrupted, and the channel may not have been told
        self._denied = ""  # why the broker greets us later
        self.refused: Error | None = None  # why client and broker cannot work together
        self._greeted = 0  # the connection we greeted on
        self._greeting = 0  # request of the latest Hello
        self._greet_again = 0.0  # at the first turn
        self._look_at = 0.0
        self._seeking = Seeking(channel, url, addresses or (url,), turn_to, self.now)
        self._asked: dict[int, Asker] = {}
        self._lost: dict[Asker, None] = {}  # have yet to hear that their answers may be lost
        self._unsent: OrderedDict[Question, None] = OrderedDict()

    # -- sending --------------------------------------------------------------------------------------

    def send(
        self, message: Message, payload: Buffer = b"", *, asker: Asker | None = None, ids: Sequence[str] = ()
    ) -> bool:
        """Send now if the broker has greeted us; `asker` gets the answer to the message, a request.

        `ids` of requests that it is part of go ahead of it.
        """
        try:
            if not self._ready or self._torn or (ids and not self._announce(message, ids)):
                return False
            if not self.channel.send(message, payload):
                return False
        except BaseException:  # Ctrl-C, which may come with the return of any call: between two frames, for example
            self._torn = True
            self._break_off()
            raise
        if asker is not None:
            self._asked[message.request] = asker  # pyright: ignore[reportAttributeAccessIssue]
        return True

    def _announce(self, message: Any, ids: Sequence[str]) -> bool:
        return self.channel.send(NameRequest(message.request, list(ids)))

    def post(self, question: Question) -> None:
        """Send a question as soon as possible. Raises InvalidArgument for an invalid one."""
        message = None if question.times_sent else question.checked()
        self._unsent[question] = None  # first: Ctrl-C may come with the return of any call
        if len(self._unsent) == 1 and question.send(message):
            self._unsent.pop(question, None)

    def holds(self, question: Question) -> bool:
        """Whether a question is out, or waits to be sent."""
        return question in self._unsent or question in self._lost or self._asked.get(question.request) is question

    def awaits(self, question: Question | None) -> bool:
        """Whether there is a question that will be answered: Ctrl-C may have come before it was posted."""
        return question is not None and self.holds(question)

    def forget(self, question: Question) -> None:
        """Drop a question, sent or not."""
        self._asked.pop(question.request, None)
        self._unsent.pop(question, None)
        self._lost.pop(question, None)

    def forget_asker(self, asker: Asker) -> None:
        """Drop all requests of an asker that ended."""
        for request in [request for request, known in self._asked.items() if known is asker]:
            del self._asked[request]
        self._lost.pop(asker, None)

    # -- turning --------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Take arrived messages and do what is due. True when anything arrived: look again before waiting."""
        self.turns += 1
        if self._torn:
            self._break_off()
        now = self.now = self.clock()
        arrived = False
        channel = self.channel
        try:
            while True:
                found = channel.receive()
                if channel.connections != self._greeted:
                    self._greet()
                if found is None:
                    break
                arrived = True
                self._take(*found)
                if not channel.more:
                    break
            self._emptied = now
            if channel.refusal is not None and self.refused is None and not self._seeking.has_left:
                self._refuse(channel.refusal)
            if self._seeking.search.several:
                self._seek(now, arrived)
            if now >= self._greet_again:
                self._greet()
            if now >= self._look_at:
                self._look(now)
            while self._unsent and (first := next(iter(self._unsent))).send():
                self._unsent.pop(first, None)
            if self.parts:
                for part in list(self.parts):
                    part.turn(now)
        except BaseException:
            self._torn = True
            self._break_off()  # see `send`; an answer may be lost, too, and is asked for again
            raise
        return arrived

    def _seek(self, now: float, arrived: bool) -> None:
        """Stay with the present node, leave it, or turn to the next."""
        if arrived:
            self._seeking.heard(now)
        if why := self._seeking.left(now, self._ready):
            self._missed(why)
        if self._seeking.turn(now, self._ready):
            self._greet()

    def look(self) -> bool:
        """Take arrived answers and do nothing else; this is no turn. Returns whether there were any."""
        arrived, channel = False, self.channel
        try:
            while not self._torn and channel.connections == self._greeted and (found := channel.receive()) is not None:
                arrived = True
                self._take(*found)
                if not channel.more:
                    break
        except BaseException:
            self._torn = True
            self._break_off()
            raise
        return arrived

    def _break_off(self) -> None:
        """Begin with a new connection. `_torn` is set before: an interrupt in here has the next turn do it again."""
        self.channel.break_off()
        self._torn = False

    def arrived_at(self, asked_at: float) -> float:
        """When the present answer arrived; after a long time without a look, the earliest possible time.

        The process may have been stopped meanwhile, so the answer may be stale.
        """
        now, earliest = self.clock(), max(self._emptied, asked_at)
        return now if now - earliest <= AWAY_S else earliest

    def due(self) -> float:
        """When to call `turn` at the latest; drivers that are `expecting` turn every LOOK_PERIOD_S anyway."""
        due = min(self.channel.due(), self._greet_again)
        if self._seeking.search.several:
            due = min(due, self._seeking.due(self._ready))
        for part in self.parts:
            due = min(due, part.due())
        return due

    def _look(self, now: float) -> None:
        self._look_at = now + LOOK_PERIOD_S
        for asker in dict.fromkeys(self._asked.values()):
            asker.unanswered(now)
        if not (self._ready and self.expecting):
            self._seeking.heard(now)  # nothing is owed
        elif self._seeking.is_silent(now):
            self._missed("it does not answer")
        elif self._seeking.should_ask(now):
            self.send(Ping(self.next_request()))  # a node that is stopped may take nothing more, which is as silent
            self._seeking.asked(now)

    @property
    def asking(self) -> bool:
        """Whether a question is out or waits to be sent."""
        return bool(self._asked or self._unsent)

    @property
    def expecting(self) -> bool:
        """Whether an answer or delivery is expected."""
        return bool(self.asking or self.sessions)

    def _take(self, message: Answer, payload: Buffer) -> None:
        kind = type(message)
        if kind is Deliver or kind is Assigned or kind is Evicted:
            session = self.sessions.get(message.session)  # pyright: ignore[reportAttributeAccessIssue]
            if session is not None:
                session.told(message, payload)  # pyright: ignore[reportArgumentType]
            return
        if isinstance(message, LeaderMoved):
            if self._ready:
                self._missed("it leads no longer", term=message.term, leader=message.leader)
            else:
                self._seeking.told(self.now, message.term, message.leader)
            return
        request: int = message.request  # pyright: ignore[reportAttributeAccessIssue]
        if request == self._greeting:
            self._greeting_answered(message)
            return
        if isinstance(message, Failure) and message.code in NOT_LEADING:
            if self._ready:  # the first to say so
                self._not_led(message)
            if self._seeking.elsewhere(self.clock()) is None:
                return
        asker = self._asked.get(request)
        if asker is not None:
            self.payload = payload
            asker.answered(message)
            self._asked.pop(request, None)  # last: an answer that Ctrl-C took away is asked for again

    payload: Buffer = b""
    """The payload of the present answer; only valid inside `answered`."""

    # -- greeting -------------------------------------------------------------------------------------

    def _greet(self) -> None:
        self._seeking.lost()
        self._ready = False
        self._greeted = self.channel.connections
        self._greeting = self.next_request()
        self._greet_again = self.clock() + GREETING_PATIENCE_S
        if not self.channel.send(Hello(self._greeting, VERSION, VERSION, self._name, self._seeking.search.term)):
            self._greeted = -1 if self.channel.connected else self._greeted

    def _greeting_answered(self, message: Answer) -> None:
        if self._seeking.has_left:
            return  # it took too long
        self._greet_again = FOREVER
        if isinstance(message, Failure):
            if message.code in NOT_LEADING:
                self._was_reached = True
                self._not_led(message)
            elif message.after_ms:
                self._greet_again, self._denied = self.clock() + message.after_ms / 1000, message.message
            else:
                self._refuse(error_of(message))
            return
        if not isinstance(message, Welcome):
            self._refuse(ProtocolError(f"{self.url} answered a greeting with {type(message).__name__}"))
            return
        self._was_reached = True
        search = self._seeking.search
        if not search.is_ours(message.cluster):  # so its terms and its leader say nothing of ours
            self._refuse(WrongCluster(f"{search.address} is of another cluster than the nodes that answered before it"))
            return
        if message.role == FOLLOWER:  # a leader of a lower term has proved itself: the cluster was made anew
            self._missed("it does not lead", term=message.term, leader=message.leader)
            return
        self._seeking.found(self.clock(), message.term)
        self._denied = ""
        again, self.welcome, self._ready, self.refused = self.welcome is not None, message, True, None
        self._lost.update(dict.fromkeys(self._asked.values()))
        self._asked = {}
        if again:
            self.sessions.clear()
            for part in list(self.parts):
                part.restored()
        while self._lost:  # each until it was told: Ctrl-C may come with the return of any call
            asker = next(iter(self._lost))
            asker.lost()
            self._lost.pop(asker, None)

    def _not_led(self, failure: Failure) -> None:
        self._missed(failure.message, term=failure.term, leader=[failure.where] if failure.where else ())

    def _missed(self, why: str, *, term: int = 0, leader: Sequence[str] = (), refusal: Error | None = None) -> None:
        """The node does not lead us: what is out counts as lost, and the search goes on."""
        self._ready, self._denied = False, why
        self._greet_again = self._seeking.missed(self.clock(), why, term=term, leader=leader, refusal=refusal)
        self.refused = self._seeking.search.refused
        self.ended.append(self)  # all waiters look whether they go on
        if (elsewhere := self._seeking.elsewhere(self.clock())) is not None:
            failure = Failure(0, elsewhere.code, elsewhere.message, True, elsewhere.where, term=elsewhere.term)
            while self._unsent:
                question = next(iter(self._unsent))
                question.answered(failure)
                self._unsent.pop(question, None)

    def _refuse(self, error: Error) -> None:
        """The node will never let us in."""
        self._missed(error.message, refusal=error)

    # -- asking and waiting -----------------------------------------------------------------------------

    def ask(self, make: Callable[[int], Message], kind: type[A], *, deadline: float, what: str) -> Steps[A]:
        """Ask and wait for the answer; raise the error of a Failure. `what` completes "timed out: ..."."""
        question = Question(self, make)
        return (yield from self.wait_for(question, kind, deadline=deadline, what=what))

    def wait_for(self, question: Question, kind: type[A], *, deadline: float, what: str) -> Steps[A]:
        """Post a question and wait for its answer, of `kind` or a Failure."""
        question.ids = current_ids()
        try:
            self.post(question)
        except BaseException:
            question.cancel()
            raise
        return (yield from self.answer_to(question, kind, deadline=deadline, what=what))

    def answer_to(self, question: Question, kind: type[A], *, deadline: float, what: str) -> Steps[A]:
        """Wait for the answer to a posted question."""
        try:
            pause = Pause(deadline, outcome=question)
            while question.answer is None or (yield from sat_out(self, question, deadline)):
                self.check(deadline, what)
                yield pause
        finally:
            question.cancel()
        return expect(question.answer, kind)

    def is_over(self, deadline: float) -> bool:
        """Whether waiting is over: then `check` raises. As `_end`, which makes the error."""
        now, seeking = self.clock(), self._seeking
        return self.refused is not None or now >= deadline or bool(seeking.news and seeking.elsewhere(now))

    def check_here(self) -> None:
        """Raise NotLeader while this client knows one address and another node leads: nothing can be begun here."""
        if self._seeking.news and (elsewhere := self._seeking.elsewhere(self.clock())) is not None:
            raise elsewhere

    def check(self, deadline: float, what: str) -> None:
        """Raise if waiting is over: the broker refused us, another node leads, or the deadline passed."""
        if (error := self._end(deadline, what)) is not None:
            raise error

    def _end(self, deadline: float, what: str) -> Error | None:
        if self.refused is not None:
            return self.refused
        now = self.clock()
        if (elsewhere := self._seeking.elsewhere(now)) is not None:
            return elsewhere
        return TimedOut(f"timed out: {what}: {self.state}") if now >= deadline else None

    @property
    def state(self) -> str:
        """The state of the connection, for error messages."""
        search = self._seeking.search
        if search.several and not self._ready:
            return f"none of the nodes leads: {search.state}" if search.state else f"none of {self.url} answers"
        if not self.channel.connected:
            return f"no connection to {self.url}; is a broker running there?"
        if not self._ready:
            return self._denied or f"the broker at {self.url} does not answer a greeting"
        return f"the broker at {self.url} is connected but has not answered"

    def deadline(self, timeout: float | None = None) -> float:
        """`timeout` seconds from now; the client's own timeout if None. Never after `ends_at`."""
        return min(self.clock() + (self.timeout if timeout is None else timeout), self.ends_at)

    def ready(self, deadline: float) -> Steps[Welcome]:
        """Wait for the greeting of a broker that serves us."""
        yield from self._greeted_when(lambda: self._ready and self.welcome is not None, deadline)
        assert self.welcome is not None, "it is there with the first greeting"
        return self.welcome

    def reached(self, deadline: float) -> Steps[None]:
        """Wait until a broker is there, be it one that does not lead."""
        yield from self._greeted_when(lambda: self._was_reached, deadline)

    def _greeted_when(self, is_so: Callable[[], bool], deadline: float) -> Steps[None]:
        aloud_at = self.clock() + SILENT_S
        while not is_so():
            self.check(deadline, "connecting")
            if self.clock() >= aloud_at:
                aloud_at = FOREVER
                log.warning("waiting for the broker at %s, for up to %g s: %s", self.url, self.timeout, self.state)
            yield Pause(min(deadline, aloud_at))

    def too_large(self, batch: Buffer, count: int) -> BatchTooLarge | None:
        """The refusal of a batch of `count` records that is over the broker's frame limit, which is not to be sent.

        The broker would cut the client off, each time it was sent again.
        """
        welcome = self.welcome
        if welcome is None or len(batch) <= welcome.max_frame_bytes:
            return None
        return BatchTooLarge(
            f"a batch of {len(batch)} bytes with {units.count_text(count, 'record')} is over "
            f"max_frame_bytes={welcome.max_frame_bytes} of the broker: split the record, or raise the setting"
        )

    def find_topic(self, name: str, deadline: float) -> Steps[Topic]:
        """Fetch a topic's present description. Raises UnknownTopic."""
        answer = yield from self.ask(
            lambda request: ListTopics(request, [name]), Topics, deadline=deadline, what=f"looking up topic {name}"
        )
        return answer.topics[0]

    def check_ours(self) -> None:
        """Raise Closed in a process that was forked from the one that connected."""
        if self.forked:
            raise Closed(
                f"the client of {self.url} belongs to the process this one was forked from: connect in the child"
            )

    def close(self) -> None:
        """Close the channel; parts must be closed before."""
        self.parts.clear()
        self.channel.close()
