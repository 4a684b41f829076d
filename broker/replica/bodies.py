"""The batches that entries only name: read from their logs for another member, and come with a message from one.

Contract: every byte of what leaves is verified. Must not know Raft, or what batches mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...storage.batch import parse
from ...storage.errors import Corrupt, OutOfBounds
from .catchup_messages import ShippedBatches, WholeBatches
from .damage import damage_of, verify
from .entries import batches_of
from .errors import ReplicaBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..engine.node import Node
    from ..raft.messages import Entry
    from .catchup_messages import Said
    from .entries import Flush, NamedBatch

Bodies = Mapping[tuple[bytes, int, int], bytes]
"""Batches that entries only name, by log id, seq and header checksum."""


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
    except OutOfBounds:  # its segment has just been removed
        return None
    except (Corrupt, OSError) as error:
        damage = damage_of(error, history.log.path)
        if damage is None:
            raise
        met(damage)
        return None
    return found


def beside(said: Said, bodies: Bodies) -> list[bytes]:
    """The batches that a message of a catch-up carries, in order. `bodies`: all that came in its frame, where those of
    other messages of the same turn stand, too."""
    found: list[bytes] = []
    if isinstance(said, (ShippedBatches, WholeBatches)):
        begin = said.seq + isinstance(said, ShippedBatches)
        for (log_id, seq, _), body in sorted(bodies.items()):
            if (log_id, seq) == (said.log_id, begin + len(found)):
                found.append(body)
    return found


class ArrivedBodies:
    """What came with the messages of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._found: dict[tuple[bytes, int, int], bytes] = {}

    def add(self, bodies: Bodies) -> None:
        """More came."""
        self._found.update(bodies)

    def clear(self) -> None:
        """The turn is over."""
        self._found.clear()

    def has_all(self, entry: Entry) -> bool:
        """Whether all batches of an entry are at hand."""
        return all(
            row.position or (row.log_id, row.seq, row.checksum) in self._found or self._stands(row)
            for _, row in batches_of(entry.kind, entry.data)
        )

    def _stands(self, row: NamedBatch) -> bool:
        history = self._node.history_of(row.log_id)
        return history is not None and history.log.checksum_at(row.seq) == row.checksum

    def of(self, flush: Flush, row: NamedBatch) -> bytes:
        """A batch, from its entry or from what came. Raises ReplicaBroken."""
        inlined = flush.inlined(row)
        if inlined is not None:
            return bytes(inlined)
        body = self._found.get((row.log_id, row.seq, row.checksum))
        if body is None:
            raise ReplicaBroken(f"batch {row.seq} of log {row.log_id.hex()} did not come with its entry")
        return body
