"""Random lives of a shard in which groups of tasks run: barriers, their members, workers, dead letters.

Idea: a life as `member_life` has it, where each third step is one of the groups' clients. They send what was not
answered again, as clients do, and a worker tells of each task by its place which result it got.

At the end everything is sent and worked off. Then each barrier has appended exactly one record, with the ends of its
own members, but for those that were deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from penstock.broker.engine.tables.barriers import BarrierTable
from penstock.storage.batch import encode
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.engine import START_US
from support.member_life import MemberLife
from support.members import Member, Shard

QUEUE = "g"
PARTITIONS = 2
GROUP_STEP = 0.33
LEASE_S, OUTAGE_S = 600.0, 700.0


@dataclass
class MemberBatch:
    """Members of a group in one partition, under a producer of their own."""

    partition: int
    members: list[int]
    payload: bytes
    offset: int = -1  # once it stands


@dataclass
class SentGroup:
    """A group as its sender knows it. `deleted`: what was answered to its deletion; None while it was not asked for."""

    barrier: bytes
    members: int
    ended: bool
    batches: list[MemberBatch]
    stands: bool = False
    deleted: str | None = None

    @property
    def places(self) -> dict[int, str]:
        """Where each member is that stands."""
        return {
            member: place(batch.partition, batch.offset + at)
            for batch in self.batches
            if batch.offset >= 0
            for at, member in enumerate(batch.members)
        }


@dataclass
class GroupLife(MemberLife):
    """One life."""

    groups: list[SentGroup] = field(default_factory=list)
    held: list[m.Leased] = field(default_factory=list)  # by workers that take their time
    completed: set[tuple[int, int]] = field(default_factory=set)  # partition and offset, as clients were told

    def __post_init__(self) -> None:
        super().__post_init__()
        self.work = self.then = b""

    def run(self) -> Shard:
        shard = self.shard
        self.work = shard.topic("work", PARTITIONS)
        self.then = shard.topic("then", 1)
        settings = {"lease_s": LEASE_S, "max_attempts": 1000, "backoff_s": 0.01, "backoff_max_s": 0.01, "jitter": 0.0}
        answer = shard.ask(lambda number: m.SetQueue(number, self.work, QUEUE, settings))
        assert isinstance(answer, m.Queues), answer
        return super().run()

    @property
    def readable(self) -> list[tuple[bytes, int]]:
        return [*super().readable, *((self.work, each) for each in range(PARTITIONS)), (self.then, 0)]

    def step(self) -> None:
        if self.chance.random() >= GROUP_STEP:
            super().step()
            return
        what = self.chance.random()
        if what < 0.15:
            self.shard.rounds()  # what a worker does takes many messages
        elif what < 0.25 and sum(not each.stands for each in self.groups) < 3:
            self.begin()
        elif what < 0.45:
            self.go_on()
        elif what < 0.75:
            self.lease()
        elif what < 0.79 and self.held:
            self.settle(self.held.pop(self.chance.randrange(len(self.held))), Verb.ACK)
        elif what < 0.85:
            self.look_at_task()
        elif what < 0.89:
            self.ask(lambda number: m.RedriveDead(number, self.work, QUEUE, []))
        elif what < 0.95 and self.held:
            self.outage()
        else:
            self.delete()

    # -- what clients do -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Draw a group, and set its barrier."""
        chance = self.chance
        numbers = list(range(chance.randint(1, 4)))
        chance.shuffle(numbers)
        middle = chance.randint(0, len(numbers))
        batches = []
        for some in (numbers[:middle], numbers[middle:]):
            if some:
                producer = len(self.groups) * 2 + len(batches) + 1
                payload = bytes(encode([b"%d" % each for each in some], producer_id=producer))
                batches.append(MemberBatch(chance.randrange(PARTITIONS), some, payload))
        name = b"%d" % len(self.groups)
        self.groups.append(SentGroup(name.ljust(16, b"."), len(numbers), chance.random() < 0.5, batches))
        self.set(self.groups[-1])

    def go_on(self) -> None:
        """Send what a group still needs: its barrier first, and members once that is answered."""
        open_ = [each for each in self.groups if not each.stands or any(batch.offset < 0 for batch in each.batches)]
        if not open_:
            return
        group = self.chance.choice(open_)
        if not group.stands:
            self.set(group)
            return
        batch = self.chance.choice([each for each in group.batches if each.offset < 0])
        self.ask(self.produces(group, batch), lambda answer, _: self._stands(group, batch, answer), batch.payload)

    def set(self, group: SentGroup) -> None:
        def heard(answer: Any, _: bytes) -> None:
            group.stands = group.stands or isinstance(answer, m.Done)

        self.ask(self.sets(group), heard)

    def sets(self, group: SentGroup) -> Callable[[int], Any]:
        queues = [m.MemberQueue(self.work, QUEUE)]
        return lambda number: m.SetBarrier(
            number, self.then, 0, group.barrier, group.members, group.ended, queues=queues
        )

    def produces(self, group: SentGroup, batch: MemberBatch) -> Callable[[int], Any]:
        tie = m.Tie(QUEUE, self.then, 0, group.barrier, batch.members)
        return lambda number: m.Produce(number, self.work, batch.partition, tie)

    def _stands(self, group: SentGroup, batch: MemberBatch, answer: Any) -> None:
        if isinstance(answer, m.Produced):
            batch.offset = answer.offset
        elif getattr(answer, "code", "") == "invalid_request":
            assert group.deleted is not None, f"seed {self.seed}: {answer}"

    def lease(self) -> None:
        most, partition = self.chance.randint(1, 3), self.chance.randrange(PARTITIONS)
        self.ask(lambda number: m.Lease(number, self.work, QUEUE, "w", most, partition), self._leased)

    def _leased(self, answer: Any, _: bytes) -> None:
        """Settle what a worker got, now or later."""
        verb = self.chance.choice([Verb.ACK, Verb.ACK, Verb.ACK, Verb.NACK, Verb.REJECT, None, None])
        if isinstance(answer, m.Leased) and answer.runs:
            if verb is None:
                self.held.append(answer)
            else:
                self.settle(answer, verb)

    def settle(self, leased: m.Leased, verb: Verb) -> None:
        ran_out = START_US + int((self.shard.now_s - 10.0) * 1e6) > leased.until_us  # by whatever clock of a leader

        def heard(answer: Any, _: bytes) -> None:
            if isinstance(answer, m.Settled) and not answer.refused and verb == Verb.ACK:
                self.completed.update((leased.partition, offset) for offset in offsets_of(leased))
                if ran_out:
                    self.shard.count("a lease is kept by a grace")

        self.ask(self.settles(leased, verb), heard)

    def look_at_task(self) -> None:
        """What is completed stays so, with its result."""
        known = [
            (batch.partition, batch.offset + at)
            for group in self.groups
            for batch in group.batches
            if batch.offset >= 0
            for at in range(len(batch.members))
        ]
        if not known:
            return
        partition, offset = self.chance.choice(known)
        was_completed = (partition, offset) in self.completed

        def heard(answer: Any, _: bytes) -> None:
            if isinstance(answer, m.TaskState):
                is_completed = answer.state == "completed"
                assert is_completed or not was_completed, f"task {offset} was completed, and is {answer.state}"
                if is_completed:
                    self.shard.count("a completed task is looked at")
                    self.completed.add((partition, offset))
                    assert answer.result in (None, place(partition, offset).encode()), answer

        leading = self.readers.leading()
        self.ask_of(leading, lambda number: m.AskTask(number, self.work, QUEUE, partition, offset), heard)

    def outage(self) -> None:
        """There is no leader for longer than a lease lasts."""
        leader = self.shard.leader
        if leader is not None and all(each.is_up for each in self.shard.members.values()):
            leader.crash(power=self.chance.random() < 0.5)
            self.shard.now_s += OUTAGE_S
            self.shard.rounds(25)

    def settles(self, leased: m.Leased, verb: Verb) -> Callable[[int], Any]:
        """Each task has its place as its result, or as the reason of the only one that is rejected."""
        offsets = offsets_of(leased)
        if verb == Verb.ACK:
            results = [(offset, place(leased.partition, offset).encode()) for offset in offsets]
            settle = m.Settle(leased.partition, leased.token, verb, results=results)
        else:
            settle = m.Settle(
                leased.partition, leased.token, verb, [(offsets[0], 1)], reason=place(leased.partition, offsets[0])
            )
        return lambda number: m.SettleTasks(number, self.work, QUEUE, [settle])

    def delete(self) -> None:
        standing = [each for each in self.groups if each.stands and each.deleted is None]
        if not standing:
            return
        group = self.chance.choice(standing)
        group.deleted = ""

        def heard(answer: Any, _: bytes) -> None:
            group.deleted = "done" if isinstance(answer, m.Done) else answer.code

        self.ask(lambda number: m.DeleteBarrier(number, self.then, group.barrier), heard)

    # -- the end ---------------------------------------------------------------------------------------

    def end(self) -> None:
        super().end()
        self.send_all()
        self.work_off()
        self.shard.rounds(12)
        self.shard.invariants.check(full=True)
        self.look()

    def send_all(self) -> None:
        for group in self.groups:
            if not group.stands:
                answer = self.shard.ask(self.sets(group))
                assert isinstance(answer, m.Done), f"seed {self.seed}: {answer}"
            for batch in group.batches:
                if batch.offset < 0:
                    self._stands(group, batch, self.shard.ask(self.produces(group, batch), batch.payload))

    def work_off(self) -> None:
        """Everything completes, also what was dead-lettered."""
        shard = self.shard
        for _ in range(60):
            shard.ask(lambda number: m.RedriveDead(number, self.work, QUEUE, []))
            leased = shard.ask(lambda number: m.Lease(number, self.work, QUEUE, "w", 100))
            if leased.runs:
                shard.ask(self.settles(leased, Verb.ACK))
                continue
            (queue,) = shard.ask(lambda number: m.ListQueues(number, self.work, QUEUE)).queues
            if not any(each.ready + each.in_flight + each.waiting + each.dead for each in queue.partitions):
                return
            shard.now_s += 200.0  # leases of workers that died
            shard.rounds()
        raise AssertionError(f"seed {self.seed}: tasks are left, {queue}")

    def look(self) -> None:
        """Each callback came once, with how its own members ended, and no other did."""
        found: Counter[bytes] = Counter()
        of = {where: group for group in self.groups for where in group.places.values()}
        for topic, partition in self.readable:
            self.readers.told[topic, partition].check(*self.read(topic, partition))
        first, values = self.read(self.then, 0)
        assert not first
        for value in values:
            words = msgspec.msgpack.decode(value, type=list[tuple[str, bytes, str]])
            said = [result.decode() or reason for _, result, reason in words]
            group = of[said[0]]
            assert said == [group.places[number] for number in range(group.members)], f"seed {self.seed}: {words}"
            states = {state for state, _, _ in words}
            assert states <= {"completed", "dead"} if group.ended else states == {"completed"}, f"seed {self.seed}"
            found[group.barrier] += 1
            self.shard.count("callback")
        for group in self.groups:
            self.shard.count(f"group deleted: {group.deleted or 'unknown'}" if group.deleted is not None else "group")
            allowed = {None: {1}, "done": {0}, "unknown_barrier": {1}}.get(group.deleted, {0, 1})
            assert found[group.barrier] in allowed, f"seed {self.seed}: {found[group.barrier]} callbacks of {group}"
        assert self.shard.ask(m.ListBarriers).barriers == [], f"seed {self.seed}"
        for member in self.shard.members.values():
            check_bytes(member)


def offsets_of(leased: m.Leased) -> list[int]:
    return [first + at for first, count, _ in leased.runs for at in range(count)]


def place(partition: int, offset: int) -> str:
    return f"{partition}/{offset}"


def check_bytes(member: Member) -> None:
    """Barriers count what they have."""
    assert member.replica is not None
    for log in member.replica.node.logs:
        history = member.replica.node.history_of(log.log_id)
        table = getattr(history and history.committed, "barriers", None)
        if isinstance(table, BarrierTable):
            assert table.bytes == sum(each.size for each in table.by_id.values())
