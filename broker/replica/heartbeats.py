"""What heartbeats and the answers to them carry besides Raft's own: room, clocks, digests, and damage to close for.

Idea: they are small, come ten times a second, and go to and from the leader: whatever a leader has to know of its
followers, or they of it, goes along. Must not know logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..raft.messages import Kind, Message
from ..raft.state import Role
from .sparing import SILENT_TICKS, Sparing

if TYPE_CHECKING:
    from ...storage.errors import Corrupt
    from ..raft.node import RaftNode
    from .clocks import MemberClocks
    from .digesting import Digesting
    from .room import DiskRoom


class Beating(Protocol):
    """A replica, as far as heartbeats concern it."""

    core: RaftNode
    clocks: MemberClocks
    room: DiskRoom
    digesting: Digesting

    def met(self, damage: Corrupt) -> None:
        """This leader has damage."""
        ...


class Heartbeats:
    """See the module."""

    def __init__(self, replica: Beating) -> None:
        self._replica = replica
        self.sparing = Sparing()
        self._handed_over = 0  # ticks before the lead may be handed over again

    @property
    def spares_itself(self) -> bool:
        """Whether the others go on if this leader closes: they are a majority, and none of them is about to close."""
        core = self._replica.core
        return not self.sparing.away and core.spares(core.status().node)

    def rotten(self, damage: Corrupt) -> None:
        """Bytes here do not verify: close for it once the others go on without this member, and lead no more."""
        self.sparing.found = self.sparing.found or damage

    def tick(self) -> None:
        """Time passed."""
        self._replica.digesting.tick()
        leads = self._replica.core.role is Role.LEADER
        self.sparing.tick(leads=leads)
        self._handed_over = max(self._handed_over - 1, 0)
        if leads and self.sparing.found is not None:
            self._replica.met(self.sparing.found)
            if not self.spares_itself and not self._handed_over:
                self._hand_over()

    def _hand_over(self) -> None:
        """Have a follower lead that may be whole: there, others find what is damaged here."""
        core = self._replica.core
        status = core.status()
        sound = {
            node: member.match
            for node, member in status.members.items()
            if node in status.configuration.voters and member.is_heard and not self.sparing.is_damaged(node)
        }
        sound.pop(status.node, None)
        if sound and core.transfer(max(sound, key=sound.__getitem__)):
            self._handed_over = SILENT_TICKS

    def leaves(self, message: Message) -> None:
        """A message of the core leaves."""
        replica = self._replica
        if message.kind is Kind.HEARTBEAT_ACK:
            message.room, message.clock_us = replica.room.own, replica.clocks.own_us
            message.force = self.sparing.found is not None
        elif message.kind is Kind.HEARTBEAT:
            message.force = self.sparing.lets_close(message.to, others_suffice=replica.core.spares(message.to))
        replica.digesting.leaves(message)

    def take(self, message: Message) -> None:
        """A message came. Raises Corrupt where this member has damage and may close for it, or differs from others."""
        replica = self._replica
        if message.kind in (Kind.APPEND_ACK, Kind.HEARTBEAT_ACK):
            replica.clocks.heard(message.sender, message.clock_us)
        if message.kind is Kind.HEARTBEAT_ACK:
            replica.room.heard(message.sender, message.room)
            self.sparing.heard(message.sender, is_damaged=message.force)
        elif message.kind is Kind.HEARTBEAT and message.force and self.sparing.found is not None:
            raise self.sparing.found
        replica.digesting.take(message)
