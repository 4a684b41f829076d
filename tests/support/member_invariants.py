"""What holds in a simulated shard after every step (replication.md): one leader a term, nothing committed is lost or
changed, logs end where the order says, and equal places have equal states.

Contract: looks, and raises AssertionError. Takes no chance and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock.broker.raft.state import Role

if TYPE_CHECKING:
    from penstock.broker.replica.replica import Replica
    from penstock.storage.log import LogWriter
    from support.members import Member, Shard

FULL = 100
"""Checks between two that compare everything."""


class Invariants:
    """What holds after every step: see `check`.

    Each entry is compared when it is applied, and each state when it has moved, of members that did something. Every
    `FULL` checks all is compared again: nothing that was compared may change afterwards.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._checks = 0
        self._compared: WeakKeyDictionary[Replica, int] = WeakKeyDictionary()  # up to which entry
        self._moved: WeakKeyDictionary[Replica, dict[LogWriter, int]] = WeakKeyDictionary()  # up to which batch
        self.leaders: dict[int, int] = {}
        self.last = 0  # entry that is committed
        self.committed: dict[int, tuple[int, int]] = {}  # entry: term and checksum
        self.states: dict[tuple[bytes, int], bytes] = {}  # log and seq: what it adds up to
        self.altered = False  # a member's state was changed by hand: states are not compared until all are equal again

    def check(self, *, full: bool = False) -> None:
        self._checks += 1
        full = full or self._checks % FULL == 0
        for member in self._shard.members.values():
            replica = member.replica
            if replica is not None and (full or member.touched):
                if full:
                    self._compared.pop(replica, None)
                    self._moved.pop(replica, None)
                self._shard.guard(member, lambda replica, member=member: self._check_one(member, replica))
                member.touched = False

    def _check_one(self, member: Member, replica: Replica) -> None:
        self._one_leader(member, replica)
        self._committed(member, replica)
        self._logs(member, replica)

    def _one_leader(self, member: Member, replica: Replica) -> None:
        if replica.core.role is Role.LEADER:
            known = self.leaders.setdefault(replica.core.term, member.number)
            assert known == member.number, f"term {replica.core.term} has leaders {known} and {member.number}"
            last, term = replica.order.last_index(), replica.core.term
            others = self.last <= last or self.committed[last + 1][0] > term  # by one that it does not know yet
            assert others, f"leader {member.number} of term {term} ends at entry {last}, and {self.last} is committed"

    def _committed(self, member: Member, replica: Replica) -> None:
        """What is applied is the same everywhere."""
        applied = replica.places.entry
        first = max((self._compared.get(replica) or applied - 20) + 1, replica.order.first_index(), 1)
        for index in range(first, applied + 1):
            term = replica.order.term(index)
            found = (term or 0, replica.order.checksum(index))
            known = self.committed.setdefault(index, found)
            assert known == found, f"member {member.number} applied another entry {index}: {found}, not {known}"
        self.last = max(self.last, applied)
        self._compared[replica] = applied

    def _logs(self, member: Member, replica: Replica) -> None:
        """Each log ends where the order says, and states after the same batches are equal."""
        moved, ends, applied = self._moved.setdefault(replica, {}), replica.places.end, replica.places.applied
        for log in replica.node.logs:
            seq, checksum = ends.get(log.log_id, (0, 0))
            assert log.written == seq, f"{log.path} of member {member.number} ends at {log.written}, the order at {seq}"
            assert not seq or log.checksum == checksum
            history = replica.node.history_of(log.log_id)
            assert history is not None
            state = history.committed
            if moved.get(log) == state.seq:
                continue
            moved[log] = state.seq
            assert state.seq <= applied.get(log.log_id, (0, 0))[0]
            if self.altered:
                continue
            body = state.encode()
            known = self.states.setdefault((log.log_id, state.seq), body)
            assert known == body, f"{log.path} of member {member.number} adds up to something else at {state.seq}"
