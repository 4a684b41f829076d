"""The options of the source, and the valid combinations.

Idea: names, meanings and defaults are those of Spark's Kafka source; penstock's own come last. Contract:
`batch_options` and `stream_options` return options that can be planned with, or raise InvalidOption. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from .errors import InvalidOption
from .options import Endpoint, Option, count, duration, flag, names, one_of, read_options, size, text

EARLIEST = "earliest"
LATEST = "latest"
LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
"""Instead of an offset, in JSON."""

ByPartition = dict[str, dict[int, int]]
"""Offsets, or milliseconds, by topic and partition."""

BY_PARTITION = '{"flights": {"0": 17, "1": 42}}'
ASSIGNMENT = '{"flights": [0, 1]}'

OFFSETS = range(EARLIEST_OFFSET, 1 << 63)
TIMES_MS = range(253_402_300_800_000)
A_TIME = "a time in milliseconds since 1970, before the year 10000"


def millis(value: str) -> int:
    """Milliseconds since 1970, of times that a calendar has."""
    if not value.strip().isdecimal() or int(value) not in TIMES_MS:
        raise ValueError(f"it is {A_TIME}")
    return int(value)


def pattern(value: str) -> str:
    """A regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"it is no regular expression ({error})") from None
    return text(value)


def _json(kind: Any, example: str, form: str = "") -> Callable[[str], Any]:
    """A parser of JSON as `kind`."""

    def read(value: str) -> Any:
        try:
            found = msgspec.convert(json.loads(value), kind, strict=False)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise ValueError(f"it is {form}JSON like {example} ({error})") from None
        if not found or not all(found.values()):
            raise ValueError(f"it names no partition; write JSON like {example}")
        return found

    return read


def positions(value: str) -> str | ByPartition:
    """An end, or offsets by partition."""
    if value.strip().lower() in (EARLIEST, LATEST):
        return value.strip().lower()
    read = _json(ByPartition, BY_PARTITION, f"{EARLIEST}, {LATEST} or ")
    found: ByPartition = read(value)
    _check_numbers(found, OFFSETS, "an offset, -1 (latest) or -2 (earliest)")
    return found


def times(value: str) -> ByPartition:
    """Milliseconds by partition."""
    found: ByPartition = _json(ByPartition, '{"flights": {"0": 1700000000000}}')(value)
    _check_numbers(found, TIMES_MS, A_TIME)
    return found


def assignment(value: str) -> dict[str, list[int]]:
    """Partitions by topic."""
    found: dict[str, list[int]] = _json(dict[str, list[int]], ASSIGNMENT)(value)
    for topic, numbers in found.items():
        if min(numbers) < 0:
            raise ValueError(f"{topic} has no partition {min(numbers)}")
    return {topic: sorted(set(numbers)) for topic, numbers in found.items()}


def _check_numbers(found: ByPartition, valid: range, what: str) -> None:
    for topic, numbers in found.items():
        for partition, number in numbers.items():
            if partition < 0:
                raise ValueError(f"{topic} has no partition {partition}")
            if number not in valid:
                raise ValueError(f"{number} for {topic}-{partition} is not {what}")


