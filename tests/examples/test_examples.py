"""Each program of examples/ runs as its page says, and prints what it promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.spark import java
from support.processes import Serving
from support.sources import ROOT

EXAMPLES = ROOT / "examples"
PATIENCE_S = 280.0

Run = Callable[..., str]


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """That of a user whose broker serves."""
    folder = tmp_path_factory.mktemp("b")
    with Serving(ServeConfig(data=str(folder / "data"), listen=(f"unix://{folder}/b.sock",))) as serving:
        yield {**os.environ, "PENSTOCK_URL": serving.url, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Run a program, and give what it printed."""

    def run(name: str, *arguments: str) -> str:
        command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def worker(environment: dict[str, str]) -> Iterator[None]:
    """`penstock worker jobs:app`, which drains in the end."""
    program = Path(sys.executable).with_name("penstock")
    quiet = subprocess.DEVNULL
    with subprocess.Popen([program, "worker", "jobs:app"], cwd=EXAMPLES, env=environment, stderr=quiet) as process:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_every_program_is_on_the_page_and_is_run_here():
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    page, tests = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    assert {name for name in programs if f"({name}.py)" in page and f'run("{name}"' in tests} == programs


def test_a_device_logs_and_reads_what_is_new(run, tmp_path):
    for logged in (1000, 2000):
        said = run("device_logger", str(tmp_path / "log"))
        assert said.startswith(f"{logged} readings; the warmest of this run: {{'number': 15")


def test_jobs_are_done_retried_and_dead_lettered(run, worker):
    said = run("jobs")
    assert "order-1: 1250 cents charged" in said
    assert "after 3 attempts: ValueError: order-2 has no address" in said


def test_a_pipeline_counts_each_order_once(run):
    total = '{"orders": 3, "cents": 425}'
    assert run("pipeline") == f"{[total]}\n"
    assert run("pipeline") == f"{[total, total]}\n"


def test_sql_reads_what_was_sent(run):
    assert [line.split()[1:6:2] for line in run("arrow_duckdb").splitlines() if "UA" in line] == [
        ["UA", "2000", "28.5"]
    ]


@pytest.mark.skipif(bool(java.missing()), reason=java.missing() or "-")
def test_spark_counts_what_was_sent(run):
    assert "| UA|    2|" in run("spark_counts")
