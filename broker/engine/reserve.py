"""The last bytes of a disk, which records do not get: acks, leases, commits, trims and deletions go on with them.

Idea: what is free is looked at once a turn, before the first records of it; each batch then takes its bytes of what is
left above the reserve. Blocks that logs hold ahead were taken before that look (storage/room.py), so they never count
against the reserve.

Contract: records that would go below the reserve are refused before anything is done for them. Pure but for `free`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...storage.errors import StorageFull

RESERVE_BYTES = 16 << 20
"""What records leave free."""


class DiskReserve:
    """See the module. `free` says how many bytes are; `tell(sentence, now_s)` hears of every refusal."""

    def __init__(
        self, free: Callable[[], int], tell: Callable[[str, float], None] = lambda sentence, now_s: None
    ) -> None:
        self._free = free
        self._tell = tell
        self._left: int | None = None

    def take(self, size: int, now_s: float) -> None:
        """Take the bytes of a batch. Raises StorageFull, and takes nothing."""
        if self._left is None:
            self._left = self._free() - RESERVE_BYTES
        if size > self._left:
            why = (
                f"the disk of the broker has {max(0, self._left + RESERVE_BYTES) >> 20} MiB left, and the last "
                f"{RESERVE_BYTES >> 20} MiB are for acks, commits and deletions; trim or delete topics, shorten their "
                "retention, or make room on it"
            )
            self._tell(why, now_s)
            raise StorageFull(f"no records are taken now: {why}")
        self._left -= size

    def flushed(self) -> None:
        """What was taken is written: look again before the next records."""
        self._left = None
