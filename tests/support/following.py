"""Copies of one log: leaders that write it and a follower that takes their batches, with what a crash may leave of it.

Idea: `Group` is an order as copies of a log will have: one term for all, a commit that is told. `leader` makes a log
that begins with given batches and goes on under a term of its own, so two of them differ from some batch on. `Promise`
is what the follower has promised at one point: a disk of that moment holds the first `least` batches of one of
`histories`, or more of them, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.storage import appending, layout
from penstock.storage.batch import encode
from penstock.storage.files import Files
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.plan import Appended
from penstock.storage.reader import Cursor, LogReader
from penstock.storage.tail import LogTail

PATH = "/log"
LOG_ID = bytes(range(16))
OPTIONS = LogOptions(segment_bytes=20_000, allocate_bytes=8192)


@dataclass
class Group:
    """An order whose term and commit are told from outside."""

    its_term: int = 0
    commit: int = 0

    def term(self, log: LogTail) -> int:
        return self.its_term

    def append(self, log: LogTail, batches: Sequence[bytes], now_us: int) -> list[Appended]:
        if not log.ready:
            appending.prepare(log)
        log.term = self.its_term
        return appending.append(log, batches, max(now_us, log.last_time_us))

    def committed(self, log: LogTail) -> int:
        return min(self.commit, log.written)

    def safe(self, log: LogTail) -> int:
        return min(self.commit, log.written)


@dataclass(frozen=True)
class Promise:
    """What a disk may hold."""

    least: int
    histories: tuple[tuple[bytes, ...], ...]

    def kept_by(self, found: Sequence[bytes]) -> bool:
        return len(found) >= self.least and any(tuple(found) == each[: len(found)] for each in self.histories)


def opened(files: Files, order: Group) -> LogWriter:
    """The log in these files, made when there is none."""
    return LogWriter.create_or_open(PATH, files=files, log_id=LOG_ID, order=order, options=OPTIONS)


def stored(reader: LogReader, limit: int) -> list[bytes]:
    """Every batch up to `limit` as it stands in the log, from the first one on."""
    name, found = reader.names[0], list[bytes]()
    cursor = Cursor(reader, name, name.base_seq, layout.DATA_START, reader.base_offset(0), whole=True)
    while (chunk := cursor.next(limit_seq=limit)) is not None:
        found += [bytes(batch.buffer) for batch in chunk.batches]
    return found


def held(log: LogWriter) -> list[bytes]:
    """Every batch of the log."""
    return stored(LogReader(PATH, log.files, limit=lambda: log.written), log.written)


def leader(term: int, begun: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
    """The batches of a log that goes on from `begun` with one batch of each size, under `term`."""
    log = opened(MemoryFiles(), Group(term))
    log.append_stamped(begun)
    for number, size in enumerate(sizes):
        log.append([encode([b"%d.%d " % (term, number) + bytes(size)])], 1000 * term + number)
    return held(log)
