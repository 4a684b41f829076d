"""Telling barriers of ends, and firing them, where that cannot be done now, or was on its way when the node died."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.logs.finals import state_effects
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables import ties
from penstock.storage.batch import Kind, encode, parse
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from penstock.transport.queue_messages import Settle, Verb
from support.barriers import GROUP, Scene, code, named

DAY_MS = 86_400_000


@pytest.fixture
def scene() -> Scene:
    return Scene()


def told(scene: Scene) -> list[fx.BarrierTold]:
    """What the log of the callback's partition says of words."""
    log = scene.rig.node._registry.topics.get(scene.then).partition(0).log
    effects = [effect for _, some in state_effects(log, 0, log.committed) for effect in some]
    return [effect for effect in effects if isinstance(effect, fx.BarrierTold)]


def test_ends_are_told_by_portions_of_a_number_and_of_bytes(scene: Scene):
    scene.set(b"many", 450)
    scene.send(list(range(450)), b"many")
    scene.settle(scene.lease(450), result=b"r")
    assert len(scene.fired()) == 1
    assert [len(effect.words) for effect in told(scene)] == [200, 200, 50]
    scene.set(b"large", 5)
    scene.send(list(range(5)), b"large")
    leased = scene.lease(5)
    for at in range(450, 455):
        scene.rig.send(m.SettleTasks(scene.rig.next_request(), scene.work, GROUP, [
            Settle(0, leased.token, Verb.ACK, [(at, 1)], 0, "", [(at, b"x" * 400_000)])]))  # fmt: skip
    assert len(scene.fired()) == 2
    assert [len(effect.words) for effect in told(scene)[3:]] == [2, 2, 1]


def test_an_end_that_is_on_its_way_is_told_once(scene: Scene):
    scene.set(members=2)
    scene.send([0, 1])
    leased = scene.lease(2)
    then = scene.rig.node._registry.topics.get(scene.then).partition(0).log
    work = scene.rig.node._registry.topics.get(scene.work).partition(0).log
    scene.rig.store.hold = True
    scene.rig.send(m.SettleTasks(1000, scene.work, GROUP, [Settle(0, leased.token, Verb.ACK, [(0, 1)])]))
    for number in range(5):
        work.sync()
        scene.rig.turn(1)
        scene.rig.send(m.Produce(2000 + number, scene.work, 0), bytes(encode([b"more"])))
        scene.rig.turn(1)
    scene.rig.store.hold = False
    then.sync()
    scene.rig.turn(8)
    assert [len(effect.words) for effect in told(scene)] == [1]


def test_a_barrier_that_is_being_fired_is_not_fired_again_by_another_commit(scene: Scene):
    scene.set()
    scene.send([0])
    leased = scene.lease()
    then = scene.rig.node._registry.topics.get(scene.then).partition(0)
    scene.rig.send(m.SettleTasks(1000, scene.work, GROUP, [Settle(0, leased.token, Verb.ACK)]))
    scene.rig.turn(2)
    assert then.committed.barriers.ready
    scene.rig.store.hold = True
    scene.rig.node.flush(scene.rig.now)
    ahead = scene.rig.node._office.queues.barriers
    for _ in range(3):
        ahead.fire(then)
    scene.rig.store.hold = False
    scene.rig.sync()
    assert len(scene.fired()) == 1


def test_what_is_ready_or_untold_when_a_node_opens_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    for effects in (False, True):
        name = b"%d" % effects
        scene.set(name)
        scene.send([0], name)
        log = scene.rig.node._registry.topics.get(scene.then).partition(0).log
        refuse_records(monkeypatch, log, effects=effects)
        scene.work_off(name)
        scene.rig.turn(4)
        assert len(scene.rig.read(scene.then)) == effects
        monkeypatch.undo()
        scene.rig.restart(clean=effects)
        scene.rig.turn(8)
        assert len(scene.rig.read(scene.then)) == effects + 1


