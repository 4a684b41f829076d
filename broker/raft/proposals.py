"""What a leader appends. Pure.

Idea: the leader asks for the next place before it makes an entry, because the entry's bytes name index and term; then
it proposes exactly that one. Proposals that are not applied are bounded in bytes.
"""

from __future__ import annotations

import msgspec

from . import replication
from .messages import ENTRY_OVERHEAD, NONE, Data, Entry, EntryKind, Kind, Message, total_bytes
from .state import RaftState, Role


class EntryPlace(msgspec.Struct, frozen=True):
    """Where the next entry will stand."""

    index: int
    term: int


def next_place(state: RaftState, size: int) -> EntryPlace | None:
    """Where an entry with `size` bytes of data would stand; None while this node may not propose it: it does not
    lead, is no member any more, hands over, or too much is uncommitted."""
    if state.role is not Role.LEADER or not state.member() or state.transferee != NONE:
        return None
    if not _fits(state, size + ENTRY_OVERHEAD):
        return None
    return EntryPlace(state.log.last() + 1, state.term)


def propose(state: RaftState, datas: list[Data], kind: EntryKind = EntryKind.NORMAL) -> EntryPlace | None:
    """Append one entry for each of `datas` and send them; the place of the first, or None when it may not."""
    place = next_place(state, sum(map(len, datas)) + ENTRY_OVERHEAD * (len(datas) - 1))
    if place is not None:
        append(state, datas, kind)
        replication.broadcast(state)
    return place


def append(state: RaftState, datas: list[Data], kind: EntryKind = EntryKind.NORMAL) -> None:
    """Append entries of this term. The leader's own acknowledgement waits for their write."""
    first = state.log.last() + 1
    entries = [Entry(first + place, state.term, data, kind) for place, data in enumerate(datas)]
    state.uncommitted_bytes += total_bytes(entries)
    state.log.append(entries)
    state.send(Message(Kind.APPEND_ACK, state.node, index=entries[-1].index))


def applied(state: RaftState, size: int) -> None:
    """Entries of so many bytes are applied, and no longer uncommitted."""
    state.uncommitted_bytes = max(state.uncommitted_bytes - size, 0)


def _fits(state: RaftState, size: int) -> bool:
    return state.uncommitted_bytes == 0 or state.uncommitted_bytes + size <= state.options.max_uncommitted_bytes
