"""A real local Spark for tests: one session for the whole run, and driver programs that may be killed.

Contract: the session starts with the first test that asks for it and ends with the run; a driver is ended by its test.
Nothing of either is left, JVM and Python workers included, and they listen on loopback only. Where pyspark or Java is
missing, the tests that use it are skipped and say what is missing; others run.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from penstock.spark import java, jvm
from penstock.spark.local_session import session
from support.servers import descendants, end_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).resolve().parent.parent
MASTER = "local[2,3]"
"""Two tasks at a time, each tried three times."""
PATIENCE_S = 90.0
"""A JVM and its first query on a busy machine."""
LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""What starts soon; the tests are over before the better compiler would pay."""


def settings(folder: str) -> dict[str, str]:
    """Of a session for tests, beside those that every session has; its own files go into `folder`."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{LIGHT} -Djava.io.tmpdir={folder}",
        "spark.local.dir": folder,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }


def start(folder: str, master: str = MASTER) -> SparkSession:
    """A session that knows the format `penstock`. Raises what `java.check` does."""
    home = java.check()
    with pytest.MonkeyPatch.context() as environment:  # inherited by the JVM, and of no use afterwards
        environment.setenv("JAVA_HOME", str(home))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        return session("tests", master=master, settings=settings(folder))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the run. What a test sets in its configuration, it sets back."""
    if reason := java.missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder:
        started = start(folder)
        try:
            yield started
        finally:
            jvm.end(started)


Run = Callable[..., "Driver"]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Run]:
    """Starts a driver program: `driver(text, *arguments)`."""
    if reason := java.missing():
        pytest.skip(reason)
    with ExitStack() as stack:

        def begin(program: str, *arguments: object) -> Driver:
            started = Driver(tmp_path, program, *map(str, arguments))
            stack.callback(started.close)
            return started

        yield begin


class Driver:
    """A driver program in processes of its own: its Python, the JVM and their workers.

    The program is text. It makes its session by `support.spark.start(sys.argv[1])`, finds its other arguments behind
    that, and says what it has done in lines on standard output. `input()` waits until the test `tells` it something.
    """

    def __init__(self, folder: Path, program: str, *arguments: str) -> None:
        own = Path(tempfile.mkdtemp(prefix="driver-", dir=folder))
        place = own / "program.py"
        place.write_text(program)
        self._errors = (own / "errors").open("wb")
        self._text = b""
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, str(place), str(own), *arguments]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def hear(self, timeout_s: float = PATIENCE_S) -> str:
        """Its next line, "" when it ended before it said another. Fails when none comes in time."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._text:
            left = max(0.0, deadline - time.monotonic())
            ready = select.select([self.process.stdout], [], [], left)[0]
            assert ready, f"the driver said nothing for {timeout_s} s: {self.complaints()}"
            said = os.read(self.process.stdout.fileno(), 1 << 16)
            if not said:
                return ""
            self._text += said
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()

    def tell(self, line: str = "") -> None:
        """What its `input()` returns."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, line: str, timeout_s: float = PATIENCE_S) -> None:
        """Until it says this line."""
        deadline = time.monotonic() + timeout_s
        while (said := self.hear(max(0.0, deadline - time.monotonic()))) != line:
            assert said, f"the driver ended before it said {line!r}: {self.complaints()}"

    def finish(self, timeout_s: float = PATIENCE_S) -> None:
        """Until it has ended by itself, without an error."""
        code = self.process.wait(timeout_s)
        assert code == 0, f"the driver ended with {code}: {self.complaints()}"

    def kill(self) -> None:
        """End all of it at once, as a machine that fails does."""
        if self.process.poll() is None:
            processes = descendants(self.process.pid)
            for pid in (self.process.pid, *processes):
                _kill(pid)
            self.process.wait()
            _wait_for_end(processes)

    def complaints(self) -> str:
        """The last of what it and the JVM wrote to standard error."""
        return Path(self._errors.name).read_text(errors="replace")[-4000:]

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self._errors.close()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended with another one


def _wait_for_end(pids: set[int]) -> None:
    """Python workers end when their JVM is gone."""
    for pid in pids:
        try:
            with end_of(pid) as ended:
                assert select.select([ended], [], [], 30)[0], f"process {pid} of Spark did not end"
        except ProcessLookupError:
            continue
