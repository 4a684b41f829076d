"""Delivery: credit, numbering, turns, peers that cannot take it, cold pages, mapped readers."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from penstock.broker.engine.streams.delivery import Stream
from penstock.broker.engine.streams.sessions import EXPIRY_CHECK_S
from penstock.storage.batch import encode
from penstock.storage.errors import Corrupt, OutOfBounds, StorageFull
from penstock.transport import messages as m
from support.engine import Rig, records
from support.staging import partition_of

SIZE = len(encode([b"v0-0"]))


def filled(partitions: int = 1, records: int = 10, value: bytes = b"v", **config: int) -> tuple[Rig, bytes]:
    rig = Rig(**config)
    topic = rig.topic(partitions=partitions)
    for partition in range(partitions):
        for number in range(records):
            rig.produce(topic, [b"%s%d-%d" % (value, partition, number)], partition)
    return rig, topic


def test_deliveries_are_numbered_in_order_and_say_where_they_stand():
    rig, topic = filled(chunk_bytes=SIZE * 4)
    joined = rig.join(topic)
    messages = [message for message, _ in rig.deliveries(joined)]
    assert [message.number for message in messages] == [1, 2, 3]
    assert [(message.offset, message.next_offset, message.records) for message in messages] == [
        (0, 4, 4), (4, 8, 4), (8, 10, 2),
    ]  # fmt: skip
    assert {message.end for message in messages} == {10}
    rig.produce(topic, [b"more"])
    assert rig.deliveries(joined)[-1][0].number == 4


@pytest.mark.parametrize("credit", [(0, 100), (100, 0), (0, 0)])
def test_nothing_is_read_or_sent_without_credit(credit: tuple[int, int]):
    rig, topic = filled()
    joined = rig.join(topic, credit=credit)
    assert (rig.received(joined), rig.port.reads) == ([], 0)


def test_credit_in_bytes_is_overdrawn_by_one_batch_at_most():
    rig, topic = filled()
    joined = rig.join(topic, credit=(SIZE * 3 + 1, 100))
    sent = sum(len(payload) for _, _, payload in rig.port.delivered)
    assert SIZE * 3 <= sent <= SIZE * 4
    rig.send(m.Credit(joined.session, SIZE * 6, 100))
    rig.turn()
    assert len(rig.received(joined)) == 6


def test_credit_in_records_stops_deliveries():
    rig, topic = filled(chunk_bytes=SIZE)
    joined = rig.join(topic, credit=(1 << 20, 3))
    assert len(rig.received(joined)) == 3
    rig.send(m.Credit(joined.session, 1 << 20, 5))
    rig.turn()
    assert len(rig.received(joined)) == 5


def test_credit_is_a_total_so_that_repeated_and_late_messages_do_no_harm():
    rig, topic = filled(chunk_bytes=SIZE)
    joined = rig.join(topic, credit=(1 << 20, 2))
    for total in (4, 4, 3):
        rig.send(m.Credit(joined.session, 1 << 20, total))
        rig.turn()
    assert len(rig.received(joined)) == 4


def test_a_reader_that_starts_inside_a_batch_is_told_its_first_record():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b", b"c", b"d"])
    joined = rig.join(topic, positions=[(0, 2)])
    ((message, values),) = rig.deliveries(joined)
    assert (message.offset, message.next_offset, message.records, values) == (2, 4, 2, [b"c", b"d"])


def test_partitions_take_turns():
    rig, topic = filled(partitions=3, chunk_bytes=SIZE)
    joined = rig.join(topic, credit=(1 << 20, 6))
    assert [message.partition for message, _ in rig.deliveries(joined)] == [0, 1, 2, 0, 1, 2]


def test_one_session_with_much_credit_does_not_keep_the_others_waiting():
    rig, topic = filled(records=100, chunk_bytes=SIZE)
    requests = [rig.next_request(), rig.next_request()]
    for request in requests:
        rig.send(m.Join(request, topic, "", "", "push", -1, [], 10_000, 1 << 20, 1 << 20))
    rig.node.advance(rig.now)
    first, second = (rig.answers(request)[0] for request in requests)
    assert 0 < len(rig.received(second)) == len(rig.received(first)) < 100
    assert rig.node.tick(rig.now) == 0.0, "there is more to send at once"
    rig.turn(8)
    assert len(rig.received(first)) == len(rig.received(second)) == 100


def test_a_peer_that_is_not_connected_yet_gets_everything_later_in_order():
    rig, topic = filled(chunk_bytes=SIZE)
    request = rig.next_request()
    deliver, rig.port.deliver = rig.port.deliver, lambda *_: False
    rig.send(m.Join(request, topic, "", "", "push", -1, [], 10_000, 1 << 20, 1 << 20))
    rig.turn()
    (joined,) = rig.answers(request)
    assert rig.port.reads == 1, "one chunk was tried, and no more is read"
    rig.port.deliver = deliver
    rig.node.eased(joined.session)
    rig.turn()
    assert [message.number for message, _ in rig.deliveries(joined)] == list(range(1, 11))
    assert len(rig.received(joined)) == 10


class Watched(bytearray):
    """Bytes whose end can be seen."""


@pytest.mark.parametrize("delivery", ["push", "control"])
def test_what_could_not_be_sent_is_not_held_but_read_again(delivery: str):
    rig, topic = filled(partitions=2, records=3, chunk_bytes=SIZE)
    port = rig.port
    seen: list[weakref.ref[Watched]] = []
    read, reply, deliver = port.read, port.reply, port.deliver

    def reads(*how: Any) -> Any:
        found = read(*how)
        found.buffer = Watched(found.buffer)
        seen.append(weakref.ref(found.buffer))
        return found

    port.read = reads
    port.reply = lambda peer, message, payload=b"": not isinstance(message, m.Deliver) and reply(peer, message, payload)
    port.deliver = lambda *_: False
    joined = rig.join(topic, delivery=delivery, timeout_ms=60_000)
    for _ in range(3):
        rig.send(m.Ping(rig.next_request(), joined.session))
        rig.turn()
    assert [each() for each in seen] == [None] * 4
    port.read, port.reply, port.deliver = read, reply, deliver
    rig.node.eased(joined.session if delivery == "push" else "c")
    rig.turn()
    sent = [*(message for _, message, _ in port.delivered), *rig.told(joined.session)]
    found = [message for message in sent if isinstance(message, m.Deliver)]
    assert [each.number for each in found] == [1, 2, 3, 4, 5, 6]
    assert sorted((each.partition, each.offset, each.next_offset) for each in found) == [
        (partition, offset, offset + 1) for partition in range(2) for offset in range(3)
    ]


def test_nothing_is_read_for_a_connection_that_is_behind():
    rig, topic = filled()
    rig.port.behind.add("c")
    joined = rig.join(topic, delivery="control")
    pushed = rig.join(topic)
    assert (rig.port.reads, len(rig.received(pushed))) == (1, 10), "its own endpoint is not"
    rig.node.eased("c")
    rig.turn()
    assert rig.port.reads == 1
    rig.port.behind.clear()
    rig.node.eased("c")
    rig.turn()
    assert [each.records for each in rig.told(joined.session) if isinstance(each, m.Deliver)] == [10]


def test_a_session_that_has_nothing_to_be_sent_waits_for_no_connection():
    rig, topic = filled()
    joined = rig.join(topic, delivery="control")
    rig.port.behind.add("c")
    rig.send(m.Credit(joined.session, 1 << 30, 1 << 30))
    rig.turn()
    assert not rig.node._office.sessions._stuck


@pytest.mark.parametrize("delivery", ["push", "control"])
def test_sessions_that_cannot_be_sent_to_cost_nothing_until_that_changes(delivery: str):
    """Neither turns, nor tries when there are new records; and an event is about one of them, not about all."""
    rig, topic = filled(housekeeping_s=3600.0)
    tries: list[int] = []
    port, full = rig.port, True
    reply, deliver = port.reply, port.deliver

    def replies(peer, message, payload=b""):
        if not isinstance(message, m.Deliver):
            return reply(peer, message, payload)
        tries.append(message.session)
        return not full and reply(peer, message, payload)

    def delivers(session, message, payload):
        tries.append(session)
        return not full and deliver(session, message, payload)

    port.reply, port.deliver = replies, delivers
    sessions = [rig.join(topic, delivery=delivery, timeout_ms=60_000).session for _ in range(20)]
    assert tries == sessions
    for _ in range(5):
        rig.produce(topic, [b"x"])
        assert rig.node.tick(rig.now) == EXPIRY_CHECK_S, "no turn is asked for but the usual ones"
    assert tries == sessions
    way = sessions[0] if delivery == "push" else "c"
    rig.node.eased("another")
    rig.node.eased(way)
    rig.turn()
    assert tries[20:] == sessions[:1]
    rig.send(m.Ping(rig.next_request(), sessions[7]))
    rig.turn()
    assert tries[21:] == [sessions[7]], "one that is heard of is tried"
    full = False
    for each in sessions if delivery == "push" else [way]:
        rig.node.eased(each)
    rig.turn(25)
    assert sorted(tries[22:]) == sorted(sessions), "each gets all that is there"
    assert not rig.node._office.sessions._stuck


def test_a_session_that_ends_while_it_cannot_be_sent_to_leaves_nothing():
    rig, topic = filled()
    rig.port.deliver = lambda *_: False
    first, second = (rig.join(topic).session for _ in range(2))
    rig.ask(m.Leave, first)
    assert list(rig.node._office.sessions._stuck) == [second]
    rig.pass_time(20.0)
    assert (rig.node._office.sessions._stuck, rig.node._office.agenda.ready) == ({}, {})


def test_control_delivery_uses_the_connection_it_was_asked_on():
    rig, topic = filled()
    joined = rig.join(topic, delivery="control", peer="me")
    assert joined.endpoint == ""
    sent = [(peer, payload) for peer, message, payload in rig.port.sent if isinstance(message, m.Deliver)]
    assert {peer for peer, _ in sent} == {"me"}
    assert len(records(b"".join(payload for _, payload in sent), 0)) == 10
    assert rig.port.delivered == []


def test_control_delivery_follows_a_peer_that_reconnected():
    rig, topic = filled()
    joined = rig.join(topic, delivery="control", peer="old")
    rig.port.gone.add("old")
    rig.produce(topic, [b"new"])
    rig.send(m.Ping(rig.next_request(), joined.session), peer="new")
    rig.turn()
    found = [m_ for peer, m_, _ in rig.port.sent if isinstance(m_, m.Deliver) and peer == "new"]
    assert [message.offset for message in found] == [10]


def test_push_without_a_port_of_its_own_falls_back_to_control():
    rig, topic = filled()
    rig.port.open_delivery = lambda session, peer, owner="": ""
    joined = rig.join(topic)
    assert joined.endpoint == ""
    assert any(isinstance(message, m.Deliver) for message in rig.told(joined.session))
    rig.ask(m.Leave, joined.session)


def test_a_mapped_session_is_sent_nothing_and_woken_only_when_the_end_moves():
    rig, topic = filled()
    joined = rig.join(topic, "g", "a", delivery="mapped")
    assert joined.slot >= 0
    rig.port.wakes.clear()
    rig.ask(m.Commit, joined.session, topic, "g", [m.Position(0, 3, 1)])
    assert rig.port.wakes == [], "a cursor moved, the end did not"
    rig.produce(topic, [b"new"])
    assert rig.port.wakes == [joined.session]
    rig.send(m.Credit(joined.session, 1 << 30, 1 << 30))
    rig.turn()
    assert (rig.port.delivered, rig.port.reads) == ([], 0)
    rig.ask(m.Leave, joined.session)
    rig.produce(topic, [b"new"])
    assert (len(rig.port.wakes), rig.port.open) == (1, set())


def test_cold_pages_delay_no_other_session_and_are_read_when_warm():
    rig, topic = filled()
    rig.port.cold = []
    cold = rig.join(topic)
    tokens = list(rig.port.cold)
    assert (len(tokens), rig.received(cold)) == (1, [])
    rig.produce(topic, [b"more"])
    assert len(rig.port.cold) == 1, "it is not asked again before it is warm"
    rig.port.cold = None
    warm = rig.join(topic)
    assert len(rig.received(warm)) == 11
    rig.node.warmed(tokens[0])
    rig.turn()
    assert len(rig.received(cold)) == 11


def test_pages_that_get_warm_after_their_session_ended_do_no_harm():
    rig, topic = filled()
    rig.port.cold = []
    joined = rig.join(topic)
    rig.ask(m.Leave, joined.session)
    rig.port.cold, tokens = None, rig.port.cold
    rig.node.warmed(tokens[0])
    rig.turn()
    assert rig.port.delivered == []


def test_pages_that_get_warm_after_their_partition_went_to_another_member_harm_nobody():
    rig, topic = filled(partitions=2)
    rig.port.cold = []
    first = rig.join(topic, "g", "a")
    tokens, rig.port.cold = rig.port.cold, None
    second = rig.join(topic, "g", "b")
    rig.send(m.Release(first.session, [0, 1]))
    rig.turn()
    (kept,) = rig.assigned(first)
    for token in tokens:
        rig.node.warmed(token)
    rig.turn()
    assert {message.partition for message, _ in rig.deliveries(first)} == {kept}
    assert len(rig.received(first)) == len(rig.received(second)) == 10


@pytest.mark.parametrize(
    "error", [OSError(5, "EIO"), StorageFull("no room"), OutOfBounds("gone"), Corrupt("all of it")]
)
@pytest.mark.parametrize("where", ["read", "cursor"])
def test_a_partition_that_cannot_be_read_for_a_while_is_tried_again_and_says_so_until_then(
    error: Exception, where: str, monkeypatch: pytest.MonkeyPatch
):
    rig, topic = filled(partitions=2)
    tries: list[int] = []

    def fails(*_: object) -> None:
        tries.append(0)
        raise error

    if where == "read":
        read = rig.port.read
        rig.port.read = lambda cursor, *how: fails() if cursor.path.endswith("/0") else read(cursor, *how)
    else:
        monkeypatch.setattr(partition_of(rig, topic), "cursor", fails)
    joined = rig.join(topic)
    rig.turn(20)
    assert (len(rig.received(joined)), len(tries)) == (10, 1), "the other partition is read, and this one not in vain"
    rig.produce(topic, [b"more"], 0)
    rig.pass_time(EXPIRY_CHECK_S)
    assert len(tries) == 2
    assert [rig.partition(topic, number).state for number in (0, 1)] == ["damaged", "ok"]
    monkeypatch.undo()
    if where == "read":
        rig.port.read = read
    rig.pass_time(EXPIRY_CHECK_S)
    assert len(rig.received(joined)) == 21
    assert rig.partition(topic).state == ("damaged" if isinstance(error, Corrupt) else "ok")


@pytest.mark.parametrize("how", ["leave", "seek", "resign"])
def test_a_partition_says_nothing_of_a_reader_that_failed_and_reads_there_no_more(how: str):
    rig, topic = filled()
    read = rig.port.read

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    rig.port.read = fails
    joined = rig.join(topic)
    assert rig.partition(topic).state == "damaged"
    rig.port.read = read
    if how == "resign":
        rig.node.resign()
        rig.turn()
    else:
        rig.ask(*((m.Leave, joined.session) if how == "leave" else (m.SeekTo, joined.session, 0, 10)))
    assert rig.partition(topic).state == "ok"
    rig.pass_time(1)
    assert rig.received(joined) == []


def test_what_was_read_but_not_sent_before_a_seek_is_never_sent():
    rig, topic = filled(chunk_bytes=SIZE)
    deliver, rig.port.deliver = rig.port.deliver, lambda *_: False
    joined = rig.join(topic)
    rig.ask(m.SeekTo, joined.session, 0, 9)
    rig.port.deliver = deliver
    rig.node.eased(joined.session)
    rig.turn()
    assert [(d.number, d.epoch, d.offset) for d, _ in rig.deliveries(joined)] == [(1, 2, 9)]


def test_state_between_records_is_not_delivered_on_its_own():
    rig, topic = filled(records=1)
    joined = rig.join(topic, "g", "a")
    for offset in (0, 1, 0, 1):
        rig.ask(m.Commit, joined.session, topic, "g", [m.Position(0, offset, 1)])
    rig.produce(topic, [b"x"])
    assert [message.next_offset for message, _ in rig.deliveries(joined)] == [1, 2]


def test_reading_goes_on_over_many_segments_while_they_are_written():
    rig = Rig(chunk_bytes=64 << 10)
    topic = rig.topic(segment_bytes=64 << 10)
    joined = rig.join(topic, credit=(1 << 30, 1 << 30))
    sent = [b"%05d" % number + b"x" * 20_000 for number in range(40)]
    for value in sent:
        rig.produce(topic, [value])
    assert rig.partition(topic).segments > 5
    assert rig.received(joined) == sent
    assert rig.read(topic) == sent
    late = rig.join(topic, credit=(1 << 30, 1 << 30), positions=[(0, 39)])
    assert rig.received(late) == sent[39:]


def test_memory_does_not_grow_with_what_a_consumer_has_not_read():
    rig, topic = filled(records=0)
    idle = rig.join(topic, credit=(1000, 1))
    for number in range(300):
        rig.produce(topic, [b"%d" % number] * 10)
    assert len(rig.received(idle)) <= 10
    assert rig.port.reads <= 2
    histories = list(rig.node._registry.histories())
    assert all(not history.in_flight for history in histories)


def test_of_many_partitions_only_those_that_moved_are_looked_at(monkeypatch):
    rig = Rig()
    topic = rig.topic(partitions=200)
    joined = rig.join(topic)
    rig.turn()
    looked: list[int] = []
    read = Stream.read

    def counting(stream: Stream, port, max_bytes: int):
        looked.append(stream.partition.number)
        return read(stream, port, max_bytes)

    monkeypatch.setattr(Stream, "read", counting)
    for partition in (7, 150):
        rig.produce(topic, [b"%d" % partition], partition)
    assert looked == [7, 150]
    assert rig.received(joined) == [b"7", b"150"]


def test_partitions_with_much_to_read_take_turns():
    rig = Rig(chunk_bytes=1)
    topic = rig.topic(partitions=3)
    for partition in range(3):
        for _ in range(4):
            rig.produce(topic, [b"%d" % partition], partition)
    joined = rig.join(topic)
    rig.turn(8)
    assert rig.received(joined) == [b"0", b"1", b"2"] * 4


@pytest.mark.parametrize("name", ["", "g"])
def test_a_session_is_sent_nothing_of_a_partition_that_it_paused_until_it_resumes(name: str):
    rig, topic = filled()
    joined = rig.join(topic, name, "a")
    before = len(rig.received(joined))
    rig.ask(m.SeekTo, joined.session, 0, 8, True)
    rig.produce(topic, [b"new"])
    rig.turn(5)
    assert rig.received(joined)[before:] == []
    rig.ask(m.SeekTo, joined.session, 0, 9)
    assert rig.received(joined)[before:] == [b"v0-9", b"new"]


def test_a_pause_may_stand_before_the_first_record_but_not_behind_the_end():
    rig, topic = filled()
    joined = rig.join(topic)
    rig.ask(m.Trim, topic, m.TrimRule.OFFSET, 5, 0)
    assert rig.ask(m.SeekTo, joined.session, 0, 4).code == "out_of_bounds"
    for offset, paused in ((4, True), (3, False)):
        assert rig.ask(m.SeekTo, joined.session, 0, offset, paused).request
    assert rig.ask(m.SeekTo, joined.session, 0, 4).code == "out_of_bounds"
    assert rig.ask(m.SeekTo, joined.session, 0, 11, True).code == "out_of_bounds"
    assert rig.ask(m.SeekTo, joined.session, 0, -1, True).code == "out_of_bounds"
