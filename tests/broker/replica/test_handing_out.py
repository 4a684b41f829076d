"""The member that is asked for single batches: what it hands out, and how much at once."""

from __future__ import annotations

import pytest
from penstock.broker.raft.messages import Kind, Message
from penstock.broker.replica import catchup_messages as cm
from penstock.broker.replica.catchup_messages import PIECE_BYTES, AskWhole, WholeBatches
from penstock.broker.replica.damage import note
from penstock.broker.replica.handing_out import HandingOut
from penstock.storage.data_directory import ORDER
from penstock.storage.memory_files import MemoryFiles
from support.damaged import a_follower, produce
from support.logs import LOG_ID, Built, build
from support.members import DATA, Shard


def handing_out() -> tuple[HandingOut, Built, list[tuple[int, WholeBatches, list[bytes]]]]:
    log = build(MemoryFiles(), f"/data/{ORDER}", shape=((1, 1, 1), (1, 1, 1), (1, 1)))
    sent: list[tuple[int, WholeBatches, list[bytes]]] = []
    found = HandingOut(log.files, "/data", lambda *each: sent.append((each[0], each[1], list(each[2]))))
    return found, log, sent


def batches_for(found: HandingOut, sent: list, seq: int, last: int, log_id: bytes = LOG_ID, log: str = ORDER) -> list:
    found.tick()
    found.asked(2, AskWhole(log, log_id, seq, last))
    assert sent[-1][:2] == (2, WholeBatches(log_id, seq))
    return sent[-1][2]


def test_what_is_handed_out_is_asked_for_and_of_that_log():
    found, log, sent = handing_out()
    batches = log.batches
    assert batches_for(found, sent, 2, 3) == [batches[2], batches[3]]
    assert batches_for(found, sent, 7, 20) == [batches[7], batches[8]]
    assert batches_for(found, sent, 9, 20) == []
    assert batches_for(found, sent, 3, 2) == []
    assert batches_for(found, sent, 0, 8) == []
    assert batches_for(found, sent, 2, 3, bytes(16)) == []
    assert batches_for(found, sent, 2, 3, log="metadata") == []


def test_what_does_not_verify_is_not_handed_out_nor_what_is_behind_it():
    found, log, sent = handing_out()
    name, position = log.places[2]
    log.files.contents[f"{log.directory}/{name.segment_file}"].data[position + log.batches[2].find(b"value")] ^= 1
    assert batches_for(found, sent, 1, 3) == [log.batches[1]]
    assert batches_for(found, sent, 2, 3) == []
    assert batches_for(found, sent, 3, 3) == [log.batches[3]]


def test_what_leaves_in_a_tick_is_bounded():
    found, log, sent = handing_out()
    found._left = len(log.batches[1]) + 1
    for _ in range(3):
        found.asked(2, AskWhole(ORDER, LOG_ID, 1, 1))
    assert len(sent) == 2
    found.tick()
    found.asked(2, AskWhole(ORDER, LOG_ID, 1, 1))
    assert len(sent) == 3


def test_a_piece_is_bounded():
    log = build(MemoryFiles(), f"/data/{ORDER}", shape=((1,) * 5,), value_bytes=PIECE_BYTES // 2)
    sent: list[tuple[int, WholeBatches, list[bytes]]] = []
    found = HandingOut(log.files, "/data", lambda *each: sent.append((each[0], each[1], list(each[2]))))
    assert batches_for(found, sent, 1, 5) == [log.batches[1]]


@pytest.mark.parametrize("recovers", [False, True])
def test_a_member_in_any_role_hands_out_what_it_has(recovers: bool):
    shard = Shard(11)
    topic = shard.topic("t")
    produce(shard, topic, 20)
    name = f"topics/{topic.hex()}/0"
    member = a_follower(shard)
    if recovers:
        member.crash(power=False)
        note(member.files, DATA, "lost")
        shard.begin(member)
    shard.network.clear()
    log = next(each for each in shard.leader.replica.node.logs if each.path == f"{DATA}/{name}")
    asked = Message(Kind.SHIP, member.number, 9, context=cm.encode(AskWhole(name, log.log_id, 1, 2)))
    if recovers:
        member.recovery.step(asked)
    else:
        member.replica.step(asked)
    (sent,) = [each for each in shard.network if each.message.kind is Kind.PIECE]
    assert sent.message.to == 9
    assert list(sent.bodies.values()) == [log.batch_at(1), log.batch_at(2)]
