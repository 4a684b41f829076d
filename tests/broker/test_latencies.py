"""Which requests are timed, and when that is noted."""

from __future__ import annotations

from penstock.broker.latencies import TIMED_MOST, Latencies
from penstock.storage.histogram import SAMPLE
from penstock.transport import messages as m


def test_every_request_is_counted_and_one_of_many_timed():
    latencies = Latencies()
    for number in range(1, 2 * SAMPLE + 1):
        latencies.arrived("a", m.Ping(number), 1.0)
    assert list(latencies.timed) == [1, SAMPLE + 1]
    latencies.answered("a", 1, 1.5)
    assert latencies.stats() == {
        "requests.by_kind": {"Ping": 2 * SAMPLE},
        "requests.us": {"Ping": [500_000, *[0] * 19, 1]},
    }
    assert list(latencies.timed) == [SAMPLE + 1]


def test_kinds_are_timed_apart():
    latencies = Latencies()
    latencies.arrived("a", m.Ping(1), 1.0)
    latencies.arrived("a", m.Stats(2), 1.0)
    assert list(latencies.timed) == [1, 2]


def test_the_answer_of_another_connection_is_not_taken_for_it():
    latencies = Latencies()
    latencies.arrived("a", m.Ping(1), 1.0)
    latencies.answered("b", 1, 2.0)
    assert (list(latencies.timed), latencies.stats()["requests.us"]) == ([1], {})


def test_what_is_never_answered_is_bounded():
    latencies = Latencies()
    for number in range(SAMPLE * (TIMED_MOST + 1)):
        latencies.arrived("a", m.Ping(number + 1), 1.0)
    assert len(latencies.timed) == 1


def test_a_message_without_a_number_is_not_timed():
    latencies = Latencies()
    latencies.arrived("a", m.Credit(1, 2, 3), 1.0)
    assert not latencies.timed
