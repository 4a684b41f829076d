"""Losing the lead and taking it again over the same open logs: what is forgotten, what goes on, and what is given back.

The random lives of queues and transactions resign at any step; here is what they cannot see, or would see too late.
"""

from __future__ import annotations

import pytest
from penstock.storage.errors import Poisoned
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import partition_of, staged
from support.transactions import answer_to, commit, home, put, sealed, send_commit, state


def directories(rig: Rig) -> set[str]:
    """Topics that have files."""
    return {path.split("/")[2] for path in rig.store.files.contents if path.startswith("data/topics/")}


def topic_names(rig: Rig) -> dict[str, int]:
    """Partitions of each topic."""
    return {topic.name: len(topic.partitions) for topic in rig.ask(m.ListTopics, []).topics}


def held(rig: Rig, topic: bytes) -> int:
    """Produce a batch that is in the log and not durable. Returns the number of the request."""
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Produce(request, topic, 0), bytes(staged([b"x"], 3)))
    rig.turn()
    return request


def test_nobody_who_waited_hears_anything_and_what_was_in_the_log_counts():
    rig = Rig()
    topic = rig.topic()
    in_flight = held(rig, topic)
    queued = rig.next_request()
    rig.send(m.Produce(queued, topic, 0), bytes(staged([b"y"], 4)))
    before = rig.node.incarnation
    rig.resign()
    rig.store.hold = False
    rig.sync()
    assert (rig.answers(in_flight), rig.answers(queued)) == ([], [])
    assert sorted(each.stage for each in partition_of(rig, topic).committed.stages) == [3]
    assert rig.node.incarnation != before


def test_what_is_cut_between_two_offices_never_was():
    rig = Rig()
    topic = rig.topic()
    held(rig, topic)
    history = partition_of(rig, topic).history
    history.cut(history.log.durable)
    rig.resign()
    rig.store.hold = False
    rig.sync()
    partition = partition_of(rig, topic)
    assert list(partition.committed.stages) == list(partition.proposed.stages) == []
    assert partition.idle
    assert isinstance(rig.produce(topic, [b"z"]), m.Produced)


def test_sessions_end_with_the_office_and_give_back_what_they_opened():
    rig = Rig()
    topic = rig.topic()
    for member in "ab":
        rig.join(topic, "g", member, delivery="push" if member == "a" else "mapped")
    alone = rig.join(topic, delivery="push")
    rig.resign()
    assert rig.port.open == set()
    sent = len(rig.port.sent)
    rig.produce(topic, [b"x"])
    assert [type(message) for _, message, _ in rig.port.sent[sent:]] == [m.Produced]
    assert rig.ask(m.Ping, alone.session).code == "unknown_session"
    again = rig.join(topic, "g", "c")
    assert rig.assigned(again) == {0: (2, 0)}, "its members have to join again, and none is in the way"


def test_a_topic_that_was_being_made_leaves_nothing():
    rig = Rig()
    before = directories(rig)
    rig.send(m.CreateTopic(rig.next_request(), "t", 3, {}))  # one log is made
    assert directories(rig) != before
    rig.resign()
    rig.turn()
    assert (directories(rig), topic_names(rig)) == (before, {})
    assert len(rig.node.logs) == 1
    rig.topic("t", 2)


def test_a_topic_whose_entry_is_in_the_log_appears_once_that_is_committed():
    rig = Rig()
    rig.topic("known")
    rig.store.hold = True
    for name in ("t", "u"):
        rig.send(m.CreateTopic(rig.next_request(), name, 1, {}))
    rig.send(m.AlterTopic(rig.next_request(), rig.node._registry.topics.by_name["known"].id, {"retention_s": 9.0}, 2))
    rig.turn(20)
    rig.send(m.CreateTopic(rig.next_request(), "queued", 1, {}))
    rig.resign()
    assert topic_names(rig) == {"known": 1}
    rig.store.hold = False
    rig.sync()
    assert topic_names(rig) == {"known": 2, "t": 1, "u": 1}
    topic = rig.node._registry.topics.by_name["known"].id
    assert rig.produce(topic, [b"x"], partition=1).offset == 0
    assert rig.node._registry.topics.get(topic).settings.retention_s == 9.0


