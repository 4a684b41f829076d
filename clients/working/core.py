"""The core of sync and async workers: leases, the tasks in the application's hands, and their outcomes.

Idea: leasing.py gets leases; settling.py reports outcomes. This is the application's interface: it takes tasks from
the one, passes outcomes to the other, and extends the leases of tasks in hand.

Contract: no task is handed out of a lost or expired lease. A lease with a task handed out is extended at a third of
its time, as long as the application calls within `max_processing_s`; one that only waited here for so long is
returned, because waiting is no attempt and other workers may have time. Closing returns everything unsettled.
"""

from __future__ import annotations

import logging
import reprlib
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...broker.errors import LeaseLost
from ...storage import forks
from ...storage.errors import Closed, Error
from ...transport.message import LIST_MAX
from ...transport.messages import Answer, Topic
from ...transport.queue_messages import BY_GROUP, Extended, ExtendLeases, Leased, Verb
from ..arguments.quantities import Duration, lease_milliseconds
from ..connection.question import Question
from ..connection.steps import Pause, Steps
from ..connection.unavailable import UnavailablePartitions, is_not_worked_on
from ..errors import InvalidArgument
from ..queues.claiming import claim, claim_plan
from ..queues.outcomes import checked_progress, checked_reason, checked_result, delay_milliseconds
from .leases import Held, SettleFuture, length_ms
from .leasing import Leasing
from .options import WorkerOptions, check_count
from .record import TaskRecord
from .settling import Settling

if TYPE_CHECKING:
    from ..connection.shell import Shell
    from ..serializing import Loading

log = logging.getLogger("penstock.clients.workers")

CLOSE_PATIENCE_S = 5.0
"""How long closing waits for the broker; leases that it does not hear of end by their time."""

AWAY_PATIENCE_S = 1.0
"""How long it waits for a broker that is away where only leases are to be released: a lost connection is made anew
after up to 0.4 s."""

BEAT_AGAIN = 0.1
"""Share of a lease's time between a refused extension and the next try, or that of leases that one had no room for."""

TOGETHER = LIST_MAX
"""Leases that one request extends."""


