"""The last bytes of a disk, which records do not get: acks, leases, commits, trims and deletions go on with them.

Idea: what is free is looked at once a turn, before the first records of it; each batch then takes its bytes of what is
left above the reserve. Blocks that logs hold ahead were taken before that look (storage/room.py), so they never count
against the reserve. While PLENTY_BYTES are left, a look holds for HOLDS_S: others would have to write 8 GiB/s to
make it wrong.

Contract: records that would go below the reserve are refused before anything is done for them. Pure but for `free`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...storage.errors import StorageFull

RESERVE_BYTES = 16 << 20
"""What records leave free."""
PLENTY_BYTES = 1 << 30
HOLDS_S = 0.125


class DiskReserve:
    """See the module. `free` says how many bytes are; `tell(sentence, now_s)` hears of every refusal."""

    def __init__(
        self, free: Callable[[], int], tell: Callable[[str, float], None] = lambda sentence, now_s: None
    ) -> None:
        self._free = free
        self._tell = tell
        self._left = 0
        self._looked_s = 0.0
        self._begins = True

    def take(self, size: int, now_s: float) -> None:
        """Take the bytes of a batch. Raises StorageFull, and takes nothing."""
        if self._begins and (self._left < PLENTY_BYTES or now_s - self._looked_s >= HOLDS_S):
            self._left = self._free() - RESERVE_BYTES
            self._looked_s = now_s
        self._begins = False
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
        """What was taken is written: look again before the next records, unless the last look still holds."""
        self._begins = True
