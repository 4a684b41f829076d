"""The board: the watermarks of every partition, in memory shared by all processes of the machine.

Idea: one row of 64-bit words per partition (`board_row.py`). Every word has one writer and is stored with one aligned
8-byte store, so a reader sees the old or the new value and needs no lock. A 4096-byte header, the rows (four cache
lines each: broker, keeper, replica, reserved), then, on pages of their own, the slots of mapped readers (one cache
line each): a reader may write the page of its slot, and no other.

Contract: the block is re-initialised in place (odd epoch while in progress, even when done). It is retired (epoch odd
for good, owner 0) before it is unlinked, so readers notice.

Must not know: what a batch or a topic is, which process wakes which.
"""

from __future__ import annotations

import mmap
import os
import uuid
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import shared_block
from .board_row import (
    BOARD_HEADER,
    DEFAULT_SLOTS,
    HEADER_BYTES,
    HEADER_WORD,
    MAGIC,
    ROW,
    ROW_WORD,
    ROW_WORDS,
    SLOT,
    SLOT_BYTES,
    VERSION,
    Level,
    Row,
    slots_place,
    total_bytes,
)
from .errors import BoardUnavailable, NewerFormat
from .futex import WORD_BYTES, Futex, fence
from .histogram import BUCKETS, shown
from .layout import split, word

__all__ = ["BOARD_HEADER", "ROW", "SLOT", "Board", "Level", "Row", "boot_id", "is_alive", "split", "word"]


