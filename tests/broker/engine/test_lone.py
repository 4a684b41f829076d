"""The short way of lone records: what it does is what the general way does, byte for byte."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support import queue_life, transaction_life
from support.engine import Rig
from support.lone_life import LoneLife

LIVES, STEPS = 12, 60


@pytest.mark.parametrize("seed", range(8))
def test_logs_states_and_answers_are_the_same_on_both_ways(seed: int):
    for number in range(LIVES):
        LoneLife(seed * LIVES + number).run(STEPS)


def test_lives_take_both_ways_often():
    met: Counter[str] = Counter()
    for seed in range(10):
        life = LoneLife(seed)
        life.run(STEPS)
        met += life.met
    assert met["commit True"] > 30, met
    assert met["commit False"] > 100, met


@pytest.mark.parametrize("kind", [queue_life.Life, transaction_life.Life], ids=["queues", "transactions"])
@pytest.mark.parametrize("seed", range(6))
def test_a_life_of_the_models_leaves_the_same_on_both_ways(seed: int, kind: Any, monkeypatch: pytest.MonkeyPatch):
    def live(*, short_way: bool) -> tuple[list[str], dict[str, bytes], list[bytes]]:
        monkeypatch.setattr(Rig, "short_way", short_way)
        life = kind(seed)
        life.run(40)
        files = {path: bytes(content.data) for path, content in life.rig.store.files.contents.items()}
        return life.steps, files, [history.committed.encode() for history in life.rig.node._registry.histories()]

    assert live(short_way=True) == live(short_way=False)


def calls(monkeypatch: pytest.MonkeyPatch, rig: Rig) -> list[str]:
    """The steps of the general way that are taken from now on."""
    met: list[str] = []
    office = rig.node._office
    assert office is not None
    for owner, name in ((office.producing, "produce"), (office, "advance")):
        known = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, known=known, name=name: met.append(name) or known(*given))
    lone = rig.node._lone
    assert lone is not None
    lone.handlers[m.Produce] = rig.node._handlers[m.Produce]
    return met


def test_a_lone_record_takes_no_step_of_the_general_way(monkeypatch: pytest.MonkeyPatch):
    rig = Rig()
    topic = rig.topic(commit="written")
    rig.turn()
    met = calls(monkeypatch, rig)
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"x"], producer_id=1)))
    rig.node.flush(rig.now)
    rig.node.advance(rig.now)
    assert met == []
    assert isinstance(rig.port.sent[-1][1], m.Produced)


def test_a_second_record_of_a_turn_is_committed_the_general_way(monkeypatch: pytest.MonkeyPatch):
    rig = Rig()
    topic = rig.topic(commit="written")
    rig.turn()
    met = calls(monkeypatch, rig)
    for producer in (1, 2):
        rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"x"], producer_id=producer)))
    rig.node.flush(rig.now)
    rig.node.advance(rig.now)
    assert met == ["advance"]


def test_an_office_that_is_gone_takes_its_short_way_along():
    rig = Rig()
    topic = rig.topic(commit="durable")
    rig.store.hold = True
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"x"], producer_id=1)))
    rig.node.flush(rig.now)
    rig.node.resign()
    rig.node.advance(rig.now)
    assert rig.node._lone is None
    rig.sync()
    assert rig.node._lone is not None
