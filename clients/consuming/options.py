"""The options of a consumer: the arguments of `client.consumer`, checked and complete.

Contract: impossible combinations raise InvalidArgument before anything is sent. ConsumerSettings has the names and
types that `consumer` has, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from ...storage.arguments import whole
from ..arguments.checking import check_name
from ..arguments.quantities import Duration, Size, Start, seconds, size_bytes, some_seconds, start_time
from ..connection.connection import Connection
from ..connection.delivery import Delivery, delivery_ways
from ..connection.naming import made_up_name
from ..descriptions import AssignmentChange
from ..errors import InvalidArgument
from .session_life import ConsumerOptions


class ConsumerSettings(TypedDict, total=False):
    """What `client.consumer` takes beside the topic and the serializer; all are optional."""

    group: str | None
    member: str | None
    start: Start
    positions: Mapping[int, int] | None
    delivery: Delivery | None
    auto_commit: Duration | None
    session_timeout: Duration
    max_processing: Duration
    window_bytes: Size
    window_records: int
    verify: bool
    on_assignment: Callable[[AssignmentChange], object] | None


def consumer_options(
    connection: Connection,
    *,
    group: str | None,
    member: str | None,
    start: Start,
    positions: Mapping[int, int] | None,
    delivery: Delivery,
    may_map: bool,
    auto_commit: Duration | None,
    session_timeout: Duration,
    max_processing: Duration,
    window_bytes: Size,
    window_records: int,
    verify: bool,
) -> ConsumerOptions:
    """Check and complete the arguments of `consumer`; `may_map`: its shell's thread may sleep in `fetch`."""
    for argument, value in (("group", group), ("member", member)):
        if value is not None:
            check_name(argument, value)
    if auto_commit is not None and not group:
        raise InvalidArgument("auto_commit needs a group: a consumer that reads alone has no cursor to commit")
    if positions and group:
        raise InvalidArgument("positions are for a consumer without a group; with one, use seek or reset_group")
    ways = delivery_ways(connection, group or "", delivery, may_map)
    return ConsumerOptions(
        group=group or "",
        member=member or made_up_name(),
        start=start_time(start),
        positions=dict(positions or {}),
        delivery=ways[0],
        fallbacks=tuple(ways[1:]),
        auto_commit_s=None if auto_commit is None else seconds(auto_commit, "auto_commit"),
        session_timeout_s=some_seconds(session_timeout, "session_timeout"),
        max_processing_s=some_seconds(max_processing, "max_processing"),
        window_bytes=size_bytes(window_bytes, "window_bytes", 1),
        window_records=whole("window_records", window_records, 1),
        verify=verify,
    )
