"""Workers of every kind: one body over memory, a directory, unix, ipc and tcp, with threads and on a loop."""

from __future__ import annotations

import pytest
from penstock.broker.errors import LeaseLost, UnknownGroup
from penstock.clients import InvalidArgument
from penstock.storage.errors import Closed

WAIT = 30.0
"""For what must come: a disk shared with others may stall."""


def fill(client, topic, count, *, partitions=1, **how):
    client.create_topic(topic, partitions=partitions)
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % number for number in range(count)], **how)


def drained(worker, **how):
    """Every task there is, acked."""
    values = []
    while tasks := worker.fetch(100, wait=0.0, **how):
        values += [task.value for task in tasks]
        worker.ack(tasks)
    return values


def nothing_comes(client, topic, **how):
    """Whether another worker of the group gets nothing."""
    with client.worker(topic, group="jobs", prefetch=0, **how) as other:
        return other.fetch(10, wait=0.0) == []


def test_tasks_come_with_all_of_their_record_and_are_done_when_acked(client, topic):
    client.create_topic(topic)
    client.producer(topic).send(b"x", key=b"k", headers={"h": b"1"}, timestamp=1_600_000_000_000_000)
    with client.worker(topic, group="jobs", name="me") as worker:
        (task,) = worker.fetch(10, wait=WAIT)
        assert (task.value, task.key, task.headers, task.offset) == (b"x", b"k", {"h": b"1"}, 0)
        assert (task.partition, task.timestamp, task.attempt, task.topic) == (0, 1_600_000_000_000_000, 1, topic)
        assert task.id == f"{topic}-0-0"
        assert (task.cancelled, task.lost) == (False, False)
        assert (worker.topic, worker.group, worker.name) == (topic, "jobs", "me")
        task.ack()
        assert worker.fetch(10, wait=0.0) == []
    assert nothing_comes(client, topic)


def test_batches_come_in_order_and_are_settled_at_once(client, topic):
    fill(client, topic, 250)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        assert drained(worker) == [b"%d" % number for number in range(250)]
    assert nothing_comes(client, topic)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_ack_and_fetch_works_off_all_partitions_once(client, topic, prefetch):
    fill(client, topic, 300, partitions=3, keys=[b"%d" % (number % 7) for number in range(300)])
    with client.worker(topic, group="jobs", prefetch=prefetch) as worker:
        found, tasks = [], worker.fetch(20, wait=WAIT)
        while tasks:
            found += [(task.partition, task.offset) for task in tasks]
            tasks = worker.ack_and_fetch(tasks, max_records=20, wait=WAIT if len(found) < 300 else 0.0)
        worker.flush()
        assert len(found) == len(set(found)) == 300
    assert nothing_comes(client, topic)


def test_a_worker_claims_what_another_one_holds(client, topic):
    fill(client, topic, 6)
    client.set_queue(topic, "jobs", lease_s=None)
    with client.worker(topic, group="jobs", prefetch=0) as ann, client.worker(topic, group="jobs", prefetch=0) as bob:
        tasks = ann.fetch(5, wait=WAIT)
        assert bob.claim(idle="1d") == []
        assert bob.claim([f"{topic}-0-5"]) == []
        found = bob.claim([tasks[0].id, tasks[1].id])
        assert [(task.value, task.attempt) for task in found] == [(b"0", 2), (b"1", 2)]
        found[0].ack(result=b"by bob")
        assert [task.offset for task in bob.claim(holder=ann.name, begin=tasks[3].id, attempt=0)] == [3, 4]
        assert [task.offset for task in bob.claim([f"{topic}-0-5"], force=True)] == [5]
        bob.release(found[1:])
        assert [task.offset for task in ann.fetch(9, wait=WAIT)] == [1]
        assert client.task(tasks[0].id, group="jobs").result == b"by bob"
        assert [task.offset for task in bob.claim(idle=0, max_records=2)] == [1, 2]
        with pytest.raises(InvalidArgument):
            bob.claim(idle=0, force=True)
        with pytest.raises(InvalidArgument, match="tasks of all workers: say which by ids, holder or idle"):
            bob.claim()
    with pytest.raises(Closed):
        bob.claim(idle=0)


def test_a_worker_reads_again_what_one_of_its_name_held_and_fences_that_one(client, topic):
    fill(client, topic, 3)
    client.set_queue(topic, "jobs", lease_s=None, max_attempts=1)
    with client.worker(topic, group="jobs", prefetch=0, name="ann") as before:
        tasks = before.fetch(3, wait=WAIT)
        with client.worker(topic, group="jobs", prefetch=0, name="ann") as after:
            again = after.claim(holder=after.name, attempt=0)
            assert [(task.id, task.attempt) for task in again] == [(task.id, 1) for task in tasks]
            with pytest.raises(LeaseLost):
                before.ack(tasks)
            after.ack(again)
    assert nothing_comes(client, topic)


