"""Who gets a grant, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from penstock.broker.engine.lending.conditions import BESIDE, named
from penstock.broker.engine.lending.lending import AHEAD_US
from penstock.storage.batch import encode
from penstock.storage.lending import appending
from penstock.storage.lending.grant import GOOD_S
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.direct import Direct, Scene
from support.samples import REQUESTS
from support.staging import staged

OTHER = {"peer": "other"}


def other(scene: Scene, topic: bytes, value: bytes = b"other", partition: int = 0) -> int:
    """Another producer sends a record."""
    return scene.core.send(lambda request: m.Produce(request, topic, partition), bytes(encode([value])), peer="other")


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def topic(scene: Scene) -> bytes:
    return scene.topic()


@pytest.fixture
def direct(scene: Scene, topic: bytes) -> Direct:
    """A producer that has a grant, and one record in the log."""
    found = Direct(scene, topic)
    assert isinstance(found.ask(), m.Lent)
    assert found.append(b"first")
    return found


def test_a_grant_is_said_by_the_words_of_the_row(scene: Scene, direct: Direct) -> None:
    assert direct.grant is not None
    assert scene.row().lent == direct.grant.number < 1 << 62
    assert direct.grant.incarnation == scene.core.board.incarnation
    assert scene.core.node.stats()["lending.given"] == 1


@pytest.mark.parametrize(
    ("settings", "prepare", "why"),
    [
        ({"commit": "durable"}, None, "durable"),
        ({}, lambda request, topic: m.SetQueue(request, topic, "g", {}), "queue groups"),
        ({}, lambda request, topic: m.SetSchedule(request, topic, "s", "every 30s", "UTC", b""), "schedules"),
        ({}, lambda request, topic: m.SetBarrier(request, topic, 0, bytes(16), 1, False), "barriers"),
        ({}, bytes(staged([b"x"], 3)), "transaction"),
        ({}, bytes(encode([b"x"], dedup=[b"d" * 16])), "dedup"),
    ],
)  # fmt: skip
def test_what_has_more_than_records_and_cursors_is_not_lent(
    scene: Scene, settings: dict[str, str], prepare: Callable[[int, bytes], m.Request] | bytes | None, why: str
) -> None:
    topic = scene.topic(**settings)
    if isinstance(prepare, bytes):
        assert isinstance(scene.core.ask(lambda request: m.Produce(request, topic, 0), prepare), m.Produced)
    elif prepare is not None:
        assert isinstance(scene.core.ask(lambda request: prepare(request, topic)), m.Queues | m.Schedules | m.Done)
    answer = Direct(scene, topic).ask()
    assert (answer.code, answer.retry) == ("not_lent", True)
    assert why in answer.message


def test_a_node_without_other_processes_lends_nothing() -> None:
    from support.core import Core
    from support.writeback import WritebackFiles

    scene = Scene()
    scene.core = Core(WritebackFiles())
    assert "does not lend" in Direct(scene, scene.topic()).ask().message


def test_a_producer_is_lent_to_at_the_place_where_it_is(scene: Scene, topic: bytes) -> None:
    direct = Direct(scene, topic)
    direct.send(b"a")
    assert "already" in direct.ask(next_sequence=0).message
    assert direct.ask(next_sequence=2).code == "not_lent"
    assert direct.ask(producer_id=5).code == "unknown_producer"
    assert direct.ask(producer_id=0, next_sequence=0).code == "invalid_request"
    assert direct.ask(epoch=1).code == "unknown_producer"
    assert isinstance(direct.ask(), m.Lent)


def test_a_named_producer_that_was_opened_again_gets_none(scene: Scene, topic: bytes) -> None:
    claimed = [scene.core.ask(lambda request: m.OpenProducer(request, topic, 0, "p")) for _ in range(2)]
    old, new = (Direct(scene, topic, producer=each.producer_id, epoch=each.epoch) for each in claimed)
    assert old.ask().code == "fenced"
    assert isinstance(new.ask(), m.Lent)
    assert new.append(b"x")


def test_a_log_is_lent_to_one_producer_at_a_time(scene: Scene, topic: bytes, direct: Direct) -> None:
    second = Direct(scene, topic, producer=5, peer="second")
    assert "another producer" in second.ask().message
    assert direct.append(b"still mine")


def test_nothing_is_lent_while_the_catalogue_changes(scene: Scene, topic: bytes) -> None:
    scene.core.hold = True
    scene.core.send(lambda request: m.DeleteTopic(request, topic))
    scene.core.turn()
    assert "something else" in Direct(scene, topic).ask().message


def test_a_log_is_lent_once_what_is_queued_stands_in_it(scene: Scene, topic: bytes) -> None:
    """A group that commits all the time is in no producer's way."""
    direct = Direct(scene, topic)
    assert direct.send(b"a") is False
    for value in (b"b", b"c"):
        scene.core.send(lambda request: m.ResetGroup(request, topic, "g", 0, [(0, 0)]))
        assert isinstance(direct.ask(), m.Lent)
        assert direct.append(value)
        direct.end()
        other(scene, topic)
    assert isinstance(direct.ask(), m.Lent)
    assert direct.append(b"d")
    assert scene.read(topic) == [b"a", b"b", b"other", b"c", b"other", b"d"]


