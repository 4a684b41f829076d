"""By its id, a task can be looked up, waited for and cancelled."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.outcomes import RESULT_MAX
from penstock.broker.engine.turns import parked
from penstock.storage.finals import Outcome
from penstock.transport import messages as m
from support.engine import Rig

ACK, NACK, REJECT, RELEASE = 0, 1, 2, 3


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """Six records in two batches, and the group g."""
    topic = rig.topic()
    for _ in range(2):
        rig.produce(topic, [b"a", b"b", b"c"])
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 2, "backoff_s": 10, "jitter": 0})
    return topic


def ask(rig: Rig, topic: bytes, offset: int, wait_ms: int = 0, **how: Any) -> Any:
    return rig.ask(m.AskTask, topic, "g", 0, offset, wait_ms, **how)


def cancel(rig: Rig, topic: bytes, offset: int) -> Any:
    return rig.ask(m.CancelTask, topic, "g", 0, offset)


def settled(rig: Rig, topic: bytes, leased: m.Leased, verb: int = ACK, *rest: Any) -> list[m.Refusal]:
    return rig.settle(topic, m.Settle(0, leased.token, verb, *rest))


def test_a_task_that_no_worker_had_is_pending_and_says_where_in_the_line(rig: Rig, topic: bytes):
    answer = ask(rig, topic, 2)
    assert (answer.state, answer.attempt, answer.worker) == ("pending", 0, "")
    assert "behind 2 records" in answer.why


def test_a_leased_task_names_its_worker_and_the_end_of_its_lease(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=2)
    answer = ask(rig, topic, 1)
    assert (answer.state, answer.attempt, answer.time_us) == ("leased", 1, leased.until_us)
    assert answer.worker
    assert answer.worker in answer.why


def test_a_failed_task_waits_and_says_why_and_when(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=1)
    settled(rig, topic, leased, NACK, [], -1, "no network")
    answer = ask(rig, topic, 0)
    assert (answer.state, answer.attempt, answer.reason) == ("waiting", 1, "no network")
    assert answer.time_us > rig.now.wall_us
    assert [(worker, reason) for _, worker, reason in answer.history] == [("w", "no network")]


def test_a_dead_task_has_its_reason_and_history(rig: Rig, topic: bytes):
    settled(rig, topic, rig.lease(topic, most=1), REJECT, [], -1, "cannot be read")
    answer = ask(rig, topic, 0)
    assert (answer.state, answer.reason, answer.attempt) == ("dead", "cannot be read", 1)
    assert "dead-lettered since" in answer.why


def test_a_plain_ack_is_completed_without_a_result(rig: Rig, topic: bytes):
    settled(rig, topic, rig.lease(topic, most=2))
    answer = ask(rig, topic, 1)
    assert (answer.state, answer.result, answer.why) == ("completed", None, "completed")


@pytest.mark.parametrize("clean", [True, False])
def test_a_result_is_read_from_the_log_also_after_a_restart(rig: Rig, topic: bytes, clean: bool):
    settled(rig, topic, rig.lease(topic, most=3), ACK, [], -1, "", [(0, b"first"), (2, b"")])
    for _ in range(2):
        answers = [ask(rig, topic, offset) for offset in range(3)]
        assert [each.result for each in answers] == [b"first", None, b""]
        assert [each.attempt for each in answers] == [1, 0, 1]
        assert [each.time_us > 0 for each in answers] == [True, False, True]
        assert {each.state for each in answers} == {"completed"}
        assert answers[0].why.startswith("completed with a result 20")
        assert answers[2].why.startswith("completed 20")
        rig.restart(clean=clean)


def test_the_result_of_a_record_that_the_lease_does_not_hold_any_more_does_not_count(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=2)
    settled(rig, topic, leased, NACK, [(1, 1)])
    settled(rig, topic, leased, ACK, [], -1, "", [(0, b"yes"), (1, b"no")])
    rig.pass_time(15)
    settled(rig, topic, rig.lease(topic, most=1), ACK, [], -1, "", [(1, b"now")])
    answers = [ask(rig, topic, offset) for offset in (0, 1)]
    assert [(each.result, each.attempt) for each in answers] == [(b"yes", 1), (b"now", 2)]


def test_a_result_over_the_limit_is_refused_and_the_task_stays_leased(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=1)
    (refusal,) = settled(rig, topic, leased, ACK, [], -1, "", [(0, bytes(RESULT_MAX + 1))])
    assert refusal.code == "invalid_request"
    assert f"has {RESULT_MAX + 1} bytes, {RESULT_MAX} are allowed" in refusal.message
    assert ask(rig, topic, 0).state == "leased"
    assert settled(rig, topic, leased, ACK, [], -1, "", [(0, bytes(RESULT_MAX))]) == []
    assert len(ask(rig, topic, 0).result) == RESULT_MAX


def test_many_large_results_in_one_write_all_stand(rig: Rig, topic: bytes):
    leases = [rig.lease(topic, most=1) for _ in range(6)]
    for offset, leased in enumerate(leases):
        settle = m.Settle(0, leased.token, ACK, [], -1, "", [(offset, b"%d" % offset * 900_000)])
        rig.send(m.SettleTasks(rig.next_request(), topic, "g", [settle]))
    rig.turn()
    assert [ask(rig, topic, offset).result[:1] for offset in range(6)] == [b"%d" % each for each in range(6)]


@pytest.mark.parametrize("seq", [1, 2, 1 << 40], ids=["records", "others", "lost"])
def test_a_word_whose_batch_does_not_speak_of_the_record_says_nothing(rig: Rig, topic: bytes, seq: int):
    settled(rig, topic, rig.lease(topic, most=2))
    (partition,) = rig.node._registry.partitions.values()
    partition.finals.noted("g", [(Outcome.RESULT, 1, 1)])
    partition.finals.batch_applied(seq)
    answer = ask(rig, topic, 1)
    assert (answer.state, answer.result, partition.damaged) == ("completed", None, False)


def test_discarded_is_remembered(rig: Rig, topic: bytes):
    settled(rig, topic, rig.lease(topic, most=2), REJECT)
    rig.ask(m.DiscardDead, topic, "g")
    answer = ask(rig, topic, 1)
    assert answer.state == "discarded"
    assert answer.why.startswith("discarded after it was dead-lettered")


# -- cancelling -----------------------------------------------------------------------------------


def test_a_cancelled_pending_task_is_never_leased(rig: Rig, topic: bytes):
    assert cancel(rig, topic, 1).state == "cancelled"
    assert rig.lease(topic, most=6).runs == [(0, 1, 1), (2, 4, 1)]
    assert ask(rig, topic, 1).state == "cancelled"
    rig.restart()
    assert ask(rig, topic, 1).state == "cancelled"


def test_a_cancelled_waiting_task_is_not_tried_again(rig: Rig, topic: bytes):
    settled(rig, topic, rig.lease(topic, most=6), NACK, [], 0)
    assert cancel(rig, topic, 3).state == "cancelled"
    assert rig.lease(topic, most=6).runs == [(0, 3, 2), (4, 2, 2)]


def test_a_leased_task_is_flagged_and_ends_with_its_lease(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=1)
    answer = cancel(rig, topic, 0)
    assert (answer.state, answer.cancelling) == ("leased", True)
    assert "cancelled" in answer.why
    assert cancel(rig, topic, 0).cancelling
    assert answer.attempt == 1
    settled(rig, topic, leased, NACK, [], 0)
    answer = ask(rig, topic, 0)
    assert (answer.state, answer.attempt) == ("cancelled", 0), "its attempts are forgotten"
    assert rig.lease(topic, most=1).runs == [(1, 1, 1)]


def test_a_result_that_came_in_spite_of_a_cancellation_is_kept(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=1)
    cancel(rig, topic, 0)
    settled(rig, topic, leased, ACK, [], -1, "", [(0, b"done")])
    answer = ask(rig, topic, 0)
    assert (answer.state, answer.result) == ("completed", b"done")


def test_what_its_worker_finished_in_spite_of_a_cancellation_is_completed(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=1)
    cancel(rig, topic, 0)
    settled(rig, topic, leased)
    answer = ask(rig, topic, 0)
    assert (answer.state, "completed" in answer.why) == ("completed", True)


def test_cancelling_what_is_final_changes_nothing(rig: Rig, topic: bytes):
    settled(rig, topic, rig.lease(topic, most=1))
    settled(rig, topic, rig.lease(topic, most=1), REJECT)
    before = rig.node.logs[1].written
    assert [cancel(rig, topic, offset).state for offset in (0, 1)] == ["completed", "dead"]
    assert rig.node.logs[1].written == before


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "state"), [(ACK, "completed"), (REJECT, "dead")], ids=["completed", "dead"])
def test_who_waits_is_told_when_it_is_final(rig: Rig, topic: bytes, verb: int, state: str):
    leased = rig.lease(topic, most=2)
    for offset in (0, 1, 5):
        assert ask(rig, topic, offset, 60_000) is None
    settled(rig, topic, leased, verb)
    told = [message.state for _, message, _ in rig.port.sent if isinstance(message, m.TaskState)]
    assert told == [state, state]
    assert rig.node.stats()["tasks.waiting"] == 1


def test_who_waits_for_a_cancelled_or_discarded_task_is_told(rig: Rig, topic: bytes):
    assert ask(rig, topic, 4, 60_000) is None
    cancel(rig, topic, 4)
    assert [each.state for _, each, _ in rig.port.sent if isinstance(each, m.TaskState)] == ["cancelled"] * 2


def test_a_task_that_failed_is_waited_for_through_its_next_attempt(rig: Rig, topic: bytes):
    assert ask(rig, topic, 0, 60_000) is None
    settled(rig, topic, rig.lease(topic, most=1), NACK, [], 0)
    assert rig.node.stats()["tasks.waiting"] == 1
    settled(rig, topic, rig.lease(topic, most=1), ACK, [], -1, "", [(0, b"42")])
    (answer,) = [each for _, each, _ in rig.port.sent if isinstance(each, m.TaskState)]
    assert answer.result == b"42"


def test_when_the_time_is_up_the_state_of_then_is_told(rig: Rig, topic: bytes):
    rig.lease(topic, most=1)
    assert ask(rig, topic, 0, 5_000) is None
    rig.pass_time(5.5)
    assert [each.state for _, each, _ in rig.port.sent if isinstance(each, m.TaskState)] == ["leased"]


def test_who_left_is_not_answered(rig: Rig, topic: bytes):
    assert ask(rig, topic, 0, 5_000, peer="gone") is None
    rig.node.disconnect("gone")
    settled(rig, topic, rig.lease(topic, most=1))
    rig.pass_time(6)
    assert not [each for _, each, _ in rig.port.sent if isinstance(each, m.TaskState)]


def test_no_more_than_so_many_wait(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parked, "EACH_MAX", 2)
    for _ in range(2):
        assert ask(rig, topic, 0, 5_000) is None
    assert ask(rig, topic, 0, 5_000).code == "limit_reached"
    assert ask(rig, topic, 0).state == "pending"
    assert ask(rig, topic, 0, 5_000, peer="another") is None
    monkeypatch.setattr(parked, "ALL_MAX", 3)
    assert "3 questions after tasks wait" in ask(rig, topic, 0, 5_000, peer="another").message


def test_the_end_of_a_group_or_topic_ends_the_wait(rig: Rig, topic: bytes):
    assert ask(rig, topic, 0, 60_000) is None
    (partition,) = rig.node._registry.partitions.values()
    partition.propose(fx.QueueDeleted("g"))
    rig.turn()
    rig.ask(m.SetQueue, topic, "g", {})
    assert ask(rig, topic, 0, 60_000) is None
    rig.ask(m.DeleteTopic, topic)
    told = [each.code for _, each, _ in rig.port.sent if isinstance(each, m.Failure)]
    assert told == ["unknown_group", "unknown_topic"]


def test_cold_pages_are_waited_for(rig: Rig, topic: bytes):
    settled(rig, topic, rig.lease(topic, most=1), ACK, [], -1, "", [(0, b"cold")])
    rig.port.cold = []
    assert ask(rig, topic, 0) is None
    (token,) = set(rig.port.cold)
    rig.port.cold = None
    rig.node.warmed(token)
    assert [each.result for _, each, _ in rig.port.sent if isinstance(each, m.TaskState)] == [b"cold"]


# -- what is refused ------------------------------------------------------------------------------


def test_an_offset_that_is_not_there_yet_is_out_of_bounds(rig: Rig, topic: bytes):
    for answer in (ask(rig, topic, 6), cancel(rig, topic, 6)):
        assert (answer.code, answer.message.endswith("it ends at 6")) == ("out_of_bounds", True)


def test_a_group_that_is_not_there_is_unknown(rig: Rig, topic: bytes):
    assert rig.ask(m.AskTask, topic, "other", 0, 0).code == "unknown_group"
    assert rig.ask(m.CancelTask, topic, "other", 0, 0).code == "unknown_group"


def test_a_record_before_the_start_of_the_group_is_no_task_of_it(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "late", {}, -2)
    answer = rig.ask(m.AskTask, topic, "late", 0, 3)
    assert (answer.code, "which began at 6" in answer.message) == ("unknown_task", True)


def test_what_retention_removed_is_forgotten(rig: Rig, topic: bytes):
    settled(rig, topic, rig.lease(topic, most=6))
    (partition,) = rig.node._registry.partitions.values()
    partition.committed.first = 3
    assert ask(rig, topic, 2).code == "task_forgotten"
    assert ask(rig, topic, 3).state == "completed"


def test_no_question_is_answered_where_damage_hides_what_stands(rig: Rig, topic: bytes):
    (partition,) = rig.node._registry.partitions.values()
    partition.history.damaged = True
    assert ask(rig, topic, 0).code == "unavailable"


def test_damage_met_later_keeps_no_question_from_its_answer(rig: Rig, topic: bytes):
    (partition,) = rig.node._registry.partitions.values()
    partition.damaged = True
    assert ask(rig, topic, 0).state == "pending"
