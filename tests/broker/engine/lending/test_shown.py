"""What a partition says of its lending: to which producer it is lent, and what came of its grants."""

from __future__ import annotations

import pytest
from penstock.transport import messages as m
from support.direct import Direct, Scene
from support.samples import TOPIC


def shown(scene: Scene, name: str = "t") -> list[tuple[str, int, int, int]]:
    found = scene.core.ask(lambda request: m.ListTopics(request, [name]))
    return [(each.lent_to, each.lent_process, each.borrowed, each.recalled) for each in found.topics[0].partitions]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_lent_partition_names_its_producer_until_it_is_taken_back(scene: Scene) -> None:
    topic = scene.topic(partitions=2)
    assert shown(scene) == [("", 0, 0, 0)] * 2
    direct = Direct(scene, topic, 1, producer=0xABC)
    assert isinstance(direct.ask(process=4711), m.Lent)
    assert direct.append(b"x")
    assert shown(scene) == [("", 0, 0, 0), ("abc", 4711, 0, 0)]
    direct.produce(b"y")
    scene.core.turn()
    assert shown(scene) == [("", 0, 0, 0), ("", 0, 0, 1)]
    assert isinstance(direct.ask(), m.Lent)
    assert shown(scene)[1] == ("abc", 0, 0, 1)


def test_a_producer_with_a_name_is_called_by_it(scene: Scene) -> None:
    topic = scene.topic()
    opened = scene.core.ask(lambda request: m.OpenProducer(request, topic, 0, "feed"))
    named = Direct(scene, topic, producer=opened.producer_id, epoch=opened.epoch)
    assert isinstance(named.ask(process=7), m.Lent)
    assert shown(scene) == [("feed", 7, 0, 0)]
    named.gone()
    assert shown(scene) == [("", 0, 0, 1)]


def test_each_commit_of_a_group_borrows_the_log(scene: Scene) -> None:
    topic = scene.topic(partitions=2)
    lanes = [Direct(scene, topic, number, producer=70 + number) for number in range(2)]
    for direct in lanes:
        assert isinstance(direct.ask(), m.Lent)
        assert direct.append(b"x")
    core, before = scene.core, shown(scene)
    core.ask(lambda request: m.Commit(request, 0, topic, "g", [m.Position(1, 1, 0)]), peer="reader")
    assert [now[2] - then[2] for now, then in zip(shown(scene), before, strict=True)] == [0, 1]
    assert core.node.stats()["lending.borrowed"] == sum(each[2] for each in shown(scene))
    assert [each[3] for each in shown(scene)] == [0, 0]


def test_a_broker_that_is_started_again_counts_anew(scene: Scene) -> None:
    topic = scene.topic()
    direct = Direct(scene, topic)
    direct.ask()
    direct.produce(b"x")
    scene.core.turn()
    assert shown(scene) == [("", 0, 0, 1)]
    scene.restart()
    assert shown(scene) == [("", 0, 0, 0)]


def test_messages_of_older_versions_leave_it_out() -> None:
    assert m.Lend(1, TOPIC, 0, 5, 0, 0).process == 0
    old = m.Partition(0, "", bytes(16), 3, 0, 1000, 65536, 1, "/data/topics/00/0", 7, "ok", "")
    assert (old.lent_to, old.lent_process, old.borrowed, old.recalled) == ("", 0, 0, 0)
