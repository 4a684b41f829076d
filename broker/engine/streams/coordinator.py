"""The coordinator of one group: assigns partitions to members, and hands them over.

Idea: `rebalance` compares the wanted with the present assignment. A free partition is claimed for its member by a
logged effect, and given when that is committed. A partition of another member is first revoked: its owner finishes,
commits and releases it, or loses it at a deadline. Members that keep a partition are not interrupted.

    free --propose owner--> PENDING --committed--> OWNED --asked back--> REVOKING --released, left, taken--> free

Contract: at most one claim per partition; at most one session may commit (the log's epoch decides). Claims are only in
memory: after a restart all members join again, and epochs continue from the log. Must not know messages, peers or the
clock: deadlines are numbers.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ....storage.errors import Error
from ..tables.producers import Place
from .assignment import assign

if TYPE_CHECKING:
    from ..logs.partition import Partition
    from .agenda import Agenda

CLAIMS = 8
"""Partitions that are claimed at once: each costs an append."""


class Phase(Enum):
    """The state of a claim."""

    PENDING = "pending"  # the owner effect is not committed yet
    OWNED = "owned"
    REVOKING = "revoking"  # asked back, with a deadline


class Member(Protocol):
    """A session, as the coordinator needs it."""

    member: str
    start: int
    awaited: int  # claims it waits for before it is told for the first time

    def give(self, partition: Partition, epoch: int, offset: int) -> None:
        """Start to read `partition`."""
        ...

    def ask_back(self, partition: int) -> None:
        """Finish `partition` and release it."""
        ...

    def take(self, partition: int) -> None:
        """Stop reading `partition`."""
        ...

    def tell(self) -> None:
        """Something it waits for is decided."""
        ...


class Claim:
    """One partition and the session it is meant for. Waits for the owner effect to be committed."""

    __slots__ = ("deadline_s", "epoch", "membership", "partition", "phase", "promised", "session")

    def __init__(self, membership: Membership, partition: Partition, session: Member) -> None:
        self.membership = membership
        self.partition = partition
        self.session = session
        self.phase = Phase.PENDING
        self.promised = session.member  # its next owner while it is revoked, else its session's member
        self.epoch = 0
        self.deadline_s = 0.0

    def committed(self, place: Place) -> None:
        """The log knows the owner."""
        self.membership.claimed(self)

    def failed(self, error: Error) -> None:
        """The log could not be written: retry later."""
        self.membership.not_claimed(self)


class Membership:
    """Members of one group on one topic, and their claims."""

    def __init__(self, group: str, partitions: list[Partition], agenda: Agenda, handover_s: float) -> None:
        """`partitions` are those that can be read; the list grows with the topic."""
        self.group = group
        self.members: dict[str, Member] = {}
        self.claims: dict[int, Claim] = {}
        self._stuck: set[int] = set()  # partitions whose claims failed, to be retried
        self._joining: dict[Member, None] = {}  # told when all partitions free for them are claimed
        self._partitions = partitions
        self._agenda = agenda
        self._handover_s = handover_s

    def join(self, session: Member) -> None:
        """Add a member. No other member has its name."""
        self.members[session.member] = session
        self._joining[session] = None
        session.awaited += 1
        self._agenda.memberships[self] = None

    def leave(self, session: Member) -> None:
        """Remove a member and free its partitions."""
        if self.members.get(session.member) is session:
            del self.members[session.member]
        self._joining.pop(session, None)
        for number, claim in list(self.claims.items()):
            if claim.session is session:
                self._free(number)
        self._agenda.memberships[self] = None

    def release(self, session: Member, partitions: list[int]) -> None:
        """The member is done with what it was asked for. Anything else it names stays with it."""
        for number in partitions:
            claim = self.claims.get(number)
            if claim is not None and claim.session is session and claim.phase is Phase.REVOKING:
                self._free(number)
        self._agenda.memberships[self] = None

    def take_overdue(self, now_s: float) -> None:
        """Take what was asked back and not released in time."""
        for number, claim in list(self.claims.items()):
            if claim.phase is Phase.REVOKING and claim.deadline_s <= now_s:
                self._free(number)
                self._agenda.memberships[self] = None

    def retry(self) -> None:
        """Claim again what could not be claimed."""
        if self._stuck:
            self._stuck.clear()
            self._agenda.memberships[self] = None

    def rebalance(self, now_s: float) -> None:
        """Move towards an even share, by a portion. New members are told when what is free for them is committed."""
        left = CLAIMS
        current = {number: claim.promised for number, claim in self.claims.items()}
        wanted = assign(list(self.members), [p.number for p in self._partitions], current)
        for partition in self._partitions:
            member = wanted.get(partition.number)
            if member is None:
                continue
            session, claim = self.members[member], self.claims.get(partition.number)
            if claim is None and partition.number in self._stuck:
                continue  # else as many as are claimed at once would keep all others back
            if claim is None:
                left -= 1
                if left >= 0:
                    self._claim(partition, session)
                    session.awaited += session in self._joining and partition.number in self.claims
                continue
            claim.promised = member
            if claim.session is not session and claim.phase is Phase.OWNED:
                claim.phase, claim.deadline_s = Phase.REVOKING, now_s + self._handover_s
                claim.session.ask_back(partition.number)
        if left < 0:
            self._agenda.memberships[self] = None
            return
        joining, self._joining = self._joining, {}
        for session in joining:
            self._decided(session)

    def claimed(self, claim: Claim) -> None:
        """The owner effect of a claim is committed."""
        if self.claims.get(claim.partition.number) is not claim:
            return  # the session left meanwhile
        partition, session = claim.partition, claim.session
        claim.phase = Phase.OWNED
        state = partition.group(self.group)
        session.give(partition, claim.epoch, state.resume(0, partition.end))
        self._decided(session)
        self._agenda.memberships[self] = None

    def not_claimed(self, claim: Claim) -> None:
        """The owner effect of a claim will not be committed."""
        if self.claims.get(claim.partition.number) is claim:
            del self.claims[claim.partition.number]
            self._stuck.add(claim.partition.number)
            self._decided(claim.session)

    def moved(self, session: Member, number: int, epoch: int) -> bool:
        """A seek is committed under a new epoch. False when the partition is no longer the session's."""
        claim = self.claims.get(number)
        if claim is None or claim.session is not session or claim.phase is Phase.PENDING:
            return False
        claim.epoch = epoch
        return True

    def _claim(self, partition: Partition, session: Member) -> None:
        claim = Claim(self, partition, session)
        try:
            claim.epoch = partition.set_owner(self.group, session.member, session.start, claim)
        except (Error, OSError):
            self._stuck.add(partition.number)  # poisoned or damaged: its readers go on elsewhere, and this is retried
            return
        self.claims[partition.number] = claim

    def _decided(self, session: Member) -> None:
        session.awaited = max(0, session.awaited - 1)
        session.tell()

    def _free(self, number: int) -> None:
        self.claims.pop(number).session.take(number)