class WorkerCore:
    """See the module. `task`, `future`: the kinds that its shell has."""

    def __init__(
        self,
        shell: Shell,
        topic: Topic,
        options: WorkerOptions,
        *,
        task: type[TaskRecord],
        future: type[SettleFuture],
        load: Loading | None = None,
    ) -> None:
        self.connection = connection = shell.connection
        self.topic = topic
        self.options = options
        self.load = load
        self.run = shell.run
        self.do = shell.do
        self.closed = False
        self.ended = False
        """Closing is done: an interrupted one is finished by the next."""
        self.touched = connection.clock()
        """When the application last called."""
        self.left: deque[Any] = deque()
        """Tasks that a loop of the application took; the next loop, or another thread's, goes on with them."""
        self.held: dict[tuple[int, int], Held] = {}
        self.settling = Settling(connection, topic, options.group)
        self._unavailable = UnavailablePartitions(connection, topic, is_not_worked_on)
        self.leasing = Leasing(self, task)
        self._future = future
        self._earlier: deque[SettleFuture] = deque()  # of ack_and_fetch, the only one to raise their errors
        self._beating: Question | None = None
        connection.parts[self] = None
        forks.tell(self)

    def _forked(self) -> None:
        """Close in a forked child: the leases are its parent's."""
        self.closed = self.ended = True

    # -- as Part ------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """See Part."""
        if now >= self.leasing.put_off_until:
            self.leasing.ask_without_ack()
        if now >= self.settling.send_at or now >= self.settling.again_at:
            self.settling.turn(now)
        if self.held and min(map(_beat_at, self.held.values())) <= now:
            self._beat([lease for lease in self.held.values() if lease.beat_at <= now], now)

    def due(self) -> float:
        """See Part."""
        settling, beats = self.settling, map(_beat_at, self.held.values())
        return min(settling.send_at, settling.again_at, self.leasing.put_off_until, *beats)

    def restored(self) -> None:
        """See Part: leases outlive connections, and questions are asked again by themselves, but one whose answer an
        interrupt took with it."""
        self._unavailable.restored()
        self.settling.say_again()

    # -- handing out --------------------------------------------------------------------------------------

    def fetch(self, max_records: int, deadline: float) -> Steps[list[Any]]:
        """At most `max_records` tasks: available ones, or the first that come by the deadline."""
        self.enter()
        check_count(max_records)
        if self.left:
            self._take_back()
        if self._unavailable.untold:
            self._unavailable.raise_next()
        return (yield from self.leasing.fetch(max_records, deadline))

    def ack_and_fetch(self, tasks: Sequence[TaskRecord], max_records: int, deadline: float) -> Steps[list[Any]]:
        """Settle a batch with the request that asks for the next one."""
        self.enter()
        check_count(max_records)
        self._take_back()
        self._raise_earlier()
        if tasks:
            self._earlier.append(self._gather(tasks, Verb.ACK, BY_GROUP, ""))
        if self._unavailable.untold:
            self.settling.send()
            self._unavailable.raise_next()
        found = yield from self.leasing.fetch(max_records, deadline, settling=True)
        try:
            self._raise_earlier()
        except Error:
            self.leasing.put_back(found)
            raise
        return found

    def claim(self, ids: Iterable[str] | None, **terms: Any) -> Steps[list[Any]]:
        """Take tasks that workers hold, perhaps this one. `terms` are those of `claim_plan`."""
        self.enter()
        options, taken = self.options, list[Any]()
        terms |= {"lease_ms": options.lease_ms, "max_bytes": options.max_bytes}
        plan = claim_plan(self.topic, options.group, options.name, ids, **terms)

        def take(answer: Leased, payload: bytes, began: float) -> None:
            taken.extend(self.leasing.claimed(answer, payload, began))

        try:
            yield from claim(self.connection, self.topic.name, plan, take)
        except BaseException:  # Ctrl-C among them: the next fetch hands them out
            self.leasing.put_back(taken)
            raise
        return taken

    def _take_back(self) -> None:
        """Hand out tasks left by an interrupted loop first. Each is popped once: a loop in another thread may go on."""
        while self.left:
            try:
                task = self.left.pop()
            except IndexError:
                return
            self.leasing.put_back([task])

    def _raise_earlier(self) -> None:
        """Raise the first error not raised yet."""
        while self._earlier and self._earlier[0].done():
            self._earlier.popleft().raise_error()

    def enter(self) -> None:
        """Note a call of the application."""
        if self.closed or self.connection.forked:
            self.check_open()
        self.touched = self.connection.clock()

    # -- settling -----------------------------------------------------------------------------------------

    def bury(self, task: TaskRecord, reason: str) -> None:
        """Dead-letter a task that the application does not get; the broker refuses that of a lost lease."""
        self.leasing.settle_unheard(task._lease, Verb.REJECT, checked_reason(reason), [task.offset])

    def settle_now(
        self,
        tasks: Sequence[TaskRecord],
        verb: Verb,
        *,
        delay: Duration | None = None,
        reason: str = "",
        result: bytes | None = None,
    ) -> Steps[None]:
        """Settle tasks and wait until that is committed. Raises LeaseLost."""
        self.enter()
        if type(tasks) not in (tuple, list) and (not isinstance(tasks, Sequence) or isinstance(tasks, (str, bytes))):
            raise _no_tasks(tasks)
        if not tasks:
            return
        delay_ms = BY_GROUP if delay is None else delay_milliseconds(delay)
        why = "" if reason == "" else checked_reason(reason)
        future = self._gather(tasks, verb, delay_ms, why, None if result is None else checked_result(result))
        yield from self.settled(future, self.connection.deadline())
        future.raise_error()

    def ack_later(self, task: TaskRecord, result: bytes | None) -> Steps[Any]:
        """Ack a task with others, soon; returns its future. Waits only while too many are in flight."""
        self.enter()
        value = checked_result(result)
        deadline = self.connection.deadline()
        while self.settling.full:
            if self.connection.is_over(deadline):
                self.connection.check(deadline, self._what)
            yield Pause(deadline)
            self.check_open()
        return self._gather((task,), Verb.ACK, BY_GROUP, "", value)

    def _gather(
        self, tasks: Sequence[TaskRecord], verb: Verb, delay_ms: int, reason: str, result: bytes | None = None
    ) -> SettleFuture:
        """Note outcomes of tasks. Those known to be lost are refused here."""
        future = self._future(self)
        groups = _by_lease(tasks)
        for lease, offsets in groups:
            if lease.core is not self:
                raise InvalidArgument(
                    f"task {lease.core.topic.name}-{lease.partition}-{offsets[0]} was fetched by another worker: "
                    "settle it there"
                )
        for lease, offsets in groups:
            if not lease.token:
                _check_taken(lease, offsets[0], plain=verb == Verb.ACK and result is None)
        for lease, offsets in groups:
            if not lease.token:
                continue
            if lease.lost:
                future.refuse(_lost(lease, offsets))
                continue
            results = [] if result is None else [(offset, result) for offset in offsets]
            self.settling.gather(lease, verb, delay_ms, reason, offsets, results, future)
            lease.open.difference_update(offsets)
            if not lease.open:
                self.held.pop(lease.place, None)
        return future

    def settled(self, future: SettleFuture, deadline: float) -> Steps[None]:
        """Wait until the outcome is known."""
        self.leasing.ack()
        while future.left:
            if self.connection.is_over(deadline):
                self.connection.check(deadline, self._what)
            yield Pause(deadline)

    def flush(self, deadline: float) -> Steps[None]:
        """Wait until all settles are committed. Raises the first error not raised yet."""
        self.enter()
        self.settling.send()
        while self.settling.unconfirmed:
            if self.connection.is_over(deadline):
                self.connection.check(deadline, self._what)
            yield Pause(deadline)
        self._earlier.clear()
        self.settling.raise_unseen()

    @property
    def _what(self) -> str:
        return f"settling tasks of topic {self.topic.name}{self.settling.trouble}"

    # -- staying alive ------------------------------------------------------------------------------------

    def extend(self, task: TaskRecord, lease: Duration | None, *, progress: bytes | None = None) -> Steps[None]:
        """Extend a task's lease and report its progress. Raises LeaseLost."""
        self.enter()
        held = task._lease
        if not held.token:
            _check_taken(held, task.offset, plain=False)
        begun = self.connection.clock()
        lease_ms = held.lease_ms if lease is None else lease_milliseconds(lease)
        if progress is not None:
            lease_ms = held.at_least(lease_ms, begun)  # it may have been extended for longer
        said = [] if progress is None else [(held.partition, task.offset, checked_progress(progress))]
        if held.lost:
            raise _lost(held, [task.offset])
        answer = yield from self.connection.ask(
            lambda request: ExtendLeases(request, self.topic.topic, self.options.group, [held.place], lease_ms, said),
            Extended,
            deadline=self.connection.deadline(),
            what=f"extending the lease of task {task.id}",
        )
        self._extended([held], answer, begun, lease_ms)
        if held.lost:
            raise _lost(held, [task.offset])

    def _beat(self, due: list[Held], now: float) -> None:
        """Extend leases that the application works on; release tasks that only waited here."""
        for lease in due:
            if not lease.handed:
                self.leasing.give_back(lease)
        working = [lease for lease in due if lease.handed]
        if not working:
            return
        hangs = now - self.touched >= self.options.max_processing_s
        if not hangs and not self.connection.awaits(self._beating):
            lease_ms = working[0].lease_ms
            soon = now + working[0].pace_ms / 6000
            working += [
                lease
                for lease in self.held.values()
                if lease.handed and lease.lease_ms == lease_ms and now < lease.beat_at <= soon
            ]
            alike = [lease for lease in working if lease.lease_ms == lease_ms]
            self._say_alive(alike[:TOGETHER], lease_ms, now)
        for lease in working:
            lease.beat_at = now + lease.pace_ms * BEAT_AGAIN / 1000

    def _say_alive(self, leases: list[Held], lease_ms: int, now: float) -> None:
        def told(answer: Answer) -> None:
            self._beating = None
            if isinstance(answer, Extended):
                self._extended(leases, answer, now, lease_ms)

        group, topic, places = self.options.group, self.topic.topic, [lease.place for lease in leases]
        self._beating = Question(
            self.connection, lambda request: ExtendLeases(request, topic, group, places, lease_ms), told
        )
        self.connection.post(self._beating)

    def _extended(self, leases: list[Held], answer: Extended, begun: float, lease_ms: int) -> None:
        lost, kept_ms = set(answer.lost), length_ms(answer, lease_ms or answer.lease_ms)
        for lease in leases:
            if lease.place in lost:
                self.lose(lease)
            else:
                lease.keep(begun, kept_ms)
        for partition, offset in answer.cancelled:
            for lease in leases:
                if lease.partition == partition:
                    lease.cancelled.add(offset)

    def lose(self, lease: Held) -> None:
        """Mark a lease lost: another worker may have its tasks. A lease with all tasks settled has only ended."""
        if lease.open and lease.place in self.held:
            log.warning(
                "worker %s lost its lease of %d records of topic %s, partition %d, from offset %d on",
                self.options.name, len(lease.open), self.topic.name, lease.partition, min(lease.open),
            )  # fmt: skip
        lease.lost = lease.lost or bool(lease.open)
        self.held.pop(lease.place, None)

    # -- the end ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise Closed after `close`, and in a forked child."""
        self.connection.check_ours()
        if self.closed:
            raise Closed(f"the worker of topic {self.topic.name} was closed; open another one")

    def close(self) -> Steps[None]:
        """Send gathered outcomes and release tasks in hand. Raises what `flush` would."""
        if self.ended:
            return
        self.closed = True
        self.connection.ended.append(self)
        try:
            yield from self._let_go()
        except Error:
            self._end()
            raise
        self._end()

    def _let_go(self) -> Steps[None]:
        connection, settling = self.connection, self.settling
        said, deadline = settling.unconfirmed, connection.deadline(min(CLOSE_PATIENCE_S, connection.timeout))
        for lease in list(self.held.values()):
            self.leasing.give_back(lease)
        settling.send()
        self.leasing.recall()
        away_until = deadline if said else min(deadline, connection.clock() + AWAY_PATIENCE_S)
        while (settling.unconfirmed or self.leasing.asks) and (now := connection.clock()) < deadline:
            connected = connection.channel.connected
            if not connected and now >= away_until:
                break
            yield Pause(deadline if connected else away_until)
        if said and settling.unconfirmed:
            connection.check(deadline, self._what)
        settling.raise_unseen()

    def _end(self) -> None:
        self.connection.parts.pop(self, None)
        self.settling.give_up(Closed(f"the worker of topic {self.topic.name} was closed before this was known"))
        if self._beating is not None:
            self._beating.cancel()
        self.ended = True


