"""Getting leases: requests in flight, and leases that wait to be handed out.

Idea: while the application works, the next leases are requested. Such a request is answered at once; if it was empty,
the next one stays at the broker as credit, and is answered as records come. A request made while the application
waits, waits as long as it does.

    fetch() --- nothing here ---> Lease(wait) ........ answered with tasks, or empty when the time is up
    handed out ------ prefetch -> Lease(no wait) ----- empty -> Lease(credit) ........ answered when something comes

A worker that takes tasks as they come would ask in vain each time: after tasks that came by credit, the next request
is credit at once, if the application waits and no outcomes ride on the request. A `fetch` whose time is up then asks
once more, because a waiting credit does not say whether there are records.

A worker that takes, acks and waits for the ack, one after the other, would have the broker sync twice for each: once
for the ack, once for the lease that was asked for before. So if the latest ack came right after its tasks, the next
request waits for an ack, and both leave with one write and are judged in one turn. It waits no longer than outcomes do.

Contract: an undecodable record hides no other one. A damaged record is rejected with that reason; one whose codec is
not installed here is returned, and `fetch` raises it once it has nothing else. `fetch` returns nothing only when every
request that had to be answered by its deadline was. Requests are repeated over a new connection. Those of a cancelled
`fetch`, and of a closed worker, are recalled: the broker answers them at once. Leases that reach a closed worker are
returned. Only `fetch` waits.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, Protocol

from ...storage.errors import Error, InvalidBatch
from ...transport.messages import Answer, Failure
from ...transport.queue_messages import BY_GROUP, Lease, Leased, SettleTasks, Verb
from ..connection.question import Question, raised
from ..connection.steps import FOREVER, Pause, Steps
from ..queues.picking import Unreadable, pick
from .leases import PACE_MS, Held, LeaseHolder, SettleFuture, length_ms
from .settling import BACKOFF_MAX_S, BACKOFF_MIN_S, GATHER_S, settles_of

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Sequence  # pyright: ignore[reportAttributeAccessIssue]

    from .leases import Gathering
    from .options import WorkerOptions
    from .record import TaskRecord
    from .settling import Settling

WAIT_MOST_S = 30.0
"""The longest that one request waits at the broker; the client repeats it."""

CREDIT_S = 10.0
"""How long credit stands without a call of the application: a record that comes meanwhile is leased to it."""

AT_ONCE = 0.0
"""The deadline of a request that does not wait."""

STALE = 0.1
"""Share of a lease's time: tasks of a lease with less left are not handed out any more."""


class LeasingWorker(LeaseHolder, Protocol):
    """The worker that asks for leases."""

    options: WorkerOptions
    settling: Settling
    held: dict[tuple[int, int], Held]
    closed: bool
    touched: float

    def check_open(self) -> None:
        """Raise Closed."""
        ...


class LeaseQuestion(Question):
    """One Lease request: how much it asks for, its deadline, and outcomes that ride on it."""

    def __init__(
        self, leasing: Leasing, max_records: int, by: float, settles: list[Gathering], *, credit: bool = False
    ) -> None:
        core = leasing.core
        super().__init__(core.connection, self._message, partial(leasing.answered, self))
        self.asked_at = core.connection.clock()
        self.by = by
        """When the broker answers at the latest, if it has nothing; AT_ONCE."""
        self.settles = settles
        self.credit = credit
        """A request that no call waits for: it stands until something comes."""
        self.proven = not credit
        """While it is out there was nothing, as far as an earlier or a later answer tells; or a call waits for it."""
        self._leasing = leasing
        self._max_records = max_records

    def _message(self, request: int) -> Lease:
        core = self._leasing.core
        options = core.options
        wait_ms = 0 if core.closed else max(round((self.by - core.connection.clock()) * 1000), 0)
        return Lease(
            request, core.topic.topic, options.group, options.name, self._max_records, max_bytes=options.max_bytes,
            lease_ms=options.lease_ms, wait_ms=wait_ms, settles=settles_of(self.settles) if self.settles else [],
            start=options.start,
            takes=options.at_most_once, remember=True,
        )  # fmt: skip

    def lost(self) -> None:
        """See Asker: a closed worker wants no more leases, only its outcomes to arrive."""
        if self._leasing.core.closed and not self.settles:
            self._leasing.forget(self)
        else:
            super().lost()


