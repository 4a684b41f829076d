"""`penstock worker` as an operator meets it: real processes, signals, a broker that goes away."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.broker.stop import SAME_STOP_S
from penstock.cli import exits
from penstock.errors import TaskFailed

from ..conftest import serve

SOURCE = '''
import os, signal
import penstock
from penstock import Retry, current_task

app = penstock.Tasks({url!r}, lease={lease_s})

@app.task(queue="quick", name="double")
def double(number: int) -> int:
    return 2 * number

@app.task(queue="quick", name="fail", retry=Retry(max_attempts=2, backoff=0.01))
def fail() -> None:
    raise ValueError("no way")

@app.task(queue="slow", name="wait")
def wait(begun: str, go: str) -> int:
    """Say that it has begun, and wait for go: opening a pipe waits for the other end."""
    open(begun, "w").close()
    open(go).close()
    return current_task().attempt

@app.task(queue="slow", name="wait_async")
async def wait_async(begun: str) -> int:
    import asyncio
    open(begun, "w").close()
    await asyncio.Event().wait()

@app.task(queue="heavy", process=True, name="suicide")
def suicide() -> int:
    if current_task().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()
'''


class Working:
    """One `penstock worker` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "penstock", "worker", "jobs_of_test:app", "--json", *options]
        self.log = (folder / "worker.log").open("ab")
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=self.log)
        self.ready = self._line()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended: {Path(self.log.name).read_text()}"
        return json.loads(line)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def drained(self) -> dict[str, int]:
        """What it says at its end."""
        said = self._line()
        assert self.process.wait(30) == exits.OK
        assert said["event"] == "drained"
        return said["outcomes"]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()


class Place:
    """A data directory with its broker, a folder with the module of an application, and its workers."""

    def __init__(self, folder: Path, sockets: str, lease_s: float) -> None:
        self.folder = folder
        self._sockets = sockets
        self._started: list[Working] = []
        self.broker = serve(folder / "data", sockets)
        (folder / "jobs_of_test.py").write_text(SOURCE.format(url=self.broker.unix, lease_s=lease_s))
        spec = importlib.util.spec_from_file_location("jobs_of_test", folder / "jobs_of_test.py")
        assert spec is not None
        assert spec.loader is not None
        self.jobs = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.jobs)
        self._pipes = 0

    def work(self, *options: str) -> Working:
        self._started.append(Working(self.folder, *options))
        return self._started[-1]

    def pipe(self) -> str:
        self._pipes += 1
        name = str(self.folder / f"pipe-{self._pipes}")
        os.mkfifo(name)
        return name

    def restart_broker(self) -> None:
        assert self.broker.stop() == exits.OK
        self.broker = serve(self.folder / "data", self._sockets)

    def close(self) -> None:
        for working in self._started:
            working.close()
        self.jobs.app.close()
        self.broker.stop()


def passed(pipe: str) -> None:
    """Wait until the other side has opened a pipe."""
    with open(pipe):
        pass


def opened(pipe: str) -> None:
    """Let the other side, which waits to read a pipe, go on."""
    with open(pipe, "w"):
        pass


@pytest.fixture
def lease_s() -> float:
    """Long: nothing comes back by itself while a test is held up."""
    return 60.0


@pytest.fixture
def place(tmp_path: Path, lease_s: float) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as sockets:
        made = Place(tmp_path, sockets, lease_s)
        try:
            yield made
        finally:
            made.close()


