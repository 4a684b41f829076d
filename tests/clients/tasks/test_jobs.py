"""Jobs over a broker in memory: what was sent is found in its queue, and what became of it comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from penstock import Retry, Tasks
from penstock.clients.memory_broker import START_US
from penstock.clients.tasks.jobs import JobStatus
from penstock.clients.tasks.runner import Runner
from penstock.clients.testing import penstock_broker, penstock_client
from penstock.errors import InvalidArgument, InvalidRequest, TaskCancelled, TaskFailed, TimedOut

__all__ = ["penstock_broker", "penstock_client"]


@pytest.fixture
def app(penstock_broker) -> Iterator[Tasks]:
    """An app whose queue is not there yet."""
    with Tasks(penstock_broker.url, encoding="msgpack", partitions=3) as made:
        yield made


def decorated(app):
    @app.task(queue="sums", retry=Retry(max_attempts=1), name="total", key=lambda numbers, note=b"": note or b"none")
    def total(numbers: set[int], note: bytes = b"") -> dict[int, bytes]:
        return {sum(numbers): note}

    return total


def test_sending_makes_the_queue_as_the_app_says(app, penstock_client):
    total = decorated(app)
    job = total.send({1, 2}, b"\xff")
    queue = penstock_client.queue("sums", "tasks")
    assert (len(queue.partitions), queue.depth) == (3, 1)
    assert (queue.settings["max_attempts"], queue.settings["order"]) == (1, "key")
    assert (job.status().state, job.status().attempt) == ("pending", 0)
    assert repr(job) == f"<Job {job.id} of total>"


def test_a_result_comes_back_with_its_type_and_a_failure_with_its_reason(app, penstock_client):
    total = decorated(app)
    good, bad = total.send({1, 2}, b"\xff"), total.send({3}, b"\x01")
    with penstock_client.worker("sums", group="tasks", prefetch=0) as worker:
        tasks = {task.id: task for _ in range(2) for task in worker.fetch(9, 1.0)}
        tasks[good.id].progress(b"\xa4half")
        assert good.status().progress == "half"
        tasks[good.id].ack(total.arguments.pack_result("msgpack", total({1, 2}, b"\xff")))
        tasks[bad.id].nack(reason="ValueError: no")
    assert good.result() == {3: b"\xff"}
    assert total.job(good.id).result() == {3: b"\xff"}
    with pytest.raises(TaskFailed, match="failed in attempt 1: ValueError: no"):
        bad.result()


def test_a_queue_that_was_deleted_is_made_again_by_the_next_call(app, penstock_client):
    total = decorated(app)
    total.send({1})
    penstock_client.delete_topic("sums")
    assert total.send({1, 2}).status().state == "pending"
    penstock_client.delete_topic("sums")
    assert [job.status().state for job in total.send_many([({1},), ({2},), ({3},)])] == ["pending"] * 3
    assert penstock_client.queue("sums", "tasks").settings["max_attempts"] == 1
    app.close()


def test_a_queue_that_was_deleted_is_made_again_on_an_event_loop_too(app, penstock_client):
    total = decorated(app)

    async def send() -> list[str]:
        await total.aio.send({1})
        penstock_client.delete_topic("sums")
        assert (await (await total.aio.send({1, 2})).status()).state == "pending"
        penstock_client.delete_topic("sums")
        jobs = list(await total.aio.send_many([({1},), ({2},), ({3},)]))
        states = [(await job.status()).state for job in jobs]
        await app.aio.close()
        return states

    assert asyncio.run(send()) == ["pending"] * 3


@pytest.mark.parametrize(("attempts", "held"), [(1, 1), (2, 2)])
def test_a_worker_holds_no_task_with_one_attempt_that_it_has_not_begun(app, attempts, held):
    begun, go = threading.Event(), threading.Event()

    @app.task(queue="few", retry=Retry(max_attempts=attempts), name="few")
    def few() -> bool:
        begun.set()
        return go.wait(30)

    async def in_flight() -> int:
        for _ in range(3):
            await few.aio.send()
        runner = Runner(app, concurrency=1)
        work = asyncio.create_task(runner.run())
        assert await asyncio.to_thread(begun.wait, 30)
        found = await (await app.aio.client()).queue("few", "tasks")
        go.set()
        runner.stop()
        await work
        return found.in_flight

    assert asyncio.run(in_flight()) == held


@pytest.mark.parametrize("result", [None, 7])
def test_the_status_of_a_completed_job_says_which_attempt_completed_it_and_when(app, penstock_broker, result):
    attempts: list[int] = []

    @app.task(retry=Retry(max_attempts=3, backoff=0))
    def second_time() -> int | None:
        attempts.append(1)
        if len(attempts) < 2:
            raise ValueError("not yet")
        return result

    async def run() -> JobStatus:
        job = await second_time.aio.send()
        runner = Runner(app, concurrency=1)
        work = asyncio.create_task(runner.run())
        assert await job.result(30) == result
        runner.stop()
        await work
        return await job.status()

    penstock_broker.advance(3600)
    status = asyncio.run(run())
    assert (status.state, status.attempt) == ("completed", 2)
    assert status.time == datetime.fromtimestamp(START_US / 1e6 + 3600, UTC)


def test_a_cancelled_job_has_no_result_and_one_that_is_not_done_is_waited_for(app):
    total = decorated(app)
    job = total.send_in("1h", {1})
    assert job.status().state == "delayed"
    with pytest.raises(TimedOut):
        job.result(0)
    assert job.cancel().state == "cancelled"
    with pytest.raises(TaskCancelled):
        job.result()


def test_the_same_verbs_awaited(app):
    total = decorated(app)

    async def run() -> None:
        job = await total.aio.send({4, 5}, b"x")
        runner = Runner(app, concurrency=2)
        work = asyncio.create_task(runner.run())
        assert await job.result(30) == {9: b"x"}
        assert (await total.aio.job(job.id).status()).state == "completed"
        later = await total.aio.send_in(3600, {1})
        assert (await later.cancel()).state == "cancelled"
        runner.stop()
        await work
        await app.aio.close()

    asyncio.run(run())


def test_a_closed_app_connects_anew(app):
    total = decorated(app)
    first = total.send({1})
    app.close()
    app.close()
    assert first.status().state == "pending"
    assert total.send({2}).id != first.id


def test_a_call_that_was_sent_already_is_the_same_job(app):
    @app.task(queue="orders", dedup=lambda number, note="": f"order-{number}")
    def pay(number: int, note: str = "") -> None: ...

    first, other = pay.send(17), pay.send(18)
    assert pay.send(17, "again").id == first.id
    assert pay.send_in(5, 18).id == other.id != first.id

    async def awaited() -> str:
        job = await pay.aio.send(17, note="once more")
        await app.aio.close()
        return job.id

    assert asyncio.run(awaited()) == first.id


@pytest.mark.parametrize("option", ["key", "dedup"])
def test_what_an_option_says_of_the_arguments_is_text_or_bytes(app, option):
    @app.task(name="odd", **{option: lambda number: number})
    def odd(number: int) -> None: ...

    with pytest.raises(InvalidArgument, match=f"the {option} of odd is 17: it is to be text or bytes"):
        odd.send(17)


def test_a_function_is_called_at_stated_times(app, penstock_client):
    app.zone = "Europe/Vienna"
    total = decorated(app)
    schedule = total.schedule("every-morning", "0 6 * * mon-fri", {1, 2}, note=b"\xff")
    assert (schedule.topic, schedule.name, schedule.spec, schedule.zone) == (
        "sums", "every-morning", "0 6 * * mon-fri", "Europe/Vienna",
    )  # fmt: skip
    assert schedule.key == b"\xff"
    assert schedule.value == total.message(({1, 2},), {"note": b"\xff"}).value
    assert asyncio.run(scheduled_by_a_loop(total)).spec == "every 30s"
    (found,) = penstock_client.schedules("sums")
    assert (found.name, found.coalesce) == ("every-morning", True), "it was replaced"


def test_a_schedule_that_coalesces_adds_no_task_while_one_waits(app, penstock_broker, penstock_client):
    total = decorated(app)
    one = total.options(coalesce=True)
    one.schedule("often", "every 10s", {1})
    total.schedule("each", "every 10s", {2})
    penstock_broker.advance(45)
    with penstock_client.consumer("sums", start="earliest") as consumer:
        values = [task.value for task in consumer.fetch(max_records=10, wait=5)]
    assert (len(values), values.count(total.message(({1},), {}).value)) == (5, 1)
    for send in (lambda: one.send({1}), lambda: one.send_in(1, {1}), lambda: one.send_many([({1},)])):
        with pytest.raises(InvalidArgument, match="coalesce=True is of schedules"):
            send()


async def scheduled_by_a_loop(total):
    found = await total.aio.options(coalesce=True).schedule("every-morning", "every 30s", {3})
    await total.app.aio.close()
    return found


def test_what_cannot_be_scheduled_is_refused(app):
    @app.task(queue="sums", dedup=lambda number: str(number))
    def double(number: int) -> int:
        return 2 * number

    with pytest.raises(InvalidArgument, match="has dedup=, which schedules do not know"):
        double.schedule("nightly", "every 30s", 4)
    with pytest.raises(InvalidRequest, match="cron"):
        decorated(app).schedule("nightly", "now and then", {1})
