"""Replays an archive, or a range of a topic, into a topic, with the original keys, headers and times.

Idea: the records to replay are fixed first and written down: the offsets of each partition, cut into portions. A
portion is one numbered transaction under the replay's name, so the broker itself knows which are done; an interrupted
replay asks, and resumes with the next one. Times are those of the column `timestamp`: a record without its producer's
time gets the time of its first append.
Contract: records of one partition keep their order, in the partition that their key chooses, or in their original one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...broker.errors import UnknownPartition
from . import durable, identity
from .archived import Archived
from .chunks import ArchiveChunk, portion, portions_of
from .failures import one_sentence
from .progress import OnProgress, Progress, ignore
from .ranged import Ranged
from .running import FORMAT, never
from .topics import ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...clients import Topic

KIND = "replay"
PLAN = "plan.json"
PORTION = 1_000_000
SENT = ("key", "value", "headers", "timestamp")


class Recorded(Protocol):
    """The source of a replay."""

    @property
    def topics(self) -> dict[str, str]:
        """Recorded topics: ids by name."""
        ...

    def spans(self, start: datetime | None, end: datetime | None) -> list[ArchiveChunk]:
        """The records between two times."""
        ...

    def read(self, spans: list[ArchiveChunk], start: datetime | None, end: datetime | None) -> DataFrame:
        """The rows; those of a partition in one task, in order."""
        ...


class ReplayPlan(Struct, frozen=True):
    """The plan of a replay, fixed by its first run."""

    spans: list[ArchiveChunk]
    portions: int
    start: datetime | None
    end: datetime | None
    v: int = 1

    @property
    def records(self) -> int:
        """Number of records in all spans."""
        return sum(span.records for span in self.spans)


@one_sentence()
def replay(
    spark: SparkSession,
    url: str,
    target: str,
    *,
    checkpoint: str | Path,
    archive: str | Path | None = None,
    topic: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    keep_partitions: bool = False,
    portion_records: int = PORTION,
    on_progress: OnProgress = ignore,
    stopped: Callable[[], bool] = never,
) -> Progress:
    """Append records to topic `target` once more, once.

    Args:
        checkpoint: a directory of its own, which remembers what is replayed: a second call with it goes on.
        archive: the directory of an archive; None: a topic that is still there.
        topic: which one; of an archive with one topic it need not be said.
        start, end: only records from here up to, not including, there: of an archive those with such a `timestamp`, of
            a topic those appended then. None: all. What a checkpoint has begun with stays.
        keep_partitions: into the partitions they were in, not where their keys belong.
        portion_records: how many become visible at once, about.

    Raises: UnknownTopic; UnknownPartition; NoArchive; TargetInUse; PipelineFailed.
    """
    checkpoint = Path(checkpoint).absolute()
    with ask(url) as client:
        goal = client.topic(target)
    source: Recorded = Ranged(spark, url, topic) if archive is None else Archived(spark, Path(archive), topic)
    with durable.locked(checkpoint):
        whose = identity.claim(checkpoint, KIND, source.topics, identity.whole_topic(goal))
        plan = durable.read(checkpoint / PLAN, ReplayPlan) or _plan(checkpoint, source, start, end, portion_records)
        _check_partitions(goal, plan, keep_partitions)
        replaying = Replaying(url, target, f"{KIND}-{whose.id}", source, plan, keep_partitions)
        return replaying.run(on_progress, stopped)


def _plan(
    checkpoint: Path, source: Recorded, start: datetime | None, end: datetime | None, portion_records: int
) -> ReplayPlan:
    """The plan, stored before the replay begins."""
    spans = source.spans(start, end)
    plan = ReplayPlan(spans, portions_of(spans, portion_records), start, end)
    durable.write(checkpoint / PLAN, plan)
    return plan


def _check_partitions(goal: Topic, plan: ReplayPlan, keep: bool) -> None:
    most = max((span.partition for span in plan.spans), default=0)
    if keep and most >= len(goal.partitions):
        raise UnknownPartition(
            f"topic {goal.name} has {len(goal.partitions)} partitions, and there are records of partition {most}: "
            f"grow it to {most + 1}, or replay without keeping partitions"
        )


class Replaying:
    """A replay that goes on."""

    def __init__(
        self, url: str, target: str, name: str, source: Recorded, plan: ReplayPlan, keep_partitions: bool
    ) -> None:
        self._url = url
        self._target = target
        self._name = name
        self._source = source
        self._plan = plan
        self._sent = [*SENT, "partition"] if keep_partitions else [*SENT]

    def run(self, on_progress: OnProgress, stopped: Callable[[], bool]) -> Progress:
        """All portions that are not done, in order; number n is epoch n + 1."""
        with ask(self._url) as client:
            done = client.transaction_epoch(self._name) or 0
        left = sum(span.records for number in range(done, self._plan.portions) for span in self._portion(number))
        progress = Progress(lag=left)
        for number in range(done, self._plan.portions):
            if stopped():
                break
            if spans := self._portion(number):
                progress = self._append(number, spans, progress)
                on_progress(progress)
        return progress

    def _portion(self, number: int) -> list[ArchiveChunk]:
        return portion(self._plan.spans, number, self._plan.portions)

    def _append(self, number: int, spans: list[ArchiveChunk], progress: Progress) -> Progress:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        begun = time.monotonic()
        counted = Observation()
        frame = self._source.read(spans, self._plan.start, self._plan.end).select(*self._sent)
        writer = frame.observe(counted, F.count(F.lit(1)).alias("records")).write.format(FORMAT).mode("append")
        writer = writer.option("url", self._url).option("topic", self._target)
        writer.option("txnId", self._name).option("txnVersion", str(number + 1)).save()
        records = int(counted.get["records"])
        expected = sum(span.records for span in spans)
        return replace(
            progress,
            batches=progress.batches + 1,
            records=progress.records + records,
            lag=max((progress.lag or 0) - expected, 0),
            rate=records / max(time.monotonic() - begun, 1e-9),
        )
