"""Topics: created, altered, deleted and found again; and what a damaged catalogue must not do."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine import TopicSettings
from penstock.broker.engine.logs import topic_page
from penstock.storage.batch import encode
from penstock.storage.errors import Corrupt, StorageFull
from penstock.transport import messages as m
from support.engine import Rig


def failure(answer: object) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


def names(rig: Rig) -> list[str]:
    return [topic.name for topic in rig.ask(m.ListTopics, []).topics]


def test_a_created_topic_is_described_and_survives():
    rig = Rig(endpoint="tcp://here:1")
    answer = rig.ask(m.CreateTopic, "flights", 2, {"commit": "written", "retention_s": 60})
    (topic,) = answer.topics
    assert (topic.name, len(topic.topic), topic.settings["commit"], topic.settings["retention_s"]) == (
        "flights", 16, "written", 60.0,
    )  # fmt: skip
    assert [(p.partition, p.endpoint, p.first, p.end, p.segments, p.row, p.state) for p in topic.partitions] == [
        (n, "tcp://here:1", 0, 0, 1, -1, "ok") for n in range(2)
    ]
    assert len({p.log_id for p in topic.partitions}) == 2
    for clean in (True, False):
        rig.restart(clean=clean)
        assert rig.ask(m.ListTopics, ["flights"]).topics[0].settings == topic.settings


def test_a_topic_exists_only_when_it_is_logged_durably():
    rig = Rig()
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.CreateTopic(request, "t", 1, {}))
    rig.turn()
    assert (rig.answers(request), names(rig)) == ([], [])
    late = rig.next_request()
    rig.send(m.CreateTopic(late, "t", 1, {}))
    rig.turn()
    assert rig.answers(late) == [], "the name is taken already, and who heard so would not find the topic"
    rig.sync()
    assert (len(rig.answers(request)), names(rig)) == (1, ["t"])
    assert [failure(answer) for answer in rig.answers(late)] == ["topic_exists"]


@pytest.mark.parametrize(
    ("name", "partitions", "settings", "code"),
    [
        (".hidden", 1, {}, "invalid_topic"),
        ("__txn", 1, {}, "invalid_topic"),
        ("a/b", 1, {}, "invalid_topic"),
        ("t", 0, {}, "invalid_request"),
        ("t", 100_000, {}, "invalid_request"),
        ("t", 1, {"comit": "durable"}, "invalid_settings"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_leaves_nothing(
    name: str, partitions: int, settings: dict[str, Any], code: str
):
    rig = Rig()
    before = set(rig.store.files.contents)
    assert failure(rig.ask(m.CreateTopic, name, partitions, settings)) == code
    assert set(rig.store.files.contents) == before


def test_topics_are_bounded():
    rig = Rig(max_topics=2)
    rig.topic("a"), rig.topic("b")
    assert failure(rig.ask(m.CreateTopic, "c", 1, {})) == "limit_reached"


def test_a_full_disk_while_creating_leaves_nothing():
    rig = Rig()
    create, made = rig.store.create, []

    def fails_at_third(topic: bytes, partition: int, settings: Any) -> Any:
        if partition == 2:
            raise StorageFull("no space")
        made.append(partition)
        return create(topic, partition, settings)

    rig.store.create = fails_at_third
    assert failure(rig.ask(m.CreateTopic, "t", 4, {})) == "storage_full"
    assert (made, names(rig), len(rig.store.deleted), len(rig.node.logs)) == ([0, 1], [], 1, 1)
    rig.store.create = create
    assert rig.topic("t", 4)


def test_a_topic_is_altered_and_stays_so():
    rig = Rig()
    topic = rig.topic(max_record_bytes=100)
    assert failure(rig.produce(topic, [b"x" * 200])) == "record_too_large"
    answer = rig.ask(m.AlterTopic, topic, {"max_record_bytes": 1000})
    assert answer.topics[0].settings["max_record_bytes"] == 1000
    assert rig.produce(topic, [b"x" * 200]).offset == 0
    rig.restart(clean=False)
    assert rig.produce(topic, [b"x" * 200]).offset == 1
    assert failure(rig.ask(m.AlterTopic, topic, {"commit": "written"})) == "invalid_settings"
    assert failure(rig.ask(m.AlterTopic, b"?" * 16, {})) == "unknown_topic"


def test_a_topic_grows_under_its_readers_and_does_not_shrink():
    rig = Rig()
    topic = rig.topic(partitions=2)
    member, alone = rig.join(topic, "g", "a"), rig.join(topic)
    assert len(rig.ask(m.AlterTopic, topic, {}, 4).topics[0].partitions) == 4
    assert failure(rig.ask(m.AlterTopic, topic, {}, 3)) == "invalid_request"
    rig.produce(topic, [b"new"], 3)
    assert sorted(rig.assigned(member)) == sorted(rig.assigned(alone)) == [0, 1, 2, 3]
    assert rig.received(member) == rig.received(alone) == [b"new"]
    rig.restart()
    assert rig.read(topic, 3) == [b"new"]


def test_a_topic_that_grows_or_goes_is_no_matter_of_another_ones_sessions():
    rig = Rig()
    topic, other = rig.topic(), rig.topic("other")
    joined = rig.join(other)
    rig.ask(m.AlterTopic, topic, {}, 2)
    rig.ask(m.DeleteTopic, topic)
    rig.produce(other, [b"1"])
    assert (rig.told(joined.session), rig.received(joined)) == ([joined], [b"1"])


def test_a_deleted_topic_is_gone_with_its_files_and_its_users_are_told():
    rig = Rig()
    topic = rig.topic(partitions=2)
    rig.produce(topic, [b"x"])
    joined = rig.join(topic, "g", "a")
    assert rig.fetch(topic, 1, wait_ms=1000) is None
    fetch = rig._request
    assert rig.ask(m.DeleteTopic, topic).request
    assert rig.told(joined.session)[-1].code == "unknown_topic"
    assert failure(rig.answers(fetch)[0]) == "unknown_topic"
    assert (names(rig), rig.store.deleted, rig.port.open) == ([], [topic], set())
    assert failure(rig.produce(topic, [b"x"])) == "unknown_topic"
    again = rig.topic()
    assert again != topic, "a recreated topic is another topic"
    assert rig.read(again) == []
    rig.restart(clean=False)
    assert (names(rig), len(rig.store.deleted)) == (["t"], 1)


def test_what_waits_in_a_topic_that_is_deleted_is_answered():
    rig = Rig()
    topic = rig.topic()
    rig.store.hold = True
    produce, delete = rig.next_request(), rig.next_request()
    rig.send(m.Produce(produce, topic, 0), bytes(encode([b"x"])))
    rig.send(m.DeleteTopic(delete, topic))
    rig.turn()
    rig.node.logs[0].sync()
    rig.turn()
    assert rig.answers(delete) == [m.Done(delete)]
    assert failure(rig.answers(produce)[0]) == "unknown_topic"


def test_nothing_is_appended_to_a_topic_behind_its_deletion_unless_that_is_not_committed(monkeypatch):
    rig = Rig()
    topic = rig.topic()
    catalogue, log = rig.node.logs
    append = catalogue.append

    def refuse(batches, now_us):
        raise StorageFull("no room")

    def asked() -> tuple[Any, Any]:
        delete, produce = rig.next_request(), rig.next_request()
        rig.send(m.DeleteTopic(delete, topic))
        rig.send(m.Produce(produce, topic, 0), bytes(encode([b"x"])))
        rig.turn()
        return rig.answers(delete)[0], rig.answers(produce)[0]

    monkeypatch.setattr(catalogue, "append", refuse)
    deleted, produced = asked()
    assert (failure(deleted), produced.offset) == ("storage_full", 0)
    written = log.written
    monkeypatch.setattr(catalogue, "append", append)
    deleted, produced = asked()
    assert (deleted.request, failure(produced), log.written) == (deleted.request, "unknown_topic", written)
    assert not rig.node._office.overlays._halted


def test_a_topic_that_is_deleted_while_it_is_described_is_unknown_or_left_out_of_all():
    rig = Rig()
    topic, _ = rig.topic("a", partitions=60), rig.topic("b")
    one, all_ = rig.next_request(), rig.next_request()
    rig.send(m.ListTopics(one, ["a"])), rig.send(m.ListTopics(all_, []), peer="all")
    rig.turn(1)
    assert not rig.answers(one) + rig.answers(all_)
    rig.ask(m.DeleteTopic, topic, peer="other")
    (refused,), (listed,) = rig.answers(one), rig.answers(all_)
    assert (refused.code, refused.message) == ("unknown_topic", "topic a was deleted meanwhile")
    assert [each.name for each in listed.topics] == ["b"]


def test_all_topics_come_in_pages_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_page, "PAGE", 3)
    rig = Rig()
    for name, partitions in (("a", 1), ("b", 1), ("d", 4), ("c", 2), ("e", 1)):
        rig.topic(name, partitions=partitions)

    def page(after: str) -> tuple[list[str], str]:
        answer = rig.ask(m.ListTopics, [], after)
        return [topic.name for topic in answer.topics], answer.next

    assert [page(after) for after in ("", "c", "d", "bb", "z")] == [
        (["a", "b", "c"], "c"), (["d"], "d"), (["e"], ""), (["c", "d"], "d"), ([], ""),
    ]  # fmt: skip
    rig.topic("f")
    rig.ask(m.DeleteTopic, rig.ask(m.ListTopics, ["e"]).topics[0].topic)
    assert page("d") == (["f"], ""), "as they are now"


def test_groups_and_queues_of_all_topics_come_in_pages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_page, "PAGE", 5)
    rig = Rig()
    for name, partitions, of_tasks, of_consumers in (
        ("b", 2, "qr", "x"),
        ("a", 1, "", "yz"),
        ("c", 9, "q", ""),
        ("d", 1, "s", ""),
    ):
        topic = rig.topic(name, partitions=partitions)
        for queue in of_tasks:
            rig.ask(m.SetQueue, topic, queue, {})
        for group in of_consumers:
            rig.ask(m.Commit, 0, topic, group, [m.Position(0, 0, 0)])

    def queues(after: str, group: str = "") -> tuple[list[str], str]:
        answer = rig.ask(m.ListQueues, b"", group, after)
        return [f"{each.topic_name}/{each.group}" for each in answer.queues], answer.next

    def groups(after: str) -> tuple[list[str], str]:
        answer = rig.ask(m.ListGroups, b"", after)
        return [f"{each.topic_name}/{each.group}" for each in answer.groups], answer.next

    assert [queues(after) for after in ("", "b", "c")] == [
        (["b/q", "b/r"], "b"), (["c/q"], "c"), (["d/s"], ""),
    ]  # fmt: skip
    assert queues("", "q") == (["b/q", "c/q"], "c")
    assert [groups(after) for after in ("", "b")] == [(["a/y", "a/z", "b/x"], "b"), ([], "")]
    assert rig.ask(m.ListQueues, topic).next == "", "of one topic all are told at once"


def test_a_deletion_that_was_cut_short_is_finished_at_the_next_start():
    rig = Rig()
    topic = rig.topic()
    delete, rig.store.delete = rig.store.delete, lambda _: None
    rig.ask(m.DeleteTopic, topic)
    rig.store.delete = delete
    path = rig.store.directory(topic, 0)
    assert rig.store.files.exists(path)
    # The tombstone was logged; that it was carried out was not, because the node died before.
    history = rig.node._registry.catalogue
    rig.store.hold = True
    history.committed.tombstones[topic] = None
    rig.store.save_snapshot(history.log, history.committed.seq, history.committed.term, history.committed.encode())
    rig.store.hold = False
    rig.restart(clean=False)
    assert not rig.store.files.exists(path)
    assert rig.node._registry.catalogue.committed.tombstones == {}


def test_an_unknown_name_is_named():
    rig = Rig()
    answer = rig.ask(m.ListTopics, ["nowhere"])
    assert (failure(answer), "'nowhere'" in answer.message) == ("unknown_topic", True)


# -- when things are lost ---------------------------------------------------------------------------


def test_files_that_no_topic_names_are_left_alone():
    rig = Rig()
    stray = bytes(range(16))
    rig.store.create(stray, 0, TopicSettings()).close()
    rig.restart(clean=False)
    assert names(rig) == []
    assert rig.store.deleted == []
    assert any(stray.hex() in name for name in rig.store.files.contents)


def test_a_lost_catalogue_gives_no_topic_up():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"precious"])
    for name in [name for name in rig.store.files.contents if name.startswith("data/metadata/")]:
        del rig.store.files.contents[name]
    with pytest.raises(Corrupt, match="data/metadata is gone though data/topics has topics"):
        rig.restart(clean=False)
    assert rig.store.deleted == []
    assert any(topic.hex() in name for name in rig.store.files.contents)


def test_a_damaged_catalogue_serves_what_can_be_read_and_changes_nothing():
    rig = Rig()
    for name in ("one", "two", "three"):
        rig.topic(name)
    (segment,) = [name for name in rig.store.files.contents if name.startswith("data/metadata/") and "segment" in name]
    data = rig.store.files.contents[segment].data
    data[data.index(b"two")] ^= 0xFF
    rig.node.logs[0].close(clean=False)
    rig.restart(clean=False)
    assert "three" in names(rig)
    assert "two" not in names(rig)
    assert rig.store.deleted == []
    topic = rig.ask(m.ListTopics, ["one"]).topics[0].topic
    assert rig.produce(topic, [b"x"]).offset == 0
    for answer in (rig.ask(m.CreateTopic, "four", 1, {}), rig.ask(m.DeleteTopic, topic)):
        assert (failure(answer), "damaged" in answer.message) == ("unavailable", True)


def test_a_partition_whose_files_are_missing_is_reported_and_the_others_serve():
    rig = Rig()
    topic = rig.topic(partitions=3)
    rig.produce(topic, [b"x"], 2)
    rig.store.files.remove_tree(rig.store.directory(topic, 1))
    rig.restart(clean=False)
    assert [p.state for p in rig.ask(m.ListTopics, []).topics[0].partitions] == ["ok", "damaged", "ok"]
    assert rig.read(topic, 2) == [b"x"]
    answer = rig.produce(topic, [b"x"], 1)
    assert (failure(answer), "partition 1 of topic t" in answer.message) == ("unavailable", True)
    joined = rig.join(topic, "g", "a")
    assert sorted(rig.assigned(joined)) == [0, 2]


# -- hello and stats --------------------------------------------------------------------------------


def test_hello_agrees_on_the_newest_version_both_speak_and_says_who_we_are():
    rig = Rig(node="n", cluster="c", boot_id="b", data="/d", board="/board", newest_version=3)
    welcome = rig.ask(m.Hello, 1, 2, "test")
    assert (welcome.version, welcome.node, welcome.cluster, welcome.boot_id) == (2, "n", "c", "b")
    assert (welcome.data, welcome.board, welcome.max_record_bytes) == ("/d", "/board", 16 << 20)
    before = welcome.incarnation
    rig.restart()
    assert rig.ask(m.Hello, 1, 9, "test").version == 3
    assert rig.ask(m.Hello, 1, 9, "test").incarnation != before


@pytest.mark.parametrize(("oldest", "newest"), [(4, 9), (0, 0)])
def test_without_a_common_version_both_ranges_are_named(oldest: int, newest: int):
    rig = Rig(newest_version=3)
    answer = rig.ask(m.Hello, oldest, newest, "test")
    assert failure(answer) == "unsupported_version"
    assert f"{oldest} to {newest}" in answer.message
    assert "1 to 3" in answer.message


def test_stats_count_what_happened():
    rig = Rig()
    topic = rig.topic(partitions=3)
    rig.produce(topic, [b"a", b"b"])
    rig.produce(topic, [b"a"], 9)
    rig.join(topic)
    values = rig.ask(m.Stats).values
    expected = {
        "topics": 1, "partitions": 3, "produce.batches": 1, "produce.records": 2, "failures": 1, "sessions.open": 1,
        "partitions.poisoned": 0, "partitions.damaged": 0, "batches.in_flight": 0,
    }  # fmt: skip
    assert {name: values[name] for name in expected} == expected
