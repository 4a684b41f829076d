"""The messages between nodes, and frames: PEERS.md is normative.

Contract: bytes from the wire decode to a message or raise ProtocolError, within the limits below. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from ...storage.batch import batches
from ...storage.errors import InvalidBatch, NewerFormat
from ...transport.errors import ProtocolError
from ...transport.message import Unsigned
from ..raft.messages import Kind, Message

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

VERSION = 1
"""Of this protocol. Nodes of a cluster share one at least."""

MESSAGES_MAX = 4096
"""Raft messages in one message."""

FRAME_BYTES_MAX = 65 << 20
"""Of either frame."""

FRAME_BYTES_AIM = 1 << 20
"""A message takes no more Raft messages once its frames are this large."""

DATA_KINDS = frozenset({Kind.APPEND, Kind.SNAPSHOT, Kind.PIECE})
"""What travels on the data socket: it may be long, and must not stand before votes, heartbeats and acknowledgements."""

TOLD_KINDS = frozenset({Kind.APPEND, Kind.HEARTBEAT, Kind.SNAPSHOT, Kind.PIECE})
"""What a leader tells its followers: nothing of it is counted, and none of it asks for a vote."""

Node = Annotated[int, Meta(ge=1, le=255)]
Uuid = Annotated[bytes, Meta(max_length=16)]


class PeerHello(msgspec.Struct, array_like=True, frozen=True, tag=200):
    """First message of a connection, from the node that connected."""

    cluster: Annotated[str, Meta(max_length=200)]
    node: Node
    to: Node
    uuid: Uuid  # of the sender's data directory
    to_uuid: Uuid  # of the receiver's, as far as the sender knows: empty when it does not
    incarnation: Unsigned  # random, new at every start of the sender
    oldest_version: Annotated[int, Meta(ge=0)]
    newest_version: Annotated[int, Meta(ge=0)]
    advertise: Annotated[list[Annotated[str, Meta(max_length=300)]], Meta(max_length=16)] = []  # for clients
    entry: Annotated[int, Meta(ge=0)] = 0  # up to which it has applied, where its table has its directory; else 0
    limits: Annotated[dict[Annotated[str, Meta(max_length=64)], Unsigned], Meta(max_length=64)] = {}  # by name


class PeerTurn(msgspec.Struct, array_like=True, frozen=True, tag=201):
    """What one turn of the sender has for the receiver on one socket. Batches follow in frame 2."""

    shard: Annotated[int, Meta(ge=0)]
    messages: Annotated[list[Message], Meta(max_length=MESSAGES_MAX)]


PeerMessage = PeerHello | PeerTurn

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[PeerMessage] = msgspec.msgpack.Decoder(PeerMessage)


def frames_of(message: PeerMessage, bodies: Sequence[Buffer] = ()) -> list[Buffer]:
    """The frames of a message: one, or two with batches."""
    first = _encoder.encode(message)
    return [first, b"".join(bodies)] if bodies else [first]


def message_of(received: Sequence[Buffer]) -> tuple[PeerMessage, list[Buffer]]:
    """A message and its batches. Raises ProtocolError."""
    if not 1 <= len(received) <= 2 or any(len(frame) > FRAME_BYTES_MAX for frame in received):
        raise ProtocolError("a message between nodes has one or two frames of at most 65 MiB")
    try:
        message = _decoder.decode(received[0])
        if len(received) == 1:
            return message, []
        if isinstance(message, PeerHello):
            raise ProtocolError("a PeerHello carries no batches")
        return message, list(batches(received[1]))
    except (msgspec.MsgspecError, ValueError, RecursionError, InvalidBatch, NewerFormat) as error:
        raise ProtocolError(f"no message between nodes: {error}") from None
