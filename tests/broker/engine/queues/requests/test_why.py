"""One sentence for each thing that can hold a record back, and for what became of it."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.requests.why import Facts, why
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.keys import OWN
from penstock.broker.engine.tables.queues.table import QueueTable
from penstock.broker.engine.tables.queues.voids import Voids
from penstock.transport.queue_messages import FOREVER_US

NOW = 1_700_000_000_000_000  # 2023-11-14 22:13:20 UTC
SECOND = 1_000_000
A, B = 1001, 1002


class Group:
    """A group whose state is made of effects."""

    def __init__(self, **settings: object) -> None:
        self.table = QueueTable(Voids())
        self.do(fx.QueueSet("g", settings, 0))
        self.token = 0

    def do(self, effect: fx.QueueEffect) -> Group:
        self.table.apply(effect, NOW - 60 * SECOND)
        return self

    def lease(
        self, runs: list[tuple[int, int, int]], frontier: int, *, until_us: int = NOW + 30 * SECOND, **more: Any
    ) -> Group:
        self.token += 1
        return self.do(fx.LeaseGranted("g", self.token, "ann", until_us, runs, frontier, **more))

    def why(self, offset: int, **facts: Any) -> str:
        return why(self.table.by_name["g"], offset, NOW, Facts(**facts))


def test_a_leased_record_names_its_worker_and_the_end_of_the_lease():
    group = Group(max_attempts=5).lease([(0, 3, 2)], 3)
    assert group.why(1) == "leased by worker 'ann' until 2023-11-14 22:13:50 UTC (in 30.0 s), attempt 2 of 5"
    group.do(fx.TasksCancelled("g", [1]))
    assert group.why(1).endswith("attempt 2 of 5; it is cancelled, and ends with this lease")


def test_a_record_that_is_leased_until_it_is_settled_says_since_when():
    group = Group(lease_s=None, max_attempts=None).lease([(0, 3, 2)], 3, until_us=FOREVER_US)
    sentence = "leased by worker 'ann' since 2023-11-14 22:12:20 UTC (60.0 s ago), until it is settled, attempt 2"
    assert group.why(1) == sentence
    group.table.by_name["g"].leases[1].given_us = 0  # of a snapshot that does not say it
    assert group.why(1) == "leased by worker 'ann', attempt 2"


def test_a_failed_record_says_which_attempt_it_was_and_when_it_is_tried_again():
    group = Group(max_attempts=5).lease([(0, 1, 2)], 1)
    group.do(fx.TasksReturned("g", 1, [(0, 1, 2, NOW + 300 * SECOND)], "no network"))
    assert group.why(0) == (
        "attempt 2 of 5 failed: no network; to be retried from 2023-11-14 22:18:20 UTC (in 5 min)"
    )  # fmt: skip
    group.do(fx.QueuePaused("g", NOW + 600 * SECOND))
    assert group.why(0) == (
        "attempt 2 of 5 failed: no network; the group is paused until 2023-11-14 22:23:20 UTC (in 10 min)"
    )


@pytest.mark.parametrize(
    ("attempt", "said"), [(0, "released; "), (1, "released after attempt 1 of 5; ")]
)  # a claim counted, and nothing failed
def test_a_record_that_was_given_back_is_not_said_to_have_failed(attempt: int, said: str):
    group = Group(max_attempts=5).lease([(0, 1, attempt + 1)], 1)
    group.do(fx.TasksReturned("g", 1, [(0, 1, attempt, NOW)], released=True))
    assert group.why(0) == f"{said}next: the coming lease takes it"
    group.lease([(0, 1, attempt + 1)], 1)
    group.do(fx.TasksReturned("g", 2, [(0, 1, attempt + 1, NOW)], "no network"))
    assert group.why(0).startswith(f"attempt {attempt + 1} of 5 failed: no network; ")


def test_a_failed_record_whose_time_has_come_says_both_what_failed_and_what_it_waits_for():
    group = Group(max_attempts=5).lease([(0, 1, 2)], 1).do(fx.TasksReturned("g", 1, [(0, 1, 2, NOW)], "no network"))
    assert group.why(0) == "attempt 2 of 5 failed: no network; next: the coming lease takes it"
    assert group.why(0, asking=0) == (
        "attempt 2 of 5 failed: no network; no worker asks for records of this group; next: the coming lease takes it"
    )


def test_a_redriven_record_says_when_it_is_tried_again():
    group = Group().lease([(0, 1, 1)], 1).do(fx.TasksDied("g", 1, [(0, 1, 1)], "bad"))
    assert group.why(0) == (
        "dead-lettered since 2023-11-14 22:12:20 UTC (60.0 s ago), after 1 attempt: bad; redrive it to try again"
    )
    group.do(fx.TasksRedriven("g", [(0, 1, NOW + SECOND)]))
    assert group.why(0) == "to be retried from 2023-11-14 22:13:21 UTC (in 1.0 s)"


def test_what_is_over_says_how_it_ended():
    group = Group().lease([(0, 2, 1)], 2).do(fx.TasksFinished("g", 1))
    assert group.why(0) == "done"
    assert group.why(0, final="completed", final_us=NOW - 7200 * SECOND) == (
        "completed 2023-11-14 20:13:20 UTC (2 h ago)"
    )
    group.do(fx.TasksCancelled("g", [5]))
    assert group.why(5) == "cancelled: no worker gets it"


def test_a_delayed_record_says_until_when_and_a_due_one_does_not():
    group = Group().lease([(9, 1, 1)], 10)
    assert group.why(3, not_before_us=NOW + 3 * 86_400 * SECOND) == (
        "delayed by its producer until 2023-11-17 22:13:20 UTC (in 3 days)"
    )
    assert group.why(3, not_before_us=NOW) == "in line with priority 0"
    assert group.why(3, level=7) == "in line with priority 7"


def test_a_pause_says_its_end():
    group = Group().do(fx.QueuePaused("g", NOW + 90 * SECOND))
    assert group.why(0) == "the group is paused until 2023-11-14 22:14:50 UTC (in 90.0 s)"
    group.do(fx.QueuePaused("g", FOREVER_US // 2))
    assert group.why(0) == "the group is paused until after the year 9999"
    group.do(fx.QueuePaused("g", FOREVER_US))
    assert group.why(0) == "the group is paused until it is resumed"
    assert group.do(fx.QueuePaused("g", 0)).why(0) == "next: the coming lease takes it"


def test_a_busy_key_names_the_record_that_has_it():
    group = Group(order="key").lease([(0, 1, 1), (2, 1, 1)], 3, held=[(1, A)], keys=[A, B])
    assert group.why(1) == "its key is busy: record 0 is leased by worker 'ann'"
    assert group.why(7, key=B) == "its key is busy: record 2 is leased by worker 'ann'"
    assert group.why(7, key=OWN) == "behind 5 records"
    group.do(fx.TasksReturned("g", 1, [(0, 1, 1, NOW)], "no"))
    assert group.why(1) == "its key is busy: record 0 waits to be retried"
    assert group.why(0).endswith(" failed: no; next: the coming lease takes it")
    assert group.why(7, key=A) == "its key is busy: record 0 waits to be retried"
    group.lease([(0, 1, 2)], 3, keys=[A]).do(fx.TasksFinished("g", 2))
    assert group.why(7, key=A) == "its key is busy: 1 record before it, first 1"


def test_the_limits_of_a_key_are_named():
    group = Group(key_concurrency=2).lease([(0, 2, 1)], 3, held=[(2, A)], keys=[A, A])
    assert group.why(2) == "2 records of its key leased, and no more than 2 may be (key_concurrency)"
    group.do(fx.TasksFinished("g", 1, [(0, 1)]))
    assert group.why(2, rate_us=NOW + 2 * SECOND) == (
        "the rate of its key lets the next one go at 2023-11-14 22:13:22 UTC (in 2.0 s)"
    )
    assert group.why(2) == "next: the coming lease takes it"


def test_a_full_window_is_named():
    group = Group(order="key", look_ahead=2).lease([(0, 1, 1), (3, 1, 1)], 4, held=[(1, A), (2, A)], keys=[A, B])
    assert group.why(9, key=5) == (
        "2 records before it wait for their keys, and no more than 2 are looked past (look_ahead)"
    )


@pytest.mark.parametrize(
    ("offset", "sentence"), [(4, "next: the coming lease takes it"), (5, "behind 1 record"), (9, "behind 5 records")]
)
def test_an_untouched_record_knows_its_place(offset: int, sentence: str):
    group = Group().lease([(0, 4, 1)], 4).do(fx.TasksFinished("g", 1))
    assert group.why(offset) == sentence
    assert group.why(offset, asking=0) == f"no worker asks for records of this group; {sentence}"


def test_a_record_before_the_start_of_the_group_says_so():
    table = QueueTable(Voids())
    table.apply(fx.QueueSet("g", {}, 10), NOW)
    assert why(table.by_name["g"], 9, NOW) == "the group began behind it"
