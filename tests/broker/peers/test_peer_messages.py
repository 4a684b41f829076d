"""Bytes between nodes: what went in comes out, all else is refused."""

from __future__ import annotations

import msgspec
import pytest
from penstock.broker.peers.messages import MESSAGES_MAX, PeerHello, PeerTurn, frames_of, message_of
from penstock.broker.raft.messages import ConfState, Entry, EntryKind, Kind, Message, Snapshot
from penstock.transport.errors import ProtocolError
from support.samples import BATCH

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


def test_every_bit_of_a_message_may_be_wrong() -> None:
    (frame,) = frames_of(TURN)
    for place in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[place >> 3] ^= 1 << (place & 7)
        try:
            message_of([bytes(damaged)])
        except ProtocolError:
            continue
