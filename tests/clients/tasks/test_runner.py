"""The runner over workers that are told what to lease: what it starts, how it settles, how it ends."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from penstock import Retry, Tasks
from penstock.broker.errors import LeaseLost, UnknownTopic
from penstock.clients.tasks import runner as runner_module
from penstock.clients.tasks import settling
from penstock.clients.tasks.message import ENCODING_HEADER, NAME_HEADER
from penstock.clients.tasks.runner import Runner
from penstock.errors import InvalidArgument, TimedOut
from support import task_functions
from support.fake_workers import PATIENCE_S, FakeWorker, on_a_loop, settled, working
from support.task_functions import app


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that only a stopped runner notices are short."""
    monkeypatch.setattr(runner_module, "WAIT_S", 0.01)
    monkeypatch.setattr(runner_module, "PAUSE_S", 0.01)
    monkeypatch.setattr(settling, "PAUSE_S", 0.01)


async def begun(count: int) -> None:
    """So many calls that say so have begun."""
    for _ in range(count):
        assert await asyncio.to_thread(task_functions.started.acquire, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("function", "value", "verdict"),
    [
        ("add", b"[[1],{}]", ("ack", b"1")),
        ("add", b'[[1],{"right":2}]', ("ack", b"3")),
        ("add_async", b"[[1,2],{}]", ("ack", b"3")),
        ("no_result", b"[[],{}]", ("ack", b"")),
        ("divide", b"[[1,0],{}]", ("nack", "ZeroDivisionError: division by zero")),
        ("die", b"[[],{}]", ("nack", "the process that ran it died: SIGKILL")),
        ("wait_async", b"[[],{}]", ("nack", "it took longer than 0.05 s: it was cancelled")),
        ("hang", b"[[],{}]", ("nack", "it took longer than 0.1 s: its process was killed")),
    ],
)
@on_a_loop
async def test_what_becomes_of_a_call_is_said(function: str, value: bytes, verdict: tuple[Any, ...]) -> None:
    worker = FakeWorker()
    async with working(Runner(app), worker):
        assert await settled(worker.give(function, value)) == verdict


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("divide", ["ZeroDivisionError: division by zero", "in divide"]),
        ("hang", ["it took longer than 0.1 s: its process was killed"]),
        ("die", ["the process that ran it died: SIGKILL"]),
        ("odd_result", ["is dead-lettered: it was done, but its result cannot be kept"]),
    ],
)
@on_a_loop
async def test_the_log_names_the_function_that_failed_and_why(function: str, says: list[str], caplog: Any) -> None:
    worker = FakeWorker()
    async with working(Runner(app), worker):
        await settled(worker.give(function, b"[[1,0],{}]" if function == "divide" else b"[[],{}]"))
    (line,) = [record.getMessage() for record in caplog.records if "q-0-0" in record.getMessage()]
    assert line.startswith(f"task q-0-0 ({function}) ")
    assert [part for part in says if part not in line] == []


@pytest.mark.parametrize("header", [b"forge", b"gone\n2026-01-01 00:00:00 ERROR forged\x1b[2J"])
@on_a_loop
async def test_what_senders_and_exceptions_say_makes_no_line_of_the_log(header: bytes, caplog: Any) -> None:
    worker = FakeWorker()
    async with working(Runner(app), worker):
        await settled(worker.give("", headers={NAME_HEADER: header, ENCODING_HEADER: b"json"}))
    (said,) = [record.getMessage() for record in caplog.records if "q-0-0" in record.getMessage()]
    first, *below = said.split("\n")
    assert "forged\\x1b[2J" in said
    assert all(line.isprintable() for line in (first, *below))
    assert all(line.startswith("  ") for line in below)
    assert any("in forge" in line for line in below) == (header == b"forge")


@on_a_loop
async def test_a_cancelled_task_that_raises_is_no_failure_in_the_log(caplog: Any) -> None:
    caplog.set_level(logging.INFO, "penstock.tasks")
    worker = FakeWorker()
    async with working(Runner(app), worker):
        task = worker.give("divide", b"[[1,0],{}]")
        task.cancelled = True
        await settled(task)
    (line,) = [record for record in caplog.records if "q-0-0" in record.getMessage()]
    assert (line.levelno, "was cancelled and has ended: ZeroDivisionError" in line.getMessage()) == (logging.INFO, True)


