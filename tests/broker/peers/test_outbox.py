"""What waits for a peer: in order, gathered by turn, within limits."""

from __future__ import annotations

import pytest
from penstock.broker.peers import outbox as module
from penstock.broker.peers.messages import FRAME_BYTES_AIM, PeerTurn, message_of
from penstock.broker.peers.outbox import MESSAGE_BYTES, PeerLane, PeerOutbox
from penstock.broker.raft.messages import Entry, Kind, Message
from support.samples import BATCH


def append(index: int, size: int = 0) -> Message:
    return Message(Kind.APPEND, 2, 1, index=index, entries=[Entry(index + 1, 1, bytes(size))])


def notice(index: int) -> Message:
    return Message(Kind.APPEND, 2, 1, index=index)


def sent(lane: PeerLane, most: int = 99) -> list[list[int]]:
    """The indices of each frame, until `most` were taken."""
    found: list[list[int]] = []

    def send(frames: list) -> bool:
        if len(found) == most:
            return False
        message, _ = message_of(frames)
        assert isinstance(message, PeerTurn)
        found.append([each.index for each in message.messages])
        return True

    lane.flush(send)
    return found


def test_what_is_long_travels_apart() -> None:
    box = PeerOutbox()
    for kind in Kind:
        box.put(Message(kind, 2, 1))
    assert sum(map(len, sent(box.data))) == 3, "APPEND, SNAPSHOT and PIECE"
    assert sum(map(len, sent(box.control))) == len(Kind) - 3


def test_a_turn_is_one_message_and_nothing_is_sent_twice() -> None:
    lane = PeerLane()
    for index in range(5):
        assert lane.put(append(index), [])
    assert sent(lane) == [[0, 1, 2, 3, 4]]
    assert (sent(lane), lane.bytes) == ([], 0)


def test_frames_are_cut_at_about_a_mebibyte_and_one_message_may_exceed_it() -> None:
    lane, half = PeerLane(), FRAME_BYTES_AIM // 2 - MESSAGE_BYTES
    for index, size in enumerate([half, half, 1, 3 * half, 1]):
        lane.put(append(index, size), [])
    assert sent(lane) == [[0, 1], [2], [3], [4]]


def test_a_frame_has_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MESSAGES_MAX", 2)
    lane = PeerLane()
    for index in range(5):
        lane.put(append(index), [])
    assert sent(lane) == [[0, 1], [2, 3], [4]]


def test_only_what_is_more_than_a_notice_is_urgent() -> None:
    lane = PeerLane()
    lane.put(notice(0), [])
    lane.put(notice(1), [])
    assert (lane.urgent, lane.bytes) == (False, MESSAGE_BYTES), "the second tells what the first did"
    lane.put(append(1, 5), [])
    assert (lane.urgent, lane.bytes) == (True, MESSAGE_BYTES + 5)
    lane.put(notice(2), [])
    assert (lane.urgent, sent(lane, most=0), lane.urgent) == (True, [], True), "not sent, so still urgent"
    assert (sent(lane), lane.urgent) == ([[1, 2]], False)
    lane.put(Message(Kind.SNAPSHOT, 2, 1), [])
    assert lane.urgent
    lane.clear()
    assert not lane.urgent


def test_a_notice_does_not_take_the_place_of_other_messages() -> None:
    lane = PeerLane()
    for message in append(0, 5), Message(Kind.PIECE, 2, 1, index=7), notice(1), Message(Kind.PIECE, 2, 1, index=8):
        lane.put(message, [])
    assert sent(lane) == [[0, 7, 1, 8]]


def test_what_a_socket_does_not_take_waits_in_order() -> None:
    lane = PeerLane()
    for index in range(3):
        lane.put(append(index, FRAME_BYTES_AIM), [])
    assert sent(lane, most=1) == [[0]]
    lane.put(append(3), [])
    assert sent(lane) == [[1], [2], [3]]


def test_beyond_the_limit_messages_are_lost_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 300)
    lane = PeerLane()
    assert lane.put(append(0, 1000), []), "one may exceed it"
    assert not lane.put(append(1), [])
    assert (lane.dropped, sent(lane)) == (1, [[0]])
    assert lane.put(append(2, 300 - 2 * MESSAGE_BYTES), [])
    assert lane.put(append(3), []), "exactly the limit"
    assert not lane.put(append(4), [])
    lane.clear()
    assert (sent(lane), lane.bytes) == ([], 0)


def test_batches_follow_in_the_order_of_the_messages() -> None:
    lane, found = PeerLane(), []
    lane.put(append(0), [BATCH])
    lane.put(append(1), [BATCH, BATCH])
    lane.flush(lambda frames: found.append(frames) or True)
    assert [bytes(batch.buffer) for batch in message_of(found[0])[1]] == [BATCH] * 3
