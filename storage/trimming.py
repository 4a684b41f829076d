"""Removes the oldest records of a log that stands alone: by rules while it grows, and on request.

Idea: `retention.decide` says up to where whole segments may go. It is asked when a segment begins, and when the oldest
full one gets too old. A segment whose records span more than a part of the allowed age is ended early, so that a slow
log loses its old records too. A truncation begins at any record, which the file `first` says.

Contract: called with exclusive use of the writer. Only durable batches are removed, oldest segment first. A removal by
rules that fails is logged and tried again later: no append fails because of it.
Must not know: records, buffers, threads.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from . import retention
from .arguments import size_bytes, some_seconds
from .errors import Error
from .files import Files
from .first import read_first, write_first
from .jobs import unlink
from .log import LogWriter
from .retention import Rules, SegmentExtent

AGE_PARTS = 4
"""A segment ends when its records span this part of the allowed age: so much longer may they stay."""

LOOK_US = 1_000_000
"""How often the age of the oldest segment is looked at, at most."""

_NEVER = 1 << 63
_log = logging.getLogger("penstock.storage")


def rules_of(size: int | str | None, age: float | timedelta | str | None) -> Rules | None:
    """The rules of retention; None without any. Raises InvalidArgument."""
    if size is None and age is None:
        return None
    return Rules(
        bytes=None if size is None else size_bytes(size, "retention_bytes", 1),
        age_us=None if age is None else round(some_seconds(age, "retention_seconds") * 1e6),
    )


class LogTrimming:
    """The first offset of `writer`, and the rules that move it."""

    def __init__(self, writer: LogWriter, files: Files, rules: Rules) -> None:
        """Take over where the log begins. Raises StorageFull, OSError."""
        self._writer = writer
        self._files = files
        self._rules = rules
        self._names: object = None  # the segments that were looked at
        self._began_us: int | None = None  # of a first segment that is the active one, too
        self._due_us = 0
        first = read_first(files, writer.path, writer.log_id)
        if first > writer.end_offset:  # a power cut took records that were not durable: their offsets come again
            first = writer.end_offset
            write_first(files, writer.path, writer.log_id, first)
        elif first:
            files.sync_dir(writer.path)  # a writer that was killed then may not have made its name durable
        writer.set_first(first)
        if first:
            self._remove()

    def look(self, now_us: int) -> None:
        """Remove what has outlived the rules, if there may be anything."""
        if now_us < self._due_us and self._names is self._writer.names:
            return
        try:
            extents = self._writer.segments()
            self._retain(extents, now_us)
            self._due_us = self._end_segment(extents, now_us)
        except (Error, OSError) as error:
            _log.warning("%s keeps records that may go: removing them failed: %s", self._writer.path, error)
            self._due_us = now_us + LOOK_US
        self._names = self._writer.names

    def _retain(self, extents: Sequence[SegmentExtent], now_us: int) -> None:
        writer = self._writer
        unsafe = [] if writer.durable == writer.written else [writer.end_offset_at(writer.durable)]
        first = writer.first_offset
        found = retention.decide(extents, self._rules, first_offset=first, now_us=now_us, pins=unsafe).first_offset
        if found > first:
            writer.set_first(found)
        self._remove()

    def _end_segment(self, extents: Sequence[SegmentExtent], now_us: int) -> int:
        """End the active segment if it spans much time already. Returns when to look again at the latest."""
        age_us, active = self._rules.age_us, extents[-1]
        if age_us is None:
            return _NEVER
        soon_us = now_us + min(age_us // AGE_PARTS, LOOK_US)
        if active.end_offset == active.base_offset:
            return soon_us
        if len(extents) > 1:
            began_us = extents[-2].last_time_us
        else:
            began_us = self._began_us = self._began_us or active.last_time_us
        if now_us >= began_us + age_us // AGE_PARTS:
            self._writer.segment_ends = True
        return max(soon_us, min(began_us + age_us // AGE_PARTS, extents[0].last_time_us + age_us))

    def truncate(self, offset: int) -> None:
        """Begin at `offset`, which is not before the present first one; all is durable.

        Raises OutOfBounds for one behind the end, StorageFull, OSError.
        """
        self._writer.check_first(offset)  # before it is written: a log that ends below begins at its end when opened
        write_first(self._files, self._writer.path, self._writer.log_id, offset)
        self._writer.set_first(offset)
        self._remove()

    def _remove(self) -> None:
        """Unlink the segments that lie before the first offset, also those that an earlier time was to remove."""
        writer = self._writer
        gone = writer.expired(writer.durable)
        if gone:
            names = [name for ref in gone for name in (ref.name.segment_file, ref.name.index_file)]
            unlink(self._files, writer.path, names)
            writer.forget(gone)