class Leasing:
    """See the module."""

    def __init__(self, core: LeasingWorker, task: type[TaskRecord]) -> None:
        self.core = core
        self._connection = core.connection
        self._task = task
        self._ready: deque[tuple[Held, list[Any]]] = deque()
        self._asked: dict[LeaseQuestion, None] = {}
        self._wanted = 1
        self._by_credit = False  # the latest tasks came by credit: as they came to the broker
        self._handed_at = -FOREVER  # when tasks were handed out last
        self._acks_soon = False  # the latest ack that was waited for came right after that
        self.put_off_until = FOREVER
        """When the request ahead goes by itself that waits for an ack."""
        self._trouble: Failure | None = None  # why the broker gives no leases now
        self._backoff_s = 0.0
        self._ask_at = 0.0
        self._failure: Error | None = None  # to be raised by the next call
        self._buried = False  # the latest lease had damaged records

    # -- handing out ----------------------------------------------------------------------------------

    def fetch(self, max_records: int, deadline: float, *, settling: bool = False) -> Steps[list[Any]]:
        """At most `max_records` tasks. `settling`: outcomes go with the next request, or by themselves."""
        core, clock = self.core, self._connection.clock
        if self.put_off_until < FOREVER:
            self.ask_without_ack()
        self._wanted = max_records
        taken = self._take(max_records)
        asked, waits = not taken and self._proven, clock() < deadline
        while not taken:
            now = clock()
            if self._buried:  # there was something, and there may be more
                asked = self._buried = False
            if (now < deadline or not asked) and now >= self._ask_at:
                self._ask_for(deadline, now, settling)
                asked = self._proven
            if settling and not self._answered_soon():
                core.settling.send()
            if now >= deadline and not self._still_awaited(deadline, now):
                break
            try:
                yield Pause(max(min(deadline, self._ask_at or deadline), now + BACKOFF_MIN_S))
            except GeneratorExit:  # cancelled, or Ctrl-C: the requests must not lease tasks for a call that is over
                self._recall([question for question in self._asked if not question.credit])
                raise
            core.check_open()
            core.touched = clock()
            taken = self._take(max_records)
        self._end_fetch(taken, waits, settling)
        return taken

    def _ask_for(self, deadline: float, now: float, settling: bool) -> None:
        """Have a request out that is answered by `deadline`; when that has passed, one that does not wait."""
        most = max(self.core.options.prefetch, 1)
        if now < deadline:
            self._ask_ahead(most, min(deadline, now + WAIT_MOST_S), settling)
        else:
            self._ask_ahead(max(most, len(self._asked) + 1), AT_ONCE, settling)

    def _end_fetch(self, taken: list[Any], waits: bool, settling: bool) -> None:
        """Ask for the next tasks, or say why there are none."""
        gathered = settling or self.core.settling.gathered
        if taken:
            self._handed_at = self._connection.clock()
        if taken and self._by_credit and waits and not gathered:
            self._give_credit(proven=False)
        elif taken and self._acks_soon and not gathered:
            self.put_off_until = self._handed_at + GATHER_S
        elif taken:
            self._ask_ahead(self.core.options.prefetch, AT_ONCE, settling)
        elif self._trouble is not None:
            raise raised(self._trouble)
        if settling:
            self.core.settling.send()

    def ack(self) -> None:
        """Send outcomes that a call waits for, and with them the request that was put off."""
        self._acks_soon = self._connection.clock() < self._handed_at + GATHER_S
        if self.put_off_until == FOREVER:
            self.core.settling.send()
            return
        with self._connection.channel.together():
            self.core.settling.send()
            self._ask_put_off()

    def ask_without_ack(self) -> None:
        """Send the request that was put off: no ack has come."""
        self._acks_soon = False
        self._ask_put_off()

    def _ask_put_off(self) -> None:
        self.put_off_until = FOREVER
        self._ask_ahead(self.core.options.prefetch, AT_ONCE, settling=False)

    def _still_awaited(self, deadline: float, now: float) -> bool:
        """Whether an answer is under way that may bring tasks, as it does if the broker lives. Raises TimedOut."""
        connection = self._connection
        if connection.refused is not None:
            raise connection.refused
        awaits = self.awaited(deadline) and connection.channel.connected
        if awaits and now >= deadline + connection.timeout:
            connection.check(now, f"leasing tasks of topic {self.core.topic.name}")
        return awaits

    def awaited(self, deadline: float) -> bool:
        """Whether a request is out that the broker answers by `deadline`."""
        return any(question.by <= deadline for question in self._asked)

    @property
    def _proven(self) -> bool:
        """Whether a request is out that, unless answered in time, proves there are no tasks."""
        return any(question.proven for question in self._asked)

    def _answered_soon(self) -> bool:
        """Whether outcomes may wait a moment, because the next request goes out with an answer that is under way."""
        return any(question.by == AT_ONCE for question in self._asked)

    def _take(self, most: int) -> list[Any]:
        """Available tasks whose leases stand."""
        taken: list[Any] = []
        ready, now = self._ready, self._connection.clock()
        while ready and len(taken) < most:
            lease, tasks = ready.popleft()
            if lease.lost or now > lease.until - (lease.lease_ms or PACE_MS) * STALE / 1000:
                self.core.held.pop(lease.place, None)
                continue
            lease.handed = True
            room = most - len(taken)
            if len(tasks) > room:
                ready.appendleft((lease, tasks[room:]))
                tasks = tasks[:room]
            taken = taken + tasks if taken else tasks
        if not taken and self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        return taken

    def put_back(self, tasks: Sequence[Any]) -> None:
        """Put back tasks that were taken and not handed out."""
        for task in reversed(tasks):
            self._ready.appendleft((task._lease, [task]))

    # -- asking ---------------------------------------------------------------------------------------

    def _ask_ahead(self, most: int, until: float, settling: bool) -> None:
        """Have `most` requests out or leases waiting. Outcomes ride on one that is answered soon or waited for."""
        while len(self._asked) + len(self._ready) < most:
            rides = self.core.settling.gathered and (settling or until == AT_ONCE)
            self._post(LeaseQuestion(self, self._wanted, until, self.core.settling.take() if rides else []))

    def _give_credit(self, *, proven: bool) -> None:
        """Let requests stand until records come, so that `prefetch` are out or here."""
        while len(self._asked) + len(self._ready) < self.core.options.prefetch:
            question = LeaseQuestion(self, self._wanted, self._connection.clock() + CREDIT_S, [], credit=True)
            question.proven = proven
            self._post(question)

    def _post(self, question: LeaseQuestion) -> None:
        self._asked[question] = None
        try:
            self._connection.post(question)
        except Error as error:
            self.forget(question)
            self.core.settling.unsendable(question.settles, error)
            raise
        except BaseException:  # Ctrl-C: it may be on its way or not
            question.cancel()
            self.forget(question)
            self.core.settling.say_again()
            raise

    def forget(self, question: LeaseQuestion) -> None:
        """Remove a request that will not be answered."""
        self._asked.pop(question, None)

    @property
    def asks(self) -> bool:
        """Whether a request is out."""
        return bool(self._asked)

    def recall(self) -> None:
        """Stop leasing: cancel unsent requests, and have those waiting at the broker answered at once."""
        self.put_off_until = FOREVER
        for question in [question for question in self._asked if not question.times_sent and not question.settles]:
            question.cancel()
            self.forget(question)
        self._recall(self._asked)

    def _recall(self, questions: Iterable[LeaseQuestion]) -> None:
        waiting = [question.request for question in questions if question.times_sent and question.by != AT_ONCE]
        if waiting:
            topic, group = self.core.topic.topic, self.core.options.group
            self._connection.post(
                Question(self._connection, lambda request: SettleTasks(request, topic, group, [], waiting))
            )

    # -- answers --------------------------------------------------------------------------------------

    def answered(self, question: LeaseQuestion, answer: Answer) -> None:
        """Handle the answer to a request."""
        self._asked.pop(question, None)
        if isinstance(answer, Leased):
            self._trouble, self._ask_at = None, 0.0
            if question.settles:
                self.core.settling.told(question.settles, answer.refused)
            if answer.runs:
                self._by_credit = question.credit
                self._leased(answer, self._connection.payload, self._connection.arrived_at(question.asked_at))
            else:
                self._dry(question)
            return
        assert isinstance(answer, Failure), f"a lease was answered with {type(answer).__name__}"
        if question.settles:
            self.core.settling.refused(question.settles, answer)
        self._failed(answer)

    def claimed(self, answer: Leased, payload: Buffer, arrived_at: float) -> list[Any]:
        """The tasks of a claim, handed out at once. Raises the error of those that cannot be decoded here."""
        if not answer.runs:
            return []
        lease, tasks = self._received(answer, payload, arrived_at)
        lease.handed = True
        if not tasks and self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        return tasks

    def _leased(self, answer: Leased, payload: Buffer, arrived_at: float) -> None:
        """Add leased tasks."""
        lease, tasks = self._received(answer, payload, arrived_at)
        if tasks:
            self._backoff_s = 0.0
            self._ready.append((lease, tasks))

    def _received(self, answer: Leased, payload: Buffer, arrived_at: float) -> tuple[Held, list[Any]]:
        """Hold a lease. Returns its tasks, none if they cannot be handed out."""
        core, runs = self.core, answer.runs
        offsets: set[int] = set()
        for first, count, _ in runs:
            offsets.update(range(first, first + count))
        lease_ms = length_ms(answer, answer.lease_ms) if answer.token else 0
        lease = Held(core, answer.partition, answer.token, lease_ms, offsets if answer.token else set())
        lease.keep(arrived_at, lease_ms)
        if answer.token:
            core.held[lease.place] = lease
        if core.closed:
            self.give_back(lease)
            core.settling.send()
            return lease, []
        try:
            tasks = self._tasks(lease, runs, payload)
        except Error as error:
            self.give_back(lease)
            self._failure = error
            return lease, []
        if len(tasks) < len(offsets):
            core.settling.send()
        return lease, tasks

    def _tasks(self, lease: Held, runs: Sequence[tuple[int, int, int]], payload: Buffer) -> list[Any]:
        """The records as tasks, in the order of processing."""
        wanted: list[tuple[int, int]] = []
        each_attempt: list[Iterable[int]] = []
        for first, count, attempt in runs:
            wanted.append((first, count))
            each_attempt.append(repeat(attempt, count))
        attempts = chain.from_iterable(each_attempt)
        found: list[Any] = []
        for rows in pick(payload, wanted):
            if isinstance(rows, Unreadable):
                self._pass_over(lease, rows)
                attempts = islice(attempts, rows.count, None)
            else:
                found += map(self._task, *rows, attempts, repeat(lease))
        return found

    def _pass_over(self, lease: Held, bad: Unreadable) -> None:
        """Reject damaged records. Release those that cannot be decoded here; the next call raises why."""
        offsets, error = list(range(bad.offset, bad.offset + bad.count)), bad.error
        if not lease.token:
            self._failure = error
        elif isinstance(error, InvalidBatch):
            self._buried = True
            self.settle_unheard(lease, Verb.REJECT, f"it cannot be read: {error.message}", offsets)
        else:
            self._failure = error
            self._wait_a_while()
            self.settle_unheard(lease, Verb.RELEASE, "", offsets)

    def _dry(self, question: LeaseQuestion) -> None:
        """Handle an empty answer: let the next request stand as credit, unless the application is away."""
        self._backoff_s = 0.0
        if question.by == AT_ONCE:
            for standing in self._asked:
                standing.proven = True
        if not self.core.closed and (question.by == AT_ONCE or self.core.touched > question.asked_at):
            self._give_credit(proven=True)

    def _failed(self, failure: Failure) -> None:
        if not failure.retry:
            self._failure = raised(failure)
            return
        self._trouble = failure
        self._wait_a_while(failure.after_ms / 1000)

    def _wait_a_while(self, at_least_s: float = 0.0) -> None:
        """Pause leasing, longer each time until tasks come."""
        self._backoff_s = min(max(2 * self._backoff_s, BACKOFF_MIN_S), BACKOFF_MAX_S)
        self._ask_at = self._connection.clock() + max(self._backoff_s, at_least_s)

    # -- releasing ------------------------------------------------------------------------------------

    def give_back(self, lease: Held) -> None:
        """Release the unsettled tasks of a lease; the attempt does not count."""
        self._ready = deque(each for each in self._ready if each[0] is not lease)
        if lease.open and not lease.lost:
            self.settle_unheard(lease, Verb.RELEASE, "", sorted(lease.open))
        self.core.held.pop(lease.place, None)  # last: a close that is interrupted can be repeated

    def settle_unheard(self, lease: Held, verb: Verb, reason: str, offsets: list[int]) -> None:
        """Settle tasks that the application never had; it is not told when that fails."""
        future = SettleFuture(self.core)
        future.ignore()
        self.core.settling.gather(lease, verb, BY_GROUP, reason, offsets, [], future)
        lease.open.difference_update(offsets)
        if not lease.open:
            self.core.held.pop(lease.place, None)
