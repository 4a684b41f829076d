"""Drivers and brokers that are killed while a query or a write is under way: every row once all the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.clients import Client, connect
from pyspark.sql import SparkSession
from support.halting import Halt, HaltingSink, halting
from support.lines import Lines, Query, finish
from support.processes import Serving
from support.spark import Driver
from support.topics import open_stages, texts

PATIENCE_S = 240.0

pytestmark = pytest.mark.timeout(300)  # a driver of its own takes its time to start on a busy machine

PROGRAM = """
import sys
from support.halting import HaltingSink
from support.spark import start

spark = start(sys.argv[1])
spark.dataSource.register(HaltingSink)
lines, options = sys.argv[2], dict(zip(sys.argv[3::2], sys.argv[4::2]))
rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(lines).repartition(2)
rows.writeStream.format("halting").options(**options).trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.parametrize("step", [pytest.param("staged", marks=pytest.mark.soak), "committed"])
def test_a_driver_that_is_killed_at_its_commit_loses_nothing_and_doubles_nothing(
    query: Query, lines: Lines, client: Client, topic: str, driver: Callable[..., Driver], tmp_path: Path, step: str
) -> None:
    lines.add(40)
    lines.add(40)
    with Halt(tmp_path, step) as halt:
        options = {**query.options, "halt": str(halt.folder), "step": step}
        program = driver(PROGRAM, lines.folder, *(word for option in options.items() for word in option))
        halt.wait()
        program.kill()
    assert len(texts(client, topic)) == (0 if step == "staged" else 40), "readers see what was committed, and only that"
    query.run()
    assert sorted(texts(client, topic)) == sorted(lines.all)


def broker_in(folder: Path) -> Serving:
    """A broker that may be killed: no other test uses it."""
    return Serving(ServeConfig(data=str(folder / "data"), listen=(f"unix://{folder}/broker.sock",)))


def kill_broker(serving: Serving) -> None:
    """Kill it, and wait until its supervisor has started another one."""
    before = serving.ready
    os.kill(serving.pid("broker"), signal.SIGKILL)
    serving.wait_ready(other_than=before)


def kill_when_halted(serving: Serving, halt: Halt) -> None:
    """In a thread of its own: Spark finds its sources in Python by the thread that made the session."""
    halt.wait()
    kill_broker(serving)
    halt.go_on()


@pytest.mark.parametrize("step", ["staged", "committed"])
def test_a_broker_that_is_killed_at_the_commit_loses_nothing_and_doubles_nothing(
    spark: SparkSession, lines: Lines, tmp_path: Path, step: str
) -> None:
    lines.add(40)
    lines.add(40)
    spark.dataSource.register(HaltingSink)
    with (
        broker_in(tmp_path) as serving,
        connect(serving.url, timeout=PATIENCE_S) as client,
        Halt(tmp_path, step) as halt,
    ):
        client.create_topic("flights", partitions=2)
        query = Query(spark, lines, tmp_path / "checkpoint", url=serving.url, topic="flights")
        running = query.start("halting", halt=str(halt.folder), step=step)
        halt.wait()
        kill_broker(serving)
        for _ in range(2):
            halt.go_on()  # the second micro-batch halts, too
        finish(running)
        assert sorted(texts(client, "flights")) == sorted(lines.all)
        assert open_stages(client) == 0


def test_a_broker_that_is_killed_while_rows_are_staged_loses_nothing_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        broker_in(tmp_path) as serving,
        connect(serving.url, timeout=PATIENCE_S) as client,
        Halt(tmp_path, "rows") as halt,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        client.create_topic("flights", partitions=2)
        rows = spark.range(0, 60_000, 1, 2).selectExpr("lpad(cast(id as string), 200, '0') as value")
        writer = rows.mapInArrow(halting(str(halt.folder)), "value string").write.format("penstock").mode("append")
        killing = elsewhere.submit(kill_when_halted, serving, halt)
        writer.options(url=serving.url, topic="flights").save()
        killing.result()
        assert sorted(map(int, texts(client, "flights"))) == list(range(60_000))
        assert open_stages(client) == 0


def test_a_micro_batch_is_not_committed_before_the_checkpoint_keeps_what_it_holds(
    spark: SparkSession, query: Query, lines: Lines, client: Client, topic: str, tmp_path: Path
) -> None:
    """After a power cut its number would stand for other rows: what cannot be synced is not written."""
    lines.add(10)
    spark.dataSource.register(HaltingSink)
    with Halt(tmp_path, "staged") as halt:
        running = query.start("halting", halt=str(halt.folder), step="staged")
        halt.wait()
        (tmp_path / "checkpoint" / "offsets" / "0").unlink()
        halt.go_on()
        with pytest.raises(Exception, match=r"No such file or directory: .*/checkpoint/offsets/0"):
            finish(running)
    assert client.transaction_epoch(f"{running.id}.{topic}") is None
    assert texts(client, topic) == []
