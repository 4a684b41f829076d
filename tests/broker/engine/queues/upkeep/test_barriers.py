"""Barriers at a node: the record of a callback is appended once, when all members have ended, whatever ended them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.queues.upkeep import barriers as upkeep
from penstock.storage.errors import BatchTooLarge, Corrupt
from penstock.transport import messages as m
from penstock.transport.queue_messages import Settle, Verb
from support.barriers import GROUP, Scene, code, named
from support.engine import START_US, Rig

DAY_MS = 86_400_000


@pytest.fixture
def scene() -> Scene:
    return Scene()


def to(rig: Rig, seconds: float) -> None:
    """The clocks move on by so much at once."""
    rig.now = Now(rig.now.wall_us + round(seconds * 1e6), rig.now.monotonic_s + seconds)
    rig.turn(8)


# -- firing ---------------------------------------------------------------------------------------


def test_a_callback_is_appended_once_all_members_have_completed(scene: Scene):
    assert isinstance(scene.set(members=3, headers={"h": b"1"}, priority=7), m.Done)
    assert isinstance(scene.send([2, 0]), m.Produced)
    assert isinstance(scene.send([1]), m.Produced)
    scene.work_off(b"two")
    scene.work_off(b"zero")
    assert scene.fired() == []
    (stands,) = scene.listed()
    assert (stands.members, stands.waiting, stands.first_waiting, stands.holding) == (3, 1, [1], [])
    assert (stands.headers, stands.ended, stands.topic_name) == ({"h": b"1"}, False, "then")
    scene.work_off(b"one")
    done = "completed"
    assert scene.fired() == [[(done, b"zero", ""), (done, b"one", ""), (done, b"two", "")]]
    assert scene.listed() == []
    first = scene.first_batch()
    priorities = first.priorities()
    assert (first.headers(), first.keys()) == ([{"h": b"1"}], None)
    assert priorities is not None
    assert priorities.tolist() == [7]
    scene.replays()


def test_a_whole_lease_without_results_completes_its_members(scene: Scene):
    scene.set(members=2)
    scene.send([0, 1])
    leased = scene.lease(5)
    assert leased.runs == [(0, 2, 1)]
    scene.rig.settle(scene.work, Settle(0, leased.token, Verb.ACK), group=GROUP)
    assert scene.fired() == [[("completed", b"", ""), ("completed", b"", "")]]


def test_members_of_several_barriers_and_others_stand_beside_each_other(scene: Scene):
    scene.set(b"a", 1)
    scene.set(b"b", 2)
    scene.rig.produce(scene.work, [b"none"])
    scene.send([1], b"b")
    scene.send([0], b"a")
    scene.send([0], b"b")
    scene.work_off()
    assert scene.fired() == []
    scene.work_off(b"b1")
    scene.work_off(b"a0")
    assert scene.fired() == [[("completed", b"a0", "")]]
    scene.work_off(b"b0")
    assert scene.fired()[1:] == [[("completed", b"b0", ""), ("completed", b"b1", "")]]


def test_many_barriers_are_fired_that_are_ready_at_once(scene: Scene):
    count = 50
    for number in range(count):
        scene.set(b"%d" % number)
        scene.send([0], b"%d" % number)
    leased = scene.lease(count)
    scene.settle(leased, result=b"x")
    scene.rig.turn(30)
    assert len(scene.fired()) == count
    assert scene.rig.node.stats()["barriers.fired"] == count
    assert scene.rig.node.stats()["barriers.untold"] == 0


def test_nothing_is_appended_again_while_it_is_in_flight(scene: Scene):
    scene.set()
    scene.send([0])
    leased = scene.lease()
    scene.rig.store.hold = True
    request = scene.rig.next_request()
    scene.rig.send(m.SettleTasks(request, scene.work, GROUP, [Settle(0, leased.token, Verb.ACK)]))
    for _ in range(12):
        to(scene.rig, 1.0)
        for log in scene.rig.node.logs:
            log.sync()
            scene.rig.turn(1)
    scene.rig.store.hold = False
    scene.rig.sync()
    assert len(scene.fired()) == 1


def test_a_callback_that_cannot_be_appended_holds_up_no_other(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    for each in (b"a", b"b"):
        scene.set(each)
        scene.send([0], each)
    append = upkeep._append

    def refusing(partition: Any, barrier: Any, waiter: Any) -> None:
        if barrier.barrier == named(b"a"):
            raise BatchTooLarge("too large")
        append(partition, barrier, waiter)

    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "_append", refusing)
        scene.work_off(b"a")
        scene.work_off(b"b")
        assert scene.fired() == [[("completed", b"b", "")]]
    to(scene.rig, 1.0)
    assert scene.fired() == [[("completed", b"b", "")], [("completed", b"a", "")]]
    assert scene.listed() == []


# -- deleting ---------------------------------------------------------------------------------------


def test_a_deleted_barrier_appends_nothing_and_its_members_go_on(scene: Scene):
    scene.set(b"a", 3)
    scene.set(b"b")
    scene.send([0, 1], b"a")
    scene.send([0], b"b")
    scene.work_off(b"zero")
    before = scene.ask(1).why
    assert isinstance(scene.delete(b"a"), m.Done)
    assert before == f"{scene.ask(1).why}; barrier {named(b'a').hex()} waits for it, as for task 1"
    assert "barrier" in scene.ask(2).why
    assert [each.barrier for each in scene.listed()] == [named(b"b")]
    assert code(scene.send([2], b"a")) == "invalid_request"
    scene.work_off(b"one")
    scene.work_off(b"b")
    assert scene.fired() == [[("completed", b"b", "")]]
    assert not scene.state(scene.work).ties.open
    assert not scene.state(scene.work).ties.tellings
    assert scene.rig.node.stats()["barriers.deleted"] == 1
    scene.replays()
    scene.rig.restart(clean=False)
    assert scene.listed() == []


def test_a_member_does_not_wait_for_a_barrier_whose_topic_is_deleted(scene: Scene):
    scene.set()
    scene.send([0])
    assert "barrier" in scene.ask(0).why
    scene.rig.ask(m.DeleteTopic, scene.then)
    assert "barrier" not in scene.ask(0).why


def test_a_barrier_that_is_not_there_is_not_deleted(scene: Scene):
    scene.set()
    assert isinstance(scene.delete(), m.Done)
    answer = scene.delete()
    assert code(answer) == "unknown_barrier"
    assert named(b"b").hex() in answer.message
    assert code(scene.delete(topic=scene.work)) == "unknown_barrier"
    assert scene.rig.node.stats()["barriers.deleted"] == 1


def test_a_barrier_whose_record_is_on_its_way_is_not_deleted(scene: Scene):
    scene.set()
    scene.send([0])
    leased = scene.lease()
    request = scene.rig.next_request()
    scene.rig.send(m.SettleTasks(request, scene.work, GROUP, [Settle(0, leased.token, Verb.ACK)]))
    table = scene.rig.node._registry.topics.get(scene.then).partition(0)
    while table.latest.barriers.by_id:
        scene.rig.turn(1)
    assert table.committed.barriers.by_id
    assert code(scene.delete()) == "unknown_barrier"
    assert len(scene.fired()) == 1


def test_a_barrier_is_found_in_any_partition_of_its_topic():
    scene = Scene()
    scene.then = scene.rig.topic("wide", 3)
    for number in range(3):
        scene.set(b"%d" % number, number=number)
    assert isinstance(scene.delete(b"2"), m.Done)
    assert [each.partition for each in scene.listed()] == [0, 1]


def test_a_barrier_may_be_in_a_partition_that_cannot_be_opened():
    scene = Scene()
    scene.then = scene.rig.topic("wide", 2)
    topic = scene.rig.node._registry.topics.get(scene.then)
    scene.set()
    topic.readable.pop()
    topic.partitions[1] = Corrupt("no log")
    answer = scene.delete(b"other")
    assert code(answer) == "unavailable"
    assert "repair" in answer.message
    assert isinstance(scene.delete(), m.Done)


def test_a_damaged_partition_deletes_no_barrier(scene: Scene):
    scene.set()
    scene.rig.node._registry.topics.get(scene.then).partition(0).history.damaged = True
    assert code(scene.delete()) == "unavailable"


# -- ends ------------------------------------------------------------------------------------------


def fail(scene: Scene) -> None:
    """Both attempts of the next task fail."""
    for _ in range(2):
        scene.settle(scene.lease(), Verb.NACK, reason="boom")
        scene.rig.pass_time(0.1)


def run_out(scene: Scene) -> None:
    for _ in range(2):
        assert scene.lease().runs
        scene.rig.pass_time(61, step=1)


def cancel(scene: Scene) -> None:
    scene.rig.ask(m.CancelTask, scene.work, GROUP, 0, 0)


def cancel_leased(scene: Scene) -> None:
    leased = scene.lease()
    cancel(scene)
    assert not scene.state(scene.work).ties.tellings
    assert scene.state(scene.work).ties.open
    scene.settle(leased, Verb.NACK)


def discard(scene: Scene) -> None:
    scene.settle(scene.lease(), Verb.REJECT, reason="no")
    scene.rig.ask(m.DiscardDead, scene.work, GROUP, [(0, 0)])


def trim(scene: Scene) -> None:
    scene.rig.ask(m.Trim, scene.work, m.TrimRule.OFFSET, 1)


def trim_leased(scene: Scene) -> None:
    assert scene.lease().runs
    trim(scene)


def delete_record(scene: Scene) -> None:
    scene.rig.ask(m.DeleteRecords, scene.work, [(0, 0)])


def delete_queue(scene: Scene) -> None:
    scene.rig.ask(m.DeleteQueue, scene.work, GROUP)


def skip(scene: Scene) -> None:
    scene.rig.ask(m.ResetQueue, scene.work, GROUP, m.LATEST)


def delete_topic(scene: Scene) -> None:
    scene.rig.ask(m.DeleteTopic, scene.work)


def reject(scene: Scene) -> None:
    scene.settle(scene.lease(), Verb.REJECT, reason="no")


def take(scene: Scene) -> None:
    answer = scene.rig.lease(scene.work, GROUP, 1, takes=True)
    assert answer.runs


ENDS: dict[Callable[[Scene], None], tuple[str, str]] = {
    take: ("completed", ""),
    fail: ("dead", "boom"),
    run_out: ("dead", "the lease ran out"),
    reject: ("dead", "no"),
    cancel: ("cancelled", ""),
    cancel_leased: ("cancelled", ""),
    trim: ("deleted", ""),
    trim_leased: ("deleted", ""),
    delete_record: ("deleted", ""),
    delete_queue: ("deleted", ""),
    skip: ("deleted", ""),
    delete_topic: ("deleted", ""),
}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_barrier_of_ends_hears_each(scene: Scene, end: Callable[[Scene], None]):
    scene.set(ended=True)
    scene.send([0])
    end(scene)
    state, reason = ENDS[end]
    assert scene.fired() == [[(state, b"", reason)]]
    scene.replays()


@pytest.mark.parametrize("end", [each for each in ENDS if each is not take], ids=lambda end: end.__name__)
def test_a_barrier_of_completion_waits_and_says_for_what(scene: Scene, end: Callable[[Scene], None]):
    scene.set(members=2)
    scene.send([0])
    end(scene)
    if end not in (delete_queue, delete_topic):
        scene.send([1])
        scene.work_off(b"late")
    assert scene.fired() == []
    (stands,) = scene.listed()
    assert stands.holding == [(0, *ENDS[end])]
    assert stands.tasks == [("", 0, -1) if end is delete_topic else ("work", 0, 0)]
    scene.replays()


LATE = [START_US + 3_600_000_000] * 2


@pytest.mark.parametrize("how", [{"priorities": [3, 3]}, {"not_before": LATE}], ids=["urgent", "delayed"])
def test_members_with_a_priority_or_a_delay_are_skipped_like_others(scene: Scene, how: dict[str, list[int]]):
    scene.set(members=2, ended=True)
    assert isinstance(scene.send([0, 1], **how), m.Produced)
    skip(scene)
    assert scene.fired() == [[("deleted", b"", ""), ("deleted", b"", "")]]
    scene.replays()


@pytest.mark.parametrize("priority", [None, 3])
@pytest.mark.parametrize("restart", [False, True])
def test_a_dead_letter_that_is_redriven_lets_its_barrier_go_on(scene: Scene, restart: bool, priority: int | None):
    scene.set(members=2)
    scene.send([0, 1], priorities=None if priority is None else [priority] * 2)
    scene.work_off(b"zero")
    reject(scene)
    assert scene.fired() == []
    if restart:
        scene.rig.restart(clean=False)
    assert scene.listed()[0].holding == [(1, "dead", "no")]
    assert scene.listed()[0].tasks == [("work", 0, 1)]
    scene.rig.ask(m.RedriveDead, scene.work, GROUP, [(0, 1)])
    scene.work_off(b"one")
    assert scene.fired() == [[("completed", b"zero", ""), ("completed", b"one", "")]]
    assert not scene.state(scene.work).ties.open
    scene.replays()


def test_the_first_end_counts_where_ends_do(scene: Scene):
    scene.set(members=2, ended=True)
    scene.send([0, 1])
    reject(scene)
    scene.rig.ask(m.RedriveDead, scene.work, GROUP, [(0, 0)])
    scene.work_off(b"again")
    scene.work_off(b"one")
    assert scene.fired() == [[("dead", b"", "no"), ("completed", b"one", "")]]


def test_a_discarded_dead_letter_never_completes(scene: Scene):
    scene.set()
    scene.send([0])
    discard(scene)
    assert scene.fired() == []
    assert scene.listed()[0].holding == [(0, "discarded", "")]
    assert not scene.state(scene.work).ties.open


def test_a_dead_letter_is_told_once_whatever_else_happens_to_its_log(scene: Scene):
    scene.set(members=2)
    scene.send([0, 1])
    reject(scene)
    before = scene.state(scene.work).ties.last
    scene.rig.ask(m.DeleteRecords, scene.work, [(0, 1)])
    scene.rig.ask(m.ResetQueue, scene.work, GROUP, m.LATEST)
    assert scene.state(scene.work).ties.last == before + 1
    assert set(scene.state(scene.work).ties.open) == {0}


def test_a_dead_letter_is_told_of_no_more_when_others_die(scene: Scene):
    """Neither by another group that rejects the same record, nor by records of none."""
    scene.rig.ask(m.SetQueue, scene.work, "other", {})
    scene.set(members=2)
    scene.send([0])
    reject(scene)
    leased = scene.rig.lease(scene.work, "other", 1)
    scene.rig.settle(scene.work, Settle(0, leased.token, Verb.REJECT), group="other")
    scene.rig.produce(scene.work, [b"none"] * 3)
    leased = scene.lease(3)
    assert leased.runs == [(1, 3, 1)]
    scene.settle(leased, Verb.REJECT, reason="no")
    assert scene.state(scene.work).ties.last == 1


def test_a_cancelled_task_that_its_worker_finishes_has_completed(scene: Scene):
    scene.set()
    scene.send([0])
    leased = scene.lease()
    cancel(scene)
    scene.settle(leased, result=b"done all the same")
    assert scene.fired() == [[("completed", b"done all the same", "")]]


def test_another_group_of_the_topic_ends_nothing(scene: Scene):
    scene.rig.ask(m.SetQueue, scene.work, "other", {})
    scene.set(ended=True)
    scene.send([0])
    leased = scene.rig.lease(scene.work, "other", 1)
    scene.rig.settle(scene.work, Settle(0, leased.token, Verb.ACK), group="other")
    scene.rig.ask(m.DeleteQueue, scene.work, "other")
    assert scene.fired() == []
    scene.work_off(b"mine")
    assert scene.fired() == [[("completed", b"mine", "")]]


def test_a_delayed_member_that_was_not_begun_is_none_that_ended(scene: Scene):
    scene.set(members=2)
    scene.send([0, 1], not_before=[scene.rig.now.wall_us + 5_000_000, 0])
    scene.work_off(b"one")
    scene.rig.ask(m.ResetQueue, scene.work, GROUP, m.EARLIEST)
    assert scene.state(scene.work).ties.open.keys() == {0}
    scene.rig.pass_time(6)
    scene.settle(scene.lease(5), result=b"r")
    assert len(scene.fired()) == 1


def test_results_that_expire_were_told_before(scene: Scene):
    """The members' topic keeps finished tasks for a second."""
    rig = Rig(housekeeping_s=0.5)
    scene = Scene(rig, keep_finished_s=1.0)
    scene.set(members=2)
    scene.send([0, 1])
    scene.work_off(b"zero")
    rig.pass_time(30, step=0.5)
    assert scene.state(scene.work).first == 0
    scene.work_off(b"one")
    assert scene.fired() == [[("completed", b"zero", ""), ("completed", b"one", "")]]
    rig.pass_time(30, step=0.5)
    assert scene.state(scene.work).first == 2
