"""What every test may rely on: a clean environment, the same cases each time, and many more when asked for.

`make test` is deterministic: hypothesis is derandomised, seeds are written in the tests. `make soak` (`--soak`) gives
every test over `seed` many fresh ones, hypothesis more examples, and runs the tests marked `soak`. The run's own seed
is printed; PENSTOCK_SEED=n replays it.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.memory import directory_of_run
from support.spark import driver, spark
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["driver", "spark"]  # fixtures; here alone, so that a run has one session

SOAK_FACTOR = 25
SEED = pytest.StashKey[int]()
SEED_OF_RUN = "penstock_seed"
"""The name under which processes of xdist are told it."""

settings.register_profile("test", derandomize=True, deadline=None, max_examples=50)
settings.register_profile(
    "soak", deadline=None, max_examples=50 * SOAK_FACTOR, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="many times the cases, a fresh seed, and tests marked `soak`")
    parser.addoption("--memory", action="store_true", help="files of tests are in memory, where there is enough of it")
    parser.addoption("--rewrite", action="store_true", help="write the answers of now into the traces of Raft")


def pytest_configure(config: pytest.Config) -> None:
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # in the background of a shell, where tests of Ctrl-C would hang
        signal.signal(signal.SIGINT, signal.default_int_handler)
    soak = config.getoption("--soak")
    settings.load_profile("soak" if soak else "test")
    drawn = random.randrange(1, 2**31) if soak else 1
    given = getattr(config, "workerinput", {}).get(SEED_OF_RUN) or os.environ.get("PENSTOCK_SEED")
    config.stash[SEED] = int(given or drawn)
    if config.getoption("--memory") and config.option.basetemp is None and (memory := directory_of_run()):
        config.option.basetemp = str(memory / "run")
        config.add_cleanup(lambda: shutil.rmtree(memory, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """The processes of a run have its seed: they have to collect the same tests."""
    node.workerinput[SEED_OF_RUN] = node.config.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[SEED]} (PENSTOCK_SEED={config.stash[SEED]} make soak replays)"


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Under --soak, a test over the seeds written beside it gets fresh ones as well."""
    if metafunc.config.getoption("--soak"):
        fresh = random.Random(f"{metafunc.config.stash[SEED]} {metafunc.definition.nodeid}")
        marks = metafunc.definition.own_markers
        for place, mark in enumerate(marks):
            if mark.name == "parametrize" and mark.args[0] == "seed":
                written = list(mark.args[1])
                more = [fresh.randrange(1 << 32) for _ in range(len(written) * (SOAK_FACTOR - 1))]
                marks[place] = pytest.mark.parametrize("seed", [*written, *more]).mark


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what failed at once: a run that is ended from outside prints no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid}: {report.when} failed after {report.duration:.0f} s", file=sys.__stderr__, flush=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--soak"):
        soaking = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=soaking)
        items[:] = [item for item in items if item not in soaking]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was collected stays to the end; looking for garbage in it takes seconds, each time a test has that done."""
    gc.collect()
    gc.freeze()


LONG = (
    "tests/spark", "tests/broker/member/", "tests/broker/test_killed_", "tests/broker/test_backups.py",
    "tests/gateway/test_planted_secrets.py", "tests/gateway/test_leaders.py", "tests/gateway/resp/test_redis_py.py",
    "tests/broker/replica/test_group_lives.py", "tests/broker/replica/test_transaction_lives.py",
    "tests/broker/replica/test_rule_mutants.py", "tests/perf/benches/test_growth.py",
    "tests/adapters/celery/test_their_suites.py", "tests/adapters/celery/test_worker_kills.py",
    "tests/adapters/celery/test_broker_restarts.py",
)  # fmt: skip
"""Files with few tests that take long. At the end of a run, one process would wait for them alone."""

SPARK = ("tests/spark/", "tests/perf/load/test_spark.py")
"""Where tests have the fixture `spark`."""


class ByFile(LoadScopeScheduling):
    """Files go to whichever process is free, first those that take long, then those with most tests.

    Spark's all go to one, so that a run has one JVM session.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        long = [scope for start in LONG for scope in self.workqueue if scope.startswith(start)]
        for scope in long[:1]:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "tests/spark" if path.startswith(SPARK) else path

    def remove_node(self, node: WorkerController) -> str | None:
        """A test that ended its process has failed and is not run again: it would end the next one, too."""
        tests = [(unit, test) for unit in self.assigned_work[node].values() for test, done in unit.items() if not done]
        if not tests:
            return super().remove_node(node)
        unit, ended_by = tests[0]
        unit[ended_by] = True
        super().remove_node(node)
        return ended_by


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return ByFile(config, log)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed, for a test that is not over seeds of its own: 1, or a fresh one under --soak."""
    return request.config.stash[SEED]


@pytest.fixture
def real_disk() -> Iterator[Path]:
    """A directory where files usually are, for a test that needs more of them than memory has."""
    with tempfile.TemporaryDirectory(prefix="penstock-tests-") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def environment_without_penstock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the developer's PENSTOCK_ variables from tests."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)


def _children() -> set[int]:
    """Processes started by this one and still there."""
    with open(f"/proc/self/task/{os.getpid()}/children") as listing:
        return {int(pid) for pid in listing.read().split()}


@pytest.fixture(autouse=True, scope="session")
def no_process_is_left_behind() -> Iterator[None]:
    """Fail the run if a test leaves a process behind."""
    before = _children()
    yield
    left = {pid: _command(pid) for pid in _children() - before}
    left = {pid: command for pid, command in left.items() if "resource_tracker" not in command}
    assert not left, f"tests left processes behind: {left}"


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            return words.read().replace(b"\0", b" ").decode(errors="replace")
    except FileNotFoundError:
        return "gone"


@pytest.fixture
def quick_collections() -> None:
    """The garbage collector looks only at what the test makes."""
    gc.collect()
    gc.freeze()  # for good: to thaw this would be to thaw what was collected