_beat_at = attrgetter("beat_at")
_lease = attrgetter("_lease")
_offset = attrgetter("offset")


def _lost(lease: Held, offsets: Sequence[int]) -> LeaseLost:
    topic, count = lease.core.topic.name, len(offsets)
    which = f"task {topic}-{lease.partition}-{offsets[0]}" + (f" and {count - 1} more" if count > 1 else "")
    return LeaseLost(f"the lease of {which} is over: another worker may have it by now, and what was done here may be "
                     "done twice; extend in time, or ask for a longer lease")  # fmt: skip


def _check_taken(lease: Held, offset: int, *, plain: bool) -> None:
    """Raise InvalidArgument unless an outcome is the one that a task has had since it was given without a lease."""
    if not plain:
        raise InvalidArgument(
            f"task {lease.core.topic.name}-{lease.partition}-{offset} is done since it was given (at_most_once): only "
            "ack it, without a result"
        )


def _by_lease(tasks: Sequence[TaskRecord]) -> list[tuple[Held, list[int]]]:
    """Neighbours of one lease together, as offsets."""
    try:
        return [(lease, list(map(_offset, group))) for lease, group in groupby(tasks, key=_lease)]
    except (TypeError, AttributeError):
        raise _no_tasks(tasks) from None


def _no_tasks(tasks: Any) -> InvalidArgument:
    return InvalidArgument(f"tasks={reprlib.repr(tasks)} is not a list of tasks: give those that fetch returned")