def test_iterating_hands_out_one_after_the_other(client, topic):
    fill(client, topic, 5)
    with client.worker(topic, group="jobs") as worker:
        values = []
        for task in worker:
            values.append(task.value)
            task.ack(result=b"done")
            if len(values) == 5:
                break
        assert values == [b"0", b"1", b"2", b"3", b"4"]
    assert nothing_comes(client, topic)


def test_a_loop_that_was_left_goes_on_where_it_was(client, topic):
    fill(client, topic, 8)
    with client.worker(topic, group="jobs", lease_records=5) as worker:
        offsets = []
        for most in (2, 3, 8):
            for task in worker:
                offsets.append(task.offset)
                task.ack()
                if len(offsets) >= most:
                    break
        assert offsets == list(range(8))
    assert nothing_comes(client, topic)


def test_what_a_loop_has_left_is_fetched(client, topic):
    fill(client, topic, 5)
    with client.worker(topic, group="jobs", lease_records=5, prefetch=0) as worker:
        for task in worker:
            task.ack()
            break
        assert [task.offset for task in worker.fetch(3, wait=WAIT)] == [1, 2, 3]
        assert [task.offset for task in worker.fetch(3, wait=WAIT)] == [4]


def test_what_is_not_settled_when_the_worker_closes_goes_to_another_at_once_uncounted(client, topic):
    fill(client, topic, 6)
    with client.worker(topic, group="jobs", prefetch=2) as worker:
        tasks = worker.fetch(3, wait=WAIT)
        tasks[1].ack()
    with client.worker(topic, group="jobs", prefetch=0) as other:
        again = []
        while len(again) < 5:
            again += other.fetch(10, wait=WAIT)
        assert sorted((task.offset, task.attempt) for task in again) == [(n, 1) for n in (0, 2, 3, 4, 5)]


def test_a_nacked_task_comes_again_as_the_next_attempt(client, topic):
    fill(client, topic, 2)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        first, second = worker.fetch(2, wait=WAIT)
        first.nack(delay=0, reason="no luck")
        (again,) = worker.fetch(2, wait=WAIT)
        assert (again.offset, again.attempt) == (0, 2)
        worker.nack([again, second], delay=0)
        assert sorted(
            (task.offset, task.attempt) for _ in range(2) for task in worker.fetch(1, wait=WAIT)
        ) == [(0, 3), (1, 2)]  # fmt: skip


def test_a_reason_may_have_what_no_utf8_has(client, topic):
    fill(client, topic, 2)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        failed, done = worker.fetch(2, wait=WAIT)
        worker.ack_nowait(done)
        failed.reject("no file caf\udce9")
        worker.flush()
    assert [task.reason for task in client.dead_letters(topic, "jobs")] == ["no file caf\\udce9"]


def test_released_tasks_come_again_uncounted_and_rejected_ones_never(client, topic):
    fill(client, topic, 4)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        tasks = worker.fetch(4, wait=WAIT)
        tasks[0].release()
        worker.release(tasks[2:3])
        tasks[1].reject("for good")
        worker.reject(tasks[3:], reason="as well")
        again = []
        while len(again) < 2:
            again += worker.fetch(10, wait=WAIT)
        assert sorted((task.offset, task.attempt) for task in again) == [(0, 1), (2, 1)]
        assert worker.fetch(10, wait=0.0) == []


def test_acks_without_a_waiter_are_told_by_their_futures_and_flushed(client, topic):
    fill(client, topic, 40)
    with client.worker(topic, group="jobs", lease_records=10) as worker:
        futures = []
        for task in worker:
            futures.append(worker.ack_nowait(task))
            if len(futures) == 30:
                break
        assert futures[0].result() is None
        assert futures[0].done()
        worker.flush()
        assert all(future.done() for future in futures)
        heard = []
        futures[1].add_done_callback(lambda future: heard.append(future.done()))
        assert heard == [True]
        rest = worker.fetch(10, wait=WAIT)
        late = worker.ack_nowait(rest[0])
    assert late.done(), "closing flushes"


def test_settling_twice_changes_nothing(client, topic):
    fill(client, topic, 3)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        tasks = worker.fetch(3, wait=WAIT)
        tasks[0].ack()
        tasks[0].ack()
        worker.ack(tasks)
        worker.ack(tasks)
        worker.ack([])
    assert nothing_comes(client, topic)


