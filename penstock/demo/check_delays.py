"""The verdict on the Spark part: are the delays in the topic those of the file, each once, and is all of it archived?

Idea: the topic is read like any other; the archive is read as the Parquet files it is made of, without Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from .expected import Expected
from .feeder import CLOSING
from .hours import Delays, Hour
from .tally import fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..clients import Client
    from ..storage.record import Record

MOST = 20_000
"""Records of one request."""


class Sum(msgspec.Struct):
    """The value of a record of the topic of delays."""

    hour: str
    flights: int
    departed: int
    delay_minutes: int


def differences(
    client: Client, topics: tuple[str, str], archive: Path, wanted: Mapping[Hour, Delays], flights: Expected
) -> list[str]:
    """The differences between the file and Spark's results: `topics` are those of flights and of delays."""
    source, target = topics
    delays = list(_records(client, target))
    found = _once(delays, wanted)
    lines = np.concatenate([*flights.orders.values(), [np.uint64(fingerprint(CLOSING))]])
    found += _archived(archive, source, np.sort(lines))
    return found + _archived(archive, target, _sorted_prints(record.value for record in delays))


def _records(client: Client, topic: str) -> Iterator[Record]:
    for partition in client.topic(topic).partitions:
        offset = 0
        while offset < partition.end:
            records = client.read(topic, partition.partition, offset, max_records=MOST)
            yield from records
            offset = records[-1].offset + 1


def _once(records: list[Record], wanted: Mapping[Hour, Delays]) -> list[str]:
    sums = msgspec.json.Decoder(Sum)
    got: Counter[Hour] = Counter()
    wrong = []
    for record in records:
        one = sums.decode(record.value)
        hour = ((record.key or b"").decode(), one.hour)
        got[hour] += 1
        says = Delays(one.flights, one.departed, one.delay_minutes)
        if wanted.get(hour) != says:
            wrong.append(f"{' '.join(hour)}: Spark says {_told(says)}, the file {_told(wanted.get(hour))}")
    found = [f"{' '.join(hour)} is in the topic {times} times" for hour, times in got.items() if times > 1]
    if missing := wanted.keys() - got.keys():
        found.append(f"{len(missing):,} hours are missing, {' '.join(min(missing))} is the first of them")
    return [*found[:5], *wrong[:5]]


def _told(delays: Delays | None) -> str:
    if delays is None:
        return "nothing"
    return f"{delays.departed:,} of {delays.flights:,} flights {delays.delay_minutes:,} minutes late"


def _archived(archive: Path, topic: str, prints: NDArray[np.uint64]) -> list[str]:
    """Check the archive; `prints` are the fingerprints of all values, in order."""
    import pyarrow.parquet as parquet

    files = sorted(archive.glob(f"topic={topic}/**/*.parquet"))
    values = [value for file in files for value in parquet.ParquetFile(file).read(["value"])["value"].to_pylist()]
    if np.array_equal(_sorted_prints(values), prints):
        return []
    return [f"{len(prints):,} records in topic {topic}, {len(values):,} archived, and they are not the same ones"]


def _sorted_prints(values: Iterable[bytes]) -> NDArray[np.uint64]:
    return np.sort(np.fromiter(map(fingerprint, values), np.uint64))
