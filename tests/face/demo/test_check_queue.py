"""The verdict on the queue part: nothing to say when all is as it should be, and each difference is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from penstock.clients.testing import penstock_broker, penstock_client
from penstock.demo.check_queue import differences
from penstock.demo.flights import COLUMNS
from penstock.demo.late import ATTEMPTS, failures, late, minutes_late
from penstock.demo.queue import GROUP, is_worked_off
from penstock.demo.tally import fingerprint

__all__ = ["penstock_broker", "penstock_client"]


def line(number: int) -> bytes:
    fields = dict.fromkeys(COLUMNS, "1") | {"flight": str(number), "dep_delay": "7", "carrier": "UA"}
    return ",".join(fields[name] for name in COLUMNS).encode()


DOOMED = next(line(number) for number in range(100_000) if failures(fingerprint(line(number))) == ATTEMPTS)
GOOD = [each for each in map(line, range(20)) if each != DOOMED][:4]
LATE = late(b"\n".join([",".join(COLUMNS).encode(), *GOOD, DOOMED]))


def settle(task: Any) -> None:
    """As the demo's workers do."""
    if task.value == DOOMED:
        task.nack(delay=0, reason="doomed")
    else:
        task.ack(b"%d" % minutes_late(task.value))


@pytest.fixture
def work(penstock_client) -> Callable[..., list[str]]:
    """Works the tasks off, in a way of the test's, and returns the verdict."""

    def run(how: Callable[[Any], None] = settle, lines: list[bytes] | None = None) -> list[str]:
        client = penstock_client
        client.create_topic("t")
        client.set_queue("t", GROUP, max_attempts=ATTEMPTS)
        with client.producer("t") as producer:
            producer.send_many([*GOOD, DOOMED] if lines is None else lines)
        with client.worker("t", group=GROUP, prefetch=0) as worker:
            for _ in range(ATTEMPTS + 1):
                for task in worker.fetch(10, 0):
                    how(task)
        return differences(client, "t", LATE)

    return run


def test_what_is_as_it_should_be_is_no_difference(work, penstock_client):
    assert work() == []
    assert is_worked_off(penstock_client, "t")


def test_a_task_that_is_left_over_is_seen(work, penstock_client):
    found = work(lambda task: settle(task) if task.value != GOOD[0] else task.nack(delay=100))
    assert found[0] == "1 tasks are neither completed nor dead-lettered"
    assert not is_worked_off(penstock_client, "t")


def test_a_task_that_is_missing_is_seen(work):
    assert work(lines=[*GOOD[1:], DOOMED])[0] == "5 late flights in the file, 4 tasks in the queue"


def test_a_task_that_died_and_should_not_is_seen(work):
    found = work(lambda task: settle(task) if task.value != GOOD[0] else task.reject("why not"))
    assert any("1 tasks were to die, 2 did" in each for each in found)
    assert any("is dead-lettered" in each for each in found)


def test_a_task_that_died_too_soon_is_seen(work):
    found = work(lambda task: settle(task) if task.value != DOOMED else task.reject("early"))
    assert found == ["task t-0-4 died in attempt 1 of 6: early"]


def test_a_wrong_result_is_seen(work):
    found = work(lambda task: settle(task) if task.value != GOOD[2] else task.ack(b"8"))
    assert found == ["task t-0-2 is completed with b'8', the file says completed with b'7'"]
