"""Producing through a node: what is answered when, and what is refused."""

from __future__ import annotations

import pytest
from penstock.storage.batch import Codec, encode, encode_raft, encode_state, with_effects
from penstock.transport import messages as m
from support.engine import START_US, Rig

EXTRA = {"max_producers": 3}


def failure(answer: object) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


def test_a_batch_is_answered_with_its_place_once_it_is_durable():
    rig = Rig()
    topic = rig.topic()
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Produce(request, topic, 0), bytes(encode([b"a", b"b"])))
    rig.turn()
    assert rig.answers(request) == []
    assert rig.read(topic) == [], "a reader must not see what is not committed"
    rig.sync()
    assert rig.answers(request) == [m.Produced(request, 0, 1, rig.now.wall_us)]
    assert rig.read(topic) == [b"a", b"b"]


def test_a_topic_with_commit_written_answers_without_a_sync():
    rig = Rig()
    topic = rig.topic(commit="written")
    rig.store.hold = True
    assert rig.produce(topic, [b"a"]).offset == 0
    assert rig.read(topic) == [b"a"]


def test_everything_received_in_one_turn_is_one_append_in_order():
    rig = Rig()
    topic = rig.topic()
    log = rig.node.logs[1]
    calls, append = [], log.append
    log.append = lambda batches, now_us: calls.append(len(batches)) or append(batches, now_us)
    for value in (b"a", b"b", b"c"):
        rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([value])))
    rig.turn()
    assert calls == [3]
    assert rig.read(topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("hold", [False, True], ids=["committed", "in flight"])
def test_a_duplicate_is_answered_with_the_original_place_and_stored_once(hold: bool):
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"x"])
    rig.store.hold = hold
    payload = bytes(encode([b"a", b"b"], producer_id=5))
    first, second = rig.next_request(), rig.next_request()
    rig.send(m.Produce(first, topic, 0), payload)
    rig.turn()
    rig.send(m.Produce(second, topic, 0), payload)
    rig.turn()
    assert bool(rig.answers(first)) is bool(rig.answers(second)) is not hold
    rig.sync()
    (one,), (two,) = rig.answers(first), rig.answers(second)
    assert (one.offset, one.term, one.time_us) == (two.offset, two.term, two.time_us)
    assert rig.read(topic) == [b"x", b"a", b"b"]


def test_a_duplicate_in_the_same_turn_waits_for_the_same_append():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"x"])
    payload = bytes(encode([b"a"], producer_id=5))
    requests = [rig.next_request() for _ in range(3)]
    for request in requests:
        rig.send(m.Produce(request, topic, 0), payload)
    assert [rig.answers(request) for request in requests] == [[], [], []], "answered before it is in the log"
    rig.turn()
    assert [rig.answers(request)[0].offset for request in requests] == [1, 1, 1]
    assert rig.read(topic) == [b"x", b"a"]


def test_a_resend_that_begins_inside_a_batch_gets_the_offset_of_its_first_record():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b", b"c"], producer_id=5)
    assert rig.produce(topic, [b"b", b"c"], producer_id=5, first_sequence=1).offset == 1


def test_a_duplicate_is_known_after_a_restart_with_and_without_a_snapshot():
    rig = Rig()
    topic = rig.topic()
    first = rig.produce(topic, [b"a"], producer_id=5)
    for clean in (False, True):
        rig.restart(clean=clean)
        again = rig.produce(topic, [b"a"], producer_id=5)
        assert (again.offset, again.term, again.time_us) == (first.offset, first.term, first.time_us)
    assert failure(rig.produce(topic, [b"c"], producer_id=5, first_sequence=2)) == "sequence_gap"
    assert rig.produce(topic, [b"b"], producer_id=5, first_sequence=1).term > first.term
    assert rig.read(topic) == [b"a", b"b"]


@pytest.mark.parametrize(("first_sequence", "code"), [(3, "sequence_gap"), (7, "sequence_gap"), (-1, "invalid_batch")])
def test_a_gap_is_refused_and_nothing_is_stored(first_sequence: int, code: str):
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"], producer_id=5)
    rig.produce(topic, [b"b"], producer_id=5, first_sequence=1)
    assert failure(rig.produce(topic, [b"x"], producer_id=5, first_sequence=first_sequence)) == code
    assert rig.read(topic) == [b"a", b"b"]


def test_an_unknown_producer_cannot_go_on_in_the_middle():
    rig = Rig()
    topic = rig.topic()
    assert failure(rig.produce(topic, [b"a"], producer_id=5, first_sequence=3)) == "unknown_producer"


