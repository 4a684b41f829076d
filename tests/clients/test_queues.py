"""Queue groups, dead tasks, tasks by id and schedules, through clients of every kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from penstock.broker.errors import InvalidRequest, InvalidSettings, LeaseLost, UnknownGroup, UnknownSchedule
from penstock.clients import InvalidArgument, TimedOut
from penstock.clients.queues.descriptions import Queue, QueuePartition, dead_of, moment, schedule_of
from penstock.storage.batch import Stamp, encode, stamp
from penstock.transport import messages
from penstock.transport.queue_messages import FOREVER_US

WAIT = 30.0
EARLY = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))


def fill(client, topic, count, *, partitions=1):
    client.create_topic(topic, partitions=partitions)
    with client.producer(topic) as producer:
        for partition in range(partitions):
            producer.send_many([b"%d" % number for number in range(count)], partition=partition)


def rejected(client, topic, count, reason="broken"):
    """Let the first `count` records of the group die."""
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        left = count
        while left:
            tasks = worker.fetch(left, wait=WAIT)
            worker.reject(tasks, reason)
            left -= len(tasks)


def test_a_queue_group_is_made_described_changed_and_forgotten(client, topic):
    fill(client, topic, 5, partitions=2)
    made = client.set_queue(topic, "jobs", lease_s="1m", max_attempts=3)
    assert (made.topic, made.name, made.ready, made.depth) == (topic, "jobs", 10, 10)
    assert (made.settings["lease_s"], made.settings["max_attempts"]) == (60, 3)
    assert client.set_queue(topic, "jobs", key_rate_per_s=5).settings["key_rate_per_s"] == 5
    for rate in ("10/s", "10s", timedelta(seconds=1), float("nan"), -1):
        with pytest.raises(InvalidSettings, match=r"key_rate_per_s=.* is not allowed: "):
            client.set_queue(topic, "jobs", key_rate_per_s=rate)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        (task,) = worker.fetch(1, wait=WAIT)
        found = client.queue(topic, "jobs")
        assert (found.ready, found.in_flight, found.depth, found.settings["lease_s"]) == (9, 1, 10, 60)
        assert found.paused_until is None
        assert datetime.now(UTC) - found.oldest < timedelta(days=36500)
        task.ack()
    assert [queue.name for queue in client.queues(topic)] == ["jobs"]
    assert topic in [queue.topic for queue in client.queues()]
    client.delete_queue(topic, "jobs")
    assert client.queues(topic) == []
    with pytest.raises(UnknownGroup, match="has no queue group 'jobs'; it has: none"):
        client.queue(topic, "jobs")
    with pytest.raises(UnknownGroup):
        client.delete_queue(topic, "jobs")


def test_a_group_may_give_its_workers_any_time_and_its_records_any_number_of_attempts(client, topic):
    fill(client, topic, 2)
    made = client.set_queue(topic, "jobs", lease_s=None, max_attempts=None)
    assert (made.settings["lease_s"], made.settings["max_attempts"]) == (None, None)
    with client.worker(topic, group="jobs", prefetch=0, name="ann") as worker:
        (task,) = worker.fetch(1, wait=WAIT)
        found = client.task(task.id, group="jobs")
        assert (found.state, found.worker, found.attempt, found.time) == ("leased", "ann", 1, None)
        assert found.given is not None
        assert "until it is settled, attempt 1" in found.why
        other = client.task(f"{topic}-0-1", group="jobs")
        assert (other.state, other.given) == ("pending", None)
        task.ack()


def test_tasks_are_settled_by_id_whichever_worker_holds_them(client, topic):
    fill(client, topic, 6)
    client.set_queue(topic, "jobs", lease_s="1h", backoff_s=0)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        tasks = worker.fetch(5, wait=WAIT)
        ids = [task.id for task in tasks]
        assert client.settle(topic, "jobs", [*ids[:2], ids[0], f"{topic}-0-5"], "ack", result=b"done") == 2
        assert client.settle(topic, "jobs", ids[:2], "ack") == 0
        assert client.settle(topic, "jobs", [ids[2]], "nack", delay="1h", reason="slow") == 1
        assert client.settle(topic, "jobs", [ids[3]], "reject", reason="bad") == 1
        assert client.settle(topic, "jobs", [ids[4]], "release") == 1
        assert client.settle(topic, "jobs", [], "ack") == 0
        found = [client.task(id_, group="jobs") for id_ in ids]
        assert [each.state for each in found] == ["completed", "completed", "retrying", "dead-lettered", "retrying"]
        assert [each.attempt for each in found] == [1, 1, 1, 1, 0]
        assert (found[0].result, found[2].reason, found[3].reason) == (b"done", "slow", "bad")
        assert found[2].time > datetime.now(UTC) - timedelta(days=36500)
        with pytest.raises(LeaseLost):
            tasks[4].ack()


def test_leased_tasks_are_listed_and_counted(client, topic):
    fill(client, topic, 6, partitions=2)
    client.set_queue(topic, "jobs", lease_s=None)
    assert client.pending(topic, "jobs") == []
    empty = client.pending_summary(topic, "jobs")
    assert (empty.count, empty.lowest, empty.highest, empty.workers) == (0, None, None, {})
    with (
        client.worker(topic, group="jobs", prefetch=0, name="ann") as ann,
        client.worker(topic, group="jobs", prefetch=0, name="bob", lease="1h") as bob,
    ):
        tasks = [*ann.fetch(6, wait=WAIT), *bob.fetch(6, wait=WAIT)]
        tasks[0].ack()
        found = client.pending(topic, "jobs")
        assert [task.id for task in found] == sorted(task.id for task in tasks[1:])
        assert {task.worker for task in found} == {"ann", "bob"}
        one = next(task for task in found if task.worker == "ann")
        assert (one.topic, one.attempt, one.until) == (topic, 1, None)
        assert 0 <= one.idle < 1000
        assert abs(datetime.now(UTC) - one.given) < timedelta(days=36500)
        assert next(task for task in found if task.worker == "bob").until is not None
        of_ann = client.pending(topic, "jobs", worker="ann")
        assert [task.id for task in of_ann] == [task.id for task in found if task.worker == "ann"]
        assert client.pending(topic, "jobs", idle="1d") == []
        assert [task.id for task in client.pending(topic, "jobs", max_records=7)] == [task.id for task in found[:7]]
        assert [task.offset for task in client.pending(topic, "jobs", partition=1, offset=2, end=4)] == [2, 3]
        counts = client.pending_summary(topic, "jobs")
        assert (counts.count, counts.workers) == (11, {"ann": 5, "bob": 6})
        assert (counts.lowest, counts.highest) == (found[0].id, found[-1].id)
    for wrong in ({"offset": 3}, {"end": 3}, {"max_records": 0}, {"idle": "200000d"}):
        with pytest.raises(InvalidArgument):
            client.pending(topic, "jobs", **wrong)
    with pytest.raises(UnknownGroup):
        client.pending(topic, "others")
    with pytest.raises(UnknownGroup):
        client.pending_summary(topic, "others")


def test_workers_are_listed_and_forgotten_with_what_they_hold(client, topic):
    fill(client, topic, 6, partitions=2)
    client.set_queue(topic, "jobs", lease_s=None)
    assert client.workers(topic, "jobs") == []
    client.pause_queue(topic, "jobs")
    with client.worker(topic, group="jobs", prefetch=0, name="ann") as ann:
        assert ann.fetch(6, wait=0) == []
        (idle,) = client.workers(topic, "jobs")
        assert (idle.name, idle.pending, idle.last_active, idle.waiting) == ("ann", 0, None, False)
        assert abs(idle.first_seen - idle.last_asked) < timedelta(seconds=5)
        client.resume_queue(topic, "jobs")
        tasks = [*ann.fetch(6, wait=WAIT), *ann.fetch(6, wait=WAIT)]
        tasks[0].ack()
        client.claim(topic, "jobs", "bob", [tasks[1].id])
        found = client.workers(topic, "jobs")
        assert [(each.name, each.pending) for each in found] == [("ann", 10), ("bob", 1)]
        assert all(each.first_seen <= each.last_active for each in found)
        assert found[0].first_seen == idle.first_seen
        assert abs(datetime.now(UTC) - found[0].first_seen) < timedelta(days=36500)
        assert client.forget_worker(topic, "jobs", "ann") == 10
        assert [each.name for each in client.workers(topic, "jobs")] == ["bob"]
        with pytest.raises(LeaseLost):
            tasks[2].ack()
    assert client.queue(topic, "jobs").retrying + client.queue(topic, "jobs").ready == 10
    assert client.forget_worker(topic, "jobs", "bob", "ack") == 1
    assert client.task(tasks[1].id, "jobs").state == "completed"
    assert client.forget_worker(topic, "jobs", "bob", "ack") == 0
    with pytest.raises(InvalidArgument):
        client.forget_worker(topic, "jobs", "bob", "drop")
    for verb in (client.workers, lambda *where: client.forget_worker(*where, "ann")):
        with pytest.raises(UnknownGroup):
            verb(topic, "others")


def test_leased_tasks_are_given_to_another_worker(client, topic):
    fill(client, topic, 4, partitions=2)
    client.set_queue(topic, "jobs", lease_s=None, max_attempts=None)
    with client.worker(topic, group="jobs", prefetch=0, name="ann") as worker:
        tasks = [*worker.fetch(4, wait=WAIT), *worker.fetch(4, wait=WAIT)]
        ids = sorted(task.id for task in tasks)
        assert client.claim(topic, "jobs", "bob", idle="1d").tasks == []
        found = client.claim(topic, "jobs", "bob", idle=0, max_records=3)
        assert [(task.id, task.attempt, task.until) for task in found.tasks] == [(id_, 2, None) for id_ in ids[:3]]
        assert [(task.record.value, task.record.offset) for task in found.tasks] == [(b"0", 0), (b"1", 1), (b"2", 2)]
        assert (found.gone, found.next) == ([], ids[3])
        found = client.claim(topic, "jobs", "bob", idle=0, begin=found.next, records=False, attempt=0)
        assert [(task.id, task.attempt, task.record) for task in found.tasks] == [(id_, 1, None) for id_ in ids[3:]]
        assert found.next is None
        assert {task.worker for task in client.pending(topic, "jobs")} == {"bob"}
        given = datetime(2020, 1, 1, tzinfo=UTC)
        named = client.claim(topic, "jobs", "cid", [ids[5], ids[1], ids[1]], given=given, attempt=7, lease="1h")
        assert [(task.id, task.attempt) for task in named.tasks] == [(ids[1], 7), (ids[5], 7)]
        assert named.tasks[0].until is not None
        assert [(task.id, task.given) for task in client.pending(topic, "jobs", worker="cid")] == [
            (ids[1], given), (ids[5], given),
        ]  # fmt: skip
        found = client.claim(topic, "jobs", "eve", holder="cid", given="5m")
        assert [task.id for task in found.tasks] == [ids[1], ids[5]]
        assert all(300 <= task.idle < 1000 for task in client.pending(topic, "jobs", worker="eve"))
        with pytest.raises(LeaseLost):
            worker.ack(tasks)


def test_a_task_that_was_claimed_and_given_back_did_not_fail(client, topic):
    fill(client, topic, 1)
    client.set_queue(topic, "jobs", lease_s=None, max_attempts=None)
    id_ = f"{topic}-0-0"
    with client.worker(topic, group="jobs", prefetch=0, name="ann") as ann:
        ann.fetch(1, wait=WAIT)
        with client.worker(topic, group="jobs", prefetch=0, name="bob") as bob:
            bob.release(bob.claim([id_]))
            found = client.task(id_, "jobs")
            assert (found.state, found.attempt, found.why.partition("; ")[0]) == (
                "retrying",
                1,
                "released after attempt 1",
            )
            (task,) = bob.fetch(1, wait=WAIT)
            task.nack(delay=3600, reason="no network")
            assert client.why(id_, "jobs").startswith("attempt 2 failed: no network; ")


def test_claims_by_force_lease_what_is_not_leased(client, topic):
    fill(client, topic, 150)
    client.set_queue(topic, "jobs")
    ids = [f"{topic}-0-{offset}" for offset in range(150)]
    assert client.claim(topic, "jobs", "bob", ids).tasks == []
    found = client.claim(topic, "jobs", "bob", ids, force=True)
    assert [task.id for task in found.tasks] == ids
    assert client.queue(topic, "jobs").in_flight == 150
    for wrong in (
        {}, {"force": True, "idle": 0}, {"attempt": 1}, {"begin": ids[0]}, {"ids": ids, "begin": ids[0]},
        {"idle": 0, "max_records": 0}, {"idle": "200000d"}, {"ids": ids, "lease": 0}, {"ids": ["other-0-1"]},
        {"idle": 0, "begin": "other-0-1"}, {"ids": ids, "given": datetime(2026, 1, 1)},
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            client.claim(topic, "jobs", "bob", **wrong)
    with pytest.raises(UnknownGroup):
        client.claim(topic, "others", "bob", idle=0)
    with pytest.raises(InvalidRequest):
        client.claim(topic, "jobs", "bob", holder="ann", attempt=21)
    with pytest.raises(InvalidArgument, match="tasks of all workers: say which by ids, holder or idle"):
        client.claim(topic, "jobs", "bob", max_records=3)


def test_results_of_many_tasks_go_in_several_requests(client, topic):
    fill(client, topic, 9)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        ids = [task.id for task in worker.fetch(9, wait=WAIT)]
        result = b"r" * (250 << 10)
        assert client.settle(topic, "jobs", ids, "ack", result=result) == 9
        assert client.task(ids[8], group="jobs").result == result


def test_a_queue_goes_on_elsewhere(client, topic):
    fill(client, topic, 6)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        worker.ack(worker.fetch(6, wait=WAIT))
        client.reset_queue(topic, "jobs", {0: 4})
        again = worker.fetch(9, wait=WAIT)
        assert [task.offset for task in again] == [4, 5]
        worker.ack(again)
    client.reset_queue(topic, "jobs", "earliest")
    assert client.queue(topic, "jobs").ready == 6
    client.reset_queue(topic, "jobs", "latest")
    assert client.queue(topic, "jobs").depth == 0
    client.reset_queue(topic, "jobs", datetime.now(UTC) - timedelta(days=1000))
    with pytest.raises(InvalidArgument, match="moves nothing"):
        client.reset_queue(topic, "jobs", {})


def test_records_are_deleted_by_id(client, topic):
    fill(client, topic, 6)
    assert client.delete_records(topic, [f"{topic}-0-1", f"{topic}-0-2", f"{topic}-0-4"]) == 3
    assert client.delete_records(topic, [f"{topic}-0-4", f"{topic}-0-99"]) == 0
    assert client.deleted(topic, 0, 0, 100) == [(1, 2), (4, 1)]
    assert client.deleted(topic, 0, 3, 3) == []
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        assert [task.offset for task in worker.fetch(9, wait=WAIT)] == [0, 3, 5]
    assert len(client.read(topic, 0, 0)) == 6
    with pytest.raises(InvalidArgument, match="is before start"):
        client.deleted(topic, 0, 3, 2)
    with pytest.raises(InvalidArgument, match="is of topic"):
        client.delete_records(topic, ["other-0-1"])


def test_no_name_is_no_queue_group(client, topic):
    fill(client, topic, 1)
    client.set_queue(topic, "jobs")
    with pytest.raises(UnknownGroup, match="no queue group ''; it has: jobs"):
        client.queue(topic, "")


def test_a_paused_queue_leases_nothing_until_it_goes_on(client, topic):
    fill(client, topic, 2)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        (held,) = worker.fetch(1, wait=WAIT)
        client.pause_queue(topic, "jobs")
        assert client.queue(topic, "jobs").paused_until.year > 2100
        assert worker.fetch(1, wait=0.0) == []
        held.ack()
        client.resume_queue(topic, "jobs")
        assert client.queue(topic, "jobs").paused_until is None
        assert [task.offset for task in worker.fetch(1, wait=WAIT)] == [1]
        client.pause_queue(topic, "jobs", datetime.now(UTC) + timedelta(days=1))
        assert client.queue(topic, "jobs").paused_until is not None


def test_dead_tasks_are_listed_with_their_records_redriven_and_discarded(client, topic):
    fill(client, topic, 6)
    rejected(client, topic, 4, "no such address")
    rejected(client, topic, 1, "timeout")
    dead = client.dead_letters(topic, "jobs")
    assert [(task.record.offset, task.record.value, task.attempt) for task in dead] == [
        (number, b"%d" % number, 1) for number in range(5)
    ]
    assert [task.reason for task in dead] == ["no such address"] * 4 + ["timeout"]
    assert [task.id for task in client.dead_letters(topic, "jobs", partition=0, reason="time")] == [f"{topic}-0-4"]
    assert len(client.dead_letters(topic, "jobs", max_records=3)) == 3
    assert [task.record.offset for task in client.dead_letters(topic, "jobs", partition=0, offset=3)] == [3, 4]
    with pytest.raises(InvalidArgument, match="offset=3 is one of a partition"):
        client.dead_letters(topic, "jobs", offset=3)
    assert client.redrive(topic, "jobs", [dead[0].id, dead[1].id]) == 2
    assert client.redrive(topic, "jobs", []) == 0
    assert client.discard(topic, "jobs", reason="time") == 1
    assert [task.record.offset for task in client.dead_letters(topic, "jobs")] == [2, 3]
    assert client.discard(topic, "jobs", [dead[2].id, dead[2].id]) == 1
    assert client.redrive(topic, "jobs") == 1
    assert client.dead_letters(topic, "jobs") == []
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        again = []
        while len(again) < 4:
            again += worker.fetch(10, wait=WAIT)
        assert sorted((task.offset, task.attempt) for task in again) == [(0, 1), (1, 1), (3, 1), (5, 1)]


def test_a_task_is_followed_by_its_id(client, topic):
    fill(client, topic, 2)
    id_ = f"{topic}-0-0"
    client.set_queue(topic, "jobs")
    assert client.task(id_, "jobs").state == "pending"
    with pytest.raises(TimedOut, match=f"waiting for task {id_}: it is pending"):
        client.wait_task(id_, "jobs", timeout=0.0)
    with client.worker(topic, group="jobs", name="me", prefetch=0) as worker:
        (task,) = worker.fetch(1, wait=WAIT)
        task.progress(b"0.4")
        found = client.task(id_, "jobs")
        assert (found.state, found.worker, found.attempt, found.progress) == ("leased", "me", 1, b"0.4")
        assert found.time is not None
        task.nack(delay=0, reason="no luck")
        (task,) = worker.fetch(1, wait=WAIT)
        found = client.task(id_, "jobs")
        assert [(failure.worker, failure.reason) for failure in found.history] == [("me", "no luck")]
        task.ack(result=b"42")
    found = client.wait_task(id_, "jobs", timeout=WAIT)
    assert (found.state, found.final, found.result) == ("completed", True, b"42")
    why = client.why(id_, "jobs")
    assert why.partition(" (")[0] == found.why.partition(" (")[0]  # behind it stands how long ago that was
    assert why.startswith("completed with a result")


def test_a_cancelled_task_is_leased_to_no_worker_and_its_present_worker_hears_of_it(client, topic):
    fill(client, topic, 2)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        (task,) = worker.fetch(1, wait=WAIT)
        assert client.cancel_task(f"{topic}-0-1", "jobs").state == "cancelled"
        assert client.cancel_task(task.id, "jobs").cancelling
        assert not task.cancelled
        task.extend()
        assert task.cancelled
        task.release()
        assert worker.fetch(2, wait=0.0) == []


def test_what_a_schedule_was_given_may_change_afterwards(client, topic):
    client.create_topic(topic)
    value, key, header = bytearray(b"value"), bytearray(b"key"), bytearray(b"header")
    made = client.schedule(topic, "nightly", "every 1h", value, key=key, headers={"name": header})
    for given in (value, key, header):
        given[:1] = b"X"
    (found,) = client.schedules(topic)
    assert (made.value, made.key) == (found.value, found.key) == (b"value", b"key")
    assert {type(made.value), type(made.key), type(found.value), type(found.key)} == {bytes}


def test_schedules_are_set_listed_replaced_and_forgotten(client, topic):
    client.create_topic(topic)
    made = client.schedule(topic, "tick", "every 30s", b"go", key=b"k", headers={"h": b"1"}, priority=3, coalesce=True)
    assert (made.topic, made.name, made.spec, made.value, made.key) == (topic, "tick", "every 30s", b"go", b"k")
    assert made.last is None
    assert made.next is not None
    assert (made.coalesce, client.schedules(topic)) == (True, [made])
    client.schedule(topic, "tick", "0 6 * * mon-fri", b"morning", zone="Europe/Vienna")
    (found,) = client.schedules(topic)
    assert (found.spec, found.zone, found.value) == ("0 6 * * mon-fri", "Europe/Vienna", b"morning")
    assert not found.coalesce
    assert topic in [schedule.topic for schedule in client.schedules()]
    client.delete_schedule(topic, "tick")
    assert client.schedules(topic) == []
    with pytest.raises(UnknownSchedule, match="tick"):
        client.delete_schedule(topic, "tick")


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda c, t: c.set_queue(t, "jobs", lease=1), InvalidSettings, "lease_s"),
        (
            lambda c, t: c.set_queue(t, "jobs", start="now"),
            InvalidArgument,
            "'latest', or a datetime",
        ),
        (lambda c, t: c.pause_queue(t, "jobs", 5), InvalidArgument, "until=5 is not a datetime"),
        (lambda c, t: c.task("nonsense", "jobs"), InvalidArgument, "'nonsense' is no id of a task"),
        (lambda c, t: c.redrive(t, "jobs", ["other-0-1"]), InvalidArgument, "task other-0-1 is of topic other"),
        (
            lambda c, t: c.redrive(t, "jobs", f"{t}-0-1"),
            InvalidArgument,
            "is one value, not a list",
        ),
        (lambda c, t: c.settle(t, "jobs", ["other-0-1"], "ack"), InvalidArgument, "task other-0-1 is of topic other"),
        (lambda c, t: c.settle(t, "jobs", [], "done"), InvalidArgument, "verb='done' is none of 'ack'"),
        (lambda c, t: c.settle(t, "jobs", [], "ack", delay=0), InvalidArgument, "delay=0 goes with nack, not with ack"),
        (lambda c, t: c.settle(t, "jobs", [], "release", reason="x"), InvalidArgument, "with nack or reject, not with"),
        (lambda c, t: c.settle(t, "jobs", [], "nack", result=b""), InvalidArgument, "result=b'' goes with ack, not"),
        (lambda c, t: c.settle(t, "jobs", [f"{t}-0-1"], "ack"), UnknownGroup, "no queue group 'jobs'"),
        (lambda c, t: c.redrive(t, "jobs", 7), InvalidArgument, "ids=7 is not a list in which each is a str"),
        (
            lambda c, t: c.dead_letters(t, "jobs", max_records=0),
            InvalidArgument,
            "max_records=0 is not a number of tasks",
        ),
        (lambda c, t: c.dead_letters(t, "jobs", max_records="9"), InvalidArgument, "max_records='9' is not an int"),
        (lambda c, t: c.dead_letters(t, "jobs", partition=0, offset=-1), InvalidArgument, "offset=-1 is below 0"),
        (
            lambda c, t: c.schedule(t, "s", "every 1h", b"", headers="h"),
            InvalidArgument,
            "headers='h' is not a mapping",
        ),
        (lambda c, t: c.pause_queue(t, "jobs", EARLY), InvalidArgument, "a time that the calendar has no UTC"),
        (lambda c, t: c.redrive(t, "jobs", [f"{t}-0-1"], reason="x"), InvalidArgument, "both choose"),
        (lambda c, t: c.redrive(t, "jobs", per_s=-1), InvalidArgument, "per_s=-1 is not a number from 0 on"),
        (lambda c, t: c.schedule(t, "s", "every 30s", b"x", priority=256), InvalidArgument, "priority=256"),
        (lambda c, t: c.schedule(t, "s", "61 * * * *", b"x"), InvalidRequest, "61"),
        (lambda c, t: c.schedule(t, "s", "every 30s", "text"), InvalidArgument, "value='text' is not bytes"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(client, topic, call, kind, says):
    client.create_topic(topic)
    with pytest.raises(kind) as caught:
        call(client, topic)
    assert says in caught.value.message


def test_sums_are_over_all_partitions():
    early, late = moment(5), moment(9)
    queue = Queue(
        "t", "q", {}, [QueuePartition(0, 1, 2, 3, 4, 5, late, None), QueuePartition(1, 1, 1, 1, 1, 1, early, late)]
    )
    assert (queue.ready, queue.in_flight, queue.delayed, queue.retrying, queue.dead_lettered) == (2, 3, 4, 5, 6)
    assert (queue.depth, queue.oldest, queue.paused_until) == (14, early, late)
    empty = Queue("t", "q", {}, [QueuePartition(0, 0, 0, 0, 0, 0, None, None)])
    assert (empty.oldest, empty.paused_until) == (None, None)


def test_times_that_no_calendar_has_are_the_last_one():
    assert moment(-1) is None
    assert moment(FOREVER_US) == datetime.max.replace(tzinfo=UTC)
    never = messages.Schedule(b"", "t", "s", "0 0 30 2 *", "UTC", b"", None, FOREVER_US, -1, 0)
    assert (schedule_of(never).next, schedule_of(never).last) == (None, None)


def test_dead_tasks_carry_their_own_records():
    made = encode([b"a", b"b", b"c"], keys=[b"k", None, b"l"])
    head = stamp(made, Stamp(1, 7, 1, bytes(16), 99, 0))
    found = [messages.DeadTask(9, 2, 5, "why", [(4, "w", "before")]), messages.DeadTask(7, 1, 6, "", [])]
    late, early = dead_of("t", 3, found, bytes(head + made[len(head) :]))
    assert (late.record.value, late.record.key, late.id, late.attempt) == (b"c", b"l", "t-3-9", 2)
    assert (late.history[0].worker, late.history[0].reason, late.time) == ("w", "before", moment(5))
    assert (early.record.value, early.record.timestamp, early.history) == (b"a", 99, [])


def test_a_producer_is_told_which_task_a_record_repeats(client, topic):
    client.create_topic(topic, dedup_window_s=3600)
    with client.producer(topic) as producer:
        assert producer.send(b"first", dedup=b"order-17") == 0, "its own"
        assert producer.send(b"other", dedup=b"order-18") == 1
        assert producer.send(b"again", dedup=b"order-18") == 1, "the task that stands, and not the record at 2"
        future = producer.send_nowait(b"again", dedup=b"order-17")
        assert (future.result(), future.repeats) == (3, 0)
        plain = producer.send_nowait(b"plain")
        assert (plain.result(), plain.repeats) == (4, None)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        assert [task.value for task in worker.fetch(9, wait=WAIT)] == [b"first", b"other", b"plain"]


def test_a_record_that_replaces_another_is_its_own_task(client, topic):
    client.create_topic(topic, dedup="replace")
    with client.producer(topic) as producer:
        assert producer.send(b"first", dedup=b"order-17") == 0
        future = producer.send_nowait(b"second", dedup=b"order-17")
        assert (future.result(), future.repeats) == (1, None)
        assert producer.send(b"third", dedup=b"order-17") == 2
