"""Lent logs beside what else the broker does: rights of principals and checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.rights import EVERYTHING, Grant, Principal
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.direct import Direct, Scene


def user(name: str, *allowed: str) -> Principal:
    """A principal by operations on topic t."""
    return Principal(name, [Grant(False, frozenset(allowed), "topic:t")])


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def topic(scene: Scene) -> bytes:
    return scene.topic()


def ask(scene: Scene, principal: Principal, message: Any, payload: bytes = b"", peer: str = "direct") -> Any:
    """The answer to one request of a principal, after a turn."""
    scene.core.node.receive(peer, message, payload, scene.core.now, principal)
    scene.core.turn()
    return scene.core.answer(message.request)


def lend(topic: bytes, request: int, sequence: int = 0) -> m.Lend:
    return m.Lend(request, topic, 0, 77, 0, sequence)


def test_a_log_is_lent_to_those_who_may_write_its_topic(scene: Scene, topic: bytes) -> None:
    assert ask(scene, user("ann", "read"), lend(topic, 901)).code == "forbidden"
    assert isinstance(ask(scene, user("ann", "write"), lend(topic, 902)), m.Lent)


def test_what_is_forbidden_takes_no_log_back(scene: Scene, topic: bytes) -> None:
    assert isinstance(ask(scene, user("ann", "write"), lend(topic, 901)), m.Lent)
    bad = ask(scene, user("bob", "read"), m.Produce(902, topic, 0), bytes(encode([b"x"])), "other")
    assert (bad.code, scene.lent(), scene.core.node.guard.refused) == ("forbidden", 1, 1)
    assert isinstance(
        ask(scene, user("bob", "write"), m.Produce(903, topic, 0), bytes(encode([b"x"])), "other"), m.Produced
    )
    assert scene.lent() == 0


def test_a_message_that_waits_is_handled_on_behalf_of_its_principal(
    scene: Scene, topic: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one asks meanwhile; sessions and lists go by the principal whose request is handled."""
    direct = Direct(scene, topic)
    assert isinstance(direct.ask(), m.Lent)
    assert direct.stop_at(b"held", 3)
    ann, bob = Principal("ann", EVERYTHING), user("bob", "read")
    node, now = scene.core.node, scene.core.now
    node.receive("ann", m.SetSchedule(901, topic, "s", "every 30s", "UTC", b""), b"", now, ann)
    node.receive("bob", m.ListTopics(902, []), b"", now, bob)
    assert scene.core.answer(901) is None
    seen: list[str] = []
    check = node.guard.check

    def asked(principal: Principal, message: Any) -> None:
        seen.append(principal.name)
        check(principal, message)

    monkeypatch.setattr(node.guard, "check", asked)
    for _ in range(4):
        scene.wait(1.1)
    assert isinstance(scene.core.answer(901), m.Schedules), scene.core.answer(901)
    assert seen == ["ann"]


def test_a_grant_ends_when_its_producer_may_not_write_any_more(scene: Scene, topic: bytes) -> None:
    assert isinstance(ask(scene, user("ann", "write"), lend(topic, 901)), m.Lent)
    node = scene.core.node
    node.judge(lambda name: user(name, "write"))
    assert scene.lent() == 1
    node.judge(lambda name: user(name, *(["read"] if name == "ann" else ["write"])))
    assert scene.lent() == 0
    assert ask(scene, user("ann", "read"), lend(topic, 902)).code == "forbidden"


def test_no_grant_follows_the_end_of_the_right_to_write(scene: Scene, topic: bytes) -> None:
    """A log that has to begin a term first is lent after a commit, and rights may change in between."""
    node, core = scene.core.node, scene.core
    node.receive("direct", lend(topic, 901), b"", core.now, user("ann", "write"))
    assert core.answer(901) is None
    node.judge(lambda name: user(name, "read"))
    core.turn()
    assert (core.answer(901).code, scene.lent()) == ("not_lent", 0)
    assert isinstance(ask(scene, user("bob", "write"), m.Lend(902, topic, 0, 78, 0, 0), peer="other"), m.Lent)


def test_a_producer_gives_back_what_it_may_not_write_any_more(scene: Scene, topic: bytes) -> None:
    number = ask(scene, user("ann", "write"), lend(topic, 901)).number
    scene.core.node.receive("direct", m.GiveBack(topic, 0, number), b"", scene.core.now, user("ann"))
    assert scene.lent() == 0


def places(scene: Scene) -> tuple[int, ...]:
    """The last batches of all logs of topics, by a checkpoint at this moment: there is no turn in between."""
    request = scene.core.send(m.Checkpoint, peer="backup")
    return tuple(each.seq for each in scene.core.answer(request).logs[1:])


def test_a_checkpoint_is_behind_all_that_was_acknowledged_and_ends_grants(scene: Scene) -> None:
    topics = [scene.topic("a"), scene.topic("b")]
    producers = [Direct(scene, topic) for topic in topics]
    for producer in producers:
        assert isinstance(producer.ask(), m.Lent)
    before = places(scene)
    assert scene.lent() == 0
    for producer in producers:
        assert not producer.append(b"no more")
        producer.sequence -= 1
        assert isinstance(producer.ask(), m.Lent), "a checkpoint writes nothing"
        assert producer.append(b"x")
    assert sorted(places(scene)) == sorted(seq + 1 for seq in before)


def test_a_checkpoint_waits_for_a_stopped_producer_and_then_goes_on_without_it(scene: Scene, topic: bytes) -> None:
    direct = Direct(scene, topic)
    assert isinstance(direct.ask(), m.Lent)
    assert direct.append(b"first")
    assert direct.stop_at(b"held", 3)
    request = scene.core.send(m.Checkpoint, peer="backup")
    scene.core.turn()
    assert scene.core.answer(request) is None
    for _ in range(3):
        scene.wait(1.1)
    assert scene.lent() == 0
    (place,) = scene.core.answer(request).logs[1:]
    assert scene.read(topic) == [b"first"]
    assert place.seq == scene.core.node.logs[1].committed


def test_a_log_is_lent_to_the_owner_of_its_producer_alone(scene: Scene, topic: bytes) -> None:
    """Else another user could take the producer's next sequence by appending it directly."""
    ann, bob = user("ann", "write"), user("bob", "write")
    lent = ask(scene, ann, lend(topic, 901))
    scene.core.node.receive("direct", m.GiveBack(topic, 0, lent.number), b"", scene.core.now, ann)
    stolen = ask(scene, bob, lend(topic, 903), peer="other")
    assert (stolen.code, scene.lent()) == ("forbidden", 0)
    taken = ask(scene, bob, m.Produce(904, topic, 0), bytes(encode([b"x"], producer_id=77)), "other")
    assert taken.code == "forbidden"
    assert isinstance(ask(scene, ann, lend(topic, 905)), m.Lent)
