"""Queue groups as a child would keep them: a dict of records, a dict of leases, and a loop for every question.

Idea: what a verb does is written down a second time, as plainly as possible and without looking at how the engine does
it. Where the engine may choose (jitter, which of several keys), the model takes what was chosen and checks that it was
allowed. Everything on one partition stands in one `Shelf`, so that a lost end of its log is a copy from before.

Contract: `Refused` is what a request deserves; everything else that is wrong is an AssertionError.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.transport.queue_messages import FOREVER_US

ACK, NACK, REJECT, RELEASE = range(4)
RAN_OUT = "the lease ran out"


class Refused(Exception):
    """A request that must be refused with this code."""


@dataclass
class Record:
    value: bytes
    key: bytes | None = None
    priority: int = 0
    not_before_us: int = 0  # 0 unless it was later than the time of its batch


@dataclass
class Task:
    """One record in one group."""

    state: str = "untouched"  # leased, waiting, dead, done, cancelled, discarded
    attempt: int = 0  # leases that count, the present one included
    ready_us: int = 0
    token: int = 0
    history: list[tuple[str, str]] = field(default_factory=list)  # worker, reason
    reason: str = ""
    cancelling: bool = False
    gone: bool = False  # trimmed while a lease without an end held it, which its worker has to settle
    progress: bytes | None = None


@dataclass
class Given:
    """A lease, as long as it holds something."""

    worker: str
    until_us: int  # FOREVER_US: until it is settled
    given_us: int
    records: frozenset[int]  # everything that was ever given under it


@dataclass
class Group:
    settings: QueueSettings
    start: int
    tasks: dict[int, Task] = field(default_factory=dict)
    leases: dict[int, Given] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    tokens: list[int] = field(default_factory=list)
    paused_until_us: int = 0
    expired: bool = False  # in this step: who was given records in the same one may have come before
    moved: bool = False  # back: what is retrying may go before an earlier record of its key
    mixed: bool = False  # it looked at keys once: what was passed over then may stand between retries
    grants: dict[bytes, list[int]] = field(default_factory=dict)  # times of leases by key, of this node's life
    workers: dict[str, tuple[int, int]] = field(default_factory=dict)  # since when, and when each last had something

    def copy(self) -> Group:
        tasks = {offset: replace(task) for offset, task in self.tasks.items()}
        leases = {token: replace(given) for token, given in self.leases.items()}
        grants = {key: list(times) for key, times in self.grants.items()}
        return replace(
            self, tasks=tasks, leases=leases, ended=set(self.ended), tokens=list(self.tokens), grants=grants,
            workers=dict(self.workers),
        )  # fmt: skip

    def saw(self, worker: str, now_us: int) -> None:
        """A worker was given something, or extended what it has."""
        self.workers[worker] = (self.workers.get(worker, (now_us, 0))[0], now_us)

    def unfinished(self, tasks: Iterable[Task]) -> int:
        """How many of them a trim would take from the group."""
        return sum(task.state in ("untouched", "waiting", "leased", "dead") and not task.gone for task in tasks)

    def knows(self, worker: str) -> bool:
        return worker in self.workers or any(given.worker == worker for given in self.leases.values())

    def held_by(self, token: int) -> list[int]:
        return [offset for offset, task in self.tasks.items() if task.token == token and task.state == "leased"]

    @property
    def most(self) -> float:
        """How many attempts a record has."""
        return math.inf if self.settings.max_attempts is None else self.settings.max_attempts

    def lease_until(self, now_us: int, lease_ms: int) -> int:
        if not lease_ms and self.settings.lease_s is None:
            return FOREVER_US
        return now_us + (lease_ms * 1000 or round((self.settings.lease_s or 0) * 1e6))

    @property
    def keyed(self) -> bool:
        s = self.settings
        return s.order == "key" or s.fair or s.key_concurrency is not None or s.key_rate_per_s is not None


@dataclass
class Shelf:
    """One partition."""

    records: list[Record] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    first: int = 0
    deleted: set[int] = field(default_factory=set)

    def copy(self) -> Shelf:
        """As it stands now; records never change, and what changes of a task is replaced."""
        return Shelf(
            list(self.records),
            {name: group.copy() for name, group in self.groups.items()},
            self.first,
            set(self.deleted),
        )

    def group(self, name: str) -> Group:
        if name not in self.groups:
            raise Refused("unknown_group")
        return self.groups[name]

    def produce(self, records: list[Record]) -> None:
        for record in records:
            for group in self.groups.values():
                group.tasks[len(self.records)] = Task()
            self.records.append(record)

    def create(self, name: str, settings: QueueSettings, start: int) -> None:
        tasks = {offset: Task() for offset in range(start, len(self.records)) if offset not in self.deleted}
        self.groups[name] = group = Group(settings, start, tasks)
        group.mixed = group.keyed

    def set(self, name: str, settings: QueueSettings) -> None:
        """Other settings; what has had all its attempts by now is dead."""
        group = self.groups[name]
        group.settings = settings
        group.mixed = group.mixed or group.keyed
        for task in group.tasks.values():
            if task.state == "waiting" and task.attempt >= group.most:
                task.state, task.reason = "dead", f"max_attempts was lowered to {settings.max_attempts}"

    # -- leases -------------------------------------------------------------------------------------

    def may_go(self, group: Group, offset: int, now_us: int) -> bool:
        """Whether a record could be leased, keys and pauses aside."""
        task, record = group.tasks[offset], self.records[offset]
        if task.state == "waiting":
            return task.ready_us <= now_us
        return task.state == "untouched" and record.not_before_us <= now_us

    def is_special(self, offset: int) -> bool:
        return bool(self.records[offset].priority or self.records[offset].not_before_us)

    def candidates(self, group: Group, end: int, now_us: int) -> list[int]:
        """What a group without keys would lease next from the records below `end`, in order."""
        if group.paused_until_us > now_us:
            return []
        found = [offset for offset in group.tasks if offset < end and self.may_go(group, offset, now_us)]
        return sorted(
            found, key=lambda offset: (-self.records[offset].priority, group.tasks[offset].state == "untouched", offset)
        )

    def grant(self, group: Group, token: int, worker: str, until_us: int, runs: dict[int, int], now_us: int) -> None:
        """A lease was given: of records (attempt by offset) that could go."""
        assert not group.tokens or token > group.tokens[-1], f"token {token} does not rise"
        self._check_given(group, runs, now_us)
        for offset, attempt in runs.items():
            task = group.tasks[offset]
            task.state, task.attempt, task.token, task.ready_us, task.reason = "leased", attempt, token, 0, ""
        group.leases[token] = Given(worker, until_us, now_us, frozenset(runs))
        group.tokens.append(token)
        group.saw(worker, now_us)

    def take(self, group: Group, worker: str, runs: dict[int, int], now_us: int) -> None:
        """Records were given without a lease: they are done."""
        self._check_given(group, runs, now_us)
        group.saw(worker, now_us)
        for offset in runs:
            group.tasks[offset].state = "done"

    def _check_given(self, group: Group, runs: dict[int, int], now_us: int) -> None:
        assert group.paused_until_us <= now_us, "leased while paused"
        assert runs, "an empty lease"
        for offset, attempt in sorted(runs.items()):
            task = group.tasks[offset]
            assert self.may_go(group, offset, now_us), f"record {offset} was leased though {task}"
            assert attempt == task.attempt + 1, f"record {offset}: attempt {attempt} after {task}"
            assert attempt <= group.most, f"record {offset}: attempt {attempt} is above the limit"
        self._check_keys(group, runs, now_us)

    def _check_keys(self, group: Group, runs: dict[int, int], now_us: int) -> None:
        settings = group.settings
        busy = self.busy(group)
        for offset in sorted(runs):
            key = self.records[offset].key
            if key is None:
                continue
            if settings.order == "key":
                assert not busy[key], f"record {offset} was leased while its key {key!r} was"
                before = self.before(group, offset)
                assert not set(before) - runs.keys(), f"record {offset} was leased before {before} of its key"
            busy[key] += 1
            assert busy[key] <= (settings.key_concurrency or 1 << 30), f"{busy[key]} of key {key!r} at once"
            if settings.key_rate_per_s is not None:
                self._check_rate(group, key, settings.key_rate_per_s, now_us)

    def _check_rate(self, group: Group, key: bytes, rate: float, now_us: int) -> None:
        times = group.grants.setdefault(key, [])
        times.append(now_us)
        burst = max(1, round(rate / 10))
        for index, earlier_us in enumerate(times):
            assert len(times) - index <= rate * (now_us - earlier_us) / 1e6 + burst + 1e-6, f"rate of key {key!r}"

    def busy(self, group: Group) -> Counter[bytes]:
        """How many records of each key are leased."""
        held = [offset for offset, task in group.tasks.items() if task.state == "leased" and not task.gone]
        keys = [self.records[offset].key for offset in held]
        return Counter(key for key in keys if key is not None)

    def before(self, group: Group, offset: int) -> list[int]:
        """Earlier records of the same key that have yet to be worked off.

        Delays of a producer hold no key, and a record with a priority or a delay overtakes who is untouched.
        """
        key, priority, special = self.records[offset].key, self.records[offset].priority, self.is_special(offset)
        return [
            other
            for other, task in group.tasks.items()
            if other < offset
            and self.records[other].key == key
            and (task.state == "waiting" or (task.state == "untouched" and not (special or self.is_special(other))))
            and not (group.moved and task.state == "untouched" and group.tasks[offset].state == "waiting")
            and self.records[other].priority >= priority
        ]

    # -- what becomes of them -----------------------------------------------------------------------

    def lease_of(self, group: Group, token: int) -> Given | None:
        """The lease of a token; None when the worker settled all of it. Raises Refused."""
        given = group.leases.get(token)
        if given is None and token not in group.ended:
            last = group.tokens[-1] if group.tokens else 0
            raise Refused("lease_lost" if token <= last else "unknown_lease")
        return given

    def settle(
        self, name: str, token: int, verb: int, ranges: list[tuple[int, int]], delay_ms: int, reason: str, now_us: int
    ) -> list[int]:
        """What a worker says. Returns the records whose `ready_us` was chosen by chance, to be adopted."""
        group = self.group(name)
        if verb not in range(4) or delay_ms < -1:
            raise Refused("invalid_request")
        if token not in group.leases and any(first + count > len(self.records) for first, count in ranges):
            raise Refused("unknown_lease")
        given = self.lease_of(group, token)
        if given is None:
            return []
        named = {offset for first, count in ranges for offset in range(first, first + count)}
        if not named <= given.records or any(count == 0 for _, count in ranges):
            raise Refused("unknown_lease")
        left = [offset for offset in group.held_by(token) if not ranges or offset in named]
        chance = [offset for offset in left if self._one(group, offset, verb, delay_ms, reason, now_us)]
        if left:
            self._ended(group, token, by_worker=True)
        return chance

    def settle_records(
        self, name: str, offsets: set[int], verb: int, delay_ms: int, reason: str, now_us: int
    ) -> tuple[int, list[int]]:
        """Under whichever leases: how many were leased, and those whose `ready_us` was chosen by chance."""
        group = self.groups.get(name)
        tasks = group.tasks if group is not None else {}
        held = [offset for offset in sorted(offsets & tasks.keys()) if tasks[offset].state == "leased"]
        if group is None or not held:
            return 0, []
        tokens = {tasks[offset].token for offset in held}
        chance = [offset for offset in held if self._one(group, offset, verb, delay_ms, reason, now_us)]
        for token in tokens:
            self._ended(group, token, by_worker=verb == ACK)
        return len(held), chance

    def forget_worker(self, name: str, worker: str, verb: int, now_us: int) -> tuple[int, list[int]]:
        """What a worker holds is settled, and it is not known any more. Returns as `settle_records`."""
        if name not in self.groups:
            return 0, []
        group = self.groups[name]
        held = {at for token, given in group.leases.items() if given.worker == worker for at in group.held_by(token)}
        settled = self.settle_records(name, held, verb, -1, "", now_us)
        group.workers.pop(worker, None)
        return settled

    def _one(self, group: Group, offset: int, verb: int, delay_ms: int, reason: str, now_us: int) -> bool:
        task = group.tasks[offset]
        task.progress = None
        if verb == ACK:
            task.state, task.cancelling = "done", False
        elif verb == RELEASE and task.attempt > group.most:
            task.attempt -= 1
            self._dies(group, offset, f"max_attempts was lowered to {group.settings.max_attempts}")
        elif verb == RELEASE:
            self._back(group, offset, task.attempt - 1, now_us + max(delay_ms, 0) * 1000, "")
        elif verb == REJECT or task.attempt >= group.most:
            self._dies(group, offset, reason)
        else:
            self._back(group, offset, task.attempt, now_us + max(delay_ms, 0) * 1000, reason)
            return delay_ms == -1 and task.state == "waiting"
        return False

    def _back(self, group: Group, offset: int, attempt: int, ready_us: int, reason: str) -> None:
        task = group.tasks[offset]
        if self._is_over(task):
            return
        self._failed(group, task, reason)
        task.state, task.attempt, task.ready_us = "waiting", attempt, ready_us

    def _dies(self, group: Group, offset: int, reason: str) -> None:
        task = group.tasks[offset]
        if self._is_over(task):
            return
        self._failed(group, task, reason)
        task.state, task.reason = "dead", reason

    def _is_over(self, task: Task) -> bool:
        """Whether a record that leaves its lease is not tried again."""
        if task.gone:
            task.state, task.gone = "done", False
        elif task.cancelling:
            task.state, task.cancelling = "cancelled", False
        else:
            return False
        return True

    def _failed(self, group: Group, task: Task, reason: str) -> None:
        if reason:
            task.history = [*task.history, (group.leases[task.token].worker, reason)][-20:]

    def _ended(self, group: Group, token: int, *, by_worker: bool) -> None:
        if not group.held_by(token):
            del group.leases[token]
            if by_worker:
                group.ended.add(token)

    def expire(self, over_us: Callable[[float], int]) -> None:
        """Leases whose time is up are taken back: `over_us` says until when those so long had to end."""
        for group in self.groups.values():
            now_us = over_us(30.0 if group.settings.lease_s is None else min(group.settings.lease_s, 180.0))
            over = [token for token, given in group.leases.items() if given.until_us <= now_us]
            group.expired = bool(over)
            for token in over:
                for offset in group.held_by(token):
                    task = group.tasks[offset]
                    task.progress = None
                    if task.attempt >= group.most:
                        self._dies(group, offset, RAN_OUT)
                    else:
                        self._back(group, offset, task.attempt, now_us, RAN_OUT)
                self._ended(group, token, by_worker=False)

    def trim(self, first: int) -> dict[str, int]:
        """The partition begins at `first`. Returns how many unfinished records each group lost."""
        self.first, lost = max(self.first, first), dict[str, int]()
        for name, group in self.groups.items():
            gone = {offset: group.tasks.pop(offset) for offset in list(group.tasks) if offset < first}
            lost[name] = group.unfinished(gone.values())
            for offset, task in list(gone.items()):
                if task.state == "leased" and group.leases[task.token].until_us == FOREVER_US:
                    task.gone, task.cancelling, task.progress, task.history = True, False, None, []
                    group.tasks[offset] = gone.pop(offset)
            group.start = max(group.start, first)
            for token in {task.token for task in gone.values() if task.state == "leased"}:
                self._ended(group, token, by_worker=False)
        return {name: count for name, count in lost.items() if count}

    def delete(self, offsets: set[int]) -> int:
        """Records are no work any more, for any group. Returns how many that are."""
        fresh = {offset for offset in offsets if self.first <= offset} - self.deleted
        self.deleted |= fresh
        for group in self.groups.values():
            gone = [group.tasks.pop(offset) for offset in fresh & group.tasks.keys()]
            for token in {task.token for task in gone if task.state == "leased"}:
                self._ended(group, token, by_worker=False)
        return len(fresh)

    def move(self, name: str, offset: int) -> None:
        """A group goes on at `offset`, as if it began there; what is open stays open."""
        group, kept = self.group(name), ("leased", "waiting", "dead", "cancelled")
        stay = {at: task for at, task in group.tasks.items() if task.state in kept}
        group.moved, group.start = True, offset
        group.tasks = {at: Task() for at in range(offset, len(self.records)) if at not in self.deleted} | stay
        group.tasks = dict(sorted(group.tasks.items()))

    # -- claims -------------------------------------------------------------------------------------

    def is_wanted(self, group: Group, offset: int, holder: str | None, given_by_us: int) -> bool:
        """Whether a leased record is of this worker, and idle for long enough."""
        given = group.leases[group.tasks[offset].token]
        return holder in (None, given.worker) and given.given_us <= given_by_us

    def drop_gone(
        self, group: Group, offsets: list[int], holder: str | None, given_by_us: int
    ) -> list[int]:  # fmt: skip
        """Leased records that are gone leave their leases when they are claimed. Returns which did."""
        leased = [offset for offset in offsets if group.tasks.get(offset, Task("none")).state == "leased"]
        wanted = [offset for offset in leased if self.is_wanted(group, offset, holder, given_by_us)]
        for offset in wanted:
            task = group.tasks[offset]
            task.state, task.gone, task.progress = "done", False, None
            self._ended(group, task.token, by_worker=True)
        return wanted

    def claim(
        self, group: Group, offsets: list[int], holder: str | None, given_by_us: int, attempt: int,
        got: dict[int, int], token: int, *, force: bool, now_us: int,
    ) -> None:  # fmt: skip
        """Records were claimed: `got` are those in the new lease, with their attempts, which must be right."""
        tokens: set[int] = set()
        left = dict(got)
        for offset in offsets:
            task = group.tasks.get(offset, Task("none"))
            forced = force and group.paused_until_us <= now_us and task.state in ("waiting", "untouched")
            if task.state == "leased":
                if task.cancelling or not self.is_wanted(group, offset, holder, given_by_us):
                    continue
                task.progress = None
                tokens.add(task.token)
                if attempt == -1 and task.attempt >= group.most:
                    self._dies(group, offset, "it was claimed after its last attempt")
                    continue
            elif not forced or (task.state == "untouched" and self.is_left(group, offset, got)):
                continue
            elif task.state == "untouched":
                group.mixed = True
            wanted = task.attempt + 1 if attempt == -1 else attempt or max(task.attempt, 1)
            assert left.pop(offset, None) == wanted, f"record {offset} was claimed as {got} instead of {wanted}"
            task.state, task.attempt, task.token, task.ready_us, task.reason = "leased", wanted, token, 0, ""
        assert not left, f"{left} were claimed too"
        for each in tokens:
            self._ended(group, each, by_worker=False)

    def is_left(self, group: Group, offset: int, got: dict[int, int]) -> bool:
        """Whether an untouched record stays out of a forced claim, as one with a priority or a delay does.

        Where a group looked at keys, that depends on what it has passed over.
        """
        assert offset in got or group.mixed or self.is_special(offset), f"record {offset} was not claimed"
        assert offset not in got or group.mixed or not self.is_special(offset), f"record {offset} was claimed"
        return offset not in got

    def given(
        self, group: Group, token: int, worker: str, until_us: int, given_us: int, runs: dict[int, int], now_us: int
    ) -> None:
        """A lease of claimed records was given."""
        group.saw(worker, now_us)
        assert not group.tokens or token > group.tokens[-1], f"token {token} does not rise"
        group.leases[token] = Given(worker, until_us, given_us, frozenset(runs))
        group.tokens.append(token)

    # -- administration -----------------------------------------------------------------------------

    def cancel(self, name: str, offset: int) -> None:
        task = self.group(name).tasks[offset]
        if task.state == "leased":
            task.cancelling = True
        elif task.state in ("untouched", "waiting"):
            task.state, task.attempt, task.ready_us = "cancelled", 0, 0

    def redrive(self, name: str, offset: int, ready_us: int) -> None:
        task = self.group(name).tasks[offset]
        assert task.state == "dead"
        task.state, task.attempt, task.ready_us, task.reason = "waiting", 0, ready_us, ""

    def discard(self, name: str, offset: int) -> None:
        task = self.group(name).tasks[offset]
        assert task.state == "dead"
        task.state = "discarded"
