"""The batches that entries only name, read from their logs for another member.

Contract: every byte of what leaves is verified. Must not know Raft, or what batches mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...storage.batch import parse
from ...storage.errors import Corrupt
from .damage import verify
from .entries import batches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..engine.node import Node
    from ..raft.messages import Entry
    from .entries import NamedBatch


class Gone(NamedTuple):
    """An entry whose batches retention took, or the deletion of a topic, or damage: what they add up to is offered."""

    entry: int


def bodies_of(entries: Iterable[Entry], node: Node, met: Callable[[Corrupt], None]) -> list[bytes] | Gone:
    """The batches of entries, in order. `met` is told of damage."""
    found: list[bytes] = []
    for entry in entries:
        for _, row in batches_of(entry.kind, entry.data):
            if row.position:
                continue  # it is in the entry
            body = _read(row, node, met)
            if body is None:
                return Gone(entry.index)
            found.append(body)
    return found


def _read(row: NamedBatch, node: Node, met: Callable[[Corrupt], None]) -> bytes | None:
    history = node.history_of(row.log_id)
    if history is None or row.seq < history.log.names[0].base_seq:
        return None
    try:
        found = history.log.batch_at(row.seq)
        verify([parse(found)], history.log.path)
    except Corrupt as damage:
        met(damage)
        return None
    return found