def test_what_is_queued_may_be_what_a_log_is_not_lent_with(scene: Scene, topic: bytes) -> None:
    scene.core.send(lambda request: m.SetQueue(request, topic, "g", {}))
    assert "queue groups" in Direct(scene, topic).ask().message


def test_what_is_not_synced_yet_is_synced_first(scene: Scene, topic: bytes) -> None:
    scene.core.hold = True
    direct = Direct(scene, topic)
    direct.send(b"a")
    log = scene.core.node.logs[1]
    assert log.durable < log.written
    assert isinstance(direct.ask(), m.Lent)
    assert log.durable == log.written


def test_what_a_producer_appends_is_read_at_once(scene: Scene, topic: bytes, direct: Direct) -> None:
    for number in range(3):
        assert direct.append(b"%d" % number)
        assert scene.read(topic) == direct.acked
    assert scene.row().written == scene.row().appended
    assert scene.lent() == 1


@pytest.mark.parametrize("phase", ["advance", "tick"])
def test_waiting_readers_are_answered_without_a_message(scene: Scene, topic: bytes, direct: Direct, phase: str) -> None:
    scene.read(topic)
    core = scene.core
    request = core.send(lambda request: m.Fetch(request, topic, 0, 1, -1, 1 << 20, 60_000))
    direct.append(b"new")
    getattr(core.node, phase)(core.now)
    core.node.advance(core.now)
    assert core.answer(request).next_offset == 2


def test_what_was_followed_becomes_durable(scene: Scene, direct: Direct) -> None:
    direct.append(b"new")
    log = scene.core.node.logs[1]
    for _ in range(4):
        scene.wait(1.0)
    assert scene.lent() == 1
    assert log.durable == log.written == 3  # the first is empty: it begins a term


