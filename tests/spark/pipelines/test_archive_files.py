"""Arrow batches become files by partition and hour, and every record is in one of them, in order."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from penstock.spark.pipelines import archive_files
from penstock.spark.pipelines.archive_files import HEADERS, HOUR_US, SCHEMA, WITH_TOPIC, WRITTEN, pieces, write
from penstock.spark.pipelines.archive_layout import DataFile

COLUMNS = pa.schema([*WITH_TOPIC])
START_US = 1_357_000_000_000_000


def batch(rows: list[tuple[str, int, int, int]], zone: str = "UTC") -> pa.RecordBatch:
    """Of (topic, partition, offset, time)."""
    found = pa.RecordBatch.from_pylist(
        [
            {"topic": t, "partition": p, "offset": o, "timestamp": at, "timestampType": 0, "key": b"k",
             "value": b"v%d" % o, "headers": [{"key": "h", "value": b"%d" % o}]}
            for t, p, o, at in rows
        ],
        schema=COLUMNS.set(COLUMNS.get_field_index("timestamp"), pa.field("timestamp", pa.int64())),
    )  # fmt: skip
    at = COLUMNS.get_field_index("timestamp")
    times = found.column(at).cast(pa.timestamp("us", zone))
    return found.set_column(at, pa.field("timestamp", times.type), times)


def written(batches: list[pa.RecordBatch], staging: Path, with_topic: bool = False) -> list[DataFile]:
    rows = list(write(iter(batches), str(staging), with_topic=with_topic, compression="zstd"))
    assert all(row.schema == WRITTEN for row in rows)
    return [DataFile(**found) for row in rows for found in row.to_pylist()]


def mixed(count: int, seed: int) -> list[pa.RecordBatch]:
    """Records of two topics, three partitions and many hours, each partition in the order of its offsets."""
    chance = random.Random(seed)
    ends: dict[tuple[str, int], int] = defaultdict(int)
    rows = []
    for _ in range(count):
        place = chance.choice(("a", "b")), chance.randrange(3)
        ends[place] += chance.randrange(1, 4)
        rows.append((*place, ends[place], START_US + chance.randrange(-HOUR_US * 20, HOUR_US * 20)))
    return [batch(rows[start : start + 300]) for start in range(0, count, 300)]


def test_every_record_is_in_the_file_of_its_place_in_order(tmp_path):
    batches = mixed(700, seed=7)
    expected = defaultdict(list)
    for row in pa.Table.from_batches(batches).to_pylist():
        hour = int(row["timestamp"].timestamp() * 1_000_000) // HOUR_US
        expected[row["topic"], row["partition"], hour].append(row["offset"])
    found = defaultdict(list)
    for file in written(batches, tmp_path):
        columns = pq.read_table(tmp_path / file.staged)
        offsets = columns["offset"].to_pylist()
        assert (file.first, file.last, file.records) == (offsets[0], offsets[-1], len(offsets))
        assert file.size_bytes == (tmp_path / file.staged).stat().st_size
        assert set(columns["partition"].to_pylist()) == {file.partition}
        times = columns["timestamp"].cast(pa.int64()).to_pylist()
        assert (min(times), max(times)) == (file.from_us, file.to_us)
        assert columns["value"].to_pylist() == [b"v%d" % offset for offset in offsets]
        found[file.topic, file.partition, file.hour] += offsets
    assert found == expected


def test_names_are_of_the_content_and_no_two_files_share_one(tmp_path):
    files = written(mixed(700, seed=8), tmp_path)
    assert len({file.path for file in files}) == len(files)
    (tmp_path / "again").mkdir()
    again = written(mixed(700, seed=8), tmp_path / "again")
    assert sorted(file.path for file in again) == sorted(file.path for file in files)
    assert {file.staged for file in again}.isdisjoint(file.staged for file in files)


def test_few_files_are_open_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_files, "OPEN_FILES", 2)
    files = archive_files.ArchiveFiles(str(tmp_path), SCHEMA, "none")
    hours = [batch([("a", 0, number, START_US + number * HOUR_US)]) for number in range(6)]
    closed = [len(list(files.add(each))) for each in hours]
    assert closed == [0, 0, 1, 1, 1, 1]
    assert [file.first for file in files.close()] == [4, 5]


def test_small_batches_become_one_row_group(tmp_path):
    (file,) = written([batch([("a", 0, number, START_US)]) for number in range(50)], tmp_path)
    assert pq.ParquetFile(tmp_path / file.staged).metadata.num_row_groups == 1


def test_a_row_group_is_written_when_it_is_worth_it(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_files, "GROUP_ROWS", 10)
    (file,) = written([batch([("a", 0, number, START_US)]) for number in range(25)], tmp_path)
    assert pq.ParquetFile(tmp_path / file.staged).metadata.num_row_groups == 3


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna", "America/New_York"])
def test_hours_are_utc_whatever_the_zone_of_the_session(tmp_path, zone):
    (file,) = written([batch([("a", 0, 1, START_US)], zone)], tmp_path)
    assert file.hour == START_US // HOUR_US
    assert pq.read_schema(tmp_path / file.staged).field("timestamp").type == pa.timestamp("us", "UTC")


def test_times_that_no_calendar_has_share_its_last_hour():
    found = {place.hour for place, _ in pieces(batch([("a", 0, 1, 2**62), ("a", 0, 2, 2**62 + HOUR_US)]))}
    assert found == {archive_files.HOURS[1]}
    file = DataFile("", "a", 0, archive_files.HOURS[1], 1, 2, 2, 0, 0, 0)
    assert "date=9999-12-31/hour=23" in file.path


def test_those_who_ask_get_the_topic_in_the_file(tmp_path):
    (file,) = written([batch([("a", 0, 1, START_US)])], tmp_path, with_topic=True)
    assert pq.read_table(tmp_path / file.staged)["topic"].to_pylist() == ["a"]
    assert pq.read_schema(tmp_path / file.staged).field("headers").type == HEADERS


def test_nothing_is_no_file(tmp_path):
    assert written([], tmp_path) == []
    assert written([batch([])], tmp_path) == []
    assert list(tmp_path.iterdir()) == []
