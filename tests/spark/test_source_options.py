"""Options of the source: what each takes, which go together, and that the document lists them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest
from penstock.spark.errors import InvalidOption
from penstock.spark.options import describe, options_of, read_options
from penstock.spark.source_options import SourceOptions, batch_options, stream_options
from support.sources import ROOT

PAGE = ROOT / "docs/spark.md"

READ: dict[str, tuple[str, str, object]] = {
    "subscribe": ("a, b", "subscribe", ("a", "b")),
    "assign": ('{"a": [1, 0, 1]}', "assign", {"a": [0, 1]}),
    "subscribePattern": ("flights-.*", "subscribe_pattern", "flights-.*"),
    "startingOffsets": ('{"a": {"0": 7, "1": -2}}', "starting_offsets", {"a": {0: 7, 1: -2}}),
    "endingOffsets": (" LATEST ", "ending_offsets", "latest"),
    "startingTimestamp": ("1700000000000", "starting_timestamp", 1_700_000_000_000),
    "endingTimestamp": ("0", "ending_timestamp", 0),
    "startingOffsetsByTimestamp": ('{"a": {"0": 5}}', "starting_times", {"a": {0: 5}}),
    "endingOffsetsByTimestamp": ('{"a": {"0": 253402300799999}}', "ending_times", {"a": {0: 253_402_300_799_999}}),
    "startingOffsetsByTimestampStrategy": ("Latest", "starting_strategy", "latest"),
    "maxOffsetsPerTrigger": ("400000", "max_rows", 400_000),
    "maxBytesPerTrigger": ("64MB", "max_bytes", 64 << 20),
    "minOffsetsPerTrigger": ("10", "min_rows", 10),
    "maxTriggerDelay": ("15m", "max_delay_s", 900.0),
    "minPartitions": ("8", "min_partitions", 8),
    "maxRecordsPerPartition": ("1000", "max_partition_rows", 1000),
    "failOnDataLoss": ("false", "fail_on_data_loss", False),
    "includeHeaders": ("true", "include_headers", True),
    "columns": ("value,offset", "columns", ("value", "offset")),
    "filterPushdown": ("true", "push_filters", True),
    "cursor": ("archive", "cursor", "archive"),
    "mapped": ("false", "mapped", "false"),
    "url": ("tcp://host:7070", "url", "tcp://host:7070"),
    "urlFile": ("/a/b", "url_file", "/a/b"),
    "timeout": ("5s", "timeout_s", 5.0),
}


def test_every_option_is_tried_here():
    assert {option.name for _, option in options_of(SourceOptions)} == set(READ)


@pytest.mark.parametrize("name", READ)
def test_an_option_is_read(name):
    value, field, found = READ[name]
    assert getattr(read_options(SourceOptions, {name: value}), field) == found


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("startingOffsets", "erliest", "earliest, latest or JSON like"),
        ("startingOffsets", '{"a": {"0": 1}', "JSON like"),
        ("startingOffsets", '{"a": {"zero": 1}}', "JSON like"),
        ("startingOffsets", '{"a": {"0": -3}}', "-3 for a-0 is not an offset"),
        ("startingOffsets", '{"a": {"-1": 3}}', "a has no partition -1"),
        ("startingOffsets", '{"a": {}}', "names no partition"),
        ("startingOffsets", "[" * 100_000, "JSON like"),
        ("endingOffsets", "{}", "names no partition"),
        ("startingOffsetsByTimestamp", '{"a": {"0": -1}}', "not a time in milliseconds"),
        ("startingTimestamp", "yesterday", "a time in milliseconds"),
        ("startingTimestamp", "-1", "a time in milliseconds"),
        ("startingTimestamp", "1700000000000000", "a time in milliseconds since 1970, before the year 10000"),
        ("endingOffsetsByTimestamp", '{"a": {"0": 253402300800000}}', "not a time in milliseconds"),
        ("startingOffsets", '{"a": {"0": 9223372036854775808}}', "is not an offset"),
        ("assign", '{"a": []}', "names no partition"),
        ("assign", '{"a": [-1]}', "a has no partition -1"),
        ("assign", '["a"]', "JSON like"),
        ("subscribePattern", "(", "no regular expression"),
        ("startingOffsetsByTimestampStrategy", "ignore", "one of error, latest"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name, value, says):
    with pytest.raises(InvalidOption, match=f"option {name}=.* cannot be used: .*{re.escape(says)}"):
        read_options(SourceOptions, {name: value})


Reader = Callable[[Mapping[str, str]], SourceOptions]


@pytest.fixture(params=[batch_options, stream_options])
def either(request: pytest.FixtureRequest) -> Reader:
    return request.param


def test_topics_have_to_be_named_in_one_way(either):
    assert either({"subscribe": "a"}).subscribe == ("a",)
    with pytest.raises(InvalidOption, match="no topic is named"):
        either({})
    with pytest.raises(InvalidOption, match="subscribe and assign name topics in different ways"):
        either({"subscribe": "a", "assign": '{"a": [0]}'})
    with pytest.raises(InvalidOption, match="assign and subscribePattern"):
        either({"subscribePattern": "a", "assign": '{"a": [0]}'})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets of a batch cannot be latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "startingOffsets of a batch cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets cannot be earliest"),
        ({"cursor": "archive"}, "cursor is for streams"),
    ],
)
def test_a_batch_refuses_what_makes_none(options, says):
    with pytest.raises(InvalidOption, match=says):
        batch_options({"subscribe": "a", **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batches"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for batches"),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 5}}'}, "endingOffsetsByTimestamp is for batches"),
        ({"filterPushdown": "true"}, "filterPushdown is for batches"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger=5 is above"),
    ],
)
def test_a_stream_refuses_what_makes_none(options, says):
    with pytest.raises(InvalidOption, match=says):
        stream_options({"subscribe": "a", **options})


def test_limits_of_streams_may_stay_when_a_job_reads_a_batch():
    assert batch_options({"subscribe": "a", "maxOffsetsPerTrigger": "5"}).max_rows == 5


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = page.split(f"### {heading}\n")[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_document_lists_every_option_with_its_default_and_meaning():
    wanted = [[f"`{each.name}`", each.default, each.meaning] for each in describe(SourceOptions)]
    assert rows(PAGE.read_text(), "Options of the source") == wanted
