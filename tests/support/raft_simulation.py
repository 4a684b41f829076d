"""Lives of a Raft group, decided by one seed: nodes over disks that forget and a network that loses, doubles, delays.

Each step does one thing to one node or message, and checks what must always hold: one leader in a term, one vote of a
node in a term, equal entries at equal places, nothing committed is lost, entries are applied in order and once, reads
see what was committed when they were asked, and no message leaves before what it promises is synced. At the end all
is healed, and the group has to get on.

`python -m support.raft_simulation SEED` (with `tests` on the path) replays one life and shows its end.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, deque
from dataclasses import replace

import msgspec
from penstock.broker.raft.errors import Unfit
from penstock.broker.raft.messages import (
    Change,
    ChangeStep,
    ConfState,
    Kind,
    Message,
    Operation,
    Snapshot,
)
from penstock.broker.raft.node import RaftNode
from penstock.broker.raft.state import RaftOptions, Role
from support import raft_text
from support.raft_disk import Disk
from support.raft_turns import Crashed, Machine, Turns

STEPS = 1000
MOST_IDS = 8
ROUNDS = 400  # of healing
DECODER = msgspec.msgpack.Decoder(Message)


class Life(Turns):
    """One simulated group."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        super().__init__(seed)
        self.seed = seed
        self.steps = steps
        self.step = 0
        self.trace: deque[str] = deque(maxlen=60)
        self.cut: set[tuple[int, int]] = set()
        self.reports: list[tuple[int, int]] = []
        self.leaders: dict[int, int] = {}
        self.before: dict[tuple[int, int], tuple[int, bytes]] = {}  # the term before, and the data, of each entry
        self.newest = 0  # the highest commit that any node has known
        self.serial = 0
        self.machines: dict[int, Machine] = {}
        size = self.rng.choice((1, 2, 3, 3, 3, 5))
        self._draw_settings()
        start = Snapshot(1, 1, ConfState(tuple(range(1, size + 1))))
        for node in range(1, size + 1):
            self._add(node, start)

    def _draw_settings(self) -> None:
        rng = self.rng
        self.asynchronous = rng.random() < 0.5
        self.pre_vote, self.check_quorum = rng.choice(((True, True), (True, True), (True, False), (False, True)))
        self.max_inflight = rng.choice((1, 2, 8, 256))
        self.max_bytes = rng.choice((64, 200, 1 << 30))
        self.changing = rng.random() < 0.6
        self.lossy = rng.random() < 0.8

    # --- the life

    def run(self) -> Counter[str]:
        """Live, heal, and get on; what happened how often. Raises AssertionError with the seed."""
        try:
            while self.step < self.steps:
                self._one_step()
                self._check()
                self.step += 1
            self._heal()
        except (AssertionError, Unfit) as wrong:
            shown = "\n".join(self.trace)
            raise AssertionError(f"life {self.seed}, step {self.step}: {wrong}\n{shown}") from wrong
        return self.counts

    def _one_step(self) -> None:
        dice = self.rng.random() * 100
        for weight, action in ACTIONS:
            dice -= weight
            if dice < 0:
                action(self)
                return

    def deliver(self) -> None:
        if not self.network:
            return self.turn()
        place = self.rng.randrange(len(self.network)) if self.rng.random() < 0.3 else 0
        message = self.network.pop(place)
        if self.lossy:
            if self.rng.random() < 0.05 or (message.sender, message.to) in self.cut:
                return None
            if self.rng.random() < 0.03:
                self.network.append(message)
        return self._receive(message)

    def _receive(self, message: Message) -> None:
        machine = self.machines.get(message.to)
        if machine is None or not machine.up:
            if message.kind is Kind.SNAPSHOT:
                self.reports.append((message.sender, message.to))
            return
        self.trace.append(raft_text.message_text(message))
        machine.node.step(DECODER.decode(msgspec.msgpack.encode(message)) if self.rng.random() < 0.1 else message)
        if message.kind is Kind.SNAPSHOT:
            self.counts["snapshots"] += 1
            self.reports.append((message.sender, message.to))

    def turn(self) -> None:
        machine = self._any()
        if machine:
            self._work(machine)

    def _work(self, machine: Machine) -> None:
        try:
            self.turn_of(machine)
        except Crashed:
            self._end(machine)

    def tick(self) -> None:
        machine = self._any()
        if machine:
            for _ in range(self.rng.choice((1, 1, 2, 4))):
                machine.node.tick()

    def propose(self) -> None:
        machine = self._leader() or self._any()
        if machine is None:
            return
        for _ in range(self.rng.choice((1, 1, 3))):
            place = machine.node.next_place(8)
            data = self._data()
            took = machine.node.propose(data)
            assert took == place, f"{machine.id} promised {place} and took {took}"
            if took:
                self.counts["proposals"] += 1
                self.trace.append(f"{machine.id} proposes {took.term}/{took.index}")

    def read(self) -> None:
        machine = self._any()
        if machine:
            context = self._data()
            self.asked[context] = self.newest
            self.trace.append(f"{machine.id} reads at {self.newest}: {context!r}")
            machine.node.read(context)

    def crash(self) -> None:
        machine = self._any()
        if machine:
            self._end(machine)

    def start(self) -> None:
        for machine in self.machines.values():
            if not machine.up and self.rng.random() < 0.5:
                self._open(machine)

    def partition(self) -> None:
        ids = list(self.machines)
        kind = self.rng.randrange(4)
        self.cut = set()
        if kind == 1:
            self.cut = {(a, b) for a in ids for b in ids if self.rng.random() < 0.3}
        elif kind == 2:
            side = {a for a in ids if self.rng.random() < 0.5}
            self.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        elif kind == 3 and (leader := self._leader()):
            self.cut = {(leader.id, b) for b in ids} | (
                {(b, leader.id) for b in ids} if self.rng.random() < 0.5 else set()
            )

    def compact(self) -> None:
        machine = self._any()
        if machine and not machine.written and machine.applied:
            machine.disk.checkpoint(machine.snapshot(), self.rng.choice((0, 0, 3, 20)))
            self.counts["checkpoints"] += 1

    def transfer(self) -> None:
        machine = self._leader()
        if machine:
            target = self.rng.choice(list(self.machines))
            if machine.node.transfer(target):
                self.trace.append(f"{machine.id} hands over to {target}")
                self.counts["transfers"] += 1

    def change(self) -> None:
        machine = self._leader()
        if machine is None or not self.changing:
            return
        change = Change(tuple(self._change_step(machine) for _ in range(self.rng.choice((1, 1, 2, 3)))))
        data = raft_text.change_data(change, simple=False)
        if machine.node.propose_change(change, data):
            self.trace.append(f"{machine.id} proposes {data.decode()}")
            for step in change.steps:
                if step.node not in self.machines:
                    self._add(step.node, None)

    def _change_step(self, machine: Machine) -> ChangeStep:
        members = machine.node.status().configuration
        operation = self.rng.choice(list(Operation))
        if operation is Operation.REMOVE and len(members.voters) > 2:
            return ChangeStep(operation, self.rng.choice(members.members()))
        fresh = max(self.machines) + 1
        known = members.members()  # an id that was removed does not come back
        node = fresh if fresh <= MOST_IDS and self.rng.random() < 0.4 else self.rng.choice(known)
        if operation is Operation.REMOVE or (operation is Operation.LEARNER and len(members.voters) < 3):
            operation = Operation.VOTER
        return ChangeStep(operation, node)

    def report(self) -> None:
        if self.reports:
            sender, node = self.reports.pop(self.rng.randrange(len(self.reports)))
            machine = self.machines[sender]
            if machine.up:
                machine.node.report_snapshot(node, installed=self.rng.random() < 0.7)

    def unreachable(self) -> None:
        machine = self._leader()
        if machine:
            machine.node.report_unreachable(self.rng.choice(list(self.machines)))

    def campaign(self) -> None:
        machine = self._any()
        if machine:
            machine.node.campaign()

    def forget(self) -> None:
        machine = self._any()
        if machine:
            machine.node.forget_leader()

    # --- machines

    def _add(self, node: int, start: Snapshot | None) -> None:
        rng = random.Random(self.rng.random())
        options = RaftOptions(
            node=node,
            draw_timeout=lambda: rng.randint(4, 9),
            election_ticks=4,
            pre_vote=self.pre_vote,
            check_quorum=self.check_quorum,
            asynchronous=self.asynchronous,
            max_append_bytes=self.max_bytes,
            max_inflight=self.max_inflight,
            max_applying_bytes=self.max_bytes,
            max_uncommitted_bytes=self.rng.choice((400, 1 << 30)),
        )
        disk = Disk(start)
        machine = Machine(node, options, disk, RaftNode(options, disk.seen))
        self.machines[node] = machine
        self._open(machine)

    def _open(self, machine: Machine) -> None:
        checkpoint = machine.disk.seen.checkpoint
        machine.options = replace(machine.options, applied=checkpoint.index)
        machine.applied, machine.applied_term = checkpoint.index, checkpoint.term
        machine.members = checkpoint.configuration
        for queue in (machine.writing, machine.written, machine.applying, machine.held):
            queue.clear()
        machine.node = RaftNode(machine.options, machine.disk.seen)
        machine.up = True
        self.trace.append(f"{machine.id} opens")

    def _end(self, machine: Machine) -> None:
        self.trace.append(f"{machine.id} crashes")
        self.counts["crashes"] += 1
        machine.disk.crash(self.rng)
        machine.up = False

    def _any(self) -> Machine | None:
        up = [machine for machine in self.machines.values() if machine.up]
        return self.rng.choice(up) if up else None

    def _leader(self) -> Machine | None:
        up = [machine for machine in self.machines.values() if machine.up and machine.node.role is Role.LEADER]
        return self.rng.choice(up) if up else None

    def _data(self) -> bytes:
        self.serial += 1
        return b"%08d" % self.serial

    # --- what must hold

    def _check(self) -> None:
        for machine in self.machines.values():
            if not machine.up:
                continue
            state = machine.node._state
            if state.role is Role.LEADER and self.leaders.get(state.term) != machine.id:
                other = self.leaders.setdefault(state.term, machine.id)
                assert other == machine.id, f"{other} and {machine.id} lead in term {state.term}"
                self._check_complete(machine)
            if state.log.committed > self.newest:
                self.newest = state.log.committed
            assert state.log.applied <= state.log.committed <= state.log.last()
            for node, peer in state.peers.items():
                assert peer.match < peer.next, f"{machine.id} sees {node} at {peer.match}, next {peer.next}"
            self._check_matching(machine)

    def _check_complete(self, machine: Machine) -> None:
        """A new leader has every entry that was committed."""
        log = machine.node._state.log
        for index in range(max(log.first(), self.newest - 40), self.newest + 1):
            if index in self.history:
                assert log.term(index) == self.history[index][0], f"leader {machine.id} lacks committed entry {index}"

    def _check_matching(self, machine: Machine) -> None:
        """Entries of one index and term are equal, and so are those before them."""
        log = machine.node._state.log
        waiting = log.unstable.entries
        for entry in waiting[-3:]:
            before = log.term(entry.index - 1)
            if before is not None:
                mine = (before, bytes(entry.data))
                known = self.before.setdefault((entry.index, entry.term), mine)
                assert known == mine, f"{machine.id} has {entry} behind term {before}, another node {known}"

    # --- the end

    def _heal(self) -> None:
        self.lossy = False
        self.cut = set()
        self.goal = self.newest + 20
        self.trace.append("heals")
        for machine in self.machines.values():
            if not machine.up:
                self._open(machine)
        for _ in range(ROUNDS):
            self._round()
            if self._got_on():
                return
        raise AssertionError(f"no progress in {ROUNDS} rounds: {self._standing()}")

    def _round(self) -> None:
        self._stop_removed()
        for machine in [each for each in self.machines.values() if each.up]:
            machine.node.tick()
            if machine.disk.seen.wanted > machine.disk.seen.checkpoint.index and not machine.written:
                machine.disk.checkpoint(machine.snapshot(), 5)
        for _ in range(8):
            for machine in [each for each in self.machines.values() if each.up]:
                for _ in range(4):
                    self._work(machine)
                if not machine.up:
                    self._open(machine)
            self._check()
            messages, self.network = self.network, []
            for message in messages:
                self._receive(message)
            self._check()
        while self.reports:
            self.report()
        leader = self._leader()
        if leader:
            leader.node.propose(self._data())

    def _stop_removed(self) -> None:
        """A node that the newest configuration does not name is switched off, as its operator would."""
        newest = max(self.machines.values(), key=lambda machine: machine.applied)
        members = newest.members
        named = {*members.voters, *members.outgoing, *members.learners, *members.learners_next}
        for machine in self.machines.values():
            if machine.id not in named:
                machine.up = False
            elif not machine.up:
                self._open(machine)

    def _got_on(self) -> bool:
        """All members have applied what was proposed since the healing, and no change is half done."""
        leader = self._leader()
        if leader is None or leader.node.status().configuration.joint:
            return False
        members = leader.node.status().configuration.members()
        return all(self.machines[node].applied >= self.goal for node in members)

    def _standing(self) -> str:
        return "; ".join(
            f"{machine.id}: {machine.node.role.name} term {machine.node.term} leads {machine.node.leader} "
            f"applied {machine.applied} committed {machine.node.committed}"
            for machine in self.machines.values()
            if machine.up
        )


ACTIONS = (
    (47, Life.deliver),
    (26, Life.turn),
    (6, Life.tick),
    (7, Life.propose),
    (4, Life.read),
    (0.35, Life.crash),
    (1.5, Life.start),
    (0.4, Life.partition),
    (1.5, Life.compact),
    (0.6, Life.transfer),
    (1.5, Life.change),
    (2, Life.report),
    (0.3, Life.unreachable),
    (0.2, Life.campaign),
    (0.2, Life.forget),
)

if __name__ == "__main__":
    life = Life(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else STEPS)
    print(life.run())
    print("\n".join(life.trace))
