"""What a pipeline hears of its query. Spark is not started."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.spark.pipelines import Pace
from penstock.spark.pipelines.running import _watch


class Query:
    """One trigger more has ended at each look; of the last `kept` there is something to read."""

    def __init__(self, kept: int, *told: dict[str, Any]) -> None:
        self._texts = [json.dumps(each) for each in told]
        self._kept = kept
        self._looks = 0
        self.stopped = False

    def awaitTermination(self, timeout: float) -> bool:
        self._looks += 1
        return self._looks == len(self._texts)

    @property
    def recentProgress(self) -> list[Any]:
        return [SimpleNamespace(json=text) for text in self._texts[: self._looks][-self._kept :]]

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize("kept", [1, 2, 100])
def test_each_trigger_is_told_of_once_also_where_the_clock_is_set_back(kept):
    hours, rows, told = (10, 11, 9, 9), (5, 0, 7, 1), list[int]()
    triggers = [{"timestamp": f"T{hour}", "numInputRows": count} for hour, count in zip(hours, rows, strict=True)]
    query = Query(kept, *triggers)
    progress = _watch(query, Pace(on_progress=lambda progress: told.append(progress.records)))  # type: ignore[arg-type]
    assert (progress.batches, progress.records) == (3, 13)
    assert told == [5, 5, 12, 13]
    assert query.stopped