def test_a_named_producer_fences_the_one_before_and_goes_on_in_sequence():
    rig = Rig()
    topic = rig.topic()
    old = rig.ask(m.OpenProducer, topic, 0, "loader")
    assert (old.epoch, old.next_sequence) == (1, 0)
    rig.produce(topic, [b"a", b"b"], producer_id=old.producer_id, producer_epoch=1)
    new = rig.ask(m.OpenProducer, topic, 0, "loader")
    assert (new.producer_id, new.epoch, new.next_sequence) == (old.producer_id, 2, 2)
    late = rig.produce(topic, [b"x"], producer_id=old.producer_id, producer_epoch=1, first_sequence=2)
    assert failure(late) == "fenced"
    rig.produce(topic, [b"c"], producer_id=new.producer_id, producer_epoch=2, first_sequence=2)
    assert rig.read(topic) == [b"a", b"b", b"c"]
    rig.restart()
    assert rig.ask(m.OpenProducer, topic, 0, "loader").next_sequence == 3


def test_a_claim_is_fenced_at_once_for_what_arrives_after_it_in_the_same_turn():
    rig = Rig()
    topic = rig.topic()
    opened = rig.ask(m.OpenProducer, topic, 0, "loader")
    claim, late = rig.next_request(), rig.next_request()
    rig.send(m.OpenProducer(claim, topic, 0, "loader"))
    batch = encode([b"x"], producer_id=opened.producer_id, producer_epoch=1)
    rig.send(m.Produce(late, topic, 0), bytes(batch))
    rig.turn()
    assert failure(rig.answers(late)[0]) == "fenced"
    assert rig.answers(claim)[0].epoch == 2


def test_names_of_producers_are_bounded():
    rig = Rig(**EXTRA)
    topic = rig.topic()
    for name in "abc":
        assert rig.ask(m.OpenProducer, topic, 0, name).epoch == 1
    assert failure(rig.ask(m.OpenProducer, topic, 0, "d")) == "limit_reached"
    assert rig.ask(m.OpenProducer, topic, 0, "a").epoch == 2


def test_the_longest_silent_unnamed_producer_is_forgotten_by_a_logged_effect():
    rig = Rig(**EXTRA, housekeeping_s=1.0)
    topic = rig.topic()
    for producer in range(1, 6):
        rig.produce(topic, [b"a"], producer_id=producer)
        rig.pass_time(0.1)
    rig.pass_time(1.5)
    for clean in (True, False):
        assert failure(rig.produce(topic, [b"b"], producer_id=1, first_sequence=1)) == "unknown_producer"
        assert failure(rig.produce(topic, [b"b"], producer_id=2, first_sequence=1)) == "unknown_producer"
        assert rig.produce(topic, [b"a"], producer_id=3).offset == 2
        rig.restart(clean=clean)


def test_a_silent_producer_expires():
    rig = Rig(producer_expiry_s=60.0, housekeeping_s=5.0)
    topic = rig.topic()
    rig.produce(topic, [b"a"], producer_id=1)
    rig.pass_time(30, step=5)
    assert rig.produce(topic, [b"a"], producer_id=1).offset == 0
    rig.pass_time(40, step=5)
    assert failure(rig.produce(topic, [b"b"], producer_id=1, first_sequence=1)) == "unknown_producer"


def test_a_batch_without_a_producer_is_never_a_duplicate():
    rig = Rig()
    topic = rig.topic()
    assert [rig.produce(topic, [b"a"]).offset for _ in range(3)] == [0, 1, 2]


GOOD = bytes(encode([b"value"], keys=[b"k"]))


def broken(position: int) -> bytes:
    data = bytearray(GOOD)
    data[position] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", "invalid_batch"),
        (b"\0" * 256, "invalid_batch"),
        (b"hello", "invalid_batch"),
        (GOOD + GOOD, "invalid_batch"),
        (GOOD + b"\0" * 64, "invalid_batch"),
        (GOOD[:-64], "invalid_batch"),
        (broken(20), "invalid_batch"),
        (broken(60), "bad_checksum"),
        (broken(200), "bad_checksum"),
        (broken(len(GOOD) - 64), "bad_checksum"),
        (bytes(encode_state(b"\x90")), "invalid_batch"),
        (bytes(encode_raft()), "invalid_batch"),
        (bytes(with_effects(GOOD, b"\x90")), "invalid_batch"),
    ],
)
def test_what_is_not_one_good_batch_of_records_is_refused_and_not_stored(payload: bytes, code: str):
    rig = Rig()
    topic = rig.topic()
    assert failure(rig.ask(m.Produce, topic, 0, payload=payload)) == code
    assert rig.partition(topic).end == 0


