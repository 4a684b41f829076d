"""Limits of barriers, and which records may be their members."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from penstock.storage.batch import Kind, encode
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.barriers import GROUP, Scene, code, named
from support.engine import Rig

DAY_MS = 86_400_000


@pytest.fixture
def scene() -> Scene:
    return Scene()


# -- limits -----------------------------------------------------------------------------------------


def test_a_barrier_has_a_thousand_members_and_no_more(scene: Scene):
    assert code(scene.set(members=1001)) == "invalid_request"
    assert code(scene.set(members=0)) == "invalid_request"
    assert isinstance(scene.set(members=1000), m.Done)
    scene.send(list(range(1000)))
    scene.settle(scene.lease(1000), result=b"r")
    scene.rig.turn(60)
    assert scene.fired() == [[("completed", b"r", "")] * 1000]


def test_results_have_the_room_of_a_record(scene: Scene):
    small = Scene(Rig())
    small.then = small.rig.topic("small", max_record_bytes=1000)
    small.set(members=3)
    small.send([0, 1, 2])
    room = 1000 - 3 * 64
    small.work_off(b"x" * (room - 10))
    small.work_off(b"y" * 11)
    small.work_off(b"z" * 10)
    (words,) = small.fired()
    assert [word[0] for word in words] == ["completed", "too_large", "completed"]
    assert [len(word[1]) for word in words] == [room - 10, 0, 10]


def test_results_that_come_together_have_the_room_of_one_record():
    scene = Scene()
    scene.then = scene.rig.topic("small", max_record_bytes=1000)
    scene.set(members=3)
    scene.send([0, 1, 2])
    scene.settle(scene.lease(3), result=b"x" * 400)
    (words,) = scene.fired()
    assert sorted(word[0] for word in words) == ["completed", "completed", "too_large"]


def test_a_list_over_topics_has_no_more_than_are_asked_for(scene: Scene):
    scene.set(b"a")
    scene.then = scene.rig.topic("then-too")
    scene.set(b"b")
    assert len(scene.rig.ask(m.ListBarriers, b"", 1).barriers) == 1
    assert len(scene.rig.ask(m.ListBarriers, b"", 9).barriers) == 2


def test_a_damaged_partition_takes_no_members(scene: Scene):
    scene.set()
    scene.rig.node._registry.topics.get(scene.work).partition(0).history.damaged = True
    assert code(scene.send([0])) == "unavailable"


def test_a_reason_without_room_is_left_out():
    scene = Scene(max_attempts=1)
    scene.then = scene.rig.topic("small", max_record_bytes=100)
    scene.set(ended=True)
    scene.send([0])
    scene.settle(scene.lease(), Verb.REJECT, reason="x" * 37)
    assert scene.fired() == [[("dead", b"", "")]]


@pytest.mark.parametrize(
    ("members", "headers", "fits"),
    [(15, {}, True), (16, {}, False), (15, {"h": b"x" * 39}, True), (15, {"h": b"x" * 40}, False)],
)
def test_a_barrier_that_no_record_has_room_for_is_refused(
    scene: Scene, members: int, headers: dict[str, bytes], fits: bool
):
    scene.then = scene.rig.topic("small", max_record_bytes=1000)
    answer = scene.set(members=members, headers=headers)
    assert isinstance(answer, m.Done) if fits else (code(answer) == "invalid_request" and "1000" in answer.message)


@pytest.mark.parametrize(
    ("how", "said"), [({"priority": 256}, "0 to 255"), ({"lifetime_ms": 12 * 366 * DAY_MS}, "lifetime")]
)
def test_what_cannot_be_a_barrier_is_refused(scene: Scene, how: dict[str, Any], said: str):
    answer = scene.set(**how)
    assert code(answer) == "invalid_request"
    assert said in answer.message
    assert scene.listed() == []


def test_a_partition_has_so_many_barriers():
    scene = Scene(Rig(max_barriers=2))
    assert isinstance(scene.set(b"a"), m.Done)
    assert isinstance(scene.set(b"b"), m.Done)
    answer = scene.set(b"c")
    assert code(answer) == "limit_reached"
    assert "max_barriers" in answer.message
    assert isinstance(scene.set(b"a"), m.Done)
    scene.send([0], b"a")
    scene.work_off()
    assert len(scene.fired()) == 1
    assert isinstance(scene.set(b"c"), m.Done)


def bounded(most: int) -> Scene:
    """Barriers of a partition have so many bytes."""
    return Scene(Rig(max_barrier_bytes=most))


@pytest.mark.parametrize(("header", "fits"), [(b"x" * 35, True), (b"x" * 36, False)])
def test_a_new_barrier_may_use_half_of_what_those_of_its_partition_have(header: bytes, fits: bool):
    """Two have a member each; the name of a header counts as well."""
    scene = bounded(2 * (2 * 64 + 36))
    assert isinstance(scene.set(b"a"), m.Done)
    answer = scene.set(b"b", headers={"h": header})
    assert isinstance(answer, m.Done) if fits else code(answer) == "limit_reached"
    if not fits:
        assert "max_barrier_bytes" in answer.message
        assert "165 bytes" in answer.message
        assert "164" in answer.message
        assert [each.barrier for each in scene.listed()] == [named(b"a")]
    assert isinstance(scene.set(b"a", headers={"h": header}), m.Done)


def test_a_barrier_makes_room_for_others_once_it_is_over():
    scene = bounded(2 * (64 + 10))
    scene.set(b"a")
    scene.send([0], b"a")
    assert code(scene.set(b"b")) == "limit_reached"
    scene.work_off(b"x" * 20)
    assert len(scene.fired()) == 1
    assert isinstance(scene.set(b"b"), m.Done)
    scene.replays()


def test_results_use_the_rest_of_what_the_barriers_of_a_partition_have():
    scene = bounded(400)
    scene.set(b"a", 2)
    scene.set(b"b")
    scene.send([0, 1], b"a")
    scene.send([0], b"b")
    scene.work_off(b"x" * 200)
    assert scene.rig.node.stats()["barriers.most_bytes"] == 3 * 64 + 200
    assert code(scene.set(b"c")) == "limit_reached"
    scene.rig.restart(clean=False)
    assert scene.rig.node.stats()["barriers.most_bytes"] == 3 * 64 + 200
    leased = scene.lease(2)
    assert leased.runs == [(1, 2, 1)]
    scene.settle(leased, result=b"y" * 9)
    fired = scene.fired()
    assert sorted(fired) == [
        [("completed", b"x" * 200, ""), ("too_large", b"", "")],
        [("too_large", b"", "")],
    ]
    assert scene.rig.node.stats()["barriers.most_bytes"] == 0
    scene.replays()


def test_a_result_fits_that_leaves_nothing_and_none_needs_no_room():
    scene = bounded(400)
    scene.set(members=3)
    scene.send([0, 1, 2])
    scene.work_off(b"x" * (400 - 3 * 64))
    scene.work_off(b"")
    scene.counts()
    scene.work_off(b"y")
    assert [word[0] for word in scene.fired()[0]] == ["completed", "completed", "too_large"]


def test_barriers_that_are_above_a_limit_that_was_lowered_hear_of_ends_without_results():
    scene = bounded(1000)
    scene.set(members=3)
    scene.send([0, 1, 2])
    scene.work_off(b"x" * 300)
    scene.rig.config = msgspec.structs.replace(scene.rig.config, max_barrier_bytes=300)
    scene.rig.restart()
    scene.work_off(b"")
    scene.work_off(b"y")
    assert [word[0] for word in scene.fired()[0]] == ["completed", "completed", "too_large"]


def test_the_partition_with_the_most_is_the_one_that_counts():
    scene = Scene()
    scene.set(b"a", 3)
    scene.then = scene.rig.topic("then-too")
    scene.set(b"b", 2)
    assert scene.rig.node.stats()["barriers.most_bytes"] == 3 * 64


def test_a_barrier_is_forgotten_when_its_time_is_over():
    scene = Scene(Rig(housekeeping_s=1.0), lease_s=3600.0)
    scene.set(b"a", lifetime_ms=10_000)
    scene.set(b"b", lifetime_ms=60_000)
    scene.send([0], b"a")
    scene.send([0], b"b")
    scene.rig.pass_time(9)
    assert len(scene.listed()) == 2
    scene.rig.restart()
    scene.rig.pass_time(5)
    assert [each.barrier for each in scene.listed()] == [named(b"b")]
    assert scene.rig.node.stats()["barriers.expired"] == 1
    scene.work_off(b"a")
    scene.work_off(b"b")
    assert scene.fired() == [[("completed", b"b", "")]]
    assert code(scene.send([0], b"a")) == "invalid_request"
    scene.replays()


def test_a_list_has_as_many_as_are_asked_for(scene: Scene):
    for number in range(40):
        scene.set(b"%02d" % number, 30)
    assert len(scene.rig.ask(m.ListBarriers, scene.then, 33).barriers) == 33
    assert len(scene.rig.ask(m.ListBarriers, scene.work).barriers) == 0
    first = scene.rig.ask(m.ListBarriers, b"", 1).barriers[0]
    assert (first.waiting, first.first_waiting) == (30, list(range(20)))


# -- members ----------------------------------------------------------------------------------------


def batch(values: list[bytes], producer: int = 9, **how: Any) -> bytes:
    return bytes(encode(values, producer_id=producer, **how))


@pytest.mark.parametrize(
    ("payload", "members", "said"),
    [
        (batch([b"a"], 0), [0], "producer"),
        (batch([b"a"], dedup=[b"k"]), [0], "dedup"),
        (batch([b"a"], kind=Kind.STAGED), [0], "transaction"),
        (batch([b"a", b"b"]), [0], "2 records"),
        (batch([b"a"]), [2], "0 to 1"),
    ],
)
def test_members_that_do_not_fit_are_refused(scene: Scene, payload: bytes, members: list[int], said: str):
    scene.set(members=2)
    answer = scene.produce(payload, members)
    assert code(answer) == "invalid_request"
    assert said in answer.message
    assert scene.rig.read(scene.work) == []
    assert not scene.state(scene.work).ties.open


def test_members_need_their_barrier_and_their_group(scene: Scene):
    answer = scene.send([0])
    assert code(answer) == "invalid_request"
    assert "set before" in answer.message
    scene.set()
    scene.rig.ask(m.DeleteQueue, scene.work, GROUP)
    assert code(scene.send([0])) == "unknown_group"


@pytest.mark.parametrize("missing", ["group", "topic"])
def test_a_barrier_is_not_set_where_a_queue_of_its_members_is_missing(scene: Scene, missing: str):
    there = m.MemberQueue(scene.work, GROUP)
    gone = m.MemberQueue(scene.then, GROUP) if missing == "group" else m.MemberQueue(bytes(16), GROUP)
    answer = scene.set(queues=[there, gone, there])
    assert code(answer) == f"unknown_{missing}"
    assert scene.listed() == []
    assert isinstance(scene.set(queues=[there]), m.Done)
    scene.rig.ask(m.DeleteQueue, scene.work, GROUP)
    assert isinstance(scene.set(queues=[there]), m.Done), "it stands already"


def test_a_barrier_is_set_before_what_its_connection_asks_next(scene: Scene):
    """Also where the connection has long work before it."""
    rig, queues = scene.rig, [m.MemberQueue(scene.work, GROUP)] * 16
    rig.send(m.SetBarrier(rig.next_request(), scene.then, 0, named(b"long"), 1, False, queues=queues * 20))
    rig.send(m.SetBarrier(rig.next_request(), scene.then, 0, named(b"b"), 1, False, queues=queues))
    assert isinstance(scene.delete(), m.Done)
    rig.turn(20)
    assert [each.barrier for each in scene.listed()] == [named(b"long")]


@pytest.mark.parametrize("goes", [False, True])
def test_a_barrier_of_many_queues_is_set_in_portions_where_its_topic_still_is(scene: Scene, goes: bool):
    rig, topics, many = scene.rig, scene.rig.node._registry.topics, [m.MemberQueue(scene.work, GROUP)] * 1000
    request = rig.next_request()
    rig.send(m.SetBarrier(request, scene.then, 0, named(b"b"), 1, False, queues=many))
    assert not topics.partition(scene.then, 0).proposed.barriers.by_id
    if goes:
        del topics.by_id[scene.then]
    rig.turn(20)
    answer = rig.answers(request)[0]
    assert code(answer) == "unknown_topic" if goes else isinstance(answer, m.Done)


def test_a_queue_of_members_is_in_any_partition_of_its_topic(scene: Scene):
    scene.rig.ask(m.AlterTopic, scene.then, {}, 3)
    scene.rig.ask(m.SetQueue, scene.then, "late", {})
    topic = scene.rig.node._registry.topics.get(scene.then)
    del topic.partition(0).proposed.queues.by_name["late"]
    assert isinstance(scene.set(queues=[m.MemberQueue(scene.then, "late")], number=1), m.Done)


def test_a_batch_that_is_sent_again_is_the_same_members_also_when_all_is_over(scene: Scene):
    scene.set(members=2)
    payload = batch([b"a", b"b"])
    first = scene.produce(payload, [0, 1])
    assert scene.produce(payload, [0, 1]).offset == first.offset == 0
    scene.settle(scene.lease(5), result=b"r")
    assert len(scene.fired()) == 1
    assert scene.produce(payload, [0, 1]).offset == 0
    scene.rig.restart()
    assert scene.produce(payload, [0, 1]).offset == 0
    assert not scene.state(scene.work).ties.open
    assert len(scene.fired()) == 1


def test_a_barrier_that_is_set_again_stays_as_it_is(scene: Scene):
    scene.set(members=2)
    scene.send([0, 1])
    scene.work_off(b"zero")
    assert isinstance(scene.set(members=1, ended=True), m.Done)
    assert scene.fired() == []
    scene.work_off(b"one")
    assert scene.fired() == [[("completed", b"zero", ""), ("completed", b"one", "")]]


def test_a_barrier_that_is_set_again_is_answered_once_it_is_committed(scene: Scene):
    rig = scene.rig
    rig.store.hold = True
    numbers = [rig.next_request() for _ in range(2)]
    for number in numbers:
        rig.send(m.SetBarrier(number, scene.then, 0, named(b"b"), 1, False))
    rig.turn()
    assert [rig.answers(number) for number in numbers] == [[], []]
    rig.store.hold = False
    rig.sync()
    assert [rig.answers(number) for number in numbers] == [[m.Done(number)] for number in numbers]


def test_members_and_barriers_in_the_same_flush(scene: Scene):
    """All that is sent in one turn: the barrier is proposed, and that is enough."""
    rig = scene.rig
    rig.send(m.SetBarrier(rig.next_request(), scene.then, 0, named(b"b"), 1, False))
    tie = m.Tie(GROUP, scene.then, 0, named(b"b"), [0])
    rig.send(m.Produce(rig.next_request(), scene.work, 0, tie), batch([b"a"]))
    rig.turn()
    scene.work_off(b"r")
    assert len(scene.fired()) == 1
