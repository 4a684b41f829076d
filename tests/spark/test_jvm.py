"""The JVM under a session ends when it is told to, and a driver that is killed takes it along."""

from __future__ import annotations

from pathlib import Path

from penstock.spark import jvm
from support.spark import Run

PROGRAM = """
import os
import sys
from penstock.spark import jvm
from support.spark import start

spark = start(sys.argv[1])
assert spark.sparkContext.parallelize([1, 2]).map(lambda number: number + 1).collect() == [2, 3]
processes = [jvm.process().pid, *jvm.descendants(jvm.process().pid)]
print(len(processes) > 1)
jvm.end(spark)
print([pid for pid in processes if os.path.exists(f"/proc/{pid}/exe")])  # not so when it only waits to be reaped
spark = start(sys.argv[1])
print(spark.range(3).count(), flush=True)
input()
"""


def test_a_jvm_that_is_ended_is_gone_with_its_workers_and_may_be_followed_by_another(driver: Run):
    started = driver(PROGRAM)
    assert [started.hear(), started.hear(), started.hear()] == ["True", "[]", "3"]
    processes = jvm.descendants(started.process.pid)
    assert any(is_java(pid) for pid in processes)
    started.kill()
    assert [pid for pid in processes if Path(f"/proc/{pid}/exe").exists()] == []


def is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").resolve().name == "java"
    except FileNotFoundError:
        return False  # it ended meanwhile
