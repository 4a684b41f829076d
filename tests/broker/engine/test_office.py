"""Losing the lead and taking it again over the same open logs: what is forgotten, what goes on, and what is given back.

The random lives of queues and transactions resign at any step; here is what they cannot see, or would see too late.
"""

from __future__ import annotations

from collections import Counter

import pytest
from penstock.broker.engine.office import Office
from penstock.broker.engine.streams.sessions import EXPIRY_CHECK_S
from penstock.storage.batch import encode
from penstock.storage.errors import Poisoned
from penstock.transport import messages as m
from support.engine import Rig
from support.office_commits import CommitLife
from support.office_life import OfficeLife
from support.office_outboxes import OutboxLife
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


def test_waiters_hear_nothing_and_what_was_in_the_log_counts():
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
    history.go_back(history.log.durable)
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
    mapped = rig.join(topic, delivery="mapped")
    assert mapped.session in {session for session, _ in rig.port.readers}
    rig.resign()
    assert (rig.port.open, rig.port.readers) == (set(), set())
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
    assert list(rig.node._registry.topics.by_name) == ["known"]
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
    rig.node._registry.catalogue.go_back(0)
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


def test_a_poisoned_log_has_no_leader():
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


def test_an_epoch_that_is_in_flight_has_no_owner_until_it_is_committed():
    rig = Rig()
    commit(rig, "etl", 0)
    rig.store.hold = True
    send_commit(rig, "etl", 5)
    rig.turn()
    rig.resign()
    late = send_commit(rig, "etl", 3)
    rig.turn()
    assert (answer_to(rig, late).code, answer_to(rig, late).retry) == ("no_leader", True)
    rig.store.hold = False
    rig.sync()
    assert commit(rig, "etl", 3) == m.TransactionCommitted(rig._request, 5, True)


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
    history.go_back(history.log.durable)
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
    history = home(rig, "etl").history
    history.go_back(history.log.durable)
    rig.node.advance(rig.now)
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
    history.go_back(history.log.written - 1)
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


def test_a_late_duplicate_of_a_stage_is_refused_while_the_end_of_its_epoch_is_in_flight():
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
    late = rig.ask(m.Produce, topic, 0, payload=staged([b"1"], 1))
    assert late.code == "no_leader", "it would be published once more if the end of the epoch is cut"
    history = home(rig, "etl").history
    history.go_back(history.log.durable)
    rig.node.advance(rig.now)
    assert sealed(rig, topic) == {1}
    rig.store.hold = False
    rig.sync()
    assert sealed(rig, topic) == set()
    assert rig.read(topic) == [b"1"]


def test_the_topic_of_decisions_may_be_in_flight_from_an_earlier_office():
    rig = Rig()
    rig.store.hold = True
    send_commit(rig, "etl", 0)
    rig.turn()
    rig.resign()
    rig.store.hold = False
    rig.sync()
    assert commit(rig, "etl", 0) == m.TransactionCommitted(rig._request, 0, False)


def test_a_publication_behind_one_that_was_decided_first_is_not_published_again():
    """The publication of a later decision is in flight when the office goes: nothing is published twice."""
    rig = Rig()
    topic = rig.topic()
    commit(rig, "a", 0)
    other = next(name for name in "bcdefgh" if home(rig, name) is not home(rig, "a"))
    commit(rig, other, 0)
    first, second = put(rig, topic, 1, b"1"), put(rig, topic, 2, b"2")
    log = partition_of(rig, topic).log

    def turn(*held: object) -> None:
        rig.node.flush(rig.now)
        for each in rig.node.logs:
            if each not in held and each.durable < each.written:
                each.sync()
        rig.node.advance(rig.now)
        rig.node.tick(rig.now)

    send_commit(rig, "a", 1, first)
    turn(log, home(rig, "a").log)
    rig.pass_time(0.001)  # which syncs only what it appends
    send_commit(rig, other, 1, second)
    for _ in range(4):
        turn(log, home(rig, "a").log)
    assert [entry.producer_id for entry in partition_of(rig, topic).history.in_flight] == [2]
    turn(log)
    rig.resign()
    for _ in range(4):
        turn(log)
    assert rig.node.incarnation == 0, "a node without an office has none"
    rig.sync()
    rig.pass_time(1.0)
    assert sorted(rig.read(topic)) == [b"1", b"2"]


