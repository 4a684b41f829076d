"""One change of the members after the other: a member has at most one that its checkpoint does not cover.

Idea: a member goes by the members at the last entry that it has applied, and one that restarts by those of its
checkpoint. Majorities of one configuration and the next share a node, those of configurations further apart need not:
a member that had the entries of a whole replacement, and lost its place in them, would be a majority of the members
before together with the disk that was replaced. So a leader proposes a change only when the one before it is saved in
its checkpoint, and a follower takes an append up to the change that has to wait. The rest comes again, as if lost.

Proof that no leader of older members decides beside others. Let change k be committed by a majority of the members
before it, each of which has saved change k - 1. A candidate that goes by the members before change k - 1 has change
k - 1 in its log at most, not k. Its majority shares a node with the majority that committed change k - 1 or, one change
later, change k: the node that replaced another is in one of the two at most, as one change removes it and another one
adds it. That node has the later change in its log, so it gives such a candidate no vote.

Must not know files or links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..raft.messages import EntryKind

if TYPE_CHECKING:
    from ..raft.messages import Change, Entry, Message
    from ..raft.node import RaftNode
    from .order_checkpoints import OrderCheckpoints


class MemberChanges:
    """See the module."""

    def __init__(self, core: RaftNode, checkpoints: OrderCheckpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints

    def propose(self, change: Change) -> str:
        """As leader, propose a change. Why that cannot be now; "" where it is proposed."""
        if self._checkpoints.owes_change:
            return "the change before it is being written down"
        if self._core.propose_change(change, msgspec.msgpack.encode(change)) is None:
            return self._core.refusal(change) or "it hands the lead over, or too much waits to be committed"
        return ""

    def admitted(self, message: Message) -> list[Entry]:
        """The entries of an append up to the first change that has to wait for one before it."""
        entries = message.entries
        changes = [place for place, entry in enumerate(entries) if entry.kind is EntryKind.CHANGE]
        if not changes:
            return entries
        waits = self._checkpoints.owes_change or self._core.has_unapplied_change(message.index)
        allowed = 0 if waits else 1
        return entries[: changes[allowed]] if len(changes) > allowed else entries
