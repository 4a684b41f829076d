"""What a pipeline hears of its query. Spark is not started."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.spark.errors import StaleCheckpoint
from penstock.spark.pipelines import Pace, Progress, durable
from penstock.spark.pipelines.running import run


class Query:
    """One trigger more has ended at each look; of the last `kept` there is something to read."""

    def __init__(self, kept: int, *told: dict[str, Any], id: str = "5a3b") -> None:
        self.id = id
        self._texts = [json.dumps(each) for each in told]
        self._kept = kept
        self.looks = 0
        self.stopped = False

    def awaitTermination(self, timeout: float) -> bool:
        self.looks += 1
        return self.looks == len(self._texts)

    @property
    def recentProgress(self) -> list[Any]:
        return [SimpleNamespace(json=text) for text in self._texts[: self.looks][-self._kept :]]

    def stop(self) -> None:
        self.stopped = True


class Writer:
    """Of a query: as Spark does, it keeps the id that its checkpoint has, or gives it the query's."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self._checkpoint = Path()

    def option(self, name: str, value: str) -> Writer:
        assert name == "checkpointLocation"
        self._checkpoint = Path(value)
        return self

    def trigger(self, **options: object) -> Writer:
        return self

    def start(self) -> Query:
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        metadata = self._checkpoint / "metadata"
        if metadata.exists():
            self.query.id = json.loads(metadata.read_text())["id"]
        metadata.write_text(json.dumps({"id": self.query.id}))
        return self.query


def told(checkpoint: Path, query: Query, pace: Pace | None = None) -> Progress:
    """What a pipeline knows when the query of its checkpoint has ended."""
    return run(Writer(query), checkpoint / "spark", pace or Pace())  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [1, 2, 100])
def test_each_trigger_is_told_of_once_also_where_the_clock_is_set_back(kept, tmp_path):
    hours, rows, heard = (10, 11, 9, 9), (5, 0, 7, 1), list[int]()
    triggers = [{"timestamp": f"T{hour}", "numInputRows": count} for hour, count in zip(hours, rows, strict=True)]
    query = Query(kept, *triggers)
    progress = told(tmp_path, query, Pace(on_progress=lambda progress: heard.append(progress.records)))
    assert (progress.batches, progress.records) == (3, 13)
    assert heard == [5, 5, 12, 13]
    assert query.stopped


TRIGGER = {"timestamp": "T10", "numInputRows": 5}


def test_a_pipeline_goes_on_with_the_query_that_it_began_with(tmp_path):
    for id_ in ("1111", "2222", "3333"):
        query = Query(1, TRIGGER, id=id_)
        assert told(tmp_path, query).records == 5
        assert query.id == "1111"
        if id_ == "2222":
            (tmp_path / "query.json").unlink()  # as of one that was begun before there was a note
    assert (tmp_path / "query.json").exists()


@pytest.mark.parametrize("id_", ["1111", "2222"])
def test_a_query_that_is_gone_does_not_begin_anew(tmp_path, id_):
    """Of a rollup it would write all windows again; of an archive it would pass new records by for old ones."""
    told(tmp_path, Query(1, TRIGGER, id="1111"))
    shutil.rmtree(tmp_path / "spark")
    if id_ == "2222":
        Writer(Query(1, id=id_)).option("checkpointLocation", str(tmp_path / "spark")).start()
    again = Query(1, TRIGGER)
    with pytest.raises(StaleCheckpoint, match=f"{tmp_path}/spark is not of query 1111, which wrote"):
        told(tmp_path, again)
    assert (again.looks, again.stopped) == (0, False)  # it was not started


def test_a_power_cut_does_not_leave_the_note_of_a_query_that_is_gone(tmp_path, monkeypatch):
    synced = list[str]()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    told(tmp_path, Query(1, TRIGGER))
    assert synced.index(f"{tmp_path}/spark/metadata") < synced.index(f"{tmp_path}/query.json.new")


def test_a_query_that_cannot_be_noted_is_stopped(tmp_path, monkeypatch):
    def full(path: Path, value: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(durable, "write", full)
    query = Query(1, TRIGGER)
    with pytest.raises(OSError, match="No space left"):
        told(tmp_path, query)
    assert query.stopped
