"""The life of a node with queue groups, told to the engine and to the model alike.

Idea: each step is a random request, right or wrong. The model says what becomes of it; after each step both are
compared. While `hold` is on, nothing is synced, so nothing may be answered, and a crash may lose the end of each
partition's log from any flush on: there is a copy of its files and of the model for each. `resign` drops the
office of the leader in the middle of a request, cuts some logs, and opens another. The worker of a request that waits
for records holds and waits for nothing else, so its name tells whose a lease is.

`Life(seed).run(steps)` raises with the seed and the steps so far in its message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.broker.engine import Now
from penstock.broker.engine.tables.queues.unfinished import open_below
from penstock.storage.batch import batches
from penstock.storage.memory_files import Content, MemoryFiles
from penstock.transport import messages as m
from support.engine import START_US, MemoryStore, Rig
from support.queue_claims import Claims
from support.queue_differences import differences
from support.queue_model import ACK, Group, Shelf
from support.queue_requests import GROUPS, PARTITIONS, Demand, refusals

CHECKED = (m.Settled, m.Extended, m.TaskState, m.Counted, m.TrimmedTopic, m.Failure)
"""Answers whose checks look themselves for what must be durable."""


class Moment(NamedTuple):
    """One partition after a flush that is not durable."""

    files: dict[str, bytes]
    shelf: Shelf
    written: int  # its last batch


class Life(Claims):
    """A node, its model, and the requests that are under way."""

    def __init__(self, seed: int, *, keyed: bool = False) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.keyed = keyed
        snapshots, grace_s = self.dice.choice([5, 25, 1000]), self.dice.choice([0.0, 9.0])
        self.rig = Rig(seed=seed, snapshot_batches=snapshots, grace_s=grace_s)
        self.topic = self.rig.topic(partitions=PARTITIONS)
        self.rig.port.sent.clear()
        self.shelves = [Shelf() for _ in range(PARTITIONS)]
        self.demands: dict[str, Demand] = {}  # by worker
        self.remembering: list[m.Lease] = []  # of this step
        self.expected: dict[int, Callable[[Any, bytes], None]] = {}  # by request: what its answer must be
        self.moments: list[list[Moment]] = []  # while holding: by partition
        self.sent: list[m.SettleTasks] = []
        self.steps: list[str] = []
        self.made = 0

    # -- running ------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """So many random steps, and then everything is worked off."""
        try:
            for _ in range(steps):
                self.step()
            self.drain()
        except Exception as error:
            told = "\n  ".join(self.steps[-30:])
            raise AssertionError(f"seed {self.seed}, step {len(self.steps)}: {error}\n  {told}") from error

    def step(self) -> None:
        """One random command, and a look at everything."""
        command = self.dice.choice(COMMANDS)
        self.steps.append(command.__name__)
        command(self)
        self.look()
        self._counts(len(self.steps) % PARTITIONS)

    @property
    def holding(self) -> bool:
        return self.rig.store.hold

    # -- looking ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Turn the loop; take over what the engine chose; compare everything; see what was answered."""
        self.rig.answers_ahead = len(self.steps) % 3 != 0
        self.rig.turn(2)
        for partition in range(PARTITIONS):
            office = self.rig.node._office
            self.shelves[partition].expire(office.grace.over_us)
            self._adopt(partition)
            self._adopt_workers(partition)
            found = differences(self.shelves[partition], self.partition_at(partition).proposed.queues)
            assert not found, f"partition {partition}: " + "; ".join(found)
            if not self.holding:
                found = differences(self.shelves[partition], self.partition_at(partition).committed.queues, given=True)
                assert not found, f"partition {partition}, committed: " + "; ".join(found)
        self._all_are_remembered()
        self._answers()
        self._nobody_is_passed_over()
        if self.holding:
            self._remember()

    def _counts(self, partition: int) -> None:
        """A trim would say what each group loses."""
        shelf, state = self.shelves[partition], self.partition_at(partition).proposed
        high = min(len(self.steps) // PARTITIONS % 8, state.end)
        for name, group in shelf.groups.items() if not self.holding else ():
            most = group.unfinished(task for offset, task in group.tasks.items() if offset < high)
            assert open_below(state, state.queues.by_name[name], high) == most

    def _adopt(self, partition: int) -> None:
        """New leases: whose they are, and whether they were allowed. What was taken without one as well."""
        for worker, runs in self._taken(partition):
            self._adopt_taken(partition, self.demands.pop(worker), runs)
        shelf, table = self.shelves[partition], self.partition_at(partition).proposed.queues
        for name, group in shelf.groups.items():
            queue = table.by_name.get(name)
            for token in sorted(set(queue.leases if queue is not None else ()) - set(group.leases)):
                self._adopt_one(partition, shelf, group, queue.leases[token])

    def _adopt_workers(self, partition: int) -> None:
        """Workers that are remembered since there was nothing for them."""
        groups, table = self.shelves[partition].groups, self.partition_at(partition).proposed.queues
        for message in self.remembering:
            if message.worker in table.by_name[message.group].workers and partition == max(message.partition, 0):
                groups[message.group].workers.setdefault(message.worker, (self.now_us(partition), 0))

    def _all_are_remembered(self) -> None:
        """Who wants to be remembered is, with records or without."""
        for message in self.remembering:
            groups = [shelf.groups[message.group] for shelf in self.shelves]
            assert any(message.worker in group.workers for group in groups), f"{message.worker} is not remembered"
        self.remembering.clear()

    def _taken(self, partition: int) -> list[tuple[str, dict[int, int]]]:
        """Worker, and attempt by record, of requests that took some of a partition: answered, or not yet."""
        waiting = [
            (demand.message.request, demand.granted.runs)
            for demand in self.rig.node._office.queues.leasing._taken
            if demand.partition is self.partition_at(partition)
        ]
        answered = [
            (answer.request, answer.runs)
            for _, answer, _ in self.rig.port.sent
            if isinstance(answer, m.Leased) and answer.runs and not answer.token and answer.partition == partition
        ]
        workers = {demand.request: worker for worker, demand in self.demands.items()}
        found = {request: runs for request, runs in [*waiting, *answered] if request in workers}
        return [(workers[request], spelled_out(found[request])) for request in sorted(found)]

    def _adopt_taken(self, partition: int, demand: Demand, runs: dict[int, int]) -> None:
        """Records that are done since they were given."""
        shelf, message = self.shelves[partition], demand.message
        assert message.takes
        self._check_chosen(partition, message, shelf.groups[message.group], runs, alone=False)
        shelf.take(shelf.groups[message.group], message.worker, runs, self.now_us(partition))
        given = (partition, 0, runs)
        self.expect(message.request, lambda answer, payload: self._check_leased(demand, given, answer, payload))
        self.note(f"-> {message.worker} takes {sorted(runs)} of {partition} in {message.group}")

    def _check_chosen(
        self, partition: int, message: m.Lease, group: Group, runs: dict[int, int], *, alone: bool
    ) -> None:
        """`alone`: no other request of this step can have had what this one could have."""
        shelf, now_us = self.shelves[partition], self.now_us(partition)
        assert message.partition in (-1, partition)
        assert len(runs) <= message.max_records
        if alone and not group.keyed and not group.expired and not self.holding:
            possible = shelf.candidates(group, len(shelf.records), now_us)
            most = len(runs) if group.settings.rate else message.max_records
            wanted = possible[:most]
            assert len(runs) == len(wanted), f"leased {sorted(runs)} instead of {sorted(wanted)}"
            levels = [[shelf.records[offset].priority for offset in offsets] for offsets in (runs, wanted)]
            assert sorted(levels[0]) == sorted(levels[1]), f"leased {sorted(runs)} before higher priorities"
            if not group.mixed and not any(map(shelf.is_special, possible)):
                assert sorted(runs) == sorted(wanted), f"leased {sorted(runs)} instead of {sorted(wanted)}"

    def _adopt_one(self, partition: int, shelf: Shelf, group: Group, lease: Any) -> None:
        demand = self.demands.pop(lease.worker)
        message, now_us, runs = demand.message, self.now_us(partition), spelled_out(lease.runs())
        assert not message.takes
        until_us = group.lease_until(now_us, message.lease_ms)
        assert lease.until_us == until_us, f"lease until {lease.until_us} instead of {until_us}"
        self._check_chosen(partition, message, group, runs, alone=True)
        shelf.grant(group, lease.token, lease.worker, lease.until_us, runs, now_us)
        given = (partition, lease.token, runs)
        self.expect(message.request, lambda answer, payload: self._check_leased(demand, given, answer, payload))
        self.note(f"-> {lease.worker} has {sorted(runs)} of {partition} in {message.group}")

    def _check_leased(
        self, demand: Demand, granted: tuple[int, int, dict[int, int]], answer: Any, payload: bytes
    ) -> None:
        partition, token, runs = granted
        assert isinstance(answer, m.Leased), answer
        assert refusals(answer) == demand.refused
        assert (answer.partition, answer.token) == (partition, token)
        given = spelled_out(answer.runs)
        assert given == runs, f"answered {given} instead of {runs}"
        values: dict[int, bytes] = {}
        for batch in batches(payload):
            values.update(zip(batch.offsets().tolist(), batch.values(), strict=True))
        for offset in runs:
            assert values[offset] == self.shelves[partition].records[offset].value

    def _answers(self) -> None:
        """Nothing is answered before it is durable; all is answered that is."""
        sent, self.rig.port.sent = self.rig.port.sent, []
        for _, answer, payload in sent:
            request = getattr(answer, "request", None)
            if request in self.expected:
                assert not self.holding or self._at_once(answer), f"answered before it was durable: {answer}"
                self.expected.pop(request)(answer, payload)
            else:
                self._empty(answer)
        if not self.holding:
            assert not self.expected, f"not answered: {sorted(self.expected)}"

    def _at_once(self, answer: Any) -> bool:
        """What changes nothing may be answered before a sync."""
        if isinstance(answer, m.Leased):
            return not answer.runs
        return isinstance(answer, CHECKED)

    def _empty(self, answer: Any) -> None:
        """An answer to a request that waited in vain."""
        assert isinstance(answer, m.Leased), f"unsolicited: {answer}"
        assert not answer.runs, f"unknown to the model: {answer}"
        worker = next(worker for worker, demand in self.demands.items() if demand.request == answer.request)
        demand = self.demands.pop(worker)
        assert self.rig.now.monotonic_s >= demand.until_s, f"{worker} was sent away too early"
        assert refusals(answer) == demand.refused

    def _nobody_is_passed_over(self) -> None:
        """Who still waits could not be given anything."""
        for worker, demand in self.demands.items():
            if self.rig.now.monotonic_s >= demand.until_s:
                assert self.holding, f"{worker} waits beyond its time"
                continue  # its answer waits for a sync, and it for nothing more
            for partition in range(PARTITIONS) if demand.message.partition < 0 else [demand.message.partition]:
                shelf = self.shelves[partition]
                group = shelf.groups.get(demand.message.group)
                if group is not None:
                    end = self.partition_at(partition).committed.end
                    found = self._possible(shelf, group, end, self.rig.node._office.time.last_us)
                    assert not found, f"{worker} waits though {found} of partition {partition} could go"

    def _possible(self, shelf: Shelf, group: Group, end: int, now_us: int) -> list[int]:
        """Records that could be leased now."""
        found = shelf.candidates(group, end, now_us)
        if self.holding and any(record.not_before_us or record.priority for record in shelf.records):
            return []  # what is special about records is known once they are committed
        if not (group.keyed or group.settings.rate):
            return found
        if (
            group.settings.rate
            or group.settings.key_rate_per_s is not None
            or len(group.tasks) > group.settings.look_ahead
        ):
            return []  # what is possible depends on more than the model looks at
        if self.holding and any(offset >= end and task.state != "untouched" for offset, task in group.tasks.items()):
            return []  # a group that looks at keys only now cannot read those of records that are not committed
        busy, most = shelf.busy(group), group.settings.key_concurrency or 1 << 30
        if group.settings.order == "key":
            most = 1
            found = [offset for offset in found if shelf.records[offset].key is None or not shelf.before(group, offset)]
        return [offset for offset in found if busy[shelf.records[offset].key or b""] < most]

    # -- time and crashes ---------------------------------------------------------------------------

    def pass_time(self) -> None:
        seconds = self.dice.choice([0.1, 0.5, 1.0, 3.0, 40.0])
        self.note(f"{seconds} s")
        self.rig.now = Now(self.rig.now.wall_us + round(seconds * 1e6), self.rig.now.monotonic_s + seconds)

    def clock_jumps(self) -> None:
        """The wall clock is set; the monotonic one does not care."""
        wrong_s = self.dice.choice([-1500, -3, 0, 2, 1500])
        self.note(f"{wrong_s} s")
        right_us = START_US + round((self.rig.now.monotonic_s - 1000.0) * 1e6)
        self.rig.now = Now(right_us + wrong_s * 1_000_000, self.rig.now.monotonic_s)

    def restart(self) -> None:
        """The node ends, well or not; what was written is there."""
        clean = not self.holding and self.dice.random() < 0.5
        self.note("clean" if clean else "killed")
        self._reopen(clean=clean)

    def hold(self) -> None:
        """From here on nothing becomes durable."""
        if not self.holding and not self.demands:
            self.rig.store.hold = True
            self.moments = [[] for _ in range(PARTITIONS)]
            self._remember()

    def sync(self) -> None:
        if self.holding:
            self.rig.store.hold = False
            self.rig.sync()

    def lose_power(self) -> None:
        """Of what was not synced, each partition has kept some."""
        if not self.holding:
            return
        contents = self.rig.store.files.contents
        kept = {path: bytes(content.data) for path, content in contents.items() if not self._is_of_partition(path)}
        for partition, moments in enumerate(self.moments):
            number = self.dice.randrange(len(moments))
            self.note(f"{partition}: {number + 1} of {len(moments)}")
            kept |= moments[number].files
            self.shelves[partition] = moments[number].shelf.copy()
        files = MemoryFiles()
        files.directories = set(self.rig.store.files.directories)
        files.contents = {path: Content(data) for path, data in kept.items()}
        self.rig.store = MemoryStore(files)
        self._reopen(clean=False)

    def _remember(self) -> None:
        for partition, shelf in enumerate(self.shelves):
            prefix = self.rig.store.directory(self.topic, partition) + "/"
            contents = self.rig.store.files.contents
            files = {path: bytes(content.data) for path, content in contents.items() if path.startswith(prefix)}
            self.moments[partition].append(Moment(files, shelf.copy(), self.partition_at(partition).log.written))

    def resign(self) -> None:
        """Another leader takes over: what was asked last is not written yet, and some logs lose what is not durable."""
        models = [shelf.copy() for shelf in self.shelves]
        workers = [Life.lease, Life.ack_and_lease, Life.settle, Life.settle_records, Life.extend, Life.claim]
        others = [Life.produce, Life.set_worker, Life.trim, Life.move, Life.delete_records, None]
        command = self.dice.choice([*workers, *others])
        if command is not None:
            self.note(command.__name__)
            command(self)
        self.shelves = models
        for partition, moments in enumerate(self.moments if self.holding else []):
            self._maybe_cut(partition, moments)
        self.rig.resign()
        self._forget_clients()
        self.sync()  # until then there is no office

    def _maybe_cut(self, partition: int, moments: list[Moment]) -> None:
        """The new leader's log is shorter, as of one of the moments since the last sync."""
        if self.dice.random() < 0.5:
            return
        number = self.dice.randrange(len(moments))
        self.note(f"cut {partition}: {number + 1} of {len(moments)}")
        history = self.partition_at(partition).history
        history.go_back(moments[number].written)
        history.log.cut(moments[number].written)  # on the disk, too: no order says where the log ends
        self.shelves[partition] = moments[number].shelf.copy()
        moments.clear()  # the cut is durable

    def _forget_clients(self) -> None:
        """All connections are lost: no client waits for an answer."""
        self.expected.clear()
        self.demands.clear()
        self.remembering.clear()
        self.rig.port.sent.clear()
        for shelf in self.shelves:
            for group in shelf.groups.values():
                group.grants.clear()

    def _is_of_partition(self, path: str) -> bool:
        return path.startswith(f"data/topics/{self.topic.hex()}/")

    def _reopen(self, *, clean: bool) -> None:
        self.rig.store.hold = False
        if clean:
            self.rig.node.close(self.rig.now)
            self._answers()
        self.rig.restart(clean=False)
        self._forget_clients()

    # -- the end ------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Work everything off: what was not acked comes, what was acked does not."""
        self.steps.append("drain")
        self.sync()
        self.look()
        for name in GROUPS:
            self._pause(name, 0)
        self.look()
        for _ in range(400):
            if not self._round():
                break
        for partition, shelf in enumerate(self.shelves):
            for name, group in shelf.groups.items():
                left = {
                    offset: task
                    for offset, task in group.tasks.items()
                    if task.state in ("untouched", "waiting", "leased")
                }
                assert not left, f"never came back from {name} on {partition}: {left}"
        assert [self.rig.read(self.topic, n) for n in range(PARTITIONS)] == [
            [record.value for record in shelf.records[shelf.first :]] for shelf in self.shelves
        ]

    def _round(self) -> bool:
        """Ack all that can be had, and let time pass. Returns whether anything is left."""
        for name in GROUPS:
            for partition, shelf in enumerate(self.shelves):
                group = shelf.groups.get(name)
                if group is not None:
                    settles = [m.Settle(partition, token, ACK) for token in group.leases]
                    lease_ms = 0 if group.settings.lease_s is None else 60_000  # beyond the next round
                    self._ask(name, settles, max_records=100, partition=partition, lease_ms=lease_ms)
            self.look()
        self.rig.now = Now(self.rig.now.wall_us + 5_000_000, self.rig.now.monotonic_s + 5.0)
        self.look()
        return any(
            task.state in ("untouched", "waiting", "leased")
            for shelf in self.shelves
            for group in shelf.groups.values()
            for task in group.tasks.values()
        )


def spelled_out(runs: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """Attempt by record."""
    return {offset + n: attempt for offset, count, attempt in runs for n in range(count)}


COMMANDS: list[Callable[[Life], None]] = [
    *[Life.produce] * 8,
    *[Life.lease] * 6,
    *[Life.ack_and_lease] * 4,
    *[Life.settle] * 8,
    *[Life.settle_again] * 2,
    *[Life.settle_records] * 3,
    *[Life.claim] * 3,
    *[Life.set_worker] * 3,
    *[Life.set_queue] * 2,
    *[Life.extend] * 2,
    Life.pause,
    *[Life.cancel] * 2,
    *[Life.redrive] * 2,
    Life.discard,
    Life.trim,
    Life.move,
    Life.delete_records,
    Life.ask_task,
    Life.read,
    *[Life.pass_time] * 4,
    Life.clock_jumps,
    Life.restart,
    *[Life.resign] * 2,
    Life.hold,
    *[Life.sync] * 2,
    Life.lose_power,
]
