"""Archives topics into files: Parquet by topic, date and hour, plain or as a Delta or Iceberg table.

Idea: executors write the files of a batch aside; then the driver durably records which files the batch has. That is
the decision. Later steps (moving the files into place, committing them to the table) are repeated after a crash until
done, and earlier ones are discarded and redone. So a record is in the archive once, and no reader, Spark or not, sees
one twice. Spark's own file sink keeps such a list, too, but only Spark reads it.
Contract: when Spark marks a batch as done, its files are on disk (fsync) and part of the table. With a cursor, the
broker hears of it afterwards, so that retention which waits for groups waits for the archive.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ...clients.errors import InvalidArgument
from ..syncing import sync_directory
from . import archive_files, durable, identity
from .archive_layout import DataFile
from .failures import one_sentence
from .progress import Progress
from .running import ONCE, Pace, check_newest, follow, run_batches
from .tables import Table, TableFormat, opener
from .topics import commit, ids_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND = "archive"
STAGING, BATCH, CHECKPOINT = "staging", "batch.json", "checkpoint"
WRITTEN = (
    "staged string, topic string, partition bigint, hour bigint, first bigint, last bigint, records bigint, "
    "size_bytes bigint, from_us bigint, to_us bigint"
)


@one_sentence()
def archive(
    spark: SparkSession,
    url: str,
    topics: Sequence[str],
    target: str | Path,
    *,
    format: TableFormat = "parquet",
    checkpoint: str | Path | None = None,
    cursor: str | None = None,
    compression: str = "zstd",
    pace: Pace = ONCE,
) -> Progress:
    """Archive topics, from their earliest records on, or from where it stopped.

    Args:
        target: a directory that driver and executors see under this path: new, or of this archive.
        format: "parquet", "delta" or "iceberg"; stays what it was.
        checkpoint: where Spark notes how far it is; below the target unless told otherwise. The two belong together.
        cursor: a group under whose name the broker knows how far the archive is. A topic with `retain_unread` then
            keeps what is not archived yet.
        compression: of the files, as Parquet has it: "zstd", "snappy", "lz4", "none".

    Raises: UnknownTopic; TargetInUse when target or checkpoint belong to other work; MissingLibrary; PipelineFailed.
    """
    if isinstance(topics, str):
        raise InvalidArgument(f"topics is {topics!r}, and has to be a list: [{topics!r}]")
    target = Path(target).absolute()
    own = target / identity.OWN
    checkpoint = own / CHECKPOINT if checkpoint is None else Path(checkpoint).absolute()
    ids = ids_of(url, topics)
    open_table = opener(format)  # before anything is claimed for this format
    with durable.locked(checkpoint):
        whose = identity.claim(checkpoint, f"{format} {KIND}", ids, target)
        batches = Batches(target, open_table(target, whose), compression)
        stream = follow(spark, url, topics, pace, {} if cursor is None else {"cursor": cursor})
        progress = run_batches(stream, batches.take, checkpoint / "spark", pace)
    if cursor is not None:
        commit(url, cursor, progress.ends)  # Spark says that a batch is done when it plans the next one
    return progress


class Decided(Struct, frozen=True):
    """The batch that was decided last, and the files that are it."""

    batch: int
    files: list[DataFile]
    v: int = 1


class Batches:
    """The batches of one archive."""

    def __init__(self, target: Path, table: Table, compression: str) -> None:
        self._target = target
        self._own = target / identity.OWN
        self._table = table
        self._compression = compression

    def take(self, frame: DataFrame, number: int) -> None:
        """Make a batch part of the archive, once, however often it comes. Raises StaleCheckpoint for an earlier one."""
        decided = durable.read(self._own / BATCH, Decided)
        if decided is None or decided.batch < number:
            decided = Decided(number, self._written(frame))
            durable.write(self._own / BATCH, decided)
        check_newest(number, decided.batch, self._target)
        self._place(decided.files)
        self._table.add(number, decided.files)

    def _written(self, frame: DataFrame) -> list[DataFile]:
        """The files of a batch, written aside."""
        staging = self._own / STAGING
        shutil.rmtree(staging, ignore_errors=True)  # of a batch that was never decided
        staging.mkdir(parents=True)
        write = partial(
            archive_files.write, staging=str(staging), with_topic=self._table.with_topic, compression=self._compression
        )
        rows = frame.mapInArrow(write, WRITTEN).toArrow().to_pylist()
        return sorted((msgspec.convert(row, DataFile) for row in rows), key=lambda file: file.path)

    def _place(self, files: Sequence[DataFile]) -> None:
        """Move them to where they belong, but for those that are there."""
        touched = {self._own / STAGING, self._target}
        for file in files:
            place = self._target / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if (staged := self._own / STAGING / file.staged).exists():
                os.replace(staged, place)
            touched |= {place.parent, *list(place.parents)[1:3]}
        for directory in touched:
            sync_directory(directory)
