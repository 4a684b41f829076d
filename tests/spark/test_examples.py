"""The sample project of declarative pipelines runs as it stands, and each further run takes what is new."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from penstock.broker import ServeConfig
from penstock.clients import Client, connect
from penstock.spark import java
from support.processes import Serving
from support.sources import ROOT
from support.topics import texts

PATIENCE_S = 900.0
PROJECT = ROOT / "spark/examples/flights"


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory):
    """One of its own: the project says what its topics are called."""
    folder = tmp_path_factory.mktemp("b")
    config = ServeConfig(data=str(folder / "data"), listen=(f"unix://{folder}/b.sock",))
    with Serving(config) as serving, connect(serving.url) as client:
        yield client


def flights(client: Client, *delays: int) -> None:
    with client.producer("flights") as producer:
        for delay in delays:
            producer.send(json.dumps({"carrier": "UA", "number": delay, "delay": delay}).encode(), key=b"UA")


def run(project: Path, url: str) -> None:
    program = Path(sys.executable).with_name("spark-pipelines")
    environment = {
        **os.environ, "PENSTOCK_URL": url, "JAVA_HOME": str(java.check()), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    done = subprocess.run(
        [program, "run", "--conf", "spark.sql.catalogImplementation=hive"],
        cwd=project,
        env=environment,
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )
    assert "Run is COMPLETED" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.skipif(bool(java.missing()), reason=java.missing() or "-")
def test_the_project_runs_and_runs_on(broker, tmp_path):
    project = shutil.copytree(PROJECT, tmp_path / "project")
    spec = project / "spark-pipeline.yml"
    (storage,) = [line for line in spec.read_text().splitlines() if line.startswith("storage:")]
    spec.write_text(spec.read_text().replace(storage, f"storage: file://{tmp_path}/storage"))
    broker.create_topic("flights", partitions=2)
    broker.create_topic("late-flights")
    flights(broker, 10, 20, 30)
    run(project, broker.url)
    assert [json.loads(text)["delay"] for text in texts(broker, "late-flights")] == [20, 30]
    flights(broker, 70)
    run(project, broker.url)
    assert [json.loads(text)["delay"] for text in texts(broker, "late-flights")] == [20, 30, 70]
    (row,) = ds.dataset(project / "spark-warehouse/delays").to_table().to_pylist()
    assert row == {"carrier": "UA", "flights": 4, "mean_delay": 32.5}
