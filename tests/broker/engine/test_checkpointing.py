"""A checkpoint has every log as it was at one moment: what is applied, not what is only in the log."""

from __future__ import annotations

import pytest
from penstock.broker.engine.topics import checkpointing
from penstock.transport import messages as m
from support.engine import Rig
from support.transactions import commit, put


def places(rig: Rig) -> dict[tuple[str, int], tuple[int, int]]:
    answer = rig.ask(m.Checkpoint)
    assert answer.unavailable == {}
    return {(each.name, each.partition): (each.seq, each.first) for each in answer.logs}


def test_every_log_is_named_with_its_last_applied_batch_and_its_first_offset():
    rig = Rig()
    one, two = rig.topic("one", partitions=2), rig.topic("two")
    for _ in range(3):
        rig.produce(one, [b"x"], 1)
    rig.produce(two, [b"x", b"y"])
    found = places(rig)
    assert found[("", 0)][0] > 0
    assert {key: seq for key, (seq, _) in found.items() if key[0] in ("one", "two")} == {
        ("one", 0): 0, ("one", 1): 3, ("two", 0): 1,
    }  # fmt: skip
    (place,) = (each for each in rig.ask(m.Checkpoint).logs if each.name == "two")
    assert (place.topic, place.log_id) == (two, rig.partition(two).log_id)


def test_what_is_not_committed_is_not_in_it_and_it_is_answered_without_an_office():
    rig = Rig()
    topic = rig.topic("t")
    rig.produce(topic, [b"x"])
    before = places(rig)
    rig.store.hold = True
    rig.produce(topic, [b"y"])
    assert places(rig) == before
    rig.resign()
    assert places(rig) == before


def test_the_places_are_of_one_moment_though_the_answer_takes_several_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpointing, "SLICE", 1)
    rig = Rig()
    topic = rig.topic("t", partitions=8)
    before, request = places(rig), rig.next_request()
    rig.send(m.Checkpoint(request))
    for partition in range(8):
        rig.produce(topic, [b"x"], partition)
    (answer,) = rig.answers(request)
    assert {(each.name, each.partition): (each.seq, each.first) for each in answer.logs} == before
    assert places(rig) != before


def test_what_is_staged_is_named_though_it_may_lie_below_the_first_offset():
    rig = Rig()
    topic = rig.topic("t")
    rig.produce(topic, [b"x"])

    def needed() -> list[int]:
        return [each.needed for each in rig.ask(m.Checkpoint).logs if each.name == "t"]

    assert needed() == [0]
    only = put(rig, topic, 7, b"1")
    assert needed() == [2]  # the last one
    commit(rig, "etl", 1, only)
    assert needed() == [0]