def test_a_topic_whose_entry_is_cut_leaves_nothing():
    rig = Rig()
    before = directories(rig)
    rig.store.hold = True
    rig.send(m.CreateTopic(rig.next_request(), "t", 1, {}))
    rig.turn()
    rig.node._registry.catalogue.cut(0)
    rig.resign()
    rig.store.hold = False
    rig.sync()
    assert (directories(rig), topic_names(rig)) == (before, {})


def test_partitions_that_were_being_added_are_none():
    rig = Rig()
    topic = rig.topic()
    rig.send(m.AlterTopic(rig.next_request(), topic, {}, 4))
    rig.resign()
    assert (topic_names(rig), len(rig.node.logs)) == ({"t": 1}, 2)
    rig.ask(m.AlterTopic, topic, {}, 3)
    assert topic_names(rig) == {"t": 3}


def test_the_erasure_of_a_topic_is_logged_by_the_office_that_comes():
    rig = Rig()
    topic = rig.topic()
    rig.store.hold = True
    rig.send(m.DeleteTopic(rig.next_request(), topic))
    for log in rig.node.flush(rig.now):
        log.sync()
    rig.node.advance(rig.now)  # the files go, and the entry that says so is queued
    catalogue = rig.node._registry.catalogue
    assert (directories(rig), list(catalogue.committed.tombstones)) == (set(), [topic])
    rig.resign()
    rig.store.hold = False
    rig.turn()
    assert list(catalogue.committed.tombstones) == []
    rig.resign()
    assert rig.node.flush(rig.now) == [], "it is said once"


def test_nobody_leads_over_a_log_that_is_poisoned():
    rig = Rig()
    topic = rig.topic()
    partition_of(rig, topic).log.poison("fdatasync: I/O error")
    with pytest.raises(Poisoned, match="open the log again"):
        rig.resign()


def test_pages_that_come_for_an_office_that_is_gone_move_nothing():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "etl", 0)
    stage = put(rig, topic, 1, b"1", b"2")
    rig.port.cold = []
    send_commit(rig, "etl", 1, stage)
    rig.turn()
    tokens = rig.port.cold
    assert tokens
    rig.resign()
    rig.port.cold = None
    rig.turn()
    for token in tokens:
        rig.node.warmed(token)
    rig.turn()
    assert (rig.read(topic), state(rig, "etl")) == ([b"1", b"2"], (1, True))


@pytest.mark.parametrize("portion_bytes", [1, 1 << 20], ids=["in part", "all of it"])
def test_what_is_being_published_is_not_published_again(portion_bytes: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.broker.engine.transactions.publishing.PORTION_BYTES", portion_bytes)
    rig = Rig()
    topic = rig.topic()
    commit(rig, "etl", 0)
    stage = put(rig, topic, 1, b"1", b"2", batch=1)
    log = partition_of(rig, topic).log
    send_commit(rig, "etl", 1, stage)
    while log.written == log.durable:  # until its records are in the log, and not durable
        for each in rig.node.flush(rig.now):
            if each is not log:
                each.sync()
        rig.node.advance(rig.now)
        rig.node.tick(rig.now)
    rig.store.hold = True
    rig.resign()
    rig.turn(8)
    rig.store.hold = False
    rig.sync()
    assert (rig.read(topic), state(rig, "etl")) == ([b"1", b"2"], (1, True))


def test_an_epoch_without_stages_that_is_in_flight_is_waited_for():
    rig = Rig()
    commit(rig, "etl", 0)
    rig.store.hold = True
    send_commit(rig, "etl", 5)
    rig.turn()
    assert home(rig, "etl").proposed.transactions.last_epoch("etl") == 5
    rig.resign()
    late = send_commit(rig, "etl", 3)
    rig.turn()
    assert answer_to(rig, late) is None, "it is not certain yet that it came too late"
    rig.store.hold = False
    rig.sync()
    assert answer_to(rig, late) == m.TransactionCommitted(late, 5, True)


def test_a_token_of_an_office_is_above_all_that_earlier_ones_gave():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"1", b"2", b"3"])
    tokens = [rig.lease(topic).token]
    rig.resign()
    tokens.append(rig.lease(topic).token)
    rig.store.hold = True
    rig.ask_lease(topic)  # in the log, and taken back
    history = partition_of(rig, topic).history
    lost = partition_of(rig, topic).proposed.queues.by_name["g"].last_token
    history.cut(history.log.durable)
    rig.store.hold = False
    rig.resign()
    tokens += [lost, rig.lease(topic).token]
    assert tokens == sorted(set(tokens))
    assert rig.settle(topic, m.Settle(0, lost, 0))[0].code == "lease_lost"
    assert rig.settle(topic, *(m.Settle(0, token, 0) for token in tokens if token != lost)) == []