def test_what_is_sent_is_done_and_results_come_back(place: Place) -> None:
    jobs = [place.jobs.double.send(number) for number in range(20)]
    worker = place.work("--concurrency", "4")
    assert (worker.ready["event"], worker.ready["queues"], worker.ready["concurrency"]) == (
        "ready",
        ["quick", "slow", "heavy"],
        4,
    )
    assert [job.result(30) for job in jobs] == [2 * number for number in range(20)]
    failing = place.jobs.fail.send()
    with pytest.raises(TaskFailed, match="attempt 2: ValueError: no way"):
        failing.result(30)
    worker.signal(signal.SIGTERM)
    assert worker.drained() == {"done": 20, "failed": 2}
    log = Path(worker.log.name).read_text()
    assert "Traceback" in log
    failed = [line.split(maxsplit=3)[2:] for line in log.splitlines() if f"{failing.id} (fail)" in line]
    assert [(level, said.partition(": ")[0]) for level, said in failed] == [
        ("WARNING", f"task {failing.id} (fail) failed in attempt 1 and is retried"),
        ("ERROR", f"task {failing.id} (fail) failed in attempt 2 and is dead-lettered"),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_finishes_what_runs_and_leaves_the_rest(place: Place, number: signal.Signals) -> None:
    begun, go = place.pipe(), place.pipe()
    running = place.jobs.wait.send(begun, go)
    worker = place.work("--concurrency", "1", "--queue", "slow")
    passed(begun)
    worker.signal(number)
    later = place.jobs.wait.send(begun, go)
    assert later.status().state in ("pending", "leased")
    opened(go)
    assert worker.drained() == {"done": 1}
    assert running.result(30) == 1
    place.work("--queue", "slow")
    passed(begun)
    opened(go)
    assert later.result(30) == 1, "it was never tried before"


@pytest.mark.parametrize(("how", "again"), [("0.1s", False), ("60s", True)])
@pytest.mark.parametrize("function", ["wait", "wait_async"])
def test_what_takes_too_long_is_given_back_uncounted(place: Place, function: str, how: str, again: bool) -> None:
    begun = place.pipe()
    arguments = (begun,) if function == "wait_async" else (begun, place.pipe())
    job = getattr(place.jobs, function).send(*arguments)
    worker = place.work("--drain", how)
    passed(begun)
    worker.signal(signal.SIGTERM)
    if again:
        with pytest.raises(subprocess.TimeoutExpired):
            worker.process.wait(3 * SAME_STOP_S)
        worker.signal(signal.SIGINT)
    assert worker.drained() == {"released": 1}
    status = job.status()
    assert (status.state, status.attempt) in (("pending", 0), ("retrying", 0))


def test_two_signals_that_come_together_drain_as_one(place: Place) -> None:
    begun, go = place.pipe(), place.pipe()
    job = place.jobs.wait.send(begun, go)
    worker = place.work("--drain", "60s")
    passed(begun)
    for number in (signal.SIGTERM, signal.SIGINT):  # two of a kind may arrive as one
        worker.signal(number)
    opened(go)
    assert worker.drained() == {"done": 1}
    assert job.result(30) == 1


@pytest.mark.parametrize("lease_s", [1.0])
def test_a_killed_worker_loses_its_tasks_to_another(place: Place) -> None:
    begun, go = place.pipe(), place.pipe()
    job = place.jobs.wait.send(begun, go)
    killed = place.work("--concurrency", "1")
    passed(begun)
    killed.signal(signal.SIGKILL)
    assert killed.process.wait(30) == -signal.SIGKILL
    place.work("--concurrency", "1")
    passed(begun)
    opened(go)
    assert job.result(30) == 2, "the attempt of the killed worker counts"


def test_a_worker_outlives_its_broker(place: Place) -> None:
    begun, go = place.pipe(), place.pipe()
    running = place.jobs.wait.send(begun, go)
    worker = place.work("--concurrency", "2")
    passed(begun)
    place.restart_broker()
    assert place.jobs.double.send(4).result(60) == 8
    opened(go)
    assert running.result(30) == 1, "its lease stood all the time"
    worker.signal(signal.SIGTERM)
    assert worker.drained() == {"done": 2}


def test_a_process_that_dies_is_the_failure_of_its_task(place: Place) -> None:
    worker = place.work("--concurrency", "2")
    job = place.jobs.suicide.send()
    assert job.result(60) != worker.ready["pid"]
    worker.signal(signal.SIGTERM)
    assert worker.drained() == {"failed": 1, "done": 1}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["jobs"], "'jobs' is not MODULE:APP"),
        ([".jobs:app"], "'.jobs:app' is not MODULE:APP"),
        (["no_such_module:app"], "there is no module 'no_such_module'"),
        (["os:path"], "and not a penstock.Tasks"),
        (["os:missing"], "module os has no 'missing': there is no penstock.Tasks in it"),
        (["jobs.py:app"], "jobs.py is a file: name its module, as in jobs:app"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(cli: Callable[..., Any], words: list[str], says: str) -> None:
    found = cli("worker", *words)
    assert (found.code, found.out) == (exits.USAGE, b"")
    assert says in found.err
    assert len(found.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import penstock\n\nboom = 1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def x(:", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_an_app_that_cannot_be_imported_shows_its_own_lines_and_none_of_ours(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str
) -> None:
    (tmp_path / "broken_app.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    found = cli("worker", "broken_app:app")
    assert (found.code, found.out) == (exits.FAILED, b"")
    lines = found.err.splitlines()
    assert lines[-1] == f"penstock: the application broken_app cannot be imported: {says}"
    files = [line for line in lines if line.lstrip().startswith("File")]
    assert [f"{tmp_path}/broken_app.py" in line for line in files] == [True], found.err


def test_an_app_that_is_not_where_it_was_named_is_told_which_there_are(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_jobs.py").write_text("import penstock\nwork = penstock.Tasks('mem://x')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert "module some_jobs has no 'app': its apps are some_jobs:work" in cli("worker", "some_jobs:app").err


def test_a_worker_without_a_broker_says_at_once_what_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "lonely.py").write_text(SOURCE.format(url=f"unix://{tmp_path}/none", lease_s=1.0))
    command = [sys.executable, "-m", "penstock", "worker", "lonely:app"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert f"waiting for the broker at unix://{tmp_path}/none, for up to 30 s" in process.stderr.readline().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == exits.OK


def test_an_app_without_such_a_queue_is_refused(place: Place) -> None:
    command = [sys.executable, "-m", "penstock", "worker", "jobs_of_test:app", "--queue", "none"]
    found = subprocess.run(command, cwd=place.folder, capture_output=True, timeout=60)
    assert (found.returncode, found.stdout) == (exits.USAGE, b"")
    assert b"the app has no queue 'none'" in found.stderr
