"""The walk of an opening: how far the order goes, given what each log still has (J4).

Idea: from the checkpoint on, each batch of an entry either stands in its log, or stands inside the entry and is
appended again, or is missing. The order ends before the first entry that misses one. What is behind the end, in any
log, is void.

Contract: decides, changes nothing. A log that has another batch in a place is treated as one that ends before that
place. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from .entries import batches_of
from .places import LogRow, Places

if TYPE_CHECKING:
    from ..raft.messages import Entry

Stands = Callable[[LogRow], bool]
"""Whether a batch stands in its log now, or stood there until retention took it."""


class Missing(NamedTuple):
    """A batch that stands inside an entry and not in its log."""

    row: LogRow
    batch: bytes


def walk(entries: Iterable[Entry], places: Places, stands: Stands) -> list[Missing]:
    """Follow the order from `places` on, which move to its end. Returns what is to be appended again, in order.

    Raises InvalidBatch where an entry names a batch that cannot follow, and what `stands` does.
    """
    missing: list[Missing] = []
    lacking: set[bytes] = set()  # logs that end before what is to be appended to them
    for entry in entries:
        rows, again = list[LogRow](), list[Missing]()
        for flush, named in batches_of(entry.kind, entry.data):
            row = LogRow(named.log_id, named.seq, named.checksum)
            rows.append(row)
            is_behind = row.log_id in lacking or any(each.row.log_id == row.log_id for each in again)
            if not is_behind and stands(row):
                continue
            body = flush.inlined(named)
            if body is None:
                return missing
            again.append(Missing(row, bytes(body)))
        places.appended(entry.index, rows)
        missing += again
        lacking.update(each.row.log_id for each in again)
    return missing
