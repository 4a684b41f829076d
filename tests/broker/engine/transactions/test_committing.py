"""Commits as requests: all or nothing, each epoch once, and what is refused decides nothing."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import stage, staged
from support.transactions import (
    TXN,
    answer_to,
    code,
    commit,
    home,
    open_stages,
    partition,
    put,
    sealed,
    send_commit,
    state,
)


def two_topics(**config: Any) -> tuple[Rig, bytes, bytes]:
    rig = Rig(**config)
    return rig, rig.topic("a", 2), rig.topic("b")


def everything(rig: Rig, a: bytes, b: bytes) -> list[list[bytes]]:
    """What can be read of both partitions of `a`, and of `b`."""
    return [rig.read(a, 0), rig.read(a, 1), rig.read(b)]


def test_all_stages_of_an_epoch_can_be_read_once_it_is_committed_and_none_before():
    rig, a, b = two_topics()
    rig.produce(b, [b"before"])
    stages = [
        put(rig, a, 1, b"1", b"2", b"3"),
        put(rig, a, 2, b"4", partition=1),
        put(rig, b, 3, b"5", b"6"),
    ]
    rig.produce(b, [b"between"])
    assert everything(rig, a, b) == [[], [], [b"before", b"between"]]
    assert commit(rig, "etl", 7, *stages) == m.TransactionCommitted(rig._request, 7, False)
    assert everything(rig, a, b) == [[b"1", b"2", b"3"], [b"4"], [b"before", b"between", b"5", b"6"]]
    assert (state(rig, "etl"), open_stages(rig)) == ((7, True), 0)


def test_the_answer_comes_when_everything_is_durable_and_no_sooner():
    rig, a, b = two_topics()
    commit(rig, "first", 1)  # `__txn` is there
    stages = [put(rig, a, 1, b"1"), put(rig, b, 2, b"2")]
    rig.store.hold = True
    request = send_commit(rig, "etl", 1, *stages)
    rig.turn()
    assert (answer_to(rig, request), everything(rig, a, b)) == (None, [[], [], []]), "decided, not durable"
    for log in rig.node.logs:
        log.sync()
    rig.node.advance(rig.now)
    rig.turn()
    assert (answer_to(rig, request), everything(rig, a, b)) == (None, [[], [], []]), "published, not durable"
    assert state(rig, "etl") == (1, False)
    rig.sync()
    assert (answer_to(rig, request), everything(rig, a, b)) == (
        m.TransactionCommitted(request, 1, False),
        [[b"1"], [], [b"2"]],
    )


def test_an_epoch_that_was_committed_is_answered_and_changes_nothing():
    rig, a, _ = two_topics()
    first = put(rig, a, 1, b"1")
    commit(rig, "etl", 5, first)
    for epoch in (5, 3, 0):
        again = put(rig, a, 2, b"again")
        assert commit(rig, "etl", epoch, again) == m.TransactionCommitted(rig._request, 5, True)
    assert (rig.read(a), open_stages(rig)) == ([b"1"], 1)
    assert commit(rig, "etl", 6, again) == m.TransactionCommitted(rig._request, 6, False)
    assert rig.read(a) == [b"1", b"again"]


@pytest.mark.parametrize("restarted", [None, False, True], ids=["at once", "in the log", "in a snapshot"])
def test_who_decided_an_epoch_is_told_so_whenever_it_asks_again(restarted: bool | None):
    rig, a, b = two_topics()
    stages = [put(rig, a, 1, b"1"), put(rig, b, 2, b"2", b"3")]
    commit(rig, "etl", 5, *stages)
    if restarted is not None:
        rig.restart(clean=restarted)
    for again in (stages, stages[::-1]):
        assert commit(rig, "etl", 5, *again) == m.TransactionCommitted(rig._request, 5, False)
    for epoch, others in [(4, stages), (5, stages[:1]), (5, []), (5, [*stages, put(rig, a, 3, b"4")])]:
        assert commit(rig, "etl", epoch, *others) == m.TransactionCommitted(rig._request, 5, True)
    assert everything(rig, a, b) == [[b"1"], [], [b"2", b"3"]]
    commit(rig, "etl", 6)
    assert commit(rig, "etl", 5, *stages).repeated, "the stages of earlier epochs are forgotten"


def test_a_resend_while_it_is_under_way_is_answered_with_it():
    rig, a, _ = two_topics()
    commit(rig, "first", 1)
    wanted, other = put(rig, a, 1, b"1"), put(rig, a, 2, b"other")
    rig.store.hold = True
    requests = [send_commit(rig, "etl", 1, each) for each in (wanted, wanted, other)]
    late = send_commit(rig, "etl", 0, other)
    rig.turn()
    assert [answer_to(rig, request) for request in (*requests, late)] == [None] * 4
    rig.sync()
    rig.store.hold = False
    rig.sync()
    assert [answer_to(rig, request).repeated for request in requests] == [False, False, True]
    assert answer_to(rig, late) == m.TransactionCommitted(late, 1, True)
    assert rig.read(a) == [b"1"]
    assert commit(rig, "etl", 2, other).repeated is False, "a stage that was not used can still be"


def test_epochs_under_way_at_once_are_published_in_their_order():
    rig, a, _ = two_topics()
    commit(rig, "first", 1)
    stages = [put(rig, a, number, b"%d" % number) for number in (1, 2, 3)]
    requests = [send_commit(rig, "etl", number, each) for number, each in enumerate(stages)]
    rig.turn(8)
    assert [answer_to(rig, request).epoch for request in requests] == [2, 2, 2]
    assert rig.read(a) == [b"1", b"2", b"3"]


def test_an_epoch_without_stages_is_committed_with_its_decision():
    rig, *_ = two_topics()
    assert commit(rig, "etl", 1) == m.TransactionCommitted(rig._request, 1, False)
    assert commit(rig, "etl", 1).repeated
    assert home(rig, "etl").seq == 1, "nothing has to be finished"


def test_transactions_of_different_names_do_not_touch_each_other():
    rig, a, _b = two_topics()
    names = [f"job-{number}" for number in range(8)]
    for number, name in enumerate(names):
        assert commit(rig, name, number, put(rig, a, number + 1, name.encode())).epoch == number
    assert [state(rig, name) for name in names] == [(number, True) for number in range(8)]
    assert rig.read(a) == [name.encode() for name in names]
    assert len({home(rig, name).number for name in names}) > 1


# -- what is refused -----------------------------------------------------------------------------------


def refused(rig: Rig, a: bytes, b: bytes, *stages: m.Stage) -> m.Failure:
    """A commit that is refused; nothing of it is decided, and the stages that are good stay as they are."""
    answer = commit(rig, "etl", 1, *stages)
    assert isinstance(answer, m.Failure), answer
    assert state(rig, "etl") == (-1, True)
    assert everything(rig, a, b) == [[], [], []]
    return answer


def test_a_stage_that_is_not_there_or_not_whole_keeps_all_from_being_committed():
    rig, a, b = two_topics()
    good = put(rig, a, 1, b"1", b"2")
    for bad in (
        m.Stage(a, 1, 9, 1),
        m.Stage(b, 0, 1, 2),
        m.Stage(a, 0, 1, 3),
        m.Stage(a, 0, 1, 1),
    ):
        stages = [bad] if bad.stage == good.stage and bad.topic == a else [good, bad]
        assert refused(rig, a, b, *stages).code == "stage_lost"
    assert commit(rig, "etl", 1, good).epoch == 1


def test_records_that_are_not_durable_yet_are_not_committed():
    rig, a, _b = two_topics()
    good = put(rig, a, 1, b"1", b"2")
    rig.store.hold = True
    stage(rig, a, [b"3"], 1, 2)
    assert code(commit(rig, "etl", 1, m.Stage(a, 0, 1, 3))) == "stage_lost"
    assert code(commit(rig, "etl", 1, good)) == "stage_lost", "more of it is under way"
    rig.store.hold = False
    rig.sync()
    assert commit(rig, "etl", 1, m.Stage(a, 0, 1, 3)).epoch == 1


@pytest.mark.parametrize(
    ("name", "named"), [("", "1 to 200"), ("a b", "1 to 200"), ("~", "1 to 200"), ("x" * 201, "1 to 200"), ("~~a", "1")]
)
def test_a_name_that_cannot_be_is_refused(name: str, named: str):
    rig = Rig()
    for answer in (commit(rig, name, 1), rig.ask(m.AskTransaction, name)):
        assert (code(answer), named in answer.message) == ("invalid_request", True)


def test_what_makes_no_sense_is_refused_with_a_sentence():
    rig, a, b = two_topics()
    good = put(rig, a, 1, b"1")
    cases = [
        ([good, good], "invalid_request", "named twice"),
        ([good, m.Stage(a, 1, 2, 0)], "invalid_request", "0 records"),
        ([good, m.Stage(a, 2, 2, 1)], "unknown_partition", "no partition 2"),
        ([good, m.Stage(bytes(16), 0, 2, 1)], "unknown_topic", "unknown"),
    ]
    for stages, expected, named in cases:
        answer = refused(rig, a, b, *stages)
        assert (answer.code, named in answer.message) == (expected, True)


def test_a_stage_is_committed_by_one_transaction_only():
    rig, a, _ = two_topics()
    commit(rig, "first", 1)
    only = put(rig, a, 1, b"1")
    rig.store.hold = True
    first, second = send_commit(rig, "x", 1, only), send_commit(rig, "y", 1, only)
    rig.turn()
    assert code(answer_to(rig, second)) == "stage_lost"
    rig.store.hold = False
    rig.sync()
    assert answer_to(rig, first).repeated is False
    assert code(commit(rig, "y", 1, only)) == "stage_lost"
    assert rig.read(a) == [b"1"]


def test_nothing_is_added_to_a_stage_that_is_being_committed():
    rig, a, _ = two_topics()
    commit(rig, "first", 1)
    only = put(rig, a, 1, b"1")
    rig.store.hold = True
    send_commit(rig, "etl", 1, only)
    answer = stage(rig, a, [b"2"], 1, 1)
    assert code(answer) == "fenced"
    rig.store.hold = False
    rig.sync()
    assert rig.read(a) == [b"1"]


def test_a_decision_that_does_not_fit_on_the_disk_is_none_and_can_be_made_later():
    rig, a, _ = two_topics()
    commit(rig, "etl", 1)
    only = put(rig, a, 1, b"1")
    log = home(rig, "etl").log
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    log.append = full
    requests = [send_commit(rig, "etl", 2, only), send_commit(rig, "etl", 2, only), send_commit(rig, "etl", 1)]
    rig.turn()
    assert [code(answer_to(rig, request)) for request in requests[:2]] == ["storage_full"] * 2
    assert answer_to(rig, requests[2]) == m.TransactionCommitted(requests[2], 1, True)
    assert (state(rig, "etl"), sealed(rig, a)) == ((1, True), set())
    log.append = append
    assert isinstance(stage(rig, a, [b"2"], 1, 1), m.Produced), "the stage is open again"
    assert commit(rig, "etl", 2, m.Stage(a, 0, 1, 2)).repeated is False
    assert rig.read(a) == [b"1", b"2"]


def test_who_is_overtaken_by_a_decision_that_fails_is_told_so():
    rig, _a, _ = two_topics()
    commit(rig, "etl", 1)
    log = home(rig, "etl").log
    higher, lower = send_commit(rig, "etl", 9), send_commit(rig, "etl", 5)

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    log.append = full
    rig.turn()
    assert [code(answer_to(rig, each)) for each in (higher, lower)] == ["storage_full"] * 2
    assert state(rig, "etl") == (1, True)


# -- written topics -------------------------------------------------------------------------------------


def test_on_a_topic_that_is_written_the_decision_waits_until_the_records_are_durable():
    rig = Rig()
    topic = rig.topic("w", commit="written")
    commit(rig, "etl", 1)
    rig.store.hold = True
    only = put(rig, topic, 1, b"1")
    request = send_commit(rig, "etl", 2, only)
    rig.pass_time(1)
    assert (answer_to(rig, request), home(rig, "etl").proposed.transactions.last_epoch("etl")) == (None, 1)
    rig.store.hold = False
    rig.pass_time(2)
    assert answer_to(rig, request) == m.TransactionCommitted(request, 2, False)
    assert rig.read(topic) == [b"1"]


def test_on_a_topic_that_is_written_it_is_finished_only_when_the_records_are_durable():
    rig = Rig(housekeeping_s=1.0)
    topic = rig.topic("w", commit="written")
    commit(rig, "etl", 1)
    only = put(rig, topic, 1, b"1")
    log, sync = partition(rig, topic).log, partition(rig, topic).log.sync
    log.sync = lambda **_: 0
    assert commit(rig, "etl", 2, only).repeated is False
    assert (rig.read(topic), state(rig, "etl")) == ([b"1"], (2, True))
    rig.pass_time(5)
    assert len(home(rig, "etl").committed.transactions.unfinished()) == 1
    log.sync = sync
    rig.pass_time(5)
    assert len(home(rig, "etl").committed.transactions.unfinished()) == 1, "it is not synced"
    log.sync()
    rig.pass_time(5)
    assert len(home(rig, "etl").committed.transactions.unfinished()) == 0


# -- dropping -------------------------------------------------------------------------------------------


def test_what_is_dropped_is_gone_and_what_is_not_there_is_no_error():
    rig, a, b = two_topics()
    stages = [put(rig, a, 1, b"1"), put(rig, a, 2, b"2"), put(rig, b, 3, b"3")]
    gone = m.Stage(bytes(16), 0, 4, 1)
    request = m.DropStages, [stages[0], stages[2], stages[0], gone, m.Stage(a, 1, 77, 0)]
    for _ in range(2):
        assert rig.ask(*request) == m.Done(rig._request)
        assert open_stages(rig) == 1
    assert code(commit(rig, "etl", 1, stages[0])) == "stage_lost"
    rig.restart(clean=False)
    assert open_stages(rig) == 1
    assert rig.ask(m.DropStages, []) == m.Done(rig._request)


def test_a_drop_is_answered_when_it_is_durable():
    rig, a, _ = two_topics()
    only = put(rig, a, 1, b"1")
    rig.store.hold = True
    requests = [rig.next_request(), rig.next_request()]
    for request in requests:
        rig.send(m.DropStages(request, [only]))
        rig.turn()
    assert [answer_to(rig, request) for request in requests] == [None, None]
    rig.sync()
    assert [answer_to(rig, request) for request in requests] == [m.Done(request) for request in requests]


def test_what_is_decided_cannot_be_dropped():
    rig, a, _ = two_topics()
    commit(rig, "first", 1)
    only = put(rig, a, 1, b"1")
    rig.store.hold = True
    request = send_commit(rig, "etl", 1, only)
    drop = rig.next_request()
    rig.send(m.DropStages(drop, [only]))
    rig.turn()
    rig.store.hold = False
    rig.sync()
    assert (answer_to(rig, drop), answer_to(rig, request).repeated) == (m.Done(drop), False)
    assert rig.read(a) == [b"1"]


def test_a_commit_that_comes_behind_a_drop_is_refused():
    rig, a, _ = two_topics()
    commit(rig, "first", 1)
    only = put(rig, a, 1, b"1")
    rig.store.hold = True
    rig.send(m.DropStages(rig.next_request(), [only]))
    assert code(commit(rig, "etl", 1, only)) == "stage_lost"


def test_a_stage_that_was_dropped_may_begin_anew_in_the_same_turn():
    rig, a, _ = two_topics()
    only = put(rig, a, 1, b"1", b"2")
    requests = [rig.next_request(), rig.next_request()]
    rig.send(m.DropStages(requests[0], [only]))
    rig.send(m.Produce(requests[1], a, 0), staged([b"new"], 1))
    rig.turn()
    assert commit(rig, "etl", 1, m.Stage(a, 0, 1, 1)).epoch == 1
    assert rig.read(a) == [b"new"]


# -- the topic of decisions -----------------------------------------------------------------------------


def test_the_topic_of_decisions_is_made_once_and_listed_only_by_name():
    rig, _a, _ = two_topics()
    assert code(rig.ask(m.ListTopics, [TXN])) == "unknown_topic"
    requests = [send_commit(rig, f"job-{number}", 1) for number in range(5)]
    rig.turn()
    assert all(isinstance(answer_to(rig, request), m.TransactionCommitted) for request in requests)
    assert [topic.name for topic in rig.ask(m.ListTopics, []).topics] == ["a", "b"]
    (topic,) = rig.ask(m.ListTopics, [TXN]).topics
    assert (topic.name, len(topic.partitions), topic.settings["commit"]) == (TXN, 4, "durable")


def test_no_topic_is_made_for_a_commit_that_is_refused_or_a_question():
    rig, a, b = two_topics()
    assert refused(rig, a, b, m.Stage(a, 0, 1, 1)).code == "stage_lost"
    assert rig.ask(m.DropStages, [m.Stage(a, 0, 1, 1)]) == m.Done(rig._request)
    assert code(rig.ask(m.ListTopics, [TXN])) == "unknown_topic"


def test_commits_that_cannot_have_their_topic_are_told_why_and_the_next_one_tries_again():
    rig, _a, _ = two_topics()
    log = rig.node.logs[0]
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    log.append = full
    requests = [send_commit(rig, "x", 1), send_commit(rig, "y", 1)]
    rig.turn()
    assert [code(answer_to(rig, request)) for request in requests] == ["storage_full"] * 2
    log.append = append
    assert commit(rig, "x", 1).repeated is False


def test_the_topic_of_decisions_is_refused_to_other_requests():
    rig, *_ = two_topics()
    commit(rig, "etl", 1)
    txn = rig.ask(m.ListTopics, [TXN]).topics[0].topic
    requests: list[tuple[Any, ...]] = [
        (m.AlterTopic, txn, {}, 8),
        (m.DeleteTopic, txn),
        (m.OpenProducer, txn, 0, "n"),
        (m.FindOffsets, txn, -1),
        (m.Join, txn, "g", "m", "push", -1, [], 10_000, 1, 1),
        (m.Commit, 0, txn, "g", [m.Position(0, 0, 0)]),
        (m.SetQueue, txn, "g", {}, -1),
        (m.Lease, txn, "g", "w", 1),
        (m.SetSchedule, txn, "s", "* * * * *", "UTC", b"", None, {}, 0),
        (m.CommitTransaction, "etl", 2, [m.Stage(txn, 0, 1, 1)]),
        (m.DropStages, [m.Stage(txn, 0, 1, 1)]),
    ]
    for request in requests:
        assert code(rig.ask(*request)) == "invalid_topic", request
    for payload in (bytes(encode([b"x"])), staged([b"x"])):
        assert code(rig.ask(m.Produce, txn, 0, payload=payload)) == "invalid_topic"
    assert state(rig, "etl") == (1, True)
