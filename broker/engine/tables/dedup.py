"""Dedup keys: the keys a partition has seen within the topic's window, and what happens to a record that repeats one.

Idea: each key is kept as a 16-byte digest with the offset of its task and an expiry time. The leader judges a batch
against the table and logs its decisions beside the records (KeysSeen), so a crash keeps both or neither.

Contract: `judge` decides and changes nothing; `KeyTable` applies logged effects and decides nothing, so replay gives
the same table. Keys are compared by xxh3_128. Bounded: the caller checks `live` before it proposes. Times are log
time. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from msgspec import Struct
from xxhash import xxh3_128_digest

from ....storage import columns
from ....storage.batch import ColumnId
from ....storage.errors import InvalidBatch
from . import effects as fx

if TYPE_CHECKING:
    from ....storage.batch import Batch

KEY_BYTES_MAX = 1024
"""Limit of one dedup key."""

DIGEST_BYTES = 16
NEVER = 1 << 62
SLACK = 4096
"""Superfluous entries in the order of expiry before it is rebuilt."""

Rule = Literal["drop", "replace", "extend"]


def digests(batch: Batch) -> list[bytes] | None:
    """The digest of each record's dedup key, b"" where it has none; None when no record has one.

    Raises InvalidBatch for a key that is too long.
    """
    column = None if batch.column_count == 1 else batch.column(ColumnId.DEDUP)
    if column is None:
        return None
    longest = int(batch.lengths(ColumnId.DEDUP).max())
    if longest > KEY_BYTES_MAX:
        raise InvalidBatch(
            f"a dedup key of {longest} bytes is over the limit of {KEY_BYTES_MAX}: send a hash of it instead"
        )
    if not longest:
        return None
    return [xxh3_128_digest(key) if key else b"" for key in columns.decode_variable(column, batch.record_count)]


class Keys(NamedTuple):
    """The dedup keys of a batch that is proposed."""

    digests: Sequence[bytes]
    time_us: int
    limit: int  # of keys that the partition may remember


class KeyTableBody(Struct, array_like=True, frozen=True):
    """The keys of a snapshot, in the order they were first seen: 16 bytes, int64 and int64 of each, little-endian."""

    digests: bytes = b""
    offsets: bytes = b""
    until_us: bytes = b""


class KeyTable:
    """The dedup keys of one partition.

    Invariant: after a batch of time t is applied, no key is here whose time is t or before.
    """

    def __init__(self) -> None:
        self.by_digest: dict[bytes, tuple[int, int]] = {}  # (offset of the task, until when)
        self.due_us = NEVER  # nothing expires before
        self._order: list[tuple[int, int, list[bytes]]] = []  # heap of (until, number, digests seen together)
        self._ordered = 0  # digests in it
        self._number = 0

    def offset_of(self, digest: bytes, time_us: int) -> int:
        """The task of a key at a time; -1 when the key is free."""
        found = self.by_digest.get(digest)
        return found[0] if found is not None and found[1] > time_us else -1

    def seen(self, effect: fx.KeysSeen) -> None:
        """Keys stand for these tasks until a time."""
        until_us, known = effect.until_us, self.by_digest
        for digest, offset in zip(effect.digests, effect.offsets, strict=True):
            known[digest] = (offset, until_us)
        self._put(until_us, effect.digests)
        if self._ordered > 2 * len(known) + SLACK:  # keys that were seen again and again
            self._order_anew()

    def expire(self, time_us: int) -> None:
        """Forget expired keys."""
        order, known = self._order, self.by_digest
        while order and order[0][0] <= time_us:
            _, _, expired = heapq.heappop(order)
            self._ordered -= len(expired)
            for digest in expired:
                found = known.get(digest)
                if found is not None and found[1] <= time_us:
                    del known[digest]
        self.due_us = order[0][0] if order else NEVER

    def live(self, time_us: int) -> int:
        """The number of keys that have not expired."""
        if self.due_us > time_us:
            return len(self.by_digest)
        return sum(until_us > time_us for _, until_us in self.by_digest.values())

    def copy(self) -> KeyTable:
        """A copy. Entries are immutable, and shared."""
        table = KeyTable()
        table.by_digest, table.due_us = self.by_digest.copy(), self.due_us
        table._order, table._ordered, table._number = self._order.copy(), self._ordered, self._number
        return table

    def dump(self) -> KeyTableBody:
        """Dump for a snapshot."""
        numbers = np.fromiter(chain.from_iterable(self.by_digest.values()), "<i8", 2 * len(self.by_digest))
        places = numbers.reshape(-1, 2)
        return KeyTableBody(b"".join(self.by_digest), places[:, 0].tobytes(), places[:, 1].tobytes())

    @classmethod
    def load(cls, body: KeyTableBody) -> KeyTable:
        """Restore from a snapshot."""
        table = cls()
        step = DIGEST_BYTES
        known = [body.digests[at : at + step] for at in range(0, len(body.digests), step)]
        offsets, until_us = np.frombuffer(body.offsets, "<i8"), np.frombuffer(body.until_us, "<i8")
        table.by_digest = dict(zip(known, zip(offsets.tolist(), until_us.tolist(), strict=True), strict=True))
        table._order_anew()
        return table

    def _put(self, until_us: int, together: list[bytes]) -> None:
        self._number += 1
        heapq.heappush(self._order, (until_us, self._number, together))
        self._ordered += len(together)
        self.due_us = self._order[0][0]

    def _order_anew(self) -> None:
        by_time: dict[int, list[bytes]] = {}
        for digest, (_, until_us) in self.by_digest.items():
            by_time.setdefault(until_us, []).append(digest)
        self._order, self._ordered, self.due_us = [], 0, NEVER
        for until_us, together in sorted(by_time.items()):
            self._put(until_us, together)


def judge(
    table: KeyTable,
    found: Sequence[bytes],
    first: int,
    time_us: int,
    window_us: int,
    rule: Rule,
    begun: Callable[[int], bool],
) -> fx.KeysSeen:
    """Decide what the dedup keys with digests `found` do to the records from `first` on.

    "drop" and "extend" make a record void whose key stands for a task already; "extend" lets the key stand longer.
    "replace" makes the task void instead, unless it is `begun`: then both are tried.
    """
    tasks: dict[bytes, int] = {}
    void: list[tuple[int, int]] = []
    for offset, digest in enumerate(found, first):
        if not digest:
            continue
        known = tasks.get(digest, -1)
        if known < 0:
            known = table.offset_of(digest, time_us)
        if known < 0:
            tasks[digest] = offset
        elif rule == "replace":
            tasks[digest] = offset
            if not begun(known):
                void.append((known, offset))
        else:
            void.append((offset, known))
            if rule == "extend":
                tasks[digest] = known
    return fx.KeysSeen(list(tasks.values()), list(tasks), time_us + window_us, void)
