"""Retention: where the log may begin, and which segments may go.

Idea: two questions, answered apart. `decide` says up to where records have outlived the rules; the leader
writes the answer into the log as an effect (`first := X`). `removable` says which segments lie wholly
before that and are also covered by a snapshot; only those are unlinked, by the store's jobs.

Contract: the answer is the base offset of a segment, never moves back, never passes the active segment,
a pin, or an unread cursor that is to be kept. Time that runs backwards removes nothing.
Pure: numbers in, numbers out; `now_us` is the log's time, given by the caller.

Must not know: files, groups, callers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec


class SegmentExtent(msgspec.Struct, frozen=True):
    """The extent of one segment. Lists of them are oldest first, with the active segment last."""

    base_seq: int
    last_seq: int
    base_offset: int
    end_offset: int
    record_bytes: int
    last_time_us: int


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The retention settings of a topic. None and False switch a rule off; without rules everything stays.

    age_us: records older than this may go. bytes, records: the oldest may go while at least this many stay.
    finished: what lies below this offset was finished long enough ago to go, when it is read.
    keep_unread: age, bytes and records wait for the cursors.
    """

    age_us: int | None = None
    bytes: int | None = None
    records: int | None = None
    finished: int | None = None
    keep_unread: bool = False


class RetentionDecision(msgspec.Struct, frozen=True):
    """The new first offset, the rule that moved it ("" when none did), and what held it back ("" for nothing)."""

    first_offset: int
    rule: str = ""
    held_by: str = ""


def decide(
    segments: Sequence[SegmentExtent],
    rules: Rules,
    *,
    first_offset: int,
    now_us: int,
    cursors: Iterable[int] = (),
    pins: Iterable[int] = (),
) -> RetentionDecision:
    """Decide where the log may begin.

    Args:
        segments: oldest first; the last one is active and stays.
        first_offset: where it begins now.
        now_us: the log's time.
        cursors: next unread offset of every group that counts.
        pins: lowest offset of unfinished queue work, one per group that has any.
    """
    if len(segments) < 2:
        return RetentionDecision(first_offset)
    unread = list(cursors)
    wanted, rule = _wanted(segments, rules, now_us, unread)
    limit, held_by = _held(rules, unread, pins)
    allowed = segments[0].base_offset
    for segment in segments[1:]:
        if segment.base_offset > min(wanted, limit):
            break
        allowed = segment.base_offset
    held = held_by if limit < wanted else ""
    return (
        RetentionDecision(allowed, rule, held) if allowed > first_offset else RetentionDecision(first_offset, "", held)
    )


def removable(segments: Sequence[SegmentExtent], first_offset: int, covered_seq: int) -> list[SegmentExtent]:
    """The segments that may be unlinked: before `first_offset`, under the snapshot, in order, never the last."""
    found: list[SegmentExtent] = []
    for segment in segments[:-1]:
        if segment.end_offset > first_offset or segment.last_seq > covered_seq:
            break
        found.append(segment)
    return found


def _wanted(segments: Sequence[SegmentExtent], rules: Rules, now_us: int, cursors: list[int]) -> tuple[int, str]:
    """The furthest offset that some rule asks for, and which rule that is."""
    asked = [(segments[0].base_offset, "")]
    if rules.age_us is not None:
        asked.append((_by_age(segments, now_us - rules.age_us), "age"))
    if rules.bytes is not None:
        asked.append((_by_bytes(segments, rules.bytes), "bytes"))
    if rules.records is not None:
        asked.append((segments[-1].end_offset - rules.records, "records"))
    if rules.finished is not None:
        asked.append((min([rules.finished, *cursors]), "finished"))
    return max(asked, key=itemgetter(0))


def _by_age(segments: Sequence[SegmentExtent], oldest_us: int) -> int:
    for segment in segments[:-1]:
        if segment.last_time_us >= oldest_us:
            return segment.base_offset
    return segments[-1].base_offset


def _by_bytes(segments: Sequence[SegmentExtent], limit: int) -> int:
    total = sum(segment.record_bytes for segment in segments)
    for segment in segments[:-1]:
        if total - segment.record_bytes < limit:
            return segment.base_offset
        total -= segment.record_bytes
    return segments[-1].base_offset


def _held(rules: Rules, cursors: Iterable[int], pins: Iterable[int]) -> tuple[int, str]:
    """The offset that nothing may pass, and what holds it there."""
    bounds = [(pin, "work") for pin in pins]
    if rules.keep_unread:
        bounds += [(cursor, "unread") for cursor in cursors]
    return min(bounds, default=(1 << 63, ""))
