"""Exactly once: tasks stage their rows, the driver commits what all of them staged.

Idea: each attempt of a task stages under random ids of its own, and only stages that the driver names are committed.
Attempts that failed, were killed or ran twice leave only stages, which their task drops, or else the broker in time.
The commit is one decision of the broker for an epoch and is idempotent, so Spark may repeat a micro-batch from any
point: a task that finds its epoch decided stages nothing.

Contract: `write` runs in tasks, `commit` and `abort` on the driver, in different processes from the tasks and from the
one that made the writer; they communicate only by messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ...clients import Client
from ..connection import client_of
from ..errors import StaleCheckpoint
from ..syncing import local_checkpoint, sync_micro_batch
from .columns import Layout
from .epochs import Epoch, batch_epoch, stream_epoch
from .messages import Written, stages_of, written
from .options import SinkOptions
from .rows import SinkRows


class StagedWriter(DataSourceArrowWriter):
    """The writer of a batch write. Its epoch travels with it to the tasks and to the driver's commit."""

    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout
        self._epoch = batch_epoch(options.transaction, options.version, uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task, unless this version, or a later one, was committed before."""
        client = client_of(self._options.url, self._options.timeout_s)
        if last_committed(client, self._epoch) >= self._epoch.number:
            return pass_by(iterator, self._epoch)
        return stage(client, self._options, self._layout, iterator, self._epoch)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the staged records."""
        commit(self._options, written(messages), self._epoch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what was staged."""
        client_of(self._options.url, self._options.timeout_s).drop_stages(stages_of(written(messages)))


class StagedStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: SinkOptions, layout: Layout, checkpoint: str = "") -> None:
        """`checkpoint`: the location of the query's, as its author gave it."""
        self._options = options
        self._layout = layout
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task, unless its micro-batch was committed before."""
        task = TaskContext.get()
        assert task is not None, "Spark runs this in a task"
        epoch = stream_epoch(self._options.transaction, self._layout.topic, task.getLocalProperty)
        client = client_of(self._options.url, self._options.timeout_s)
        last = last_committed(client, epoch)
        if last > epoch.number:
            raise StaleCheckpoint(
                f"micro-batch {epoch.number} comes after micro-batch {last} was committed as {epoch.transaction}: the "
                "checkpoint is older than what was written, or another query writes under this name; go on from the "
                'newest checkpoint, or give another "txnId" to write these rows once more'
            )
        if last == epoch.number:
            return pass_by(iterator, epoch)
        return stage(client, self._options, self._layout, iterator, epoch)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the records staged for this micro-batch, once its checkpoint is durable that says which they are."""
        found = written(messages)
        if found:
            if (checkpoint := local_checkpoint(self._checkpoint)) is not None:
                sync_micro_batch(checkpoint, batchId)
            commit(self._options, found, Epoch(found[0].transaction, batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what was staged for this micro-batch."""
        client_of(self._options.url, self._options.timeout_s).drop_stages(stages_of(written(messages)))


def last_committed(client: Client, epoch: Epoch) -> int:
    """The highest epoch committed under this name, -1 before the first."""
    last = client.transaction_epoch(epoch.transaction)
    return -1 if last is None else last


def pass_by(batches: Iterator[pa.RecordBatch], epoch: Epoch) -> Written:
    """Do nothing with rows that were committed before. They are taken all the same, as Spark expects of a task."""
    for _ in batches:
        pass
    return Written(0, epoch.transaction, repeated=True)


def stage(
    client: Client, options: SinkOptions, layout: Layout, batches: Iterator[pa.RecordBatch], epoch: Epoch
) -> Written:
    """Stage all rows, and return when each is as durable as its topic promises. Leaves nothing when it fails."""
    with client.staging() as staging:
        rows = SinkRows(layout, lambda topic: staging.producer(topic, codec=options.codec))
        for batch in batches:
            rows.add(batch)
        rows.send()
        return Written(rows.count, epoch.transaction, tuple(staging.stages()))


def commit(options: SinkOptions, messages: list[Written], epoch: Epoch) -> None:
    """Have the broker decide about the epoch, or wait until what it decided before can be read.

    Where one task found the epoch decided, the stages of the others cannot be part of it.
    """
    client, stages = client_of(options.url, options.timeout_s), stages_of(messages)
    repeated = any(message.repeated for message in messages)
    mine = client.commit_stages(
        epoch.transaction, epoch.number, [] if repeated else stages, timeout=options.commit_timeout_s
    )
    if not mine or repeated:
        client.drop_stages(stages)
