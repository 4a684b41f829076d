"""A grant: everything a producer needs to append to a log that is lent to it, as values.

Contract: a grant names the files by device and inode, so a process that sees other files under the same names (another
container) finds out. `end` is where the log ended when it was granted. Must not know: how the grant travels.
"""

from __future__ import annotations

import msgspec

from ..files import LOCK_BYTES_FROM
from ..recovery import LogEnd

INCARNATION_AT = 2048
"""Position of the incarnation in DATA/lock, 8 bytes: random, and new at each opening."""

Identity = tuple[int, int]


def byte_of(row: int) -> int:
    """The lock byte of a row in DATA/lock."""
    return LOCK_BYTES_FROM + row


NUMBER_BITS = 62
"""Of a grant: random, so that no number recurs."""


GOOD_S = 60.0
"""A grant's clock is good for so long: machine and log time may be set, and log time may run at half pace."""


class LogGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Permission of one producer to append batches behind `end`, in one segment.

    Append time is `time_us` + what the monotonic clock (seconds) moved since `monotonic_s`, GOOD_S at most, or the
    last batch's.
    """

    number: int
    incarnation: int
    row: int
    log_id: bytes
    base_seq: int
    generation: int
    end: LogEnd
    producer_id: int
    epoch: int
    segment_bytes: int
    max_batch_bytes: int
    time_us: int
    monotonic_s: float
    files: tuple[Identity, Identity, Identity]
    """Device and inode of the segment, the index and DATA/lock."""