def test_another_writer_ends_a_grant_and_it_is_given_again_when_that_is_over(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    other(scene, topic)
    assert scene.lent() == 0
    scene.core.turn()
    assert scene.read(topic) == [b"first", b"other"]
    assert not direct.send(b"b")
    scene.wait(9.9)
    assert "others" in direct.ask().message
    scene.wait(0.2)
    assert isinstance(direct.ask(), m.Lent)
    assert direct.send(b"c")
    assert scene.read(topic) == [b"first", b"other", b"b", b"c"]


def test_what_the_broker_appends_between_records_ends_a_grant_as_another_writer_does(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    """Copies of dead records, for which no request of a client names the log."""
    core, jobs = scene.core, scene.topic("jobs")
    core.ask(lambda request: m.SetQueue(request, jobs, "g", {"dead_topic": "t"}))
    core.ask(lambda request: m.Produce(request, jobs, 0), bytes(encode([b"dead"])), peer="other")
    leased = core.ask(lambda request: m.Lease(request, jobs, "g", "w", 1), peer="other")
    assert direct.append(b"second")
    settles = [m.Settle(0, leased.token, Verb.REJECT, reason="broken")]
    assert isinstance(core.ask(lambda request: m.SettleTasks(request, jobs, "g", settles), peer="other"), m.Settled)
    core.turn()
    assert scene.read(topic) == [b"first", b"second", b"dead"]
    assert (scene.lent(), core.node.stats()["lending.borrowed"]) == (0, 0)
    assert "others" in direct.ask().message


def test_the_producers_own_requests_end_a_grant_and_the_next_is_given_at_once(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    for number in range(3):
        direct.produce(b"%d" % number)
        scene.core.turn()
        assert scene.lent() == 0
        assert isinstance(direct.ask(), m.Lent)
        before = direct.grant
        assert isinstance(direct.ask(), m.Lent), "renewed"
        assert before is not None
        assert direct.grant is not None
        assert before.number != direct.grant.number
        assert direct.append(b"direct %d" % number)
    assert len(scene.read(topic)) == 7


def test_two_producers_of_one_connection_share_no_grant(scene: Scene, topic: bytes, direct: Direct) -> None:
    second = Direct(scene, topic, producer=78)
    assert "another producer" in second.ask().message
    assert direct.append(b"still mine")
    assert not second.send(b"second")
    assert scene.lent() == 0
    assert not direct.send(b"through the broker")
    for each in (direct, second):
        assert "others" in each.ask().message
    assert scene.core.node.stats()["lending.given"] == 1
    scene.wait(10.0)
    assert isinstance(second.ask(), m.Lent)
    assert scene.read(topic) == [b"first", b"still mine", b"second", b"through the broker"]


def test_the_same_producer_from_another_connection_is_no_other_writer(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    direct.produce(b"x")
    direct._peer = "connected anew"
    direct.produce(b"y")
    scene.core.turn()
    assert isinstance(direct.ask(), m.Lent)
    direct._peer = "and again"
    direct.produce(b"z")
    scene.core.turn()
    assert isinstance(direct.ask(), m.Lent)


@pytest.mark.parametrize("payload", [b"", b"no batch"])
def test_what_is_no_batch_is_anothers(scene: Scene, topic: bytes, direct: Direct, payload: bytes) -> None:
    scene.core.send(lambda request: m.Produce(request, topic, 0), payload, peer="direct")
    scene.core.turn()
    assert scene.lent() == 0
    assert "others" in direct.ask().message


@pytest.mark.parametrize(
    "message",
    [
        lambda topic: m.AlterTopic(1, topic, {"retention_s": 100}),
        lambda topic: m.Trim(1, topic, 0, 10),
        lambda topic: m.OpenProducer(1, topic, 0, "a name"),
        lambda topic: m.DeleteRecords(1, topic, [(0, 0)]),
    ],
)
def test_after_what_appends_no_records_of_others_a_log_is_lent_again_at_once(
    scene: Scene, topic: bytes, direct: Direct, message: Callable[[bytes], m.Request]
) -> None:
    scene.core.node.receive("other", message(topic), b"", scene.core.now)
    for _ in range(3):
        scene.core.turn()
    assert scene.lent() == 0
    assert isinstance(direct.ask(), m.Lent)
    assert direct.append(b"again")


def test_writers_of_another_partition_are_in_the_way_of_no_grant(scene: Scene) -> None:
    topic = scene.topic("two", 2)
    direct = Direct(scene, topic, 1)
    direct.ask()
    other(scene, topic)
    scene.core.ask(lambda request: m.OpenProducer(request, topic, 0, "p"))
    assert direct.append(b"x")
    assert (scene.read(topic), scene.read(topic, 1)) == ([b"other"], [b"x"])


@pytest.mark.parametrize(("message", "payload"), REQUESTS, ids=lambda each: type(each).__name__)
def test_messages_that_are_not_listed_end_a_grant(message: m.Request, payload: bytes) -> None:
    scene = Scene()
    topic = scene.topic()
    Direct(scene, topic).ask()
    fields = list(message.__reduce__()[1])
    names = message.__struct_fields__
    if "topic" in names:
        fields[names.index("topic")] = topic
    if "partition" in names:
        fields[names.index("partition")] = 0
    if "stages" in names:
        fields[names.index("stages")] = [m.Stage(topic, 0, 5, 1)]
    scene.core.node.receive("other", type(message)(*fields), payload, scene.core.now)
    names_it = "topic" in names or "stages" in names
    touches = type(message) is m.Checkpoint or (names_it and type(message) not in BESIDE | {m.Lend})
    assert scene.lent() == (0 if touches else 1)


def test_the_list_of_messages_is_whole() -> None:
    """A new message ends grants until it is looked at: here is what does not."""
    assert {each.__name__ for each in BESIDE} == {
        "AskCursors", "AskEnds", "AskTask", "AskTransaction", "Fetch", "FetchMany", "FindOffsets",
        "ListBarriers", "ListDead",
        "ListDeleted", "ListGroups", "ListPending", "ListQueues", "ListSchedules", "ListTopics", "ListWorkers",
        "Measure", "Stats", "Credit", "Hello", "Join", "Leave", "Ping", "Release", "SeekTo", "BeginGroup", "Commit",
        "DeleteGroup", "ResetGroup", "GiveBack", "Moved", "AskCluster", "TransferLead",
        "ReplaceNode", "NameRequest",
    }  # fmt: skip
    assert list(named(m.CreateTopic(1, "new", 1, {}))) == []


def test_a_connection_that_is_lost_ends_its_grants(scene: Scene, topic: bytes, direct: Direct) -> None:
    scene.core.node.disconnect("another")
    assert scene.lent() == 1
    direct.gone()
    assert scene.lent() == 0
    assert isinstance(Direct(scene, topic, producer=5, peer="second").ask(), m.Lent), "it is no other writer"


def test_a_grant_that_cannot_be_told_is_over(scene: Scene, topic: bytes) -> None:
    direct = Direct(scene, topic)
    direct.send(b"a")
    scene.core.port.gone.add("direct")
    assert direct.ask() is None
    assert scene.lent() == 0


def test_a_grant_is_given_back_by_its_number(scene: Scene, topic: bytes, direct: Direct) -> None:
    assert direct.grant is not None
    number = direct.grant.number
    for peer, said, lent in (("direct", number + 1, 1), ("other", number, 1), ("direct", number, 0)):
        scene.core.node.receive(peer, m.GiveBack(topic, 0, said), b"", scene.core.now)
        assert scene.lent() == lent
    assert isinstance(direct.ask(), m.Lent)


def test_all_that_a_grant_allows_is_followed(scene: Scene, topic: bytes, direct: Direct) -> None:
    assert round(GOOD_S * 1e6) == AHEAD_US
    scene.core.now_s += GOOD_S
    assert direct.append(b"at the last moment")
    scene.core.now_s -= GOOD_S
    assert scene.read(topic) == [b"first", b"at the last moment"]


def test_moved_needs_no_answer(scene: Scene, direct: Direct) -> None:
    direct.append(b"x")
    sent = len(scene.core.port.sent)
    scene.core.node.receive("direct", m.Moved(5), b"", scene.core.now)
    assert scene.row().written == scene.row().appended
    assert len(scene.core.port.sent) == sent


@pytest.mark.parametrize("kind", ["sequence", "column", "time"])
def test_a_producer_that_writes_what_may_not_stand_gets_no_grant_again(
    scene: Scene, topic: bytes, direct: Direct, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "is_plain", lambda batch, found: True)
    if kind == "sequence":
        direct.sequence += 1
        assert direct.append(b"bad")
    elif kind == "time":
        monkeypatch.setattr(appending, "GOOD_S", 1000.0)
        scene.core.now_s += 100.0
        assert direct.append(b"bad")
        scene.core.now_s -= 100.0
    else:
        assert direct.appender is not None
        bad = bytes(encode([b"bad"], producer_id=77, first_sequence=1, priorities=[3]))
        assert direct.appender.append(bad) is not None
    assert scene.read(topic) == [b"first"]
    scene.core.turn()
    assert (scene.lent(), scene.core.node.stats()["lending.refused"]) == (0, 1)
    other(scene, topic)
    scene.core.turn()
    assert scene.read(topic) == [b"first", b"other"]
    scene.wait(11.0)
    direct.sequence = 1
    assert "could not stand" in direct.ask().message
    assert isinstance(Direct(scene, topic, producer=5, peer="second").ask(), m.Lent)
    direct.gone()
    scene.core.node.disconnect("second")
    assert isinstance(direct.ask(), m.Lent), "another connection"


def test_clocks_may_differ_by_what_renewing_allows(scene: Scene, topic: bytes, direct: Direct) -> None:
    scene.core.now_s += 59.0
    assert direct.append(b"early")
    scene.core.now_s -= 59.0
    assert scene.read(topic) == [b"first", b"early"]


def test_records_over_the_limit_of_their_topic_may_not_stand(scene: Scene) -> None:
    topic = scene.topic("small", max_record_bytes=10)
    direct = Direct(scene, topic)
    direct.ask()
    assert direct.append(b"x" * 10)
    assert direct.append(b"x" * 11)
    assert scene.read(topic) == [b"x" * 10]


def test_a_log_that_rolled_is_lent_again(scene: Scene) -> None:
    topic = scene.topic("small", segment_bytes=64 << 10)
    direct = Direct(scene, topic)
    direct.ask()
    sent = [b"%d" % number + b"x" * 8000 for number in range(20)]
    ways = []
    for value in sent:
        ways.append(direct.send(value))
        if not ways[-1]:
            assert isinstance(direct.ask(), m.Lent)
    assert scene.read(topic) == sent
    assert 1 < ways.count(False) < 5


def commit_to(topic: bytes, place: list[m.Position], request: int) -> m.Commit:
    return m.Commit(request, 0, topic, "g", place)


def test_a_grant_is_over_where_the_broker_itself_goes_on_to_another_segment(scene: Scene) -> None:
    topic = scene.topic("small", segment_bytes=64 << 10)
    direct, commits = Direct(scene, topic), 0
    direct.ask()
    for number in range(7):
        assert direct.append(b"%d" % number + b"x" * 8000)
    while scene.lent() and commits < 100:
        place, commits = [m.Position(0, commits % 7, 0)], commits + 1
        scene.core.ask(partial(commit_to, topic, place), peer="reader")
    assert 10 < commits < 100, "some fit in, and the grant did not outlive its segment"
    assert isinstance(direct.ask(), m.Lent)
    assert direct.append(b"on the next segment")


def test_poison_ends_a_grant(scene: Scene, topic: bytes, direct: Direct) -> None:
    scene.core.node.logs[1].poison("for a test")
    scene.wait(1.1)
    assert scene.lent() == 0
    assert "poisoned" in direct.ask().message


def test_deleting_a_topic_ends_its_grants(scene: Scene, topic: bytes, direct: Direct) -> None:
    assert isinstance(scene.core.ask(lambda request: m.DeleteTopic(request, topic), **OTHER), m.Done)
    assert direct.appender is not None
    assert not direct.append(b"late")
    assert direct.ask().code == "unknown_topic"


def test_a_log_that_is_lent_while_its_topic_goes_is_taken_back_first(scene: Scene, topic: bytes) -> None:
    from penstock.broker.engine.tables import effects as fx

    direct = Direct(scene, topic)
    direct.ask()
    office = scene.core.node._office
    assert office is not None
    office.overlays.catalogue.propose_in_order(fx.TopicDeleted(topic))
    scene.core.turn()
    scene.core.turn()
    assert len(scene.core.node.logs) == 1
    assert scene.lent() == 0
    assert not direct.append(b"late")


def test_after_a_start_the_log_is_begun_first(scene: Scene, topic: bytes, direct: Direct) -> None:
    scene.restart(clean=True)
    assert scene.core.node.logs[1].ready is False
    assert isinstance(direct.ask(), m.Lent)
    assert direct.append(b"second")
    assert scene.read(topic) == [b"first", b"second"]


def test_an_old_grant_is_over_after_a_start(scene: Scene, topic: bytes, direct: Direct) -> None:
    scene.restart()
    assert not direct.append(b"late")
    assert scene.read(topic) == [b"first"]
    assert scene.core.node.logs[1].generation == 1
