"""Answers that wait for a commit: exactly one for each request, and of several failures the first."""

from __future__ import annotations

import pytest
from penstock.broker.engine.tables.producers import Place
from penstock.broker.engine.tables.state import PartitionState
from penstock.broker.engine.turns.replies import Gather, KeyedReply, ProduceReply
from penstock.broker.errors import Unavailable
from support.engine import MemoryPort

FIRST, SECOND = Unavailable("first"), Unavailable("second")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ([None, None], ["finished"]),
        ([FIRST, None], ["undone", FIRST]),
        ([None, FIRST], ["undone", FIRST]),
        ([FIRST, SECOND], ["undone", FIRST]),
    ],
)
def test_the_first_failure_is_undone_once_and_is_the_answer(ends: list[Unavailable | None], told: list[object]):
    heard: list[object] = []
    gather = Gather(lambda: heard.append("finished"), heard.append, lambda: heard.append("undone"))
    waiters = [gather.one() for _ in ends]
    gather.ready()
    for waiter, error in zip(waiters, ends, strict=True):
        if error is None:
            waiter.committed(Place(0, 1))
        else:
            waiter.failed(error)
    assert heard == told


def test_a_request_is_not_answered_again():
    gather = Gather(lambda: None, lambda error: None)
    gather.ready()
    gather.one()
    with pytest.raises(AssertionError, match="answered once"):
        gather.ready()


def test_a_batch_with_dedup_keys_that_fails_is_answered():
    port = MemoryPort()
    KeyedReply(ProduceReply(port, "c", 7), 1, PartitionState()).failed(FIRST)
    assert [(peer, answer.request, answer.message) for peer, answer, _ in port.sent] == [("c", 7, "first")]


def test_a_request_is_answered_ahead_when_one_thing_is_left_that_it_waits_for():
    seqs: list[int] = []

    def ahead(place: Place) -> bool:
        seqs.append(place.seq)
        return place.seq > 1

    gather = Gather(lambda: None, lambda error: None, ahead=ahead)
    one, other = gather.one(), gather.one()
    gather.ready()
    assert not one.answer_ahead(Place(0, 1, seq=2))
    one.committed(Place(0, 1, seq=2))
    assert not other.answer_ahead(Place(0, 1, seq=1)), "it says whether it answered"
    assert other.answer_ahead(Place(0, 1, seq=2))
    assert seqs == [1, 2]


def test_a_request_that_failed_in_part_or_answers_by_the_state_is_not_answered_ahead():
    gather = Gather(lambda: None, lambda error: None, ahead=lambda place: True)
    one, other = gather.one(), gather.one()
    gather.ready()
    one.failed(FIRST)
    assert not other.answer_ahead(Place(0, 1))
    assert not Gather(lambda: None, lambda error: None).answer_ahead(Place(0, 1))


def test_the_answer_to_a_produce_is_the_same_ahead_and_when_it_is_applied():
    port = MemoryPort()
    reply, place = ProduceReply(port, "c", 7), Place(0, 1, 5, 2, 3, 1000)
    assert reply.answer_ahead(place)
    reply.committed(place)
    (_, ahead, _), (_, committed, _) = port.sent
    assert ahead == committed
    port.gone.add("c")
    assert reply.answer_ahead(place), "a peer that is gone is not answered once more"
