"""The worker stepped by hand, over a broker in memory; both live by one clock that moves when told to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from penstock.broker.errors import LeaseLost, Unavailable
from penstock.clients.errors import InvalidArgument, TimedOut
from penstock.clients.working.core import WorkerCore
from penstock.clients.working.leases import SettleFuture
from penstock.transport.messages import Failure
from penstock.transport.queue_messages import BY_GROUP, ExtendLeases, Lease, Leased, Settled, SettleTasks, Verb
from support.worker_bench import LEASE_S, Bench


@pytest.fixture
def bench(penstock_broker: Any) -> Iterator[Bench]:
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send_many([b"%d" % number for number in range(100)])
    bench = Bench(penstock_broker)
    yield bench
    bench.connection.close()


def offsets(tasks: list[Any]) -> list[int]:
    return [task.offset for task in tasks]


# -- heartbeats -------------------------------------------------------------------------------------------


def test_what_the_application_works_on_is_kept_by_heartbeats(bench):
    one, two = bench.worker(max_processing=3600.0), bench.worker(start="earliest")
    tasks = bench.fetch(one, 100)
    bench.asked(ExtendLeases)
    bench.pass_time(10 * LEASE_S)
    beats = bench.asked(ExtendLeases)
    assert 25 <= len(beats) <= 35, "one each third of the lease"
    assert {len(beat.leases) for beat in beats} == {1}
    assert bench.fetch(two) == []
    bench.run(one.settle_now(tasks, Verb.ACK))
    bench.pass_time(LEASE_S)
    assert bench.asked(ExtendLeases) == [], "what is acked needs no heartbeat"


def test_a_heartbeat_that_ctrl_c_kept_from_being_sent_is_no_last_one(bench, monkeypatch):
    def interrupted(question: object) -> None:
        raise KeyboardInterrupt

    core, other = bench.worker(), bench.worker()
    assert offsets(bench.fetch(core, 1)) == [0]
    with monkeypatch.context() as patch:
        patch.setattr(bench.connection, "post", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.pass_time(LEASE_S / 2)
    bench.pass_time(3 * LEASE_S)
    assert offsets(bench.fetch(other, 1)) == [1]


def test_leases_are_extended_together(bench):
    core = bench.worker()
    held = [bench.fetch(core, 5) for _ in range(4)]
    bench.asked(ExtendLeases)
    bench.pass_time(LEASE_S / 2)
    assert [len(beat.leases) for beat in bench.asked(ExtendLeases)] == [len(held)]


def test_a_hung_application_loses_its_leases(bench):
    one, two = bench.worker(max_processing=60.0), bench.worker(max_processing=3600.0)
    (task,) = bench.fetch(one, 1)
    bench.pass_time(50)
    assert offsets(bench.fetch(two, 1)) == [1]
    bench.pass_time(60)
    (again,) = bench.fetch(two, 1)
    assert (again.offset, again.attempt) == (0, 2)
    with pytest.raises(LeaseLost, match="t-0-0"):
        bench.run(one.settle_now((task,), Verb.ACK))
    assert task.lost


def test_a_lease_that_the_broker_says_is_lost_is_marked_and_refused_without_asking(bench):
    core = bench.worker(max_processing=3600.0)
    early, late = bench.fetch(core, 2), bench.fetch(core, 2)
    bench.cut = True
    bench.pass_time(LEASE_S + 1)
    bench.cut = False
    bench.pass_time(10)
    assert [task.lost for task in early + late] == [True] * 4
    bench.asked(SettleTasks)
    with pytest.raises(LeaseLost):
        bench.run(core.settle_now(early, Verb.ACK))
    assert bench.asked(SettleTasks) == []


def test_an_hour_by_hand_is_not_cut_short_by_a_heartbeat(bench):
    core, other = bench.worker(max_processing=10.0), bench.worker()
    (task,) = bench.fetch(core, 1)
    bench.run(core.extend(task, 3600))
    bench.pass_time(3000, step=10.0)
    assert offsets(bench.fetch(other, 1)) == [1]
    bench.run(core.settle_now((task,), Verb.ACK))


@pytest.fixture
def endless(bench) -> Any:
    """A client of the broker, whose group has leases without an end."""
    with bench.broker.connect() as client:
        client.set_queue("t", "jobs", lease_s=None, max_attempts=None)
        yield client


def test_a_lease_without_an_end_outlasts_a_hung_application_and_says_what_was_cancelled(bench, endless):
    core = bench.worker(lease=None, max_processing=3600.0)
    (task,) = bench.fetch(core, 1)
    endless.cancel_task("t-0-0", "jobs")
    bench.asked(ExtendLeases)
    bench.pass_time(12)
    assert (task.cancelled, [beat.lease_ms for beat in bench.asked(ExtendLeases)]) == (True, [0])
    bench.run(core.extend(task, None, progress=b"half"))
    assert endless.task("t-0-0", "jobs").progress == b"half"
    bench.pass_time(7200, step=20.0)
    assert len(bench.asked(ExtendLeases)) in range(170, 190), "as of one with 30 s, while the application calls"
    assert not task.lost
    bench.run(core.settle_now((task,), Verb.ACK))
    found = endless.task("t-0-0", "jobs")
    assert (found.state, found.time, found.given) == ("completed", None, None)


def test_a_lease_without_an_end_that_only_waits_here_goes_back(bench, endless):
    one, two = bench.worker(lease=None, prefetch=1), bench.worker(lease=None)
    bench.fetch(one, 1)
    bench.connection.turn()
    bench.pass_time(LEASE_S / 3 + 1)
    (again,) = bench.fetch(two, 1)
    assert (again.offset, again.attempt) == (1, 1)


def test_a_lease_without_an_end_has_one_after_a_heartbeat_under_another_setting(bench, endless):
    core, other = bench.worker(lease=None), bench.worker(lease=None)
    (task,) = bench.fetch(core, 1)
    endless.set_queue("t", "jobs", lease_s=6)
    bench.pass_time(11)
    assert (task._lease.lease_ms, endless.task("t-0-0", "jobs").time) != (0, None)
    bench.asked(ExtendLeases)
    bench.pass_time(10)
    assert len(bench.asked(ExtendLeases)) in (4, 5), "each third of six seconds"
    bench.cut = True
    bench.pass_time(7)
    bench.cut = False
    (again,) = bench.fetch(other, 1)
    assert (again.offset, again.attempt) == (0, 2)
    bench.run(other.extend(again, 3600))
    assert again._lease.lease_ms == 6_000


def test_a_lease_without_an_end_gets_the_one_that_its_worker_asks_for(bench, endless):
    core = bench.worker(lease=None)
    (task,) = bench.fetch(core, 1)
    bench.run(core.extend(task, 60))
    assert task._lease.lease_ms == 60_000
    assert endless.task("t-0-0", "jobs").time is not None


def test_what_only_waits_here_goes_back_uncounted_when_others_might_have_time(bench):
    one, two = bench.worker(prefetch=1, max_processing=3600.0), bench.worker()
    assert offsets(bench.fetch(one, 1)) == [0]
    bench.connection.turn()
    assert offsets(bench.fetch(two, 1)) == [2], "one waits ahead of the application"
    bench.pass_time(LEASE_S / 3 + 1)
    (again,) = bench.fetch(two, 1)
    assert (again.offset, again.attempt) == (1, 1)
    bench.asked(Lease)
    bench.pass_time(LEASE_S)
    assert bench.asked(Lease) == [], "nothing is asked for ahead before the application calls again"


# -- what is sent -----------------------------------------------------------------------------------------


def test_an_ack_and_fetch_is_one_request(bench):
    core = bench.worker()
    tasks = bench.fetch(core, 10)
    bench.sent.clear()
    for _ in range(3):
        tasks = bench.run(core.ack_and_fetch(tasks, 10, bench.connection.clock()))
        (lease,) = bench.sent
        assert (type(lease), len(lease.settles)) == (Lease, 1)
        assert lease.settles[0].ranges == [], "all of a lease needs no ranges"
        bench.sent.clear()
    assert offsets(tasks) == list(range(30, 40))


def test_with_prefetch_the_next_batch_is_here_and_acks_ride_on_the_request_for_the_one_after(bench):
    core = bench.worker(prefetch=1)
    tasks = bench.fetch(core, 10)
    for _ in range(20):
        bench.connection.turn()
    bench.sent.clear()
    for number in range(1, 6):
        tasks = bench.run(core.ack_and_fetch(tasks, 10, bench.connection.clock()))
        assert offsets(tasks) == list(range(number * 10, number * 10 + 10))
        assert [(type(message), len(message.settles)) for message in bench.sent] == [(Lease, 1)]
        bench.sent.clear()


def test_contiguous_acks_become_ranges_and_different_outcomes_stay_apart(bench):
    core = bench.worker()
    tasks = bench.fetch(core, 10)
    for task in (*tasks[:3], *tasks[6:8]):
        bench.run(core.ack_later(task, None))
    bench.run(core.ack_later(tasks[9], b"result"))
    bench.asked(SettleTasks)
    bench.run(core.settle_now(tasks[4:6], Verb.REJECT, reason="broken"))
    (said,) = bench.asked(SettleTasks)
    assert [(settle.verb, settle.ranges, settle.results) for settle in said.settles] == [
        (Verb.ACK, [(0, 3), (6, 2), (9, 1)], [(9, b"result")]),
        (Verb.REJECT, [(4, 2)], []),
    ]


def test_outcomes_without_a_waiter_go_out_by_themselves(bench):
    core = bench.worker()
    futures = [bench.run(core.ack_later(task, None)) for task in bench.fetch(core, 5)]
    bench.asked(SettleTasks)
    assert core.due() <= bench.connection.clock() + 0.01
    bench.pass_time(0.01, step=0.01)
    assert len(bench.asked(SettleTasks)) == 1
    assert all(future.done() for future in futures)


# -- losses -----------------------------------------------------------------------------------------------


def test_what_was_on_its_way_when_the_connection_was_lost_is_asked_again(bench):
    core = bench.worker()
    (task, *rest) = bench.fetch(core, 5)
    future = bench.run(core.ack_later(task, None))
    bench._receive()  # nothing is left over
    core.settling.send()
    bench.answers[Settled] = lambda answer: Failure(0, "lost", "on its way")
    bench.connection.turn()
    del bench.answers[Settled]
    assert not future.done(), "the answer was lost"
    bench.asked(SettleTasks)
    bench.connection.channel.connections += 1  # type: ignore[misc]
    bench.run(core.settled(future, bench.connection.deadline()))
    assert future.exception() is None
    assert len(bench.asked(SettleTasks)) == 1, "it was committed before, which is no error"
    bench.run(core.settle_now(rest, Verb.ACK))


def test_a_lease_that_was_asked_for_over_the_old_connection_is_asked_for_over_the_new_one(bench):
    core = bench.worker(prefetch=1)
    bench.run(core.settle_now(bench.fetch(core, 100), Verb.ACK))
    assert bench.fetch(core) == []
    bench.pass_time(1)
    bench.asked(Lease)
    bench.connection.channel.connections += 1  # type: ignore[misc]
    bench.pass_time(1)
    (credit,) = bench.asked(Lease)
    assert 0 < credit.wait_ms <= 10_000


def test_no_task_is_handed_out_of_a_lease_that_ran_out_while_the_broker_was_away(bench):
    core = bench.worker(prefetch=1)
    bench.fetch(core, 1)
    for _ in range(20):
        bench.connection.turn()
    bench.cut = True
    bench.pass_time(LEASE_S + 1)
    bench.cut = False
    (task,) = bench.fetch(core, 1) or bench.fetch(core, 1)
    assert (task.offset, task.attempt) == (0, 2), "both leases are over: the first of them comes again"


def test_no_task_is_handed_out_of_a_lease_that_ran_out_while_this_process_was_stopped(bench):
    core = bench.worker(prefetch=1)
    (first,) = bench.fetch(core, 1)
    bench.broker.advance(LEASE_S + 1)  # the next lease is in an answer that is not read meanwhile
    other = bench.worker()
    assert [(task.offset, task.attempt) for task in bench.fetch(other, 2)] == [(0, 2), (1, 2)]
    assert [task.offset for task in bench.fetch(core, 1)] == [2]
    with pytest.raises(LeaseLost):
        bench.run(core.settle_now([first], Verb.ACK))


def test_what_the_broker_cannot_take_now_is_said_again_later(bench):
    core = bench.worker()
    tasks = bench.fetch(core, 3)
    future = bench.run(core.ack_later(tasks[0], None))
    core.settling.send()
    bench.answers[Settled] = lambda answer: Failure(answer.request, Unavailable.code, "the disk is full", True)
    bench.connection.turn()
    del bench.answers[Settled]
    assert not future.done()
    assert "the disk is full" in core.settling.trouble
    bench.asked(SettleTasks)
    bench.pass_time(1, step=0.1)
    assert future.done()
    assert future.exception() is None
    assert len(bench.asked(SettleTasks)) == 1


def test_what_the_broker_cannot_take_now_is_not_said_again_before_the_time_that_it_names(bench):
    core = bench.worker()
    (task,) = bench.fetch(core, 1)
    future = bench.run(core.ack_later(task, None))
    core.settling.send()
    bench.answers[Settled] = lambda answer: Failure(answer.request, "overloaded", "over a quota", True, after_ms=9000)
    bench.connection.turn()
    del bench.answers[Settled]
    bench.asked(SettleTasks)
    bench.pass_time(8)
    assert bench.asked(SettleTasks) == []
    bench.pass_time(2)
    assert len(bench.asked(SettleTasks)) == 1
    assert future.done()


def test_what_no_broker_would_take_is_refused_and_not_waited_for(bench):
    core = bench.worker()
    bad, good = bench.fetch(core)[:2]
    told = SettleFuture(core)
    core.settling.gather(bad._lease, Verb.NACK, BY_GROUP, "\ud800", [bad.offset], [], told)
    beside = bench.run(core.ack_later(good, None))
    core.settling.send()
    for future in (told, beside):
        with pytest.raises(InvalidArgument):
            future.raise_error()
    assert core.settling.unconfirmed == 0


def test_an_outcome_that_rides_on_a_request_that_cannot_be_is_refused_with_it(bench):
    core = bench.worker()
    tasks = bench.fetch(core)
    core.settling.gather(tasks[0]._lease, Verb.NACK, BY_GROUP, "\ud800", [tasks[0].offset], [], SettleFuture(core))
    with pytest.raises(InvalidArgument):
        bench.fetch(core)
    assert core.settling.unconfirmed == 0


def test_a_broker_that_does_not_answer_is_not_taken_for_one_without_tasks(bench):
    core, waits_s = bench.worker(), 1.0
    bench.cut = True
    fetching = core.fetch(1, bench.connection.clock() + waits_s)
    next(fetching)
    bench.broker.clock.advance(waits_s)
    next(fetching)
    bench.broker.clock.advance(bench.connection.timeout)
    with pytest.raises(TimedOut, match="leasing tasks of topic t"):
        next(fetching)
    bench.cut = False
    bench.connection.turn()
    assert offsets(bench.fetch(core, 1)) == [0]


def test_a_broker_that_gives_no_leases_now_is_asked_again_and_quoted(bench):
    core = bench.worker()
    bench.answers[Leased] = lambda answer: Failure(answer.request, Unavailable.code, "the log is damaged", True)
    with pytest.raises(Unavailable, match="the log is damaged"):
        bench.fetch(core)
    bench.asked(Lease)
    with pytest.raises(Unavailable, match="the log is damaged"):
        bench.fetch(core)
    assert bench.asked(Lease) == [], "not before a moment has passed"
    del bench.answers[Leased]
    bench.pass_time(LEASE_S + 1)
    assert offsets(bench.fetch(core, 1)) == [0], "what it was given meanwhile never arrived, and came back"


def test_only_the_tasks_of_the_lost_lease_are_refused(bench):
    one, two = bench.worker(max_processing=10.0), bench.worker(lease=3600)
    early = bench.fetch(one, 2)
    bench.pass_time(LEASE_S + 5, step=5.0)
    late = bench.fetch(one, 2)
    assert [task.attempt for task in late] == [2, 2]
    assert offsets(late) == offsets(early)
    other = bench.fetch(one, 2)
    with pytest.raises(LeaseLost, match="t-0-0 and 1 more"):
        bench.run(one.settle_now([*early, *other], Verb.ACK))
    bench.run(one.settle_now(late, Verb.ACK))
    bench.pass_time(10 * LEASE_S, step=5.0)
    assert offsets(bench.fetch(two, 3)) == [4, 5, 6], "0 to 3 are done"


# -- credit -----------------------------------------------------------------------------------------------


def waiting(bench: Bench, **how: Any) -> WorkerCore:
    """A worker with credit at the broker, which has nothing left."""
    core = bench.worker(prefetch=1, **how)
    bench.run(core.settle_now(bench.fetch(core, 100), Verb.ACK))
    assert bench.fetch(core) == []
    bench.pass_time(1)
    bench.asked(Lease)
    return core


def produce(bench: Bench, *values: bytes) -> None:
    with bench.broker.connect() as client:
        client.producer("t").send_many(list(values))


def test_who_takes_tasks_as_they_come_asks_once_for_each(bench):
    core = waiting(bench)
    for number in range(5):
        produce(bench, b"%d" % number)
        tasks = bench.run(core.fetch(1, bench.connection.clock() + 1))
        assert [task.value for task in tasks] == [b"%d" % number]
        bench.run(core.settle_now(tasks, Verb.ACK))
        (credit,) = bench.asked(Lease)
        assert credit.wait_ms > 0


def test_credit_that_nothing_is_known_of_does_not_make_a_fetch_come_back_empty(bench):
    core = waiting(bench)
    produce(bench, b"first")
    assert len(bench.run(core.fetch(1, bench.connection.clock() + 1))) == 1
    bench.asked(Lease)
    assert bench.fetch(core) == []
    (asked,) = bench.asked(Lease)
    assert asked.wait_ms == 0, "what is there was asked for"
    assert bench.fetch(core) == []
    assert bench.asked(Lease) == [], "by now it is known that there was nothing"
    produce(bench, b"second")
    assert [task.value for task in bench.run(core.fetch(1, bench.connection.clock() + 1))] == [b"second"]


def test_outcomes_that_were_gathered_ride_on_a_request_that_is_answered_at_once(bench):
    core = waiting(bench)
    produce(bench, b"first", b"second")
    (task,) = bench.run(core.fetch(1, bench.connection.clock() + 1))
    bench.run(core.ack_later(task, None))
    bench.run(core.fetch(1, bench.connection.clock() + 1))
    (riding,) = [lease for lease in bench.asked(Lease) if lease.settles]
    assert riding.wait_ms == 0


# -- the end ----------------------------------------------------------------------------------------------


def test_credit_of_a_closed_worker_gives_back_what_comes(bench):
    core, other = bench.worker(prefetch=1), bench.worker()
    bench.run(core.settle_now(bench.fetch(core, 100), Verb.ACK))
    assert bench.fetch(core) == []
    bench.pass_time(1)
    bench.run(core.close())
    with bench.broker.connect() as client:
        client.producer("t").send(b"late")
    for _ in range(20):
        bench.connection.turn()
    (task,) = bench.fetch(other)
    assert (task.value, task.attempt) == (b"late", 1)


def test_an_error_of_the_next_call_does_not_cost_the_tasks_that_came_with_it(bench):
    core = bench.worker(max_processing=10.0)
    early = bench.fetch(core, 2)
    bench.pass_time(LEASE_S + 5, step=5.0)
    with pytest.raises(LeaseLost):
        bench.run(core.ack_and_fetch(early, 2, bench.connection.clock()))
    again = bench.fetch(core, 2)
    assert [(task.offset, task.attempt) for task in again] == [(0, 2), (1, 2)]


@pytest.mark.parametrize("tasks", [{}, "", b"", set(), 5, None, [None]])
def test_what_is_no_list_of_tasks_is_refused(bench, tasks):
    with pytest.raises(InvalidArgument, match=r"^tasks=.* is not a list of tasks: give those that fetch returned"):
        bench.run(bench.worker().settle_now(tasks, Verb.NACK))
