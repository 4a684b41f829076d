"""Appends with many batches beside them are sent in pieces that follow each other."""

from __future__ import annotations

from penstock.broker.member.sending import pieces
from penstock.broker.peers.messages import FRAME_BYTES_AIM
from penstock.broker.raft.messages import Entry, EntryKind, Kind, Message
from penstock.broker.replica.entries import StampedBatch, encode_flush

LOG = bytes(16)
LARGE = FRAME_BYTES_AIM // 2 + 1


def entry(index: int, size: int) -> tuple[Entry, list[bytes]]:
    """An entry with one batch, which is only named if it is large."""
    body = b"x" * size
    data = encode_flush(1, [StampedBatch(LOG, index, index, size, [body])])
    return Entry(index, 3, data, EntryKind.NORMAL), [body] if size > 1 << 16 else []


def append(*sizes: int) -> tuple[Message, list[bytes]]:
    made = [entry(8 + place, size) for place, size in enumerate(sizes)]
    message = Message(Kind.APPEND, 2, 1, 4, index=7, log_term=2, commit=6, entries=[each for each, _ in made])
    return message, [body for _, bodies in made for body in bodies]


def test_what_fits_stays_one_message() -> None:
    message, bodies = append(10, LARGE, 10)
    assert list(pieces(message, bodies)) == [(message, bodies)]
    heartbeat = Message(Kind.HEARTBEAT, 2, 1, 4)
    assert list(pieces(heartbeat, [])) == [(heartbeat, [])]


def test_pieces_follow_each_other_and_have_all_entries_and_batches() -> None:
    message, bodies = append(LARGE, 10, LARGE, LARGE, 20)
    found = list(pieces(message, bodies))
    assert [[each.index for each in piece.entries] for piece, _ in found] == [[8, 9], [10], [11, 12]]
    assert [(piece.index, piece.log_term) for piece, _ in found] == [(7, 2), (9, 3), (10, 3)]
    assert [len(some) for _, some in found] == [1, 1, 1]
    assert {(piece.commit, piece.term, piece.to, piece.sender) for piece, _ in found} == {(6, 4, 2, 1)}


def test_one_entry_is_never_cut() -> None:
    message, bodies = append(3 * LARGE)
    assert [piece.entries for piece, _ in pieces(message, bodies)] == [message.entries]
