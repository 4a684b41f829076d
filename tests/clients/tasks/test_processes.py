"""Functions in processes of their own: kept for the next call, killed when they take too long, and free to die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess

import pytest
from penstock.clients.tasks.child import TaskChild
from penstock.clients.tasks.outcome import Failed, Outcome, RefusedCall, Returned
from penstock.clients.tasks.processes import Processes
from penstock.clients.tasks.wire import Order
from penstock.errors import Closed
from support import task_functions


class Watched:
    def __init__(self, cancelled: bool = False) -> None:
        self.cancelled = cancelled
        self.told: list[bytes] = []

    def tell(self, value: bytes) -> None:
        self.told.append(value)


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Ended with the test."""
    started = Processes()
    yield started
    started.close()


def call(processes: Processes, function: str, value: bytes = b"[[],{}]", watched: Watched | None = None) -> Outcome:
    made = getattr(task_functions, function)
    order = Order(task_functions.__name__, function, "json", value, "heavy-0-0", 1, task_functions.app.url)
    return processes.run(order, watched or Watched(), made.declared.timeout_s)


def numbers(outcome: Outcome) -> list[int]:
    assert isinstance(outcome, Returned)
    assert outcome.result is not None
    return task_functions.square.arguments.unpack_result("json", outcome.result)


def test_a_process_is_kept_for_the_next_call_and_says_its_progress(processes):
    watched = Watched()
    squared, pid = numbers(call(processes, "square", b"[[7],{}]", watched))
    assert (squared, watched.told) == (49, [b"7"])
    assert pid != os.getpid()
    assert numbers(call(processes, "square", b"[[8],{}]")) == (64, pid)


@pytest.mark.parametrize(("function", "how"), [("die", "SIGKILL"), ("leave", "exit code 3")])
def test_a_process_that_dies_is_the_failure_of_its_task_alone(processes, function, how):
    first = numbers(call(processes, "square", b"[[1],{}]"))
    assert call(processes, function) == Failed(f"the process that ran it died: {how}")
    second = numbers(call(processes, "square", b"[[1],{}]"))
    assert first[1] != second[1]


def test_a_signal_to_all_of_a_worker_s_processes_ends_none_that_is_just_being_started(monkeypatch):
    start = SpawnProcess.start

    def start_and_signal(process: SpawnProcess) -> None:
        start(process)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)

    monkeypatch.setattr(SpawnProcess, "start", start_and_signal)
    started = Processes()
    try:
        assert numbers(call(started, "square", b"[[3],{}]"))[0] == 9
    finally:
        started.close()
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_call_that_takes_too_long_is_killed_with_its_process(processes):
    pid = numbers(call(processes, "square", b"[[1],{}]"))[1]
    hung = call(processes, "hang")
    assert (hung.reason, hung.kinds[0]) == (
        "it took longer than 0.1 s: its process was killed",
        "builtins.TimeoutError",
    )
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_hears_that_its_task_was_cancelled(processes):
    assert call(processes, "until_cancelled", watched=Watched(cancelled=True)) == Returned(b'"stopped"')


def test_arguments_that_do_not_fit_are_refused_and_a_missing_function_fails(processes):
    refused = call(processes, "square", b'[["x"],{}]')
    assert isinstance(refused, RefusedCall)
    assert "argument 'number'" in refused.reason
    failed = processes.run(Order("support.task_functions", "gone", "json", b"", "q-0-0", 1, "mem://x"), Watched(), None)
    assert isinstance(failed, Failed)
    assert "gone" in failed.reason


def test_closing_fails_what_runs_and_takes_nothing_more(processes):
    outcomes: list[Outcome] = []
    watched = Watched()
    thread = threading.Thread(target=lambda: outcomes.append(call(processes, "until_cancelled", watched=watched)))
    pid = numbers(call(processes, "square", b"[[1],{}]"))[1]
    thread.start()
    while not processes.busy:
        assert thread.is_alive()
    processes.close()
    thread.join(30)
    assert outcomes == [Failed("the process that ran it died: SIGKILL")]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(Closed):
        call(processes, "square", b"[[1],{}]")


def test_threads_of_a_function_say_one_thing_after_the_other():
    """What is larger than a pipe takes at once is written in pieces: those of another message must not come between."""
    alone: list[bool] = []

    class Pipe:
        def send_bytes(self, _: bytes) -> None:
            alone.append(child._turn.locked())

    child = TaskChild(Pipe())  # type: ignore[arg-type]
    child._tell(b"half")
    child._say(Returned(b"1"))
    assert alone == [True, True]