@pytest.mark.parametrize(
    ("function", "value", "headers", "says"),
    [
        ("gone", b"[[],{}]", None, "no function is called 'gone' here; there are: add, "),
        ("add", b"[[],{}]", {"other": b""}, "no header penstock-task"),
        ("add", b"[[],{}]", {NAME_HEADER: b"add", ENCODING_HEADER: b"pickle"}, "none of json, msgpack"),
        ("add", None, None, "add: the record has no value"),
        ("square", None, None, "square: the record has no value"),
        ("add", b"\xff", None, "add: it is no json"),
        pytest.param("add", b"[" * 5000, None, "add: it is no json: maximum recursion", id="nested"),
        pytest.param("square", b"[" * 5000, None, "it is no json: maximum recursion", id="nested-elsewhere"),
        ("add", b'[["x"],{}]', None, "argument 'left' does not fit"),
        ("square", b'[["x"],{}]', None, "argument 'number' does not fit"),
        ("odd_result", b"[[],{}]", None, "it was done, but its result cannot be kept"),
        ("large_result", b"[[],{}]", None, "its result cannot be kept: 300002 bytes, over 262144"),
    ],
)
@on_a_loop
async def test_what_no_attempt_can_change_is_rejected_with_the_reason(
    function: str, value: bytes, headers: dict[str, bytes] | None, says: str
) -> None:
    worker, runner = FakeWorker(), Runner(app)
    async with working(runner, worker):
        verdict, reason = await settled(worker.give(function, value, headers=headers))
    assert (verdict, runner.outcomes) == ("reject", {"rejected": 1})
    assert says in reason


@on_a_loop
async def test_a_header_says_how_the_arguments_are_encoded_and_so_is_the_result() -> None:
    worker = FakeWorker()
    packed = task_functions.add.arguments.pack("msgpack", (2,), {})
    async with working(Runner(app), worker):
        task = worker.give("add", packed, headers={NAME_HEADER: b"add", ENCODING_HEADER: b"msgpack"})
        assert await settled(task) == ("ack", b"\x02")


@on_a_loop
async def test_a_function_sees_its_task_and_its_progress_is_told() -> None:
    worker = FakeWorker()
    async with working(Runner(app), worker):
        asking = worker.give("ask")
        asking.cancelled = True
        _, result = await settled(asking)
        found = task_functions.ask.arguments.unpack_result("json", result)
        assert (found["id"], found["attempt"], found["cancelled"]) == (asking.id, 2, True)
        dividing = worker.give("divide", b"[[1,2],{}]")
        assert await settled(dividing) == ("ack", b"0.5")
        assert dividing.told == [b"0.5"]


@on_a_loop
async def test_a_function_in_a_process_sends_where_its_runner_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "url", "unix:///elsewhere.sock")
    worker = FakeWorker()
    async with working(Runner(app), worker):
        assert await settled(worker.give("where")) == ("ack", b'"unix:///elsewhere.sock"')


@on_a_loop
async def test_a_thread_that_cannot_be_stopped_keeps_its_place_until_it_ends() -> None:
    worker = FakeWorker()
    task_functions.gate.clear()
    async with working(Runner(app, concurrency=1), worker):
        verdict, reason = await settled(worker.give("wait_for_gate"))
        assert (verdict, reason) == ("nack", "it took longer than 0.05 s: its thread cannot be stopped and goes on")
        after = worker.give("add", b"[[1],{}]")
        assert not after.settled.done()
        task_functions.gate.set()
        assert await settled(after) == ("ack", b"1")


