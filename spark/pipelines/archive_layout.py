"""The layout of an archive: names of files, and which records share one. Pure.

Idea: `topic=flights/date=2013-01-31/hour=07/00003-<first>-<last>.parquet`. Hive, Spark, Delta and Arrow read the
directories as columns. A file has records of one partition of one hour (UTC), in the order of their offsets, and its
name has the first and last, so a reader of a range opens only the files it needs, and the same records always get the
same name.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

HOUR_US = 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"(\d{5,})-(\d{20})-(\d{20})\.parquet")


class DataFile(Struct, frozen=True):
    """One file of an archive, written and not yet part of it.

    Attributes:
        staged: its name where it was written.
        topic, partition, hour: of all records in it; hours since 1970, UTC.
        first, last: the smallest and the largest offset.
        from_us, to_us: the earliest and the latest time.
    """

    staged: str
    topic: str
    partition: int
    hour: int
    first: int
    last: int
    records: int
    size_bytes: int
    from_us: int
    to_us: int

    @property
    def path(self) -> str:
        """The file's path in the archive."""
        when = self.when
        directory = f"topic={self.topic}/date={when.date()}/hour={when:%H}"
        return f"{directory}/{self.partition:05d}-{self.first:020d}-{self.last:020d}.parquet"

    @property
    def when(self) -> datetime:
        """The beginning of its hour."""
        return _EPOCH + timedelta(hours=self.hour)


def place_of(name: str) -> tuple[int, int, int] | None:
    """Partition, first and last offset that a file's name tells; None when it was not written by an archive."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