def test_two_workers_share_and_none_gets_what_the_other_has(client, topic):
    fill(client, topic, 200)
    with client.worker(topic, group="jobs") as one, client.worker(topic, group="jobs") as two:
        seen, hands = [], [[], []]
        while len(seen) < 200:
            for number, worker in enumerate((one, two)):
                hands[number] = worker.ack_and_fetch(hands[number], max_records=10, wait=0.1)
                seen += [task.offset for task in hands[number]]
        assert sorted(seen) == list(range(200))
        one.ack(hands[0])
        two.ack(hands[1])


def test_groups_work_the_same_records_off_independently(client, topic):
    fill(client, topic, 10)
    with client.worker(topic, group="a") as one, client.worker(topic, group="b") as two:
        assert drained(one) == drained(two) == [b"%d" % number for number in range(10)]


def test_a_new_group_begins_where_it_is_told(client, topic):
    fill(client, topic, 3)
    with client.worker(topic, group="jobs", start="latest", prefetch=0) as worker:
        assert worker.fetch(10, wait=0.0) == []
        client.producer(topic).send(b"new")
        assert [task.value for task in worker.fetch(10, wait=WAIT)] == [b"new"]


def test_a_waiting_worker_is_told_of_what_comes(client, topic):
    client.create_topic(topic)
    with client.worker(topic, group="jobs") as worker, client.producer(topic) as producer:
        assert worker.fetch(1, wait=0.0) == []
        for number in range(20):
            producer.send(b"%d" % number)
            (task,) = worker.fetch(1, wait=WAIT)
            assert task.value == b"%d" % number
            task.ack()


def test_a_task_of_another_worker_is_refused_and_nothing_is_sent(client, topic):
    fill(client, topic, 2)
    with client.worker(topic, group="jobs", prefetch=0) as one, client.worker(topic, group="jobs") as two:
        mine, theirs = one.fetch(1, wait=WAIT), two.fetch(1, wait=WAIT)
        with pytest.raises(InvalidArgument, match=f"{theirs[0].id} was fetched by another worker"):
            one.ack([*mine, *theirs])
        one.ack(mine)
        two.ack(theirs)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda worker, task: worker.fetch(0), "max_records=0 is not a number of tasks from 1 to 100000"),
        (lambda worker, task: worker.fetch(1, wait=-1), "wait=-1 is not a time of 0 seconds or more"),
        (lambda worker, task: task.nack(delay=-1), "delay=-1 is not a time of 0 seconds or more"),
        (
            lambda worker, task: task.nack(delay=1e300),
            "delay=1e+300 is not a time of 0 seconds or more",
        ),
        (lambda worker, task: task.nack(delay=float("inf")), "delay=inf is not a time of 0 seconds or more"),
        (lambda worker, task: task.nack(reason=7), "reason=7 is not a text"),
        (lambda worker, task: task.nack(delay="53w"), "delay='53w' is over the 366 days that a failed task may wait"),
        (lambda worker, task: worker.ack(task), "is not a list in which each is a"),
        (lambda worker, task: worker.reject([b"a"]), "[b'a'] is not a list of tasks"),
        (lambda worker, task: task.ack(result="text"), "result='text' is not bytes; text needs .encode()"),
        (lambda worker, task: task.ack(result=bytes(1 << 20)), "a result of 1048576 bytes is over the limit of 262144"),
        (lambda worker, task: task.progress(bytes(5000)), "progress of 5000 bytes is over the limit of 4096"),
        (lambda worker, task: task.extend(0), "lease=0 is not a time from 1 ms to 366 days"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(client, topic, call, says):
    fill(client, topic, 1)
    with client.worker(topic, group="jobs") as worker:
        (task,) = worker.fetch(1, wait=WAIT)
        with pytest.raises(InvalidArgument) as caught:
            call(worker, task)
        assert says in caught.value.message
        task.ack()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"group": ""}, "group='' is not allowed as a name"),
        ({"group": "jobs", "name": 7}, "name=7 is not a str"),
        ({"group": "jobs", "prefetch": 65}, "prefetch=65 is not a number of leases from 0 to 64"),
        ({"group": "jobs", "lease_records": 0}, "lease_records=0 is not a number of tasks"),
        ({"group": "jobs", "lease": -1}, "lease=-1 is not a time of 0 seconds or more"),
        ({"group": "jobs", "start": "now"}, "start='now' is none of 'earliest', 'latest', or a datetime"),
    ],
)
def test_a_worker_that_cannot_be_is_refused(client, topic, how, says):
    client.create_topic(topic)
    with pytest.raises(InvalidArgument) as caught:
        client.worker(topic, **how)
    assert says in caught.value.message


