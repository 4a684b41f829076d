"""Words, rows and dtypes of the board: where each word lies and what a reader derives from them.

Idea: every word is an aligned unsigned 64-bit integer with one writer. A watermark word is
`generation << 44 | seq`: a seq can never be seen without the generation it belongs to, and words of
one log compare in order. `committed` is not stored; readers derive it from the row's commit level.

Contract: these dtypes are the board's layout; FORMAT.md is checked against them.
Invariant within a generation: durable <= written; a word of another generation says nothing.

Must not know: where the memory comes from, which process wakes which.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np

from .histogram import BUCKETS
from .layout import GENERATION_LIMIT, SEQ_BITS, SEQ_LIMIT, split

MAGIC = 0x44524F4253504E50  # b"PNPSBORD" as it lies in memory
VERSION = 1
HEADER_BYTES = 4096
ROW_BYTES = 256
SLOT_BYTES = 64
SLOTS_ALIGNMENT = 64 << 10  # the largest pages of the machines we know: slots are on pages of their own
DEFAULT_SLOTS = 64

_LINE = 64
_BOARD_LINE = ["magic", "version", "epoch", "owner_pid", "boot_low", "boot_high", "rows", "slots"]
BOARD_HEADER = np.dtype(
    {
        "names": [*_BOARD_LINE, "keeper_us", "incarnation", "asleep", "keeper_rounds"],
        "formats": [*(["<u8"] * 11), ("<u8", (BUCKETS,))],
        "offsets": [*range(0, _LINE + 24, 8), 2 * _LINE],
        "itemsize": HEADER_BYTES,
    }
)
_BROKER_LINE = ["written", "durable", "first", "level", "generation", "log_low", "log_high", "lent"]
_KEEPER_LINE = ["synced", "sync_started", "poison"]
_REPLICA_LINE = ["quorum", "readers"]
_APPENDER_LINE = ["appended"]
ROW = np.dtype(
    {
        "names": [*_BROKER_LINE, *_KEEPER_LINE, *_REPLICA_LINE, *_APPENDER_LINE],
        "formats": ["<u8"] * 14,
        "offsets": [
            *(8 * place for place in range(len(_BROKER_LINE))),
            *(_LINE + 8 * place for place in range(len(_KEEPER_LINE))),
            *(2 * _LINE + 8 * place for place in range(len(_REPLICA_LINE))),
            *(3 * _LINE + 8 * place for place in range(len(_APPENDER_LINE))),
        ],
        "itemsize": ROW_BYTES,
    }
)
SLOT = np.dtype({"names": ["waiting"], "formats": ["<u4"], "offsets": [0], "itemsize": SLOT_BYTES})
assert (BOARD_HEADER.itemsize, ROW.itemsize, SLOT.itemsize) == (HEADER_BYTES, ROW_BYTES, SLOT_BYTES)


def _places(layout: np.dtype) -> dict[str, int]:
    """Word index of each field of a layout."""
    return {name: place[1] // 8 for name, place in (layout.fields or {}).items()}


HEADER_WORD = _places(BOARD_HEADER)
ROW_WORD = _places(ROW)
ROW_WORDS = ROW_BYTES // 8


def slots_place(rows: int) -> int:
    """The position of a board's slots."""
    return -(-(HEADER_BYTES + rows * ROW_BYTES) // SLOTS_ALIGNMENT) * SLOTS_ALIGNMENT


def total_bytes(rows: int, slots: int) -> int:
    """The size of a board."""
    return slots_place(rows) + slots * SLOT_BYTES if slots else HEADER_BYTES + rows * ROW_BYTES


PAUSED = 1 << 63
"""Bit of `lent`: the appender lets the broker append."""

OTHERS = 1 << 63
"""Bit of `readers`: readers may sleep on any slot, not only on those whose numbers are bits."""


class Level(IntEnum):
    """The word of a row that limits what readers may see."""

    WRITTEN = 0
    DURABLE = 1
    QUORUM = 2


_LEVEL, _LOG_LOW, _LOG_HIGH = (ROW_WORD[name] for name in ("level", "log_low", "log_high"))
_WRITTEN, _DURABLE, _FIRST, _GENERATION = (ROW_WORD[name] for name in ("written", "durable", "first", "generation"))
_LENT, _APPENDED = ROW_WORD["lent"], ROW_WORD["appended"]
_PLACE_OF_LEVEL = {int(Level.DURABLE): ROW_WORD["durable"], int(Level.QUORUM): ROW_WORD["quorum"]}


class _Word:
    """One word of a row as an attribute: each get and set is one aligned 8-byte access."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._place = ROW_WORD[name]

    def __get__(self, row: Row, owner: type | None = None) -> int:
        return row.words[self._place]

    def __set__(self, row: Row, value: int) -> None:
        row.words[self._place] = value


class Row:
    """One partition's words. Each has one writer and any number of readers.

    written, durable, first, level, generation, log id: the broker (or the embedded log).
    synced, sync_started: the keeper. quorum: the replica.
    poison: any process whose sync failed; 0, or the word that the sync began at. Only an opening broker clears it.
    lent: the broker; 0, or the number of a grant. appended: the process that holds the row's lock byte.
    readers: the broker; the slots of the row's mapped readers as bits, and OTHERS. Logs are lent or replicated.
    """

    __slots__ = ("words",)

    written = _Word()
    durable = _Word()
    first = _Word()
    level = _Word()
    generation = _Word()
    log_low = _Word()
    log_high = _Word()
    synced = _Word()
    sync_started = _Word()
    poison = _Word()
    quorum = _Word()
    readers = _Word()
    lent = _Word()
    appended = _Word()

    def __init__(self, words: memoryview) -> None:
        self.words = words

    @property
    def log_id(self) -> int:
        """The 128-bit id of the log that owns this row; 0 when it is free or just changing hands."""
        return self.log_high << 64 | self.log_low

    def assign(
        self, log_id: int, *, generation: int, level: Level, written: int = 0, durable: int = 0, first: int = 0
    ) -> None:
        """Give the row to a log that is so far, as `publish` takes it.

        All becomes 0 first and the log id comes last, so no reader mixes two logs, or takes a log for an empty one.
        """
        self.release()
        self.level = level
        self.publish(generation, written, durable, first)
        self.log_high = log_id >> 64
        self.log_low = log_id & 0xFFFFFFFFFFFFFFFF

    def publish(self, generation: int, written: int, durable: int, first: int) -> None:
        """How far the log is, as seqs and its first offset.

        Durable before written: a row never looks dirty for bytes that are synced.
        """
        words, base = self.words, generation << SEQ_BITS
        assert 0 <= durable <= written < SEQ_LIMIT, (durable, written)
        assert 0 <= generation < GENERATION_LIMIT, generation
        if words[_GENERATION] != generation:
            words[_GENERATION] = generation
        words[_DURABLE] = base | durable
        words[_WRITTEN] = base | written
        words[_FIRST] = first

    def release(self) -> None:
        """Free the row: the log id goes first."""
        self.log_low = 0
        self.log_high = 0
        for place in ROW_WORD.values():
            self.words[place] = 0

    def committed(self) -> tuple[int, int]:
        """Generation and seq up to which readers may see."""
        return split(self.committed_word())

    @property
    def committed_place(self) -> int:
        """Which of `words` the row's commit level names: it stays that one as long as the row is one log's."""
        return _PLACE_OF_LEVEL.get(self.words[_LEVEL], _WRITTEN)

    def committed_word(self) -> int:
        """The word that this row's commit level names."""
        words = self.words  # mapped readers ask whenever they look for more
        return words[_PLACE_OF_LEVEL.get(words[_LEVEL], _WRITTEN)]

    def trusted_word(self, is_current: Callable[[], bool]) -> int:
        """How far the log is written, by its appender or the broker.

        Args:
            is_current: whether the lock's incarnation is still the one that the board belongs to.

        The appender's word counts if the row named its grant before and after the word was loaded: a broker that takes
        the log back by force first takes the grant away, and then looks at the word.
        """
        words = self.words
        lent = words[_LENT] & ~PAUSED
        if lent:
            appended = words[_APPENDED]
            if words[_LENT] & ~PAUSED == lent and is_current():
                return max(appended, words[_WRITTEN])
        return words[_WRITTEN]

    def readable_word_of(self, log_id: int, is_current: Callable[[], bool]) -> int | None:
        """As `committed_word_of`, and where the log is lent as `trusted_word`."""
        words = self.words
        if not words[_LENT] or words[_LEVEL] != Level.WRITTEN:
            return self.committed_word_of(log_id)
        if self.log_id != log_id:
            return None
        value = self.trusted_word(is_current)
        return value if self.log_id == log_id else None

    @property
    def appended_place(self) -> int:
        """Which of `words` moves when a producer appends that the log is lent to; `committed_place` where none can."""
        return _APPENDED if self.words[_LEVEL] == Level.WRITTEN else self.committed_place

    def committed_of(self, log_id: int) -> tuple[int, int] | None:
        """As `committed`, or None when the row is not (or no longer) that log's."""
        value = self.committed_word_of(log_id)
        return None if value is None else split(value)

    def committed_word_of(self, log_id: int) -> int | None:
        """As `committed_word`, or None when the row is not (or no longer) that log's."""
        words = self.words
        if words[_LOG_HIGH] << 64 | words[_LOG_LOW] != log_id:
            return None
        value = words[_PLACE_OF_LEVEL.get(words[_LEVEL], _WRITTEN)]
        return value if words[_LOG_HIGH] << 64 | words[_LOG_LOW] == log_id else None
