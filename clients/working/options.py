"""The options of a worker: the arguments of `client.worker`, checked and complete.

Contract: impossible combinations raise InvalidArgument before anything is sent.
"""

from __future__ import annotations

import reprlib
from typing import TypedDict

import msgspec

from ..arguments.checking import check_name
from ..arguments.quantities import Duration, Size, Start, lease_milliseconds, size_bytes, some_seconds, start_time
from ..connection.naming import made_up_name
from ..errors import InvalidArgument

PREFETCH_MAX = 64
"""Leases that may be asked for ahead of the application."""

NAME_CHARS_MAX = 200
"""Limit of a worker's name, which is for people; the broker does not compare it."""

RECORDS_MAX = 100_000
"""Tasks that one lease may hold."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's options. `lease_ms` is 0 for the group's own."""

    group: str
    name: str
    start: int
    lease_ms: int
    prefetch: int
    lease_records: int
    max_bytes: int
    max_processing_s: float
    at_most_once: bool = False


class WorkerSettings(TypedDict, total=False):
    """What `client.worker` takes beside topic, group and serializer; all are optional."""

    lease: Duration | None
    prefetch: int
    lease_records: int
    start: Start
    name: str | None
    max_bytes: Size
    max_processing: Duration
    at_most_once: bool


def worker_options(
    *,
    group: str,
    lease: Duration | None,
    prefetch: int,
    lease_records: int,
    start: Start,
    name: str | None,
    max_bytes: Size,
    max_processing: Duration,
    at_most_once: bool = False,
) -> WorkerOptions:
    """Check and complete the arguments of `worker`."""
    check_name("group", group)
    if name is not None and len(name) > NAME_CHARS_MAX:
        raise InvalidArgument(f"name={reprlib.repr(name)} has {len(name)} characters: {NAME_CHARS_MAX} at most")
    if not 0 <= prefetch <= PREFETCH_MAX:
        raise InvalidArgument(f"prefetch={prefetch!r} is not a number of leases from 0 to {PREFETCH_MAX}")
    if not 0 < lease_records <= RECORDS_MAX:
        raise InvalidArgument(f"lease_records={lease_records!r} is not a number of tasks from 1 to {RECORDS_MAX}")
    if at_most_once and (lease is not None or prefetch > 1):
        given = f"lease={lease!r}" if lease is not None else f"prefetch={prefetch!r}"
        raise InvalidArgument(f"{given} means nothing with at_most_once=True: tasks are done when they are given")
    return WorkerOptions(
        group=group,
        name=name or made_up_name(),
        start=start_time(start),
        lease_ms=0 if lease is None else lease_milliseconds(lease),
        prefetch=0 if at_most_once else prefetch,
        lease_records=lease_records,
        max_bytes=size_bytes(max_bytes, "max_bytes"),
        max_processing_s=some_seconds(max_processing, "max_processing"),
        at_most_once=at_most_once,
    )


def check_count(max_records: int) -> None:
    """Check the limit of one request."""
    if type(max_records) is not int or not 0 < max_records <= RECORDS_MAX:
        raise InvalidArgument(f"max_records={max_records!r} is not a number of tasks from 1 to {RECORDS_MAX}")
