"""The sink, made to halt on its driver at a step that a test names, so that a process can be killed just there.

    halt = Halt(tmp_path, "staged")      # or "committed"
    spark.dataSource.register(HaltingSink)
    query = ....format("halting").options(halt=halt.folder, step=halt.step)
    halt.wait()                          # the sink stands there
    halt.go_on()                         # or never: the driver is killed

Contract: all of the sink's own code runs; around its commit stand two named pipes. No wait is longer than PATIENCE_S.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from penstock.spark.source import PenstockSource
from pyspark import TaskContext
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

PATIENCE_S = 240.0


class Halt:
    """The test's end of the pipes."""

    def __init__(self, folder: Path, step: str) -> None:
        self.step = step
        self.folder = folder / f"halt-{step}"
        self.folder.mkdir()
        self._pipes = [_pipe(self.folder / name, create=True) for name in ("there", "on")]

    def wait(self) -> None:
        """Until the sink stands at the step."""
        assert _heard(self._pipes[0]), f"the sink did not reach the step {self.step!r} in {PATIENCE_S} s"

    def go_on(self) -> None:
        """Let the sink go on."""
        os.write(self._pipes[1], b".")

    def close(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)

    def __enter__(self) -> Halt:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HaltingSink(PenstockSource):
    """`format("halting")`: the sink with the options `halt` (a folder) and `step`."""

    @classmethod
    def name(cls) -> str:
        return "halting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        folder, step = self.options.pop("halt"), self.options.pop("step")
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, DataSourceStreamArrowWriter)
        return HaltingWriter(writer, folder, step)


class HaltingWriter(DataSourceStreamArrowWriter):
    """Halts before or after the commit of its first micro-batch."""

    def __init__(self, writer: DataSourceStreamArrowWriter, folder: str, step: str) -> None:
        self._writer, self._folder, self._step = writer, folder, step

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._halt_at("staged")
        self._writer.commit(messages, batchId)
        self._halt_at("committed")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)

    def _halt_at(self, step: str) -> None:
        if step == self._step:
            _halt(self._folder)


def halting(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: hands rows on; the first attempt of the first task halts behind its first rows."""

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        halts = task.partitionId() == 0 and task.attemptNumber() == 0
        for batch in batches:
            yield batch
            if halts:
                _halt(folder)
                halts = False

    return hand_on


def _halt(folder: str) -> None:
    there, on = (_pipe(Path(folder) / name) for name in ("there", "on"))
    try:
        os.write(there, b".")
        assert _heard(on), f"the test did not let it go on in {PATIENCE_S} s"
    finally:
        os.close(there)
        os.close(on)


def _pipe(path: Path, *, create: bool = False) -> int:
    """A named pipe, open in both directions, so that opening and writing never wait."""
    if create:
        os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def _heard(pipe: int) -> bool:
    """Take a byte; whether one came in time."""
    return bool(select.select([pipe], [], [], PATIENCE_S)[0]) and os.read(pipe, 1) == b"."


register_pickle_by_value(sys.modules[__name__])  # Spark's Python workers do not know the tests