class Board:
    """The whole block. Made by `create` (shared), `private` (this process) or `attach` (another process's)."""

    def __init__(self, buffer: mmap.mmap | bytearray, name: str) -> None:
        """Wrap a block that is already initialised; use the class methods."""
        self.name = name
        self._buffer = buffer
        self._words: memoryview = memoryview(buffer).cast("Q")
        self.rows = self._words[HEADER_WORD["rows"]]
        self.slot_count = self._words[HEADER_WORD["slots"]]

    @classmethod
    def create(
        cls,
        rows: int,
        *,
        slots: int = DEFAULT_SLOTS,
        name: str | None = None,
        file: str | Path | None = None,
        mode: int = 0o600,
    ) -> Board:
        """Make a board, or re-initialise the one of that name in place when it has the same shape.

        Args:
            name: shared memory of this name.
            file: a plain file instead; with both, the file is for a machine without shared memory.
            mode: permissions, whatever the umask is.

        Raises:
            StorageFull: no space for it; the message says how much is needed.
            BoardUnavailable: no shared memory on this machine and no `file` to use instead.
        """
        assert rows > 0, f"a board of {rows} rows"
        size = total_bytes(rows, slots)
        if name is not None:
            try:
                return cls._create_at(name, rows, slots, size, mode)
            except BoardUnavailable:
                if file is None:
                    raise
        assert file is not None, "a board has a name or a file"
        return cls._create_at(str(Path(file).absolute()), rows, slots, size, mode)

    @classmethod
    def private(cls, rows: int, *, slots: int = DEFAULT_SLOTS) -> Board:
        """A board in this process's own memory, with the same rows and rules."""
        buffer = bytearray(total_bytes(rows, slots))
        _initialise(memoryview(buffer).cast("Q"), rows, slots)
        return cls(buffer, "")

    @classmethod
    def attach(cls, name: str, *, write: bool = False) -> Board:
        """Map the board that `name` (shared memory, or the path of a file) is.

        Raises:
            BoardUnavailable: there is none, it is not ours, it was retired, or it is being set up.
            NewerFormat: a newer penstock made it.
        """
        descriptor = shared_block.open_block(name, write=write)
        mapping = _map(descriptor, os.fstat(descriptor).st_size, mmap.ACCESS_WRITE if write else mmap.ACCESS_READ)
        _check(memoryview(mapping).cast("Q"), name)
        return cls(mapping, name)

    @classmethod
    def attach_slot(cls, name: str, index: int) -> tuple[Board, Futex]:
        """As `attach`, to read, with one of the board's slots to sleep on: writable, as nothing else of it is.

        Raises:
            BoardUnavailable: as `attach`, or there is no such slot, or this machine has no futexes.
            NewerFormat: a newer penstock made it.
        """
        descriptor = shared_block.open_block(name, write=True)
        try:
            size = os.fstat(descriptor).st_size
            mapping = _map(os.dup(descriptor), size, mmap.ACCESS_READ)
            _check(memoryview(mapping).cast("Q"), name)
            board = cls(mapping, name)
            if not 0 <= index < board.slot_count:
                raise BoardUnavailable(f"board {name} has {board.slot_count} slots, and none with number {index}")
            place = slots_place(board.rows) + index * SLOT_BYTES
            page = place // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            length = min(size - page, mmap.ALLOCATIONGRANULARITY)
            own = mmap.mmap(descriptor, length, access=mmap.ACCESS_WRITE, offset=page)
        finally:
            os.close(descriptor)
        return board, Futex(memoryview(own)[place - page : place - page + WORD_BYTES])

    @classmethod
    def _create_at(cls, name: str, rows: int, slots: int, size: int, mode: int) -> Board:
        found = shared_block.size_of(name)
        if found and (found != size or _shape_of(name) != (rows, slots)):
            _retire_other(name)
        mapping = _map(shared_block.reserve(name, size, mode), size, mmap.ACCESS_WRITE)
        _initialise(memoryview(mapping).cast("Q"), rows, slots)
        return cls(mapping, name)

    @property
    def epoch(self) -> int:
        """Even while the board is valid; a changed number means that it was re-initialised."""
        return self._words[HEADER_WORD["epoch"]]

    @property
    def owner_pid(self) -> int:
        """Process id of the broker that initialised it; 0 once retired."""
        return self._words[HEADER_WORD["owner_pid"]]

    @property
    def incarnation(self) -> int:
        """The number in DATA/lock while this board is its node's; 0: logs are not lent."""
        return self._words[HEADER_WORD["incarnation"]]

    @incarnation.setter
    def incarnation(self, number: int) -> None:
        self._words[HEADER_WORD["incarnation"]] = number

    @property
    def asleep(self) -> int:
        """0, or the number of the present sleep of the broker: an appender to a lent log sends it a message."""
        return self._words[HEADER_WORD["asleep"]]

    @asleep.setter
    def asleep(self, number: int) -> None:
        self._words[HEADER_WORD["asleep"]] = number

    @property
    def boot_id(self) -> int:
        """Which boot of the machine the owner's process id belongs to."""
        return self._words[HEADER_WORD["boot_high"]] << 64 | self._words[HEADER_WORD["boot_low"]]

    def row(self, index: int) -> Row:
        """The words of one partition, as a view: keep it, it costs nothing."""
        assert 0 <= index < self.rows, f"row {index} of a board of {self.rows} rows"
        start = HEADER_BYTES // 8 + index * ROW_WORDS
        return Row(self._words[start : start + ROW_WORDS])

    def words(self, field: str) -> NDArray[np.uint64]:
        """One word of every row as a live array: a keeper's round is a few vector operations."""
        flat = np.frombuffer(self._buffer, "<u8", self.rows * ROW_WORDS, HEADER_BYTES)
        return flat.reshape(self.rows, ROW_WORDS)[:, ROW_WORD[field]]

    def note_round(self, took_us: int) -> None:
        """Count one round of the keeper, which alone writes these words."""
        words = self._words
        words[HEADER_WORD["keeper_us"]] += took_us
        words[HEADER_WORD["keeper_rounds"] + took_us.bit_length()] += 1

    def rounds(self) -> list[int]:
        """How long the keeper's rounds took, microseconds: a histogram as it travels (histogram.py)."""
        place = HEADER_WORD["keeper_rounds"]
        return shown(self._words[HEADER_WORD["keeper_us"]], self._words[place : place + BUCKETS].tolist())

    def slot(self, index: int) -> Futex:
        """The slot that one mapped reader sleeps on (needs a writable board)."""
        assert 0 <= index < self.slot_count, f"slot {index} of a board of {self.slot_count} slots"
        place = slots_place(self.rows) + index * SLOT_BYTES
        return Futex(memoryview(self._buffer)[place : place + WORD_BYTES])

    def raised(self) -> list[int]:
        """The slots that readers sleep on, or are about to without having seen what was published before this call."""
        fence()
        words = np.frombuffer(self._buffer, "<u4", self.slot_count * SLOT_BYTES // WORD_BYTES, slots_place(self.rows))
        return np.flatnonzero(words[:: SLOT_BYTES // WORD_BYTES]).tolist()

    def ahead(self, rows: np.ndarray) -> list[int]:
        """Which of these rows have a producer that appended more than the broker has said: places in `rows`."""
        words = np.frombuffer(self._buffer, "<u8", self.rows * ROW_WORDS, HEADER_BYTES).reshape(self.rows, ROW_WORDS)
        lent = words[rows]
        return np.flatnonzero(lent[:, ROW_WORD["appended"]] > lent[:, ROW_WORD["written"]]).tolist()

    def retire(self) -> None:
        """Say for good that this board is over, then remove its name. Readers keep their mapping."""
        self._words[HEADER_WORD["epoch"]] = self.epoch | 1
        self._words[HEADER_WORD["owner_pid"]] = 0
        if self.name:
            shared_block.remove(self.name)

    def close(self) -> None:
        """Unmap. Rows and arrays that are still in use keep the mapping alive until they go."""
        self._words.release()
        if isinstance(self._buffer, mmap.mmap):
            try:
                self._buffer.close()
            except BufferError:
                # A row or an array still points into it: the last of them unmaps it.
                return


def _initialise(words: memoryview, rows: int, slots: int) -> None:
    """Zero everything but the epoch, which is odd meanwhile."""
    epoch_place = HEADER_WORD["epoch"]
    epoch = words[epoch_place] | 1
    words[epoch_place] = epoch
    for name, place in HEADER_WORD.items():
        if name != "epoch":
            words[place] = 0
    counts = HEADER_WORD["keeper_rounds"]
    words[counts:] = memoryview(bytes(8 * (len(words) - counts))).cast("Q")
    boot = boot_id()
    header = {
        "version": VERSION,
        "owner_pid": os.getpid(),
        "boot_low": boot & 0xFFFFFFFFFFFFFFFF,
        "boot_high": boot >> 64,
        "rows": rows,
        "slots": slots,
        "magic": MAGIC,
    }
    for name, value in header.items():
        words[HEADER_WORD[name]] = value
    words[epoch_place] = epoch + 1


def _check(words: memoryview, name: str) -> None:
    """Refuse a block that is not a board of this version in a stable state."""
    header = {field: words[place] for field, place in HEADER_WORD.items()}
    if header["epoch"] % 2:
        state = "was retired" if not header["owner_pid"] else "is being initialised"
        raise BoardUnavailable(f"board {name} {state}: read its name again from the data directory")
    if header["magic"] != MAGIC:
        raise BoardUnavailable(f"{name} is not a penstock board (magic {header['magic']:#x})")
    if header["version"] > VERSION:
        raise NewerFormat(f"board {name} has version {header['version']}, this penstock knows {VERSION}: upgrade it")
    needed = total_bytes(header["rows"], header["slots"])
    if len(words) * 8 < needed:
        raise BoardUnavailable(f"board {name} has {len(words) * 8} bytes where its header asks for {needed}")


def boot_id() -> int:
    """The 128-bit id of this boot of the machine; 0 where the kernel does not tell."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).int
    except OSError:
        return 0


def is_alive(pid: int) -> bool:
    """Whether a process of this machine has that id. False for 0, the owner of a retired board."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def _map(descriptor: int, size: int, access: int) -> mmap.mmap:
    """Map a block and close its descriptor: the mapping keeps the memory."""
    try:
        if size < HEADER_BYTES:
            raise BoardUnavailable(f"a board of {size} bytes has no whole header: is the broker just starting?")
        return mmap.mmap(descriptor, size & -8, access=access)
    except OSError as error:
        raise BoardUnavailable(f"the board cannot be mapped: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _shape_of(name: str) -> tuple[int, int]:
    """Rows and slots of a block: readers of the board before may still write where their slots were."""
    mapping = _map(shared_block.open_block(name, write=False), HEADER_BYTES, mmap.ACCESS_READ)
    with memoryview(mapping) as raw, raw.cast("Q") as words:
        return words[HEADER_WORD["rows"]], words[HEADER_WORD["slots"]]


def _retire_other(name: str) -> None:
    """Retire a block of another shape before its name goes to the new one."""
    if shared_block.size_of(name) >= HEADER_BYTES:
        mapping = _map(shared_block.open_block(name, write=True), HEADER_BYTES, mmap.ACCESS_WRITE)
        with memoryview(mapping) as raw, raw.cast("Q") as words:
            words[HEADER_WORD["epoch"]] = words[HEADER_WORD["epoch"]] | 1
            words[HEADER_WORD["owner_pid"]] = 0
        mapping.close()
    shared_block.remove(name)
