"""The progress of a pipeline: records taken, records left, and the rate. Pure.

Idea: Spark describes each batch in JSON; three of its numbers make a line on a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

Ends = dict[str, dict[int, int]]
"""Offsets by topic and partition."""


class Progress(Struct, frozen=True):
    """How far a run is.

    Attributes:
        batches: finished in this run, empty ones not counted.
        records: read in this run.
        lag: records that stood in the topics when the last batch ended, and were not read; None when not known.
        rate: records per second of the last batch.
        ends: up to where it has read, by topic and partition.
    """

    batches: int = 0
    records: int = 0
    lag: int | None = None
    rate: float = 0.0
    ends: Mapping[str, Mapping[int, int]] = {}


OnProgress = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """Report no progress."""


def after(progress: Progress, described: dict[str, Any]) -> Progress:
    """`progress` and one more batch, as Spark describes it."""
    sources = described.get("sources", ())
    records = int(described.get("numInputRows") or 0)
    ends = dict(progress.ends)
    for source in sources:
        ends |= positions(source.get("endOffset")) or {}
    return replace(
        progress,
        batches=progress.batches + bool(records),
        records=progress.records + records,
        lag=_sum(_lag(source) for source in sources),
        rate=float(described.get("processedRowsPerSecond") or 0.0) if records else progress.rate,
        ends=ends,
    )


class _Topic(Struct, rename={"positions": "p"}):
    positions: dict[int, tuple[int, int]]


class _Offsets(Struct):
    topics: dict[str, _Topic]


def positions(told: object) -> Ends | None:
    """Offsets as a source tells them; None when it tells none."""
    try:
        found = msgspec.convert(told, _Offsets, str_keys=True)
    except msgspec.ValidationError:
        return None
    return {
        name: {partition: at[0] for partition, at in topic.positions.items()} for name, topic in found.topics.items()
    }


def _lag(source: dict[str, Any]) -> int | None:
    """How far the end of a batch is behind the ends of its topics."""
    latest, ends = positions(source.get("latestOffset")), positions(source.get("endOffset"))
    if latest is None or ends is None:
        return None
    return sum(
        max(offset - ends.get(topic, {}).get(partition, 0), 0)
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Their sum, where all are known."""
    found = list(counts)
    return None if not found or None in found else sum(count for count in found if count is not None)
