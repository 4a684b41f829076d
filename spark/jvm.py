"""Ends the JVM under a session: Spark leaves it running to the end of the process.

Contract: when `end` returns, the JVM and its Python workers are gone, and a new session may be made.
"""

from __future__ import annotations

import os
import select
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession

END_S = 30.0
"""How long any of the processes may take to end."""


def process() -> subprocess.Popen[bytes]:
    """The JVM that a session of this process runs on."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None, "there is no session in this process"
    assert gateway.proc is not None, "this process did not start Spark"
    return gateway.proc


def end(spark: SparkSession) -> None:
    """Stop a session, its JVM, and the Python workers of that."""
    from pyspark import SparkContext

    jvm, gateway = process(), SparkContext._gateway
    spark.stop()
    with ExitStack() as stack:
        workers = [stack.enter_context(ending) for ending in map(_Ending, descendants(jvm.pid))]
        SparkContext._gateway = SparkContext._jvm = None
        assert gateway is not None
        gateway.shutdown()
        assert jvm.stdin is not None
        jvm.stdin.close()  # it ends with this pipe
        jvm.wait(END_S)
        for worker in workers:
            worker.wait()


def descendants(pid: int) -> set[int]:
    """Processes started by this one, by those, and so on (Linux)."""
    children = {int(child) for task in _tasks(pid) for child in _words(task / "children")}
    return children.union(*(descendants(child) for child in children))


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return []  # it ended meanwhile


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except FileNotFoundError:
        return []


class _Ending:
    """Waits for the end of a process that is not a child."""

    def __init__(self, pid: int) -> None:
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1

    def wait(self) -> None:
        """Until it is gone, or for so long."""
        if self._fd >= 0:
            select.select([self._fd], [], [], END_S)

    def __enter__(self) -> _Ending:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