def test_a_closed_worker_says_so(client, topic):
    fill(client, topic, 2)
    worker = client.worker(topic, group="jobs")
    (task,) = worker.fetch(1, wait=WAIT)
    worker.close()
    worker.close()
    assert worker.closed
    for call in (lambda: worker.fetch(1), task.ack, lambda: next(iter(worker))):
        with pytest.raises(Closed, match="closed"):
            call()


def test_closing_a_client_closes_what_is_left_after_one_that_has_something_to_say(dial, url, topic):
    client = dial(url)
    fill(client, topic, 1)
    client.set_queue(topic, "jobs", lease_s=30)
    worker = client.worker(topic, group="jobs", prefetch=0)
    (task,) = worker.fetch(1, wait=WAIT)
    client.delete_queue(topic, "jobs")
    worker.ack_nowait(task)
    client.producer(topic).send_nowait(b"last")
    with pytest.raises(UnknownGroup):
        client.close()
    assert drained(dial(url).worker(topic, group="others")) == [b"0", b"last"]


# -- time -------------------------------------------------------------------------------------------------


def test_a_lease_that_ran_out_is_lost_and_its_task_goes_to_another(penstock_broker, topic):
    how = {"group": "jobs", "prefetch": 0}  # what stood as credit could get the task back before the other asks
    with penstock_broker.connect() as client, client.worker(topic_of(client, topic), lease=30, **how) as worker:
        late, early = worker.fetch(1, wait=1), worker.fetch(1, wait=1)
        worker.ack(early)
        penstock_broker.advance(31)
        with client.worker(topic, **how) as other:
            (again,) = other.fetch(10, wait=1)
            assert (again.offset, again.attempt) == (late[0].offset, 2)
            with pytest.raises(LeaseLost, match=late[0].id):
                late[0].ack()
            assert late[0].lost
            again.ack()


def topic_of(client, name):
    fill(client, name, 2)
    return name


def test_outcomes_that_a_request_could_not_take_along_end_and_are_told_at_the_close(client, topic, monkeypatch):
    fill(client, topic, 2)
    worker = client.worker(topic, group="jobs", prefetch=0)
    tasks = worker.fetch(2, wait=WAIT)

    def refuse(question):
        raise InvalidArgument("no room in a frame")

    with monkeypatch.context() as full:
        full.setattr(worker._core.leasing._connection, "post", refuse)
        with pytest.raises(InvalidArgument, match="no room"):
            worker.ack_and_fetch(tasks, wait=0.0)
    assert worker._core.settling.unconfirmed == 0
    with pytest.raises(InvalidArgument, match="no room"):
        worker.close()


def test_progress_does_not_shorten_what_was_extended(client, topic):
    fill(client, topic, 1)
    with client.worker(topic, group="jobs", lease=30) as worker:
        (task,) = worker.fetch(1, wait=WAIT)
        task.extend(3600)
        extended = client.task(task.id, group="jobs").time
        task.progress(b"half")
        told = client.task(task.id, group="jobs")
        assert told.progress == b"half"
        assert abs((told.time - extended).total_seconds()) < 60


def test_a_worker_may_take_tasks_without_a_lease(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % number for number in range(5)])
    with client.worker(topic, group="jobs", at_most_once=True) as worker:
        tasks = worker.fetch(3, wait=60)
        assert [(task.value, task.attempt, task.lost) for task in tasks] == [(b"%d" % n, 1, False) for n in range(3)]
        tasks[0].ack()
        worker.ack(tasks[1:])
        for settle in (
            lambda: tasks[0].nack(),
            lambda: tasks[0].reject(),
            lambda: tasks[0].release(),
            lambda: tasks[0].extend(),
            lambda: tasks[0].progress(b"x"),
            lambda: tasks[0].ack(result=b"x"),
        ):
            with pytest.raises(InvalidArgument, match="at_most_once"):
                settle()
        (last, other) = worker.ack_and_fetch(tasks, 9, wait=60)
        assert (last.value, other.value) == (b"3", b"4")
    assert client.queue(topic, "jobs").depth == 0
    with client.worker(topic, group="jobs") as worker:
        assert worker.fetch(9, wait=0) == []


def test_what_means_nothing_without_a_lease_is_refused(client, topic):
    client.create_topic(topic)
    for given in ({"lease": 5}, {"prefetch": 2}, {"lease": 5, "prefetch": 10}):
        with pytest.raises(InvalidArgument, match=f"{next(iter(given))}=.* means nothing with at_most_once=True"):
            client.worker(topic, group="jobs", at_most_once=True, **given)
    client.worker(topic, group="jobs", at_most_once=True, prefetch=0).close()
