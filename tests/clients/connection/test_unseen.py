"""What failed and was not told of: the first is raised once, and programs that never ask fill no memory."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.errors import LeaseLost, UnknownTopic
from penstock.clients.connection import unseen
from penstock.clients.connection.unseen import MOST, keep, raise_first

FEW = 4


class Outcome:
    def __init__(self, number: int, seen: bool = False) -> None:
        self.number, self.seen = number, seen

    def raise_error(self) -> None:
        raise ValueError(self.number)


def kept(*outcomes: Outcome) -> list[Outcome]:
    failed: list[Outcome] = []
    for each in outcomes:
        keep(failed, each)
    return failed


def test_the_first_that_was_not_seen_is_raised_once() -> None:
    failed = kept(Outcome(1, seen=True), Outcome(2), Outcome(3))
    with pytest.raises(ValueError, match="2"):
        raise_first(failed)
    raise_first(failed)


def test_none_is_raised_where_all_were_seen() -> None:
    raise_first(kept(Outcome(1, seen=True)))


def test_what_was_seen_makes_room_and_the_others_stay() -> None:
    failed = kept(Outcome(0), *(Outcome(number, seen=True) for number in range(1, MOST)))
    assert len(failed) == MOST
    keep(failed, Outcome(MOST))
    assert [each.number for each in failed] == [0, MOST]


def test_of_too_many_the_first_ones_stay() -> None:
    failed = kept(*(Outcome(number) for number in range(10 * MOST)))
    assert MOST // 2 < len(failed) <= MOST
    assert [each.number for each in failed[: MOST // 2]] == list(range(MOST // 2))


def test_a_producer_whose_sends_all_fail_remembers_few_of_them(penstock_client: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(unseen, "MOST", FEW)
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t")
    penstock_client.delete_topic("t")
    for _ in range(3 * FEW):
        with pytest.raises(UnknownTopic):
            producer.send(b"x")
    assert len(producer._core.failed) <= FEW
    producer.flush()
    producer.send_nowait(b"x")
    with pytest.raises(UnknownTopic):
        producer.flush()


def test_a_worker_that_loses_one_lease_after_the_other_remembers_few_of_them(
    penstock_broker: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(unseen, "MOST", FEW)
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.set_queue("t", "g", lease_s=10, max_attempts=None)
        client.producer("t").send(b"x")
        worker = client.worker("t", group="g", prefetch=0)
        for _ in range(3 * FEW):
            (task,) = worker.fetch(1)
            penstock_broker.advance(11)
            with pytest.raises(LeaseLost):
                task.ack()
        assert 0 < len(worker._core.settling.failed) <= FEW
        worker.flush()
        assert worker._core.settling.failed == []
