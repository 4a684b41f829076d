"""Turns of a simulated Raft node: what its surroundings do with a Ready, and what must hold when they do."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from penstock.broker.raft.messages import ConfState, Entry, EntryKind, Kind, Message, Snapshot
from penstock.broker.raft.node import RaftNode
from penstock.broker.raft.ready import Ready
from penstock.broker.raft.state import RaftOptions, Role
from support import raft_text
from support.raft_disk import Disk


class Crashed(Exception):
    """The process of a node ended in the middle of its turn."""


@dataclass
class Machine:
    """One node, its disk, and what is under way between them."""

    id: int
    options: RaftOptions
    disk: Disk
    node: RaftNode
    applied: int = 0
    members: ConfState = field(default_factory=ConfState)
    applied_term: int = 0
    writing: deque[Ready] = field(default_factory=deque)  # asynchronous: not written yet
    written: deque[Ready] = field(default_factory=deque)  # not synced yet
    applying: deque[Ready] = field(default_factory=deque)
    held: deque[tuple[Ready, list[Message]]] = field(default_factory=deque)  # wait for an earlier promise
    up: bool = True

    def snapshot(self) -> Snapshot:
        return Snapshot(self.applied, self.applied_term, self.members)


class Turns:
    """What one life knows of all nodes, and the turns of each."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.network: list[Message] = []
        self.votes: dict[tuple[int, int], int] = {}
        self.history: dict[int, tuple[int, bytes]] = {}  # committed entries
        self.asked: dict[bytes, int] = {}  # the newest commit when each read was asked

    def turn_of(self, machine: Machine) -> None:
        """One turn, or, of an asynchronous node, four parts of some; `Crashed` when the process ends in it."""
        if machine.options.asynchronous:
            for _ in range(4):
                self._asynchronous_turn(machine)
        elif machine.node.has_ready():
            self._synchronous_turn(machine)

    def _synchronous_turn(self, machine: Machine) -> None:
        ready = machine.node.ready()
        if not ready.hold:
            self._leave(machine, ready.messages)
        machine.disk.write(ready.promise, ready.entries, ready.snapshot)
        self._may_crash()
        if ready.must_sync or ready.snapshot or self.rng.random() < 0.3:
            machine.disk.sync()
        self._may_crash()
        if ready.hold:
            self._leave(machine, ready.messages)
        self._leave(machine, ready.responses)
        self._serve(machine, ready)
        self._installed(machine, ready)
        self._apply(machine, ready.committed)
        self._may_crash()
        machine.node.advance()

    def _asynchronous_turn(self, machine: Machine) -> None:
        dice = self.rng.randrange(4)
        if dice == 0 and machine.writing:
            ready = machine.writing.popleft()
            machine.disk.write(ready.promise, ready.entries, ready.snapshot)
            machine.written.append(ready)
        elif dice == 1 and machine.written:
            machine.disk.sync()
            self._may_crash()
            while machine.written:
                self._synced(machine, machine.written.popleft())
        elif dice == 2 and machine.applying:
            ready = machine.applying.popleft()
            self._apply(machine, ready.committed)
            if ready.applied:
                machine.node.settle(ready.applied)
        elif machine.node.has_ready():
            self._take(machine, machine.node.ready())

    def _take(self, machine: Machine, ready: Ready) -> None:
        if ready.hold or machine.held:
            machine.held.append((ready, ready.messages))
        else:
            self._leave(machine, ready.messages)
        self._serve(machine, ready)
        machine.writing.append(ready)
        if ready.committed:
            machine.applying.append(ready)

    def _synced(self, machine: Machine, ready: Ready) -> None:
        self._installed(machine, ready)
        while machine.held and (machine.held[0][0] is ready or not machine.held[0][0].hold):
            self._leave(machine, machine.held.popleft()[1])
        for message in ready.responses:
            if message.to == machine.id:
                machine.node.settle(message)
            else:
                self._leave(machine, [message])

    def _serve(self, machine: Machine, ready: Ready) -> None:
        for read in ready.reads:
            asked = self.asked.pop(bytes(read.context), 0)
            assert read.index >= asked, f"{machine.id} answers a read at {read.index}, but {asked} was committed"
            self.counts["reads"] += 1
        if ready.standing and ready.standing.role is Role.LEADER:
            self.counts["elections"] += 1

    def _installed(self, machine: Machine, ready: Ready) -> None:
        if ready.snapshot and ready.snapshot.index > machine.applied:
            assert not machine.applying or machine.applying[-1].committed[-1].index <= ready.snapshot.index
            machine.applied, machine.applied_term = ready.snapshot.index, ready.snapshot.term
            machine.members = ready.snapshot.configuration
            self.counts["installs"] += 1

    def _apply(self, machine: Machine, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.index <= machine.applied:
                assert machine.options.asynchronous, f"{machine.id} applies entry {entry.index} again"
                continue  # a snapshot was installed over it
            assert entry.index == machine.applied + 1, f"{machine.id} applies {entry.index} after {machine.applied}"
            data = bytes(entry.data)
            known = self.history.setdefault(entry.index, (entry.term, data))
            assert known == (entry.term, data), f"{machine.id} applies {entry}, but {known} was committed"
            seen = machine.disk.seen
            written = seen.term(entry.index)
            assert written in (entry.term, None), f"{machine.id} applies {entry}, but its log has term {written}"
            if entry.kind is EntryKind.CHANGE:
                machine.members = machine.node.apply_change(raft_text.change_of(data), entry.index)
                self.counts["changes"] += 1
            machine.applied, machine.applied_term = entry.index, entry.term

    def _leave(self, machine: Machine, messages: list[Message]) -> None:
        synced = machine.disk.synced
        for message in messages:
            if message.kind is not Kind.PRE_VOTE and not (message.kind is Kind.PRE_VOTE_ACK and not message.reject):
                assert synced.promise.term >= message.term, (
                    f"{raft_text.message_text(message)} before its term is synced"
                )
            if message.kind is Kind.VOTE_ACK and not message.reject:
                vote = self.votes.setdefault((machine.id, message.term), message.to)
                assert vote == message.to, f"{machine.id} votes for {vote} and {message.to} in term {message.term}"
            if message.kind is Kind.APPEND_ACK and not message.reject and message.term == synced.promise.term:
                last = synced.last_index()
                assert last >= message.index, f"{machine.id} acknowledges {message.index}, synced is {last}"
            self.network.append(message)

    def _may_crash(self) -> None:
        if self.rng.random() < 0.002:
            raise Crashed