def test_a_partition_that_is_damaged_by_now_fires_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    scene.set()
    scene.send([0])
    then = scene.rig.node._registry.topics.get(scene.then).partition(0)
    refuse_records(monkeypatch, then.log, effects=False)
    scene.work_off()
    scene.rig.turn(4)
    assert then.committed.barriers.ready
    then.history.damaged = True
    monkeypatch.undo()
    scene.rig.pass_time(5)
    assert scene.fired() == []


def test_what_rests_longest_is_tried_again_after_what_rests_shorter(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    other = scene.rig.topic("other")
    scene.set(b"a")
    scene.rig.ask(m.SetBarrier, other, 0, named(b"o"), 1, False)
    scene.send([0], b"a")
    refuse_records(monkeypatch, scene.rig.node._registry.topics.get(scene.then).partition(0).log, effects=True)
    scene.work_off()
    scene.rig.pass_time(8)
    tie = m.Tie(GROUP, other, 0, named(b"o"), [0])
    scene.rig.ask(m.Produce, scene.work, 0, tie, payload=bytes(encode([b"o"], producer_id=5)))
    with monkeypatch.context() as inner:
        refuse_records(inner, scene.rig.node._registry.topics.get(other).partition(0).log, effects=True)
        scene.work_off()
        scene.rig.turn(4)
    scene.rig.pass_time(2)
    assert len(scene.rig.read(other)) == 1
    monkeypatch.undo()
    scene.rig.pass_time(10)
    assert len(scene.fired()) == 1


def test_what_is_untold_of_a_topic_that_is_deleted_is_told_then(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    scene.set()
    scene.send([0])
    refuse_records(monkeypatch, scene.rig.node._registry.topics.get(scene.then).partition(0).log, effects=True)
    scene.work_off(b"kept")
    scene.rig.turn(4)
    monkeypatch.undo()
    scene.rig.ask(m.DeleteTopic, scene.work)
    assert scene.fired() == [[("completed", b"kept", "")]]


def refuse_records(monkeypatch: pytest.MonkeyPatch, log: Any, *, effects: bool) -> None:
    real = log.append

    def full(found: Any, now_us: int) -> Any:
        if effects or any(parse(bytes(each)).kind == Kind.RECORDS for each in found):
            raise StorageFull("no room")
        return real(found, now_us)

    monkeypatch.setattr(log, "append", full)


@pytest.mark.parametrize("effects", [False, True], ids=["records", "everything"])
def test_a_full_disk_of_the_callback_keeps_it_waiting(scene: Scene, monkeypatch: pytest.MonkeyPatch, effects: bool):
    scene.set()
    scene.send([0])
    log = scene.rig.node._registry.topics.get(scene.then).partition(0).log
    refuse_records(monkeypatch, log, effects=effects)
    scene.work_off(b"kept")
    scene.rig.pass_time(3)
    assert scene.fired() == []
    stats = scene.rig.node.stats()
    assert (stats["barriers.untold"], stats["barriers.stuck"]) == ((1, 1) if effects else (0, 0))
    assert stats["barriers.stuck_because"] == ("no room" if effects else "")
    monkeypatch.undo()
    scene.rig.pass_time(10)
    assert scene.fired() == [[("completed", b"kept", "")]]
    stats = scene.rig.node.stats()
    assert (stats["barriers.fired"], stats["barriers.untold"], stats["barriers.stuck"]) == (1, 0, 0)


def test_a_place_that_cannot_be_told_holds_up_no_other(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    other = scene.rig.topic("other")
    scene.set(b"a")
    scene.rig.ask(m.SetBarrier, other, 0, named(b"o"), 1, False)
    scene.send([0], b"a")
    tie = m.Tie(GROUP, other, 0, named(b"o"), [0])
    scene.rig.ask(m.Produce, scene.work, 0, tie, payload=bytes(encode([b"o"], producer_id=5)))
    log = scene.rig.node._registry.topics.get(scene.then).partition(0).log
    refuse_records(monkeypatch, log, effects=True)
    scene.settle(scene.lease(2), result=b"r")
    scene.rig.turn(8)
    assert len(scene.rig.read(other)) == 1
    assert scene.state(scene.work).ties.tellings.keys() == {1}
    monkeypatch.undo()
    scene.rig.pass_time(3)
    assert len(scene.fired()) == 1


def test_ends_that_wait_to_be_told_have_bounded_results(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    """What a full disk or a damaged partition keeps untold is in memory and in snapshots."""
    monkeypatch.setattr(ties, "TELLINGS_BYTES_MAX", 10)
    scene.set(members=5, ended=True)
    scene.send([0, 1, 2, 3, 4])
    log = scene.rig.node._registry.topics.get(scene.then).partition(0).log
    refuse_records(monkeypatch, log, effects=True)
    for result in (b"123456", b"12345", b"1234"):
        scene.work_off(result)
    scene.settle(scene.lease(), Verb.REJECT, reason="r")
    waiting = scene.state(scene.work).ties
    assert waiting.bytes == ties.Ties.load(waiting.dump()).bytes == 10
    scene.replays()
    monkeypatch.undo()
    monkeypatch.setattr(ties, "TELLINGS_BYTES_MAX", 10)
    scene.rig.pass_time(10)
    assert scene.state(scene.work).ties.bytes == 0
    scene.work_off(b"1234567890")
    assert scene.fired() == [[
        ("completed", b"123456", ""), ("too_large", b"", ""), ("completed", b"1234", ""), ("dead", b"", ""),
        ("completed", b"1234567890", ""),
    ]]  # fmt: skip


def test_tellings_are_forgotten_with_the_topic_of_their_barrier(scene: Scene):
    scene.set(members=2)
    scene.send([0, 1])
    scene.rig.ask(m.DeleteTopic, scene.then)
    scene.work_off()
    scene.rig.turn(8)
    state = scene.state(scene.work)
    assert not state.ties.tellings
    assert state.ties.open.keys() == {1}


def test_a_damaged_partition_neither_tells_nor_fires(scene: Scene):
    scene.set(b"a")
    scene.send([0], b"a")
    leased = scene.lease()
    then = scene.rig.node._registry.topics.get(scene.then).partition(0)
    then.history.damaged = True
    scene.settle(leased)
    scene.rig.pass_time(5)
    assert scene.fired() == []
    assert scene.rig.node.stats()["barriers.untold"] == 1
    assert code(scene.set(b"b")) == "unavailable"


def test_members_that_could_not_be_appended_are_none(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    scene.set()
    with monkeypatch.context() as inner:
        refuse_records(inner, scene.rig.node._registry.topics.get(scene.work).partition(0).log, effects=False)
        assert code(scene.send([0])) == "storage_full"
    assert not scene.state(scene.work).ties.open
    scene.rig.produce(scene.work, [b"none"])
    scene.work_off()
    assert scene.fired() == []


def test_a_place_that_was_told_begins_with_short_pauses_again(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    scene.set(members=3)
    scene.send([0, 1, 2])
    log = scene.rig.node._registry.topics.get(scene.then).partition(0).log
    other = scene.rig.topic("other")
    scene.rig.ask(m.SetBarrier, other, 0, named(b"o"), 1, False)
    tie = m.Tie(GROUP, other, 0, named(b"o"), [0])
    scene.rig.ask(m.Produce, scene.work, 0, tie, payload=bytes(encode([b"o"], producer_id=5)))
    scene.settle(scene.rig.lease(scene.work, GROUP, 3), result=b"r")
    scene.rig.turn(8)
    assert len(scene.fired()) == 1
    stuck = scene.rig.node._registry.topics.get(other).partition(0).log
    refuse_records(monkeypatch, stuck, effects=True)  # keeps the source among those that have something to tell
    scene.work_off()
    for _ in range(2):
        scene.set(b"n", 1)
        scene.send([0], b"n")
        with monkeypatch.context() as inner:
            refuse_records(inner, log, effects=True)
            scene.work_off()
            scene.rig.turn(4)
        scene.rig.pass_time(1.3)
        assert scene.rig.node.stats()["barriers.untold"] == 1
        scene.rig.turn(8)
    assert len(scene.fired()) == 3
