"""Archives for tests: frames without Spark, a process that dies at a step, and what a table holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from penstock.spark.pipelines.archive_files import WRITTEN

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
START_US = 1_357_030_800_000_000  # 2013-01-01T09:00Z


def records(first: int, count: int, *, partitions: int = 2, step_us: int = 60_000_000) -> pa.Table:
    """Rows as the source has them: offsets of each partition from `first` on, `step_us` apart."""
    rows = [
        {
            "key": b"k%d" % partition, "value": b"%d-%d" % (partition, offset), "topic": "flights",
            "partition": partition, "offset": offset, "timestamp": START_US + offset * step_us, "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}],
        }
        for partition in range(partitions)
        for offset in range(first, first + count)
    ]  # fmt: skip
    plain = COLUMNS.set(5, pa.field("timestamp", pa.int64()))
    return pa.Table.from_pylist(rows, schema=plain).cast(COLUMNS)


class Frame:
    """A DataFrame whose only task runs here."""

    def __init__(self, table: pa.Table, batch_rows: int = 7) -> None:
        self._table = table
        self._batch_rows = batch_rows

    def mapInArrow(self, function: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> Frame:
        return Frame(pa.Table.from_batches(list(function(iter(self._table.to_batches(self._batch_rows)))), WRITTEN))

    def toArrow(self) -> pa.Table:
        return self._table


class Died(BaseException):
    """The process is gone: nothing behind this runs."""


@contextmanager
def dying_after(steps: int) -> Iterator[None]:
    """Die when a file is renamed, made or synced for the time after `steps` of these."""
    left = [steps]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if not left[0]:
                raise Died
            left[0] -= 1
            return function(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "fsync", "mkdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        yield


def values_in(files: list[Path]) -> list[bytes]:
    """What files hold, in order."""
    return sorted(value for file in files for value in pq.read_table(file, columns=["value"])["value"].to_pylist())


def forget_last_commit(checkpoint: Path) -> None:
    """Have Spark believe that the last batch was not done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.with_name(f".{last.name}.crc").unlink()
    last.unlink()