@on_a_loop
async def test_no_more_run_at_once_than_were_asked_for() -> None:
    worker = FakeWorker()
    task_functions.gate.clear()
    async with working(Runner(app, concurrency=2), worker):
        first = [worker.give("until_gate") for _ in range(5)]
        await begun(2)
        assert not any(task.settled.done() for task in first)
        assert not task_functions.started.acquire(blocking=False)
        task_functions.gate.set()
        assert [await settled(task) for task in first] == [("ack", b"true")] * 5
        await begun(3)
    assert worker.asked[0] == 2


@on_a_loop
async def test_stopping_finishes_what_runs_and_gives_back_what_was_not_begun() -> None:
    worker = FakeWorker()
    task_functions.gate.clear()
    runner, worker.generous = Runner(app, concurrency=1), True
    running, *waiting = [worker.give("until_gate") for _ in range(3)]
    async with working(runner, worker):
        await begun(1)
        runner.stop()
        await asyncio.sleep(0)
        assert not running.settled.done()
        task_functions.gate.set()
        assert await settled(running) == ("ack", b"true")
        assert [task.settled.result() for task in waiting] == [("release",)] * 2


@pytest.mark.parametrize("function", ["until_gate", "wait_long", "until_cancelled"])
@pytest.mark.parametrize("how", ["time is up", "told twice"])
@on_a_loop
async def test_what_does_not_end_in_time_is_released(function: str, how: str) -> None:
    worker = FakeWorker()
    runner = Runner(app, concurrency=1, drain_s=0.02 if how == "time is up" else 60.0)
    async with working(runner, worker) as work:
        task_functions.gate.clear()
        task = worker.give(function)
        await asyncio.wait_for(task.begun.wait(), PATIENCE_S)
        runner.stop()
        if how == "told twice":
            runner.stop()
        await asyncio.wait_for(work, PATIENCE_S)
        assert await settled(task) == ("release",)
        task_functions.gate.set()


@on_a_loop
async def test_a_broker_that_is_away_is_waited_for() -> None:
    worker = FakeWorker()
    async with working(Runner(app), worker):
        worker.errors += [TimedOut("not now")] * 3
        task = worker.give("add", b"[[1],{}]")
        task.errors += [TimedOut("not now")] * 3
        assert await settled(task) == ("ack", b"1")


@pytest.mark.parametrize("function", ["add", "divide"])
@on_a_loop
async def test_a_lost_lease_is_let_go_and_told(function: str, caplog: pytest.LogCaptureFixture) -> None:
    worker, runner = FakeWorker(), Runner(app)
    async with working(runner, worker):
        lost = worker.give(function, b"[[1,0],{}]")
        lost.refusal = LeaseLost("it ran out")
        lost.errors += [lost.refusal] * (function == "divide")
        assert await settled(worker.give("add", b"[[2],{}]")) == ("ack", b"2")
    assert not lost.settled.done()
    assert f"task {lost.id} went to another worker meanwhile: it ran out" in caplog.text
    assert runner.outcomes == {"done": 1}


@on_a_loop
async def test_a_drain_waits_until_what_was_done_is_committed() -> None:
    worker, runner = FakeWorker(), Runner(app)
    async with working(runner, worker) as work:
        worker.commits.clear()
        task = worker.give("until_gate")
        task_functions.gate.set()
        await asyncio.wait_for(task.begun.wait(), PATIENCE_S)
        runner.stop()
        done, _ = await asyncio.wait([work], timeout=0.1)
        assert (done, runner.outcomes) == (set(), {})
        worker.commits.set()
        await asyncio.wait_for(work, PATIENCE_S)
        assert task.settled.result() == ("ack", b"true")
    assert runner.outcomes == {"done": 1}


@on_a_loop
async def test_a_result_that_the_broker_does_not_keep_is_no_reason_to_try_again() -> None:
    worker = FakeWorker()
    async with working(Runner(app), worker):
        task = worker.give("add", b"[[1],{}]")
        task.errors.append(InvalidArgument("it is too large"))
        verdict, reason = await settled(task)
    assert (verdict, reason) == ("reject", "it was done, but its result cannot be kept: it is too large")


