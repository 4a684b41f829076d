"""What a member sends to its peers: Raft's messages, cut into pieces that fit a frame.

Idea: the core bounds the data of an append, and not the batches that its entries only name. An append that carries too
many is sent as several, each of which follows the one before it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..peers.messages import FRAME_BYTES_AIM
from ..raft.messages import Kind, Message
from ..replica.entries import batches_of


def pieces(message: Message, bodies: list[bytes]) -> Iterator[tuple[Message, list[bytes]]]:
    """The message with its batches, or several that say the same. `bodies` are in the order of the entries."""
    if message.kind is not Kind.APPEND or sum(map(len, bodies)) <= FRAME_BYTES_AIM:
        yield message, bodies
        return
    left, index, term = iter(bodies), message.index, message.log_term
    taken, found, size = message.entries[:0], list[bytes](), 0
    for entry in message.entries:
        own = [next(left) for _, row in batches_of(entry.kind, entry.data) if not row.position]
        if taken and size + sum(map(len, own)) > FRAME_BYTES_AIM:
            yield msgspec.structs.replace(message, index=index, log_term=term, entries=taken), found
            index, term = taken[-1].index, taken[-1].term
            taken, found, size = [], [], 0
        taken.append(entry)
        found += own
        size += sum(map(len, own))
    yield msgspec.structs.replace(message, index=index, log_term=term, entries=taken), found
