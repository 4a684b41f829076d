"""What members say while one is brought up to date by difference, as the context of Raft's SHIP and PIECE messages.

Idea: the member that lags asks, one piece at a time, and the leader answers. First comes a manifest: the places of all
logs at one entry, and where each log begins at the leader. Then come the batches that are missing, and for logs that
the member has no part of the newest snapshot of their state and the runs beside it.

Beside that, any member may ask any other for batches that have rotted (mending.py).

Contract: the layout is PEERS.md, section 5. `decode` gives a message or raises InvalidBatch. Pure.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ...storage.errors import InvalidBatch
from ...storage.recovery import LogEnd

PIECE_BYTES = 1 << 20
"""Of a piece; one batch may exceed it."""

LogId = Annotated[bytes, Meta(min_length=16, max_length=16)]
Count = Annotated[int, Meta(ge=0)]


class LogStart(Struct, array_like=True, frozen=True):
    """The place before the first batch of a log."""

    seq: Count
    offset: Count
    checksum: Count
    time_us: int
    term: Count

    def end(self) -> LogEnd:
        """As storage says it, at the start of a segment."""
        return LogEnd(self.seq, 0, self.offset, self.checksum, self.time_us, self.term).at_start()


class ShippedFile(Struct, array_like=True, frozen=True):
    """A file beside a log: a snapshot or a run. Each node has its own: names and sizes may be those of other ones."""

    name: Annotated[str, Meta(pattern=r"^(snapshot|run)-[0-9]{20}$")]
    size: Count
    checksum: Count = 0  # of its header, which is its first 8 bytes and covers that of the rest; 0: not stated


class ShippedLog(Struct, array_like=True, frozen=True):
    """One log of a manifest: it has batches behind `start` up to `seq`, whose header checksum is `checksum`."""

    log_id: LogId
    topic: Annotated[bytes, Meta(max_length=16)]  # empty: the catalogue
    partition: Count
    start: LogStart
    seq: Count
    checksum: Count
    files: list[ShippedFile]


def progress(shipped: ShippedLog, seq: int, number: int, count: int) -> str:
    """How far a member is that fetches a log, for people."""
    name = f"topics/{shipped.topic.hex()}/{shipped.partition}" if shipped.topic else "metadata"
    return f"log {number} of {count}, {name}: batch {seq} of {shipped.seq}"


class AskManifest(Struct, array_like=True, frozen=True, tag=1):
    """What is there? `promised`: the term of a member that has lost something it acknowledged; 0 of any other."""

    promised: Count = 0


class Manifest(Struct, array_like=True, frozen=True, tag=2):
    """All logs at one entry. `checkpoint`: its body (ORDER.md); `time_us`: of the entry."""

    entry: Count
    checkpoint: bytes
    time_us: int
    logs: list[ShippedLog]


class AskBatches(Struct, array_like=True, frozen=True, tag=3):
    """The batches of a log behind `seq`."""

    entry: Count
    log_id: LogId
    seq: Count


class ShippedBatches(Struct, array_like=True, frozen=True, tag=4):
    """Batches of a log behind `seq`, which come beside the message."""

    entry: Count
    log_id: LogId
    seq: Count


class AskFile(Struct, array_like=True, frozen=True, tag=5):
    """A file beside a log, from a position on."""

    entry: Count
    log_id: LogId
    name: str
    position: Count


class FilePiece(Struct, array_like=True, frozen=True, tag=6):
    """A piece of a file."""

    entry: Count
    log_id: LogId
    name: str
    position: Count
    data: Annotated[bytes, Meta(max_length=PIECE_BYTES)]


class Withdrawn(Struct, array_like=True, frozen=True, tag=7):
    """The sender ships the state at this entry no more: ask for a manifest."""

    entry: Count


class Staged(Struct, array_like=True, frozen=True, tag=8):
    """All of it is durable here, and will be installed."""

    entry: Count


class AskWhole(Struct, array_like=True, frozen=True, tag=9):
    """Batches `seq` to `last` of a log have rotted at the sender, which asks any member for them, in any role."""

    log: Annotated[str, Meta(pattern=r"^(order|metadata|topics/[0-9a-f]{32}/[0-9]{1,10})$")]  # below the data directory
    log_id: LogId
    seq: Count
    last: Count


class WholeBatches(Struct, array_like=True, frozen=True, tag=10):
    """Batches from `seq` on, which come beside the message; none where the sender does not have that one whole."""

    log_id: LogId
    seq: Count


Asked = AskManifest | AskBatches | AskFile | Staged
Shipped = Manifest | ShippedBatches | FilePiece | Withdrawn

_encoder = msgspec.msgpack.Encoder()
Said = Asked | Shipped | AskWhole | WholeBatches
_decoder: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said)


def encode(message: Said) -> bytes:
    """The context of a SHIP or PIECE message."""
    return _encoder.encode(message)


def decode(context: bytes) -> Said:
    """The message in a context. Raises InvalidBatch."""
    try:
        return _decoder.decode(context)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidBatch(f"no message of a catch-up: {error}") from None