@pytest.mark.parametrize(("function", "value"), [("divide", b"[[1,0],{}]"), ("raises", b'[["again"],{}]')])
@on_a_loop
async def test_a_task_that_cannot_have_the_pause_it_asks_for_is_dead_lettered(function: str, value: bytes) -> None:
    worker, runner = FakeWorker(), Runner(app)
    async with working(runner, worker):
        task = worker.give(function, value)
        task.errors.append(InvalidArgument("a year at most"))
        assert await settled(task) == ("reject", "it cannot wait for its next attempt: a year at most")
    assert runner.outcomes == {"rejected": 1}


@on_a_loop
async def test_what_was_leased_ahead_and_cannot_begin_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "BEGIN_S", 0.01)
    worker = FakeWorker()
    worker.generous = True
    task_functions.gate.clear()
    async with working(Runner(app, concurrency=1), worker):
        running, *waiting = [worker.give("until_gate") for _ in range(3)]
        await begun(1)
        assert [await settled(task) for task in waiting] == [("release",)] * 2
        assert not running.settled.done()
        task_functions.gate.set()
        assert await settled(running) == ("ack", b"true")


@on_a_loop
async def test_of_quick_tasks_more_are_leased_than_run_at_once() -> None:
    worker = FakeWorker()
    async with working(Runner(app, concurrency=1), worker):
        for task in [worker.give("add", b"[[1],{}]") for _ in range(200)]:
            assert await settled(task) == ("ack", b"1")
    assert worker.asked[0] == 1
    assert max(worker.asked) > 1


@on_a_loop
async def test_a_task_with_one_attempt_is_not_leased_ahead() -> None:
    worker = FakeWorker()
    runner = Runner(app, concurrency=2)
    runner._attempts_most[worker] = 1
    async with working(runner, worker):
        for task in [worker.give("add", b"[[1],{}]") for _ in range(200)]:
            assert await settled(task) == ("ack", b"1")
    assert max(worker.asked) == 2


@on_a_loop
async def test_a_runner_that_is_stopped_waits_for_no_broker(tmp_path: Path) -> None:
    alone = Tasks(f"unix://{tmp_path}/absent.sock", timeout=600)
    alone.task(queue="q")(print)
    runner = Runner(alone)
    runner.stop()
    await asyncio.wait_for(runner.run(), PATIENCE_S)


@on_a_loop
async def test_what_makes_working_impossible_ends_the_runner() -> None:
    worker, other = FakeWorker(), FakeWorker()
    worker.errors.append(UnknownTopic("deleted"))
    runner = Runner(app)
    with pytest.raises(UnknownTopic):
        await runner.work([worker, other])
    assert worker.closed
    assert other.closed


@on_a_loop
async def test_an_idle_queue_does_not_keep_another_from_working() -> None:
    idle, busy = FakeWorker(), FakeWorker()
    async with working(Runner(app, concurrency=1), idle, busy):
        for number in range(3):
            assert await settled(busy.give("add", b"[[%d],{}]" % number)) == ("ack", b"%d" % number)


@on_a_loop
async def test_only_the_queues_that_were_named_are_worked_on() -> None:
    assert [queue.topic for queue in Runner(app, queues=["slow"]).queues] == ["slow"]
    assert [queue.topic for queue in Runner(app).queues] == ["math", "slow", "heavy", "rules"]
    with pytest.raises(InvalidArgument, match="no queue 'fast'; it has heavy, math, rules, slow"):
        Runner(app, queues=["fast"])
    with pytest.raises(InvalidArgument, match="no function"):
        Runner(Tasks("mem://x"))
    with pytest.raises(InvalidArgument, match="concurrency=0"):
        Runner(app, concurrency=0)


def test_the_retries_of_a_queue_are_its_settings() -> None:
    queue = app.queues["math"]
    assert queue.wanted == Retry(max_attempts=3, backoff=0.5).settings()
    assert queue.changes({**queue.wanted, "max_attempts": 20}) == {"max_attempts": 3}


def test_a_runner_that_waits_for_tasks_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "WAIT_S", 3600.0)

    async def main() -> None:
        worker = FakeWorker()
        async with working(Runner(app), worker):
            while not worker.asked:
                await asyncio.sleep(0)

    asyncio.run(main())
