"""Names of an archive's files say what is in them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from penstock.spark.pipelines.archive_layout import DataFile, place_of


def data_file(**about: object) -> DataFile:
    return replace(DataFile("a.inprogress", "flights", 3, 376_951, 17, 42, 20, 1000, 0, 0), **about)


def test_a_file_lies_by_topic_date_and_hour():
    where = "topic=flights/date=2013-01-01/hour=07/00003-00000000000000000017-00000000000000000042.parquet"
    assert data_file().path == where


@pytest.mark.parametrize(
    ("hour", "directory"),
    [(-1, "date=1969-12-31/hour=23"), (0, "date=1970-01-01/hour=00"), (-17_259_888, "date=0001-01-01/hour=00")],
)
def test_hours_are_counted_from_1970_in_both_directions(hour, directory):
    assert directory in data_file(hour=hour).path


def test_the_name_of_a_file_tells_partition_and_offsets():
    assert place_of(data_file(partition=123_456).path.rpartition("/")[2]) == (123_456, 17, 42)


@pytest.mark.parametrize("name", ["part-00000-ab.parquet", "00003-17-42.parquet", "", "x" * 60])
def test_names_of_others_tell_nothing(name):
    assert place_of(name) is None