def test_a_stage_is_open_again_when_its_decision_is_cut():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "etl", 0)
    stage = put(rig, topic, 1, b"1")
    rig.store.hold = True
    send_commit(rig, "etl", 1, stage)
    rig.turn()
    rig.resign()
    assert sealed(rig, topic) == {1}, "its decision is in flight"
    history = home(rig, "etl").history
    history.cut(history.log.durable)
    rig.resign()
    rig.store.hold = False
    assert sealed(rig, topic) == set()
    assert isinstance(rig.ask(m.Produce, topic, 0, payload=staged([b"2"], 1, 1)), m.Produced)
    assert commit(rig, "etl", 2, m.Stage(topic, 0, 1, 2)) == m.TransactionCommitted(rig._request, 2, False)
    assert rig.read(topic) == [b"1", b"2"]


def test_a_cut_leaves_in_flight_what_is_not_behind_it():
    rig = Rig()
    topic = rig.topic()
    held(rig, topic)
    history = partition_of(rig, topic).history
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(staged([b"y"], 4)))
    rig.turn()
    history.cut(history.log.written - 1)
    rig.resign()
    rig.store.hold = False
    rig.sync()
    assert [each.stage for each in partition_of(rig, topic).committed.stages] == [3]


def test_a_topic_that_is_deleted_while_it_grows_takes_the_new_logs_along():
    rig = Rig()
    topic = rig.topic()
    growing = rig.next_request()
    rig.send(m.AlterTopic(growing, topic, {}, 4))  # one log is made
    assert isinstance(rig.ask(m.DeleteTopic, topic), m.Done)
    rig.turn(20)
    assert (len(rig.node.logs), directories(rig)) == (1, set())
    assert answer_to(rig, growing).code == "unknown_topic"


def test_what_is_decided_about_a_topic_behind_its_tombstone_changes_nothing():
    rig = Rig()
    topic = rig.topic()
    requests = [rig.next_request() for _ in range(2)]
    for request in requests:
        rig.send(m.DeleteTopic(request, topic))
    rig.turn()
    assert [answer_to(rig, request) for request in requests] == [m.Done(request) for request in requests]
    assert (directories(rig), list(rig.node._registry.catalogue.committed.tombstones)) == (set(), [])


def test_a_stage_stays_sealed_while_the_end_of_its_epoch_is_in_flight():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "etl", 0)
    stage = put(rig, topic, 1, b"1")
    send_commit(rig, "etl", 1, stage)
    log = home(rig, "etl").log
    while (
        home(rig, "etl").proposed.transactions.unfinished() or not home(rig, "etl").committed.transactions.unfinished()
    ):
        rig.node.flush(rig.now)
        for each in rig.node.logs:
            if each is not log or not home(rig, "etl").committed.transactions.unfinished():
                each.sync()
        rig.node.advance(rig.now)
        rig.node.tick(rig.now)
    rig.node.flush(rig.now)
    rig.store.hold = True
    rig.resign()
    assert sealed(rig, topic) == {1}, "a late duplicate would be published if the end of the epoch is cut"
    rig.store.hold = False
    rig.sync()
    assert sealed(rig, topic) == set()
