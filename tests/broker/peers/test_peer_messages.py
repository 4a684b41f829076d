"""Bytes between nodes: what went in comes out, all else is refused."""

from __future__ import annotations

import struct

import msgspec
import pytest
from penstock.broker.peers.messages import MESSAGES_MAX, PeerHello, PeerTurn, frames_of, message_of
from penstock.broker.raft.messages import ConfState, Entry, EntryKind, Kind, Message, Snapshot
from penstock.broker.replica import catchup_messages, digests
from penstock.storage.batch import parse
from penstock.storage.errors import InvalidBatch
from penstock.storage.header import HEADER
from penstock.transport.errors import ProtocolError
from support.samples import BATCH
from xxhash import xxh3_64_intdigest

HELLO = PeerHello("c", 1, 2, bytes(16), b"", 2**64 - 1, 1, 2, ["tcp://a:1"])
TURN = PeerTurn(0, [
    Message(Kind.APPEND, 2, 1, 3, 4, 5, 6, [Entry(7, 3, b"data", EntryKind.CHANGE)], True, 8, 9, True),
    Message(Kind.SNAPSHOT, 2, 1, snapshot=Snapshot(9, 3, ConfState((1, 2, 3)))),
])  # fmt: skip


@pytest.mark.parametrize(("message", "bodies"), [(HELLO, []), (TURN, []), (TURN, [BATCH, BATCH])])
def test_a_message_comes_out_as_it_went_in(message: PeerHello | PeerTurn, bodies: list[bytes]) -> None:
    found, batches = message_of(frames_of(message, bodies))
    assert msgspec.to_builtins(found) == msgspec.to_builtins(message)
    assert [bytes(batch.buffer) for batch in batches] == bodies


@pytest.mark.parametrize(
    "frames",
    [
        [], [b""], [b"\xc1"], frames_of(HELLO, [BATCH]), frames_of(TURN, [BATCH[:-1]]), frames_of(TURN, [b"x"]),
        [*frames_of(TURN, [BATCH]), b""], [frames_of(TURN)[0] + b"\0"], [b"\x93\x04\x07\x00"],
        [msgspec.msgpack.encode([200, "c", 0, *msgspec.to_builtins(HELLO)[3:]])],
        [msgspec.msgpack.encode([200, "c", 256, *msgspec.to_builtins(HELLO)[3:]])],
        frames_of(PeerTurn(0, [Message(Kind.READ, 1)] * (MESSAGES_MAX + 1))),
    ],
)  # fmt: skip
def test_all_else_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        message_of(frames)


NOT_UTF8 = b"\xff\xfe"
DEEP = b"\x91" * 100_000 + b"\x00"


@pytest.mark.parametrize(
    "context",
    [
        msgspec.msgpack.encode([5, 1, bytes(16), "name", 0]).replace(b"\xa4name", b"\xa2" + NOT_UTF8),
        b"\x93\x01\x00" + DEEP,
    ],
)
def test_what_is_no_message_of_a_catch_up_is_refused_as_such(context: bytes) -> None:
    """Whatever the reason: any other error would end the broker."""
    with pytest.raises(InvalidBatch):
        catchup_messages.decode(context)


def test_what_is_no_digest_is_refused_as_such() -> None:
    said = msgspec.msgpack.encode([1, 2, [], 0])
    with pytest.raises(InvalidBatch):
        digests.decode(said[:-1] + DEEP)


def test_a_batch_of_a_later_version_is_refused_as_anything_else() -> None:
    header = bytearray(BATCH[: parse(BATCH).header_bytes])
    header[HEADER.fields["version"][1]] += 1
    struct.pack_into("<Q", header, 0, xxh3_64_intdigest(bytes(header[8:])))
    with pytest.raises(ProtocolError, match="upgrade it"):
        message_of(frames_of(TURN, [bytes(header) + BATCH[len(header) :]]))


def test_every_bit_of_a_message_may_be_wrong() -> None:
    (frame,) = frames_of(TURN)
    for place in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[place >> 3] ^= 1 << (place & 7)
        try:
            message_of([bytes(damaged)])
        except ProtocolError:
            continue