class SourceOptions(Endpoint, frozen=True, kw_only=True):
    """All options of the source. What a time finds are records appended then or later."""

    subscribe: Annotated[
        tuple[str, ...],
        Option("subscribe", names, "Topics to read, with commas between them. This, `assign` or `subscribePattern`."),
    ] = ()
    assign: Annotated[
        dict[str, list[int]] | None, Option("assign", assignment, f"Partitions to read, as `{ASSIGNMENT}`.")
    ] = None
    subscribe_pattern: Annotated[
        str,
        Option("subscribePattern", pattern, "Topics whose whole names match this regular expression, new ones too."),
    ] = ""

    starting_offsets: Annotated[
        str | ByPartition | None,
        Option(
            "startingOffsets",
            positions,
            f"Where a new query begins: `earliest` (a batch, unless told otherwise), `latest` (a stream, likewise), or "
            f"`{BY_PARTITION}` with -2 for earliest and -1 for latest.",
        ),
    ] = None
    ending_offsets: Annotated[
        str | ByPartition | None,
        Option("endingOffsets", positions, "Where a batch ends: `latest` (unless told otherwise), or JSON as above."),
    ] = None
    starting_timestamp: Annotated[
        int | None, Option("startingTimestamp", millis, "Begin at this time, in milliseconds; goes before offsets.")
    ] = None
    ending_timestamp: Annotated[
        int | None, Option("endingTimestamp", millis, "End a batch before this time, in milliseconds.")
    ] = None
    starting_times: Annotated[
        ByPartition | None,
        Option("startingOffsetsByTimestamp", times, "As `startingTimestamp`, by topic and partition in JSON."),
    ] = None
    ending_times: Annotated[
        ByPartition | None,
        Option("endingOffsetsByTimestamp", times, "As `endingTimestamp`, by topic and partition in JSON."),
    ] = None
    starting_strategy: Annotated[
        str,
        Option(
            "startingOffsetsByTimestampStrategy",
            one_of("error", LATEST),
            "What to do where nothing was appended at the starting time or later: `error`, or begin at the end.",
        ),
    ] = "error"

    max_rows: Annotated[
        int | None,
        Option("maxOffsetsPerTrigger", count, "Most records of a micro-batch, divided by what each partition has."),
    ] = None
    max_bytes: Annotated[
        int | None,
        Option("maxBytesPerTrigger", size, "Most stored bytes of a micro-batch, about: whole batches of the log."),
    ] = None
    min_rows: Annotated[
        int | None,
        Option("minOffsetsPerTrigger", count, "Fewest records of a micro-batch, unless `maxTriggerDelay` has passed."),
    ] = None
    max_delay_s: Annotated[
        float, Option("maxTriggerDelay", duration, "How long fewer than `minOffsetsPerTrigger` may be kept waiting.")
    ] = 900.0

    min_partitions: Annotated[
        int | None, Option("minPartitions", count, "Fewest tasks: partitions of a topic are divided to get there.")
    ] = None
    max_partition_rows: Annotated[int | None, Option("maxRecordsPerPartition", count, "Most records of a task.")] = None
    fail_on_data_loss: Annotated[
        bool,
        Option("failOnDataLoss", flag, "Fail when records that were to be read are gone; `false` warns and goes on."),
    ] = True
    include_headers: Annotated[bool, Option("includeHeaders", flag, "Add the column `headers`.")] = False

    columns: Annotated[
        tuple[str, ...],
        Option("columns", names, "Only these columns, in this order; nothing else is sent. So does `.schema`."),
    ] = ()
    push_filters: Annotated[
        bool,
        Option(
            "filterPushdown",
            flag,
            "Let a batch skip what filters on topic, partition, offset and timestamp exclude; needs the configuration "
            "`spark.sql.python.filterPushdown.enabled=true`.",
        ),
    ] = False
    cursor: Annotated[
        str,
        Option(
            "cursor",
            text,
            "A group of the topics that follows the stream: `penstock group` shows its lag, retention can wait for it, "
            "and where it stands a new query begins.",
        ),
    ] = ""
    mapped: Annotated[
        str,
        Option("mapped", one_of("auto", "true", "false"), "Whether tasks map the broker's files; `auto`: if they can."),
    ] = "auto"


def batch_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a batch read. Raises InvalidOption."""
    options = read_options(SourceOptions, given)
    _check_topics(options)
    if options.starting_offsets == LATEST or _has(options.starting_offsets, LATEST_OFFSET):
        raise InvalidOption("startingOffsets of a batch cannot be latest (-1): there would be nothing to read")
    if options.ending_offsets == EARLIEST or _has(options.ending_offsets, EARLIEST_OFFSET):
        raise InvalidOption("endingOffsets cannot be earliest (-2): there would be nothing to read")
    if options.cursor:
        raise InvalidOption("cursor is for streams: a batch moves none")
    return options


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a stream. Raises InvalidOption."""
    options = read_options(SourceOptions, given)
    _check_topics(options)
    ends = {
        "endingOffsets": options.ending_offsets,
        "endingTimestamp": options.ending_timestamp,
        "endingOffsetsByTimestamp": options.ending_times,
    }
    for name, value in ends.items():
        if value is not None:
            raise InvalidOption(f"{name} is for batches: a stream has no end, or use trigger(availableNow=True)")
    if options.push_filters:
        raise InvalidOption("filterPushdown is for batches: Spark gives a stream's source no filters")
    if options.min_rows and options.max_rows and options.min_rows > options.max_rows:
        raise InvalidOption(
            f"minOffsetsPerTrigger={options.min_rows} is above maxOffsetsPerTrigger={options.max_rows}: swap them"
        )
    return options


def _check_topics(options: SourceOptions) -> None:
    given = [name for name in ("subscribe", "assign", "subscribePattern") if _is_given(options, name)]
    if not given:
        raise InvalidOption('no topic is named: give option("subscribe", "flights"), "assign" or "subscribePattern"')
    if len(given) > 1:
        raise InvalidOption(f"options {' and '.join(given)} name topics in different ways: give one of them")


def _is_given(options: SourceOptions, name: str) -> bool:
    found = {
        "subscribe": options.subscribe,
        "assign": options.assign,
        "subscribePattern": options.subscribe_pattern,
    }
    return bool(found[name])


def _has(given: str | ByPartition | None, offset: int) -> bool:
    return isinstance(given, dict) and any(offset in numbers.values() for numbers in given.values())