def test_an_office_that_cannot_be_dropped_is_none_and_another_comes(monkeypatch: pytest.MonkeyPatch):
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"1"])

    def broken(office: Office) -> None:
        raise OSError("the port is broken")

    monkeypatch.setattr(Office, "drop", broken)
    with pytest.raises(OSError, match="port is broken"):
        rig.node.resign()
    assert rig.produce(topic, [b"2"]).code == "no_leader"
    rig.turn()
    assert isinstance(rig.produce(topic, [b"3"]), m.Produced)
    assert rig.read(topic) == [b"1", b"3"]


def test_no_office_opens_over_a_log_that_is_poisoned_while_it_is_waited_for():
    rig = Rig()
    topic = rig.topic()
    held(rig, topic)
    rig.resign()
    partition_of(rig, topic).log.poison("fdatasync: I/O error")
    rig.turn()
    assert rig.produce(topic, [b"2"]).code == "no_leader"
    assert rig.node.tick(rig.now) > 0, "and the driver does not spin"
    rig.store.hold = False
    rig.restart(clean=False)
    assert isinstance(rig.produce(topic, [b"2"]), m.Produced)


def test_no_office_opens_over_a_log_that_is_poisoned_behind_what_it_has_committed():
    rig = Rig()
    topic, other = rig.topic(commit="written"), rig.topic("other")
    rig.store.hold = True
    rig.produce(topic, [b"1"])  # committed, not synced
    held(rig, other)
    rig.resign()
    partition_of(rig, topic).log.poison("fdatasync: I/O error")
    partition_of(rig, other).log.sync()
    rig.turn()
    assert not any(history.in_flight for history in rig.node._registry.histories())
    assert rig.node.incarnation == 0


def test_the_driver_comes_back_at_once_where_the_next_office_may_open():
    rig = Rig()
    topic = rig.topic()
    held(rig, topic)
    rig.node.resign()
    assert rig.node.tick(rig.now) > 0.0
    history = partition_of(rig, topic).history
    history.go_back(history.log.durable)
    assert rig.node.tick(rig.now) == 0.0


def test_the_driver_comes_back_for_what_is_ready_and_for_sessions():
    rig = Rig()
    topic = rig.topic()
    joined = rig.join(topic, credit=(0, 0))
    rig.produce(topic, [b"1"])
    assert rig.node.tick(rig.now) == EXPIRY_CHECK_S
    rig.send(m.Credit(joined.session, 1 << 20, 10))
    assert rig.node.tick(rig.now) == 0.0
    rig.node.advance(rig.now)
    assert rig.received(joined) == [b"1"]


def test_long_work_of_a_connection_that_rests_goes_on_when_it_is_resumed():
    rig = Rig()
    done: list[int] = []
    rig.node._portions.add("c", (done.append(step) for step in range(2)))
    rig.node.rest("c")
    rig.node.tick(rig.now)
    assert (done, rig.node.portions.worked) == ([], {})
    rig.node.resume("c")
    rig.node.tick(rig.now)
    assert (done, rig.node.portions.worked) == ([0, 1], {"c": 3})


def test_reads_that_wait_are_answered_though_the_office_is_gone():
    rig = Rig()
    topic = rig.topic()
    fetch = rig.next_request()
    rig.send(m.Fetch(fetch, topic, 0, 0, -1, 1 << 20, 5000))
    rig.store.hold = True
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"1"])))
    rig.turn()
    rig.node.resign()
    rig.turn()
    assert rig.answers(fetch) == []
    rig.store.hold = False
    rig.sync()
    assert answer_to(rig, fetch).next_offset == 1


LIVES = [
    (CommitLife, ["cut", "no_leader", "publication", "TopicCreated", "TransactionDecided", "TransactionFinished"]),
    (OutboxLife, ["cut", "publication", "LeaseGranted", "TasksDied", "OutboxRouted", "OutboxMoved", "ScheduleFired"]),
]


@pytest.mark.parametrize(("kind", "meeting"), LIVES, ids=["commits", "outboxes"])
@pytest.mark.parametrize("seed", range(4))
def test_offices_may_go_at_any_phase_of_a_turn(seed: int, kind: type[OfficeLife], meeting: list[str]):
    """Ten lives, and more until an office went with each of these things in flight."""
    met: Counter[str] = Counter()
    for number in range(100):
        if number >= 10 and all(met[what] for what in meeting):
            return
        life = kind(seed * 100 + number)
        life.run(60)
        met += life.met
    pytest.fail(f"no office went with everything in flight that it may go with: {met}")
