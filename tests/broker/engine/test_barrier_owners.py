"""Barriers belong to the user that sets them, and lists show what their reader may see."""

from __future__ import annotations

from penstock.broker.engine.tables import effects as fx
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.barriers import Scene
from support.dead import opened

from .test_guard import code, user


def test_users_send_members_of_their_own_barriers_alone():
    scene = Scene()
    rig, ann, bob = scene.rig, user("ann", "write,read *"), user("bob", "write,read *")
    rig.principal = ann
    assert isinstance(scene.set(), m.Done)
    rig.principal = bob
    assert code(scene.send([0])) == "forbidden"
    assert not rig.read(scene.work)
    rig.principal = ann
    assert isinstance(scene.send([0]), m.Produced)
    scene.work_off()
    assert len(scene.fired()) == 1


def test_a_barrier_needs_write_on_the_topic_of_its_callback():
    scene = Scene()
    scene.rig.principal = user("ann", "write topic:work", "read topic:then")
    assert code(scene.set()) == "forbidden"
    scene.rig.principal = user("ann", "write topic:then")
    assert isinstance(scene.set(), m.Done)


def test_a_barrier_whose_members_their_user_may_not_send_is_not_set():
    scene = Scene()
    scene.rig.principal = user("ann", "write topic:then", "read topic:work")
    queues = [m.MemberQueue(scene.work, "g")]
    assert code(scene.set(queues=queues)) == "forbidden"
    scene.rig.principal = user("ann", "write topic:then", "write topic:work")
    assert isinstance(scene.set(queues=queues), m.Done)


def test_a_barrier_is_deleted_by_its_user_or_one_that_may_manage_its_topic():
    scene = Scene()
    rig, ann, bob = scene.rig, user("ann", "write *"), user("bob", "write,read *")
    rig.principal = ann
    scene.set(b"a")
    scene.set(b"b")
    rig.principal = user("eve", "read *")
    assert code(scene.delete(b"a")) == "forbidden"
    rig.principal = bob
    assert code(scene.delete(b"a")) == "forbidden"
    assert len(scene.listed()) == 2
    rig.principal = ann
    assert isinstance(scene.delete(b"a"), m.Done)
    rig.principal = user("bob", "write,read *", "manage topic:then")
    assert isinstance(scene.delete(b"b"), m.Done)
    assert scene.listed() == []


def test_a_list_has_what_its_reader_may_see():
    scene = Scene()
    scene.set()
    scene.rig.principal = user("ann", "read topic:work")
    assert scene.listed() == []
    scene.rig.principal = user("ann", "read topic:then")
    assert len(scene.listed()) == 1


def test_a_list_names_tasks_of_topics_that_its_reader_may_see():
    scene = Scene()
    scene.set()
    scene.send([0])
    scene.settle(scene.lease(), Verb.REJECT, reason="no")
    for grants, tasks in ((["read topic:then"], [("", 0, -1)]), (["read *"], [("work", 0, 0)])):
        scene.rig.principal = user("ann", *grants)
        (stands,) = scene.listed()
        assert (stands.holding, stands.tasks) == ([(0, "dead", "no")], tasks)


def test_a_task_that_is_not_known_is_not_named():
    scene = Scene()
    scene.set()
    word = fx.BarrierTold(scene.listed()[0].barrier, [(0, "dead", b"", "no")], [(scene.work, 0, -1)])
    opened(scene.rig, scene.then).propose(word)
    scene.rig.turn()
    assert scene.listed()[0].tasks == [("", 0, -1)]
