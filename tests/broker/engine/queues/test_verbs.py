"""Queue groups at work over restarts, damage and clocks, beside streams, and at any depth."""

from __future__ import annotations

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.queues import verbs
from penstock.broker.engine.queues.topic_queues import proposed
from penstock.broker.engine.tables import effects as fx
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogWriter
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.calls import calls
from support.dead import opened
from support.engine import Rig

ACK, NACK, REJECT, RELEASE = Verb.ACK, Verb.NACK, Verb.REJECT, Verb.RELEASE


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 10 records."""
    topic = rig.topic()
    rig.produce(topic, [b"value-%d" % number for number in range(10)])
    return topic


# -- restarts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_lease_lives_through_a_restart_and_ends_in_time(rig: Rig, topic: bytes, clean: bool):
    kept, lost = rig.lease(topic, most=3), rig.lease(topic, most=3)
    rig.pass_time(10)
    rig.restart(clean=clean)
    assert rig.lease(topic, most=10).runs == [(6, 4, 1)]
    assert rig.settle(topic, m.Settle(0, kept.token, ACK)) == []
    rig.pass_time(19)
    assert rig.lease(topic).runs == []
    rig.pass_time(2)
    assert rig.lease(topic, most=3).runs == [(3, 3, 2)]
    assert [each.code for each in rig.settle(topic, m.Settle(0, lost.token, ACK))] == ["lease_lost"]


def test_leases_that_end_together_end_a_few_at_a_time(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verbs, "EXPIRED", 4)
    for _ in range(10):
        rig.lease(topic)
    rig.pass_time(29.75)
    rig.now = Now(rig.now.wall_us + 500_000, rig.now.monotonic_s + 0.5)
    left: list[int] = []
    for _ in range(5):
        rig.turn(1)
        left.append(len(proposed(opened(rig, topic), "g").leases))
    assert left == [6, 2, 0, 0, 0]
    assert rig.lease(topic, most=10).runs == [(0, 10, 2)]


def test_leases_that_cannot_end_on_a_full_disk_are_tried_again_after_a_while(
    rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verbs, "EXPIRED", 4)
    for _ in range(10):
        rig.lease(topic)
    log, tries = rig.node.logs[1], list[int]()

    def full(batches: object, now_us: int) -> None:
        tries.append(now_us)
        raise StorageFull("no space left")

    append, log.append = log.append, full
    rig.pass_time(33)
    assert 2 <= len(tries) <= 4, "once a second"
    log.append = append
    rig.pass_time(2)
    assert rig.lease(topic, most=10).runs == [(0, 10, 2)]


@pytest.mark.parametrize("verb", [ACK, NACK, REJECT, RELEASE])
@pytest.mark.parametrize("token", ["held", "settled", "expired", "never given"])
def test_a_settle_of_a_record_that_does_not_exist_says_that_it_never_was_leased(
    rig: Rig, topic: bytes, verb: int, token: str
):
    held, settled, expired = rig.lease(topic, most=3), rig.lease(topic, most=3), rig.lease(topic, most=3)
    assert rig.settle(topic, m.Settle(0, settled.token, ACK)) == []
    if token == "expired":
        rig.pass_time(31)
    tokens = {"held": held.token, "settled": settled.token, "expired": expired.token, "never given": 1}
    for ranges, results in ([(9, 2)], []), ([], [(10, b"")]):
        (refusal,) = rig.settle(topic, m.Settle(0, tokens[token], verb, ranges, results=results))
        assert refusal.code == "unknown_lease"
        assert ("10: partition 0 ends at 10" in refusal.message) == (token != "held")
    if token != "held":
        last = rig.settle(topic, m.Settle(0, tokens[token], verb, [(9, 1)]))
        assert [each.code for each in last] == ([] if token == "settled" else ["lease_lost"])


@pytest.mark.parametrize(("ask", "how_many"), [(m.Lease, (1,)), (m.Claim, (0, 10))])
def test_an_office_that_numbers_leases_as_one_before_it_gives_none(
    rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch, ask: type, how_many: tuple[int, ...]
):
    first = rig.lease(topic)
    rig.resign()
    second = rig.lease(topic)
    assert second.token > first.token
    monkeypatch.setattr(LogWriter, "end_term", lambda log: None)
    rig.resign()
    with pytest.raises(AssertionError, match=f"gave token {second.token} already"):
        rig.ask(ask, topic, "g", "another", *how_many)


def test_a_pause_after_a_failure_lives_through_a_restart(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=10).token
    rig.settle(topic, m.Settle(0, token, NACK, delay_ms=5000))
    rig.pass_time(2)
    rig.restart()
    request = rig.ask_lease(topic, most=10, wait_ms=10_000)
    rig.pass_time(2.5)
    assert rig.answers(request) == []
    rig.pass_time(1)
    assert [each.runs for each in rig.answers(request)] == [[(0, 10, 2)]]


def test_attempts_are_counted_over_restarts_and_never_beyond_the_limit(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 3})
    attempts: list[int] = []
    for _ in range(6):
        attempts += [attempt for _, _, attempt in rig.lease(topic, most=10).runs]
        rig.restart(clean=False)
        rig.pass_time(31)
    assert attempts == [1, 2, 3]
    assert rig.queue(topic).dead == 10


def test_a_lease_that_was_not_committed_was_never_given(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {})
    rig.store.hold = True
    request = rig.ask_lease(topic, most=10)
    assert rig.answers(request) == [], "it leaves the broker when it is durable"
    rig.store.hold = False
    rig.sync()
    assert [each.runs for each in rig.answers(request)] == [[(0, 10, 1)]]


# -- several ----------------------------------------------------------------------------------------


def test_partitions_take_turns(rig: Rig):
    topic = rig.topic(partitions=3)
    for partition in range(3):
        rig.produce(topic, [b"x"] * 9, partition)
    assert [rig.lease(topic).partition for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    assert rig.lease(topic, partition=1).partition == 1


def test_workers_wait_in_the_order_they_came(rig: Rig):
    topic = rig.topic()
    requests = [rig.ask_lease(topic) for _ in range(3)]
    rig.produce(topic, [b"a", b"b"])
    got = [[each.runs for each in rig.answers(request)] for request in requests]
    assert got == [[[(0, 1, 1)]], [[(1, 1, 1)]], []]


def test_a_record_and_the_lease_of_a_waiting_worker_share_one_sync(rig: Rig):
    topic = rig.topic()
    request = rig.ask_lease(topic, most=5)
    rig.store.hold = True
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"a"])))
    rig.turn()
    assert rig.answers(request) == []
    log = rig.node.logs[1]
    log.sync()
    rig.node.advance(rig.now)
    assert [each.runs for each in rig.answers(request)] == [[(0, 1, 1)]]


def test_streams_see_every_record_and_disturb_no_lease(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=4)
    rig.settle(
        topic, m.Settle(0, leased.token, REJECT, [(0, 1)]), m.Settle(0, leased.token, NACK, [(1, 1)], 60_000),
        m.Settle(0, leased.token, ACK, [(2, 1)]),
    )  # fmt: skip
    before = rig.queue(topic)
    joined = rig.join(topic, "stream", "m")
    assert rig.received(joined) == [b"value-%d" % number for number in range(10)]
    assert rig.read(topic) == [b"value-%d" % number for number in range(10)]
    assert rig.queue(topic) == before


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"most": 0}, "invalid_request"),
        ({"most": 100_001}, "limit_reached"),
        ({"lease_ms": 12 * 3_600_000 + 1}, "invalid_request"),
        ({"partition": 4}, "unknown_partition"),
        ({"partition": -2}, "unknown_partition"),
        ({"group": "a b"}, "invalid_request"),
        ({"worker": "w" * 201}, "invalid_request"),
        ({"start": -3}, "unknown_group"),
        ({"start": -4}, "invalid_request"),
    ],
)
def test_a_lease_that_cannot_be_is_refused_and_changes_nothing(
    rig: Rig, topic: bytes, how: dict[str, object], code: str
):
    refused = rig.lease(topic, **how)
    assert (refused.code, "\n" in refused.message) == (code, False)
    assert rig.ask(m.ListQueues).queues == []


def test_a_damaged_partition_refuses_and_says_what_to_do_and_the_others_serve(rig: Rig):
    topic = rig.topic(partitions=2)
    for partition in range(2):
        rig.produce(topic, [b"value-%d" % number for number in range(5)], partition)
    held = rig.lease(topic, partition=0)
    rig.node._registry.topics.get(topic).partition(0).history.damaged = True
    refused = rig.lease(topic, partition=0)
    assert (refused.code, "penstock log repair" in refused.message) == ("unavailable", True)
    assert [each.code for each in rig.settle(topic, m.Settle(0, held.token, ACK))] == ["unavailable"]
    assert rig.ask(m.SetQueue, topic, "g", {"lease_s": 1.0}).code == "unavailable"
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, held.token)]).lost == [(0, held.token)]
    assert rig.lease(topic, most=5).partition == 1
    assert len(rig.read(topic, 0)) == 5
    rig.pass_time(60)
    assert rig.queue(topic).in_flight == 1, "nothing changes where it is not known what stands"


def test_a_record_that_cannot_be_read_dies_and_the_others_are_worked_off(rig: Rig):
    topic = rig.topic()
    for number in range(3):
        rig.produce(topic, [b"value-%d" % number])
    path = rig.store.directory(topic, 0)
    (name,) = [name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")]
    data = rig.store.files.contents[name].data
    data[data.index(b"value-1") - 100] ^= 0xFF
    rig.ask(m.SetQueue, topic, "g", {})
    leased = rig.lease(topic, most=3)
    assert rig.partition(topic).state == "damaged"
    assert leased.runs == [(0, 1, 1), (2, 1, 1)]
    assert rig.settle(topic, m.Settle(0, leased.token, ACK)) == []
    queue = proposed(rig.node._registry.topics.get(topic).readable[0], "g")
    assert {offset: "cannot be read" in dead.reason for offset, dead in queue.dead_letters.items()} == {1: True}


# -- cost -------------------------------------------------------------------------------------------


def calls_of_a_lease(behind: int, most: int) -> int:
    """Python calls in the node of one lease with the ack of the one before."""
    rig = Rig()
    topic = rig.topic()
    for _ in range(behind // 1000):
        rig.produce(topic, [b""] * 1000)
    token = rig.lease(topic, most=most).token
    token = rig.lease(topic, most=most, settles=[m.Settle(0, token, ACK)]).token
    message = m.Lease(rig.next_request(), topic, "g", "w", most, settles=[m.Settle(0, token, ACK)])

    def take() -> None:
        rig.node.receive("c", message, b"", rig.now)
        for log in rig.node.flush(rig.now):
            log.sync()
        rig.node.advance(rig.now)

    count = calls(take)
    (leased,) = rig.answers(message.request)
    assert sum(run[1] for run in leased.runs) == most
    return count


def test_a_lease_costs_the_same_at_any_depth_and_for_any_stretch():
    shallow, deep, one = calls_of_a_lease(2000, 100), calls_of_a_lease(100_000, 100), calls_of_a_lease(2000, 1)
    assert abs(deep - shallow) <= 20
    assert abs(shallow - one) <= 20


def test_many_cancelled_records_are_passed_over_once(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b""] * 2001)
    assert rig.lease(topic, most=1).runs == [(0, 1, 1)]
    partition = rig.node._registry.topics.get(topic).partition(0)
    partition.propose(fx.TasksCancelled("g", list(range(1, 2001))))
    rig.turn()
    assert rig.ask(m.Lease, topic, "g", "w", 1).runs == []
    assert proposed(partition, "g").frontier == 2001
    rig.produce(topic, [b"new"])
    assert rig.lease(topic, most=9).runs == [(2001, 1, 1)]
