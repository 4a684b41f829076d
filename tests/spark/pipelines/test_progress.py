"""Progress is what Spark says of each batch, added up."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.spark.pipelines.progress import Progress, after, positions


def offsets(**topics: dict[int, int]) -> dict[str, Any]:
    return {
        "v": 1,
        "topics": {
            name: {"id": "ab", "p": {str(number): [offset, 1] for number, offset in found.items()}}
            for name, found in topics.items()
        },
    }


def batch(records: int, end: dict[str, Any] | None, latest: dict[str, Any] | None = None, rate: float = 10.0) -> dict:
    source = {"endOffset": end, "latestOffset": latest}
    return {"batchId": 0, "numInputRows": records, "processedRowsPerSecond": rate, "sources": [source]}


def test_batches_add_up():
    progress = after(Progress(), batch(5, offsets(flights={0: 3, 1: 2}), offsets(flights={0: 4, 1: 2})))
    progress = after(progress, batch(7, offsets(flights={0: 8, 1: 4}), offsets(flights={0: 8, 1: 14}), rate=70))
    assert progress == Progress(2, 12, 10, 70.0, {"flights": {0: 8, 1: 4}})


def test_an_empty_batch_changes_nothing_but_what_is_left():
    before = after(Progress(), batch(5, offsets(flights={0: 5}), offsets(flights={0: 9})))
    progress = after(before, batch(0, offsets(flights={0: 5}), offsets(flights={0: 5}), rate=0))
    assert (progress.batches, progress.records, progress.rate, progress.lag) == (1, 5, 10.0, 0)


def test_a_partition_that_was_not_read_is_behind_as_a_whole():
    assert after(Progress(), batch(1, offsets(a={0: 1}), offsets(a={0: 1, 1: 7}, b={0: 3}))).lag == 10


def test_what_a_source_does_not_tell_is_not_known():
    assert after(Progress(), batch(1, offsets(a={0: 1}), None)).lag is None
    assert after(Progress(), {"batchId": 0}).lag is None


@pytest.mark.parametrize("told", [None, "", 17, {"v": 1}, {"topics": 3}, {"topics": {"a": {"p": {"x": [1, 1]}}}}])
def test_what_is_no_position_is_none(told):
    assert positions(told) is None
