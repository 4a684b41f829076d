"""The rate of a queue group: one bucket over partitions, workers and restarts; waiting without a loop; changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.queues import group_rates
from penstock.broker.engine.tables.queues.pace import SECOND, LeasePace, pace_of
from penstock.broker.engine.tables.queues.settings import QueueSettings, altered, parse
from penstock.broker.engine.tables.state import PartitionState
from penstock.broker.errors import InvalidSettings
from penstock.transport import messages as m
from penstock.transport.queue_messages import Settle, Verb
from support.engine import Rig

US = 1_000_000


def queue(rig: Rig, topic: bytes, **settings: Any) -> None:
    answer = rig.ask(m.SetQueue, topic, "g", {"lease_s": 3600.0, **settings})
    assert isinstance(answer, m.Queues), answer


def count(leased: Any) -> int:
    return 0 if leased is None else sum(run[1] for run in leased.runs)


def why(rig: Rig, topic: bytes, offset: int, partition: int = 0) -> str:
    return rig.ask(m.AskTask, topic, "g", partition, offset).why


def replays(rig: Rig) -> None:
    for partition in rig.node._registry.partitions.values():
        live = partition.committed.encode()
        assert replay(partition.log, PartitionState, rig.store).committed.encode() == live


@pytest.mark.parametrize(
    ("rate", "burst", "interval_us", "tokens"),
    [
        ("1/s", None, 1e6, 1),
        ("100/s", None, 1e4, 10),
        ("10/m", None, 6e6, 1),
        ("1200/m", None, 5e4, 2),
        ("500/h", 7, 7.2e6, 7),
        ("1/d", None, 864e8, 1),
        ("1000000000/s", None, 1e-3, 100_000_000),
    ],
)
def test_a_rate_is_a_number_in_a_unit_of_time(rate: str, burst: int | None, interval_us: float, tokens: int):
    pace = pace_of(rate, burst)
    assert (pace.interval, pace.burst) == (round(interval_us * US), tokens)
    assert pace.depth == tokens * pace.interval


def test_an_interval_is_rounded_up_so_that_no_rate_is_exceeded():
    assert pace_of("3/s", None).interval == -(-SECOND // 3)
    assert 7 * pace_of("7/s", None).interval >= SECOND


@pytest.mark.parametrize(
    "rate", ["", "10", "10/", "/s", "0/s", "-1/s", "1.5/s", "10/w", "10/min", " 1/s", "1000000001/s", "١/s"]
)
def test_what_is_no_rate_is_refused_with_the_way_out(rate: str):
    with pytest.raises(
        InvalidSettings, match=r"rate=.* is not allowed: it has to be a number of leases .* 10/m"
    ) as said:
        parse({"rate": rate})
    assert repr(rate) in said.value.message


def test_the_settings_of_a_rate_are_checked_and_taken_off():
    with pytest.raises(InvalidSettings, match="rate_burst=0 is not allowed"):
        parse({"rate": "1/s", "rate_burst": 0})
    with pytest.raises(InvalidSettings, match="rate=5 is not allowed: it has to be text"):
        parse({"rate": 5})
    limited = altered(QueueSettings(), {"rate": "10/m", "rate_burst": 3})
    assert limited.pace == LeasePace(6 * SECOND, 18 * SECOND)
    assert altered(limited, {"rate": None}).pace is None
    assert parse({}).pace is None


def test_all_workers_together_lease_no_more_than_the_rate():
    rig = Rig()
    topic = rig.topic(partitions=2)
    queue(rig, topic, rate="10/s", rate_burst=3)
    for partition in (0, 1):
        rig.produce(topic, [b"x"] * 50, partition)
    taken = [count(rig.lease(topic, most=2, worker=f"w{number}")) for number in range(4)]
    assert taken == [2, 1, 0, 0]
    rig.now = Now(rig.now.wall_us + US // 10 - 1, rig.now.monotonic_s + 0.1 - 1e-6)
    assert count(rig.lease(topic, most=2)) == 0
    rig.pass_time(1e-6)
    assert count(rig.lease(topic, most=2)) == 1
    rig.pass_time(60)
    assert count(rig.lease(topic, most=50)) == 3, "no more than the burst after a pause"


def test_without_a_rate_there_is_no_limit_and_nothing_is_logged_of_one():
    rig = Rig()
    topic = rig.topic()
    queue(rig, topic)
    rig.produce(topic, [b"x"] * 50)
    assert count(rig.lease(topic, most=50)) == 50
    rig.restart()
    assert next(iter(rig.node._registry.partitions.values())).committed.queues.by_name["g"].full_us == 0
    assert list(rig.node._office.queues.leasing._group_rates._rates) == []


def test_waiting_requests_are_served_in_order_when_the_bucket_has_tokens_again():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic(partitions=3)
    queue(rig, topic, rate="2/s")
    for partition in range(3):
        rig.produce(topic, [b"x"] * 3, partition)
    assert count(rig.lease(topic, most=10)) == 1
    requests = [rig.ask_lease(topic, most=5, wait_ms=60_000, worker=f"w{number}") for number in range(3)]
    assert rig.node.tick(rig.now) == pytest.approx(0.5), "one alarm, for the next token"
    order: list[int] = []
    for _ in range(3):
        rig.pass_time(0.5, step=0.05)
        order += [number for number, each in enumerate(requests) if number not in order and rig.answers(each)]
    assert order == [0, 1, 2]
    partitions = {rig.answers(each)[0].partition for each in requests}
    assert len(partitions) == 3, "partitions take turns"


def test_a_newcomer_stands_behind_those_that_wait():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    queue(rig, topic, rate="1000/s", rate_burst=100)
    rig.produce(topic, [b"x"] * 500)
    assert count(rig.lease(topic, most=200)) == 100
    waiting = rig.ask_lease(topic, most=100, wait_ms=60_000)
    assert rig.node.tick(rig.now) == pytest.approx(0.01), "a portion of 10 ms"
    rig.now = Now(rig.now.wall_us + 5_000, rig.now.monotonic_s + 0.005)
    assert count(rig.lease(topic, most=100, worker="newcomer")) == 0
    assert rig.answers(waiting) == []
    rig.pass_time(0.005, step=0.005)
    (answer,) = rig.answers(waiting)
    assert count(answer) == 10
    assert count(rig.lease(topic, most=100)) == 0
    rig.pass_time(0.02, step=0.001)
    assert count(rig.lease(topic, most=100)) == 20, "polls that do not wait get what came meanwhile"


def test_requests_that_wait_while_there_is_nothing_are_served_at_once_when_something_comes():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    queue(rig, topic, rate="1/h")
    waiting = rig.ask_lease(topic, wait_ms=60_000)
    assert rig.node.tick(rig.now) > 30, "no alarm: there is nothing to lease, and a token"
    rig.produce(topic, [b"x"])
    rig.turn()
    assert count(rig.answers(waiting)[0]) == 1


def test_records_that_are_not_due_set_no_alarm_of_the_rate():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    queue(rig, topic, rate="1/s", backoff_s=3000.0, backoff_max_s=3000.0, jitter=0.0)
    rig.produce(topic, [b"x"])
    rig.settle(topic, Settle(0, rig.lease(topic).token, Verb.NACK))
    rig.pass_time(5)
    rig.ask_lease(topic, wait_ms=600_000)
    assert rig.node.tick(rig.now) > 20
    assert rig.node._office.queues.leasing._group_rates._shut == {}


def test_a_clock_that_was_set_back_costs_no_more_than_an_empty_bucket():
    rig = Rig()
    topic = rig.topic()
    queue(rig, topic, rate="1/m")
    rig.produce(topic, [b"x"] * 9)
    assert count(rig.lease(topic)) == 1
    rig.node.close(rig.now)
    rig.now = Now(rig.now.wall_us - 20 * 86400 * US, rig.now.monotonic_s + 1)
    rig.node = rig._open()
    rig.pass_time(59, step=1)
    assert count(rig.lease(topic)) == 0
    rig.pass_time(1, step=1)
    assert count(rig.lease(topic)) == 1


def test_an_alarm_without_work_rings_once_and_not_in_a_loop():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    queue(rig, topic, rate="1/s")
    rig.produce(topic, [b"x"] * 2)
    first = rig.lease(topic)
    rig.ask_lease(topic, wait_ms=60_000)
    rig.pass_time(1.0)
    rig.ask_lease(topic, wait_ms=60_000)
    rig.pass_time(2.0)
    assert rig.node.tick(rig.now) > 30
    assert count(first) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_goes_on_with_the_bucket_as_it_was(clean: bool):
    rig = Rig(snapshot_batches=3)
    topic = rig.topic(partitions=2)
    queue(rig, topic, rate="6/h", rate_burst=2)
    for partition in (0, 1):
        rig.produce(topic, [b"x"] * 9, partition)
    assert [count(rig.lease(topic)) for _ in range(3)] == [1, 1, 0]
    replays(rig)
    rig.restart(clean=clean)
    assert count(rig.lease(topic)) == 0
    rig.pass_time(599, step=100)
    assert count(rig.lease(topic)) == 0
    rig.pass_time(2)
    rig.restart(clean=clean)
    assert [count(rig.lease(topic)) for _ in range(2)] == [1, 0]


def test_the_next_leader_goes_on_with_the_bucket_as_it_was():
    rig = Rig()
    topic = rig.topic(partitions=2)
    queue(rig, topic, rate="6/h", rate_burst=2)
    for partition in (0, 1):
        rig.produce(topic, [b"x"] * 9, partition)
    assert [count(rig.lease(topic)) for _ in range(3)] == [1, 1, 0]
    rig.resign()
    rig.turn()
    assert count(rig.lease(topic)) == 0
    rig.pass_time(601, step=10)
    assert [count(rig.lease(topic)) for _ in range(2)] == [1, 0]


def test_records_that_are_taken_without_a_lease_count_and_are_logged():
    rig = Rig()
    topic = rig.topic()
    queue(rig, topic, rate="1/h")
    rig.produce(topic, [b"x"] * 9)
    assert count(rig.lease(topic, most=5, takes=True)) == 1
    replays(rig)
    rig.restart()
    assert count(rig.lease(topic, most=5, takes=True)) == 0


def test_a_retry_takes_a_token_like_a_first_attempt():
    rig = Rig()
    topic = rig.topic()
    queue(rig, topic, rate="1/m", backoff_s=0.0)
    rig.produce(topic, [b"x"])
    rig.settle(topic, Settle(0, rig.lease(topic).token, Verb.NACK))
    assert count(rig.lease(topic)) == 0
    rig.pass_time(60)
    assert rig.lease(topic).runs == [(0, 1, 2)]


def test_a_changed_rate_holds_at_once_for_those_that_wait():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    queue(rig, topic, rate="1/d")
    rig.produce(topic, [b"x"] * 9)
    rig.lease(topic)
    waiting = [rig.ask_lease(topic, wait_ms=600_000, worker=f"w{number}") for number in range(3)]
    queue(rig, topic, rate="1/s")
    assert [len(rig.answers(each)) for each in waiting] == [0, 0, 0], "the bucket is empty, as it was"
    rig.pass_time(1.0)
    assert [len(rig.answers(each)) for each in waiting] == [1, 0, 0]
    queue(rig, topic, rate="1/s", rate_burst=2)
    assert [len(rig.answers(each)) for each in waiting] == [1, 1, 0], "the bucket holds one more"
    queue(rig, topic, rate=None)
    rig.turn()
    assert [len(rig.answers(each)) for each in waiting] == [1, 1, 1]


def test_a_group_that_is_deleted_begins_with_a_full_bucket_and_others_keep_theirs():
    rig = Rig()
    topic = rig.topic()
    queue(rig, topic, rate="1/d")
    rig.ask(m.SetQueue, topic, "h", {"rate": "1/d"})
    rig.produce(topic, [b"x"] * 9)
    assert [count(rig.lease(topic, group)) for group in "gghh"] == [1, 0, 1, 0]
    rig.ask(m.DeleteQueue, topic, "g")
    queue(rig, topic, rate="1/d")
    assert [count(rig.lease(topic, group)) for group in "ggh"] == [1, 0, 0]
    other = rig.topic("other")
    queue(rig, other, rate="1/h")
    rig.produce(other, [b"x"])
    assert count(rig.lease(other)) == 1
    rig.ask(m.DeleteTopic, topic)
    rates = rig.node._office.queues.leasing._group_rates
    assert (list(rates._rates), rates._shut) == ([("other", "g")], {})
    topic = rig.topic()
    queue(rig, topic, rate="1/d")
    rig.produce(topic, [b"x"] * 9)
    assert count(rig.lease(topic)) == 1


def test_why_says_that_a_task_waits_for_the_rate():
    rig = Rig()
    topic = rig.topic()
    queue(rig, topic, rate="6/m")
    rig.produce(topic, [b"x"] * 3)
    assert why(rig, topic, 2) == (
        "no worker asks for records of this group; behind 2 records; the rate of its group is 6/m"
    )
    rig.lease(topic)
    rig.ask_lease(topic, wait_ms=600_000)
    assert why(rig, topic, 2) == (
        "behind 1 record; the rate of its group is 6/m: the next one goes at 2023-11-14 22:13:30 UTC (in 10.0 s)"
    )
    rig.pass_time(9.9)
    assert why(rig, topic, 1).endswith("(in 0.1 s)")
    rig.pass_time(0.1)
    queue(rig, topic, rate=None)
    rig.ask_lease(topic, wait_ms=600_000)
    assert why(rig, topic, 2).startswith("leased by")


@pytest.mark.parametrize("seed", range(8))
def test_no_span_of_time_sees_more_than_the_rate_and_the_burst(seed: int):
    dice = random.Random(seed)
    rig = Rig(seed=seed, snapshot_batches=7)
    topic = rig.topic(partitions=3)
    queue(
        rig,
        topic,
        rate="5/s",
        rate_burst=4,
        lease_s=1.0,
        backoff_s=0.1,
        max_attempts=None,
        order=dice.choice(["none", "key"]),
    )
    went: list[int] = []
    for _ in range(250):
        seconds = dice.choice([0, 0, 0.01, 0.2, 0.3, 3.0])
        rig.now = Now(rig.now.wall_us + round(seconds * US), rig.now.monotonic_s + seconds)
        rig.turn()
        if dice.random() < 0.2:
            rig.produce(topic, [b"x"] * dice.randint(1, 9), dice.randrange(3))
        if dice.random() < 0.05:
            rig.restart(clean=dice.random() < 0.5)
        leased = rig.lease(topic, most=dice.choice([1, 3, 50]), takes=dice.random() < 0.3)
        went += [rig.now.wall_us] * count(leased)
    assert len(went) > 50
    for first, earlier_us in enumerate(went):
        for last in range(first, len(went)):
            assert last - first + 1 <= 5 * (went[last] - earlier_us) / US + 4 + 1e-6
    replays(rig)


def test_a_portion_is_never_more_than_the_bucket_holds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_rates, "PORTION", SECOND)
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    queue(rig, topic, rate="100/s", rate_burst=2)
    rig.produce(topic, [b"x"] * 9)
    rig.lease(topic, most=2)
    waiting = rig.ask_lease(topic, most=9, wait_ms=60_000)
    assert rig.node.tick(rig.now) == pytest.approx(0.02)
    rig.pass_time(0.02, step=0.01)
    assert count(rig.answers(waiting)[0]) == 2