def test_a_record_over_the_limit_is_refused_and_its_neighbours_are_not_lost_silently():
    rig = Rig()
    topic = rig.topic(max_record_bytes=100)
    answer = rig.produce(topic, [b"a", b"x" * 101, b"b"])
    assert failure(answer) == "record_too_large"
    assert "101" in answer.message
    assert "max_record_bytes=100" in answer.message
    assert rig.produce(topic, [b"x" * 100] * 50).offset == 0


def test_a_batch_that_is_sent_again_stands_though_the_limit_was_lowered_meanwhile():
    rig = Rig()
    topic = rig.topic(max_record_bytes=1000)
    assert rig.produce(topic, [b"before"], producer_id=5).offset == 0
    assert rig.produce(topic, [b"x" * 900], producer_id=5, first_sequence=1).offset == 1
    rig.ask(m.AlterTopic, topic, {"max_record_bytes": 100})
    assert rig.produce(topic, [b"x" * 900], producer_id=5, first_sequence=1).offset == 1
    for producer, sequence in [(5, 2), (5, 9), (6, 0), (6, 1), (0, 0)]:
        answer = rig.produce(topic, [b"x" * 900], producer_id=producer, first_sequence=sequence)
        assert failure(answer) == "record_too_large"
    assert rig.partition(topic).end == 2


@pytest.mark.parametrize(
    ("part", "named"),
    [({"keys": [b"k" * 101]}, "a key of 101"), ({"headers": [{"h": b"v" * 101}]}, "headers of 10")],
)
def test_keys_and_headers_are_held_to_the_limit_of_a_record_too(part: dict, named: str):
    rig = Rig()
    topic = rig.topic(max_record_bytes=100)
    answer = rig.produce(topic, [b"x"], **part)
    assert failure(answer) == "record_too_large"
    assert named in answer.message
    assert rig.partition(topic).end == 0


def test_a_compressed_record_over_the_limit_is_refused():
    rig = Rig()
    topic = rig.topic(max_record_bytes=1000)
    assert failure(rig.produce(topic, [b"x" * 2000] * 10, codec=Codec.LZ4)) == "record_too_large"
    assert rig.produce(topic, [b"x" * 900] * 10, codec=Codec.LZ4).offset == 0


def test_a_batch_over_the_frame_limit_is_refused():
    rig = Rig(max_frame_bytes=1 << 16)
    topic = rig.topic()
    assert failure(rig.produce(topic, [b"x" * (1 << 16)])) == "batch_too_large"
    assert failure(rig.produce(topic, [b"x" * (1 << 20)], codec=Codec.ZSTD)) == "batch_too_large"
    assert rig.produce(topic, [b"x" * 60_000]).offset == 0


def test_unknown_topics_and_partitions_are_named():
    rig = Rig()
    topic = rig.topic()
    assert failure(rig.produce(b"?" * 16, [b"a"])) == "unknown_topic"
    answer = rig.produce(topic, [b"a"], 1)
    assert (failure(answer), "has no partition 1: it has 1" in answer.message) == ("unknown_partition", True)


def test_what_is_no_request_is_refused():
    rig = Rig()
    rig.send(m.Done(1))
    assert failure(rig.answers(1)[0]) == "invalid_request"


YEAR_US = 366 * 86400 * 1_000_000


@pytest.mark.parametrize(
    ("times", "says"),
    [([0, -1], "not_before=-1 is negative"), ([0, START_US + 11 * YEAR_US], "more than 10 years")],
)
def test_an_implausible_time_is_refused_and_nothing_is_written(times: list[int], says: str):
    rig = Rig()
    topic = rig.topic()
    answer = rig.produce(topic, [b"a", b"b"], not_before=times)
    assert failure(answer) == "invalid_batch"
    assert says in answer.message
    assert rig.read(topic) == []


def test_priorities_and_times_are_stored_with_the_records():
    rig = Rig()
    topic = rig.topic()
    assert rig.produce(topic, [b"a", b"b"], priorities=[0, 9], not_before=[START_US + 9 * YEAR_US, 0]).offset == 0
    chunk = rig.node.logs[1].reader().cursor(0).next()
    assert chunk.batches[0].priorities().tolist() == [0, 9]
    assert chunk.batches[0].not_before().tolist() == [START_US + 9 * YEAR_US, 0]
