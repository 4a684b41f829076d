"""Leases of many records: whatever becomes of them, a turn of the broker takes about as long as with few."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from penstock.broker.engine.queues.topic_queues import proposed
from penstock.broker.engine.tables.queues.backoff import STRETCHES, backed_off
from penstock.broker.engine.tables.queues.settings import parse
from penstock.transport import messages as m
from support.calls import calls
from support.engine import Rig

ACK, NACK, REJECT, RELEASE = range(4)

FEW, MANY = 2000, 20_000

ENOUGH = 64 << 20
"""Bytes of a lease with all of these."""

SAME = 200
"""Calls that do not matter: how often the log writes depends on the bytes."""


def scene(count: int, value: bytes = b"", **settings: object) -> tuple[Rig, bytes]:
    rig = Rig()
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", settings)
    for _ in range(count // 1000):
        rig.produce(topic, [value] * 1000)
    return rig, topic


def calls_of_an_end(count: int, act: Callable[[Rig, bytes, int], object], **settings: object) -> int:
    rig, topic = scene(count, lease_s=5.0, **settings)
    leased = rig.lease(topic, most=count, max_bytes=ENOUGH)
    assert leased.runs == [(0, count, 1)]
    made = calls(lambda: act(rig, topic, leased.token))
    queue = proposed(rig.node._registry.topics.get(topic).readable[0], "g")
    assert not queue.leases
    assert len(queue.retrying) + len(queue.dead_letters) == count
    return made


@pytest.mark.parametrize(
    ("act", "settings"),
    [
        (lambda rig, topic, token: rig.settle(topic, m.Settle(0, token, RELEASE)), {}),
        (lambda rig, topic, token: rig.settle(topic, m.Settle(0, token, NACK, delay_ms=7)), {}),
        (lambda rig, topic, token: rig.settle(topic, m.Settle(0, token, NACK, reason="no")), {"jitter": 0.5}),
        (lambda rig, topic, token: rig.settle(topic, m.Settle(0, token, REJECT, reason="no")), {}),
        (lambda rig, topic, token: rig.pass_time(6, step=6), {}),
        (lambda rig, topic, token: rig.pass_time(6, step=6), {"max_attempts": 1}),
    ],
    ids=["release", "nack", "nack with back-off", "reject", "expire", "expire for the last time"],
)  # fmt: skip
def test_the_end_of_a_long_lease_costs_as_much_as_that_of_a_short_one(act, settings):
    assert abs(calls_of_an_end(MANY, act, **settings) - calls_of_an_end(FEW, act, **settings)) <= SAME


def calls_of_a_full_frame(count: int) -> int:
    rig, topic = scene(count, b"x" * 100)
    made = calls(lambda: rig.lease(topic, most=count, max_bytes=10_000))
    queue = proposed(rig.node._registry.topics.get(topic).readable[0], "g")
    assert len(queue.retrying) > count - 100
    return made


def test_records_that_do_not_fit_go_back_at_the_cost_of_one():
    assert abs(calls_of_a_full_frame(MANY) - calls_of_a_full_frame(FEW)) <= SAME


def test_a_lease_that_looks_at_keys_has_a_limit_of_its_own():
    rig = Rig()
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {"order": "key"})
    rig.produce(topic, [b""] * 1500, keys=[b"%d" % number for number in range(1500)])
    assert [rig.lease(topic, most=1500).runs for _ in range(2)] == [[(0, 1000, 1)], [(1000, 500, 1)]]


def test_a_long_run_comes_back_in_stretches_without_a_gap():
    chances = iter(range(10_000))
    timed = backed_off(parse({"backoff_s": 1.0, "jitter": 1.0}), 0, lambda: next(chances) / 10_000, (50, 1000, 1))
    assert [first for first, *_ in timed] == [50 + at for at in range(0, 1000, 4)]
    assert sum(count for _, count, _, _ in timed) == 1000
    assert len({ready_us for *_, ready_us in timed}) == len(timed) <= STRETCHES
    alone = backed_off(parse({"backoff_s": 1.0, "jitter": 1.0}), 0, lambda: 0.0, (50, STRETCHES, 1))
    assert [(first, count) for first, count, _, _ in alone] == [(50 + at, 1) for at in range(STRETCHES)]
