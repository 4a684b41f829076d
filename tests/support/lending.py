"""A lent log whose appender can be stopped at each of its steps, to let a broker or a reader do something there.

Idea: everything an appender does to the outside goes through objects that count and call `at`: its lock, its files, the
words of the row, the incarnation. Whatever happens at a step happens between two instructions of the appender.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock.storage.batch import Batch, encode
from penstock.storage.board import Board, Level, Row
from penstock.storage.board_row import ROW_WORDS
from penstock.storage.layout import DATA_START, log_number, split
from penstock.storage.lending.appending import DirectAppender
from penstock.storage.lending.following import Terms
from penstock.storage.lending.grant import LogGrant
from penstock.storage.lending.lender import Lender
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import Content, MemoryFile, MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.plan import Appended
from penstock.storage.promises import Promises

if TYPE_CHECKING:
    from collections.abc import Buffer

    from penstock.storage.files import File

LOG_ID = bytes(range(16, 32))
TIME = 1_700_000_000_000_000
LATER = TIME + 1_000_000_000
PRODUCER = 77
PATH = "/log"


class Killed(BaseException):
    """The process is killed here."""


class Steps:
    """Counts the steps of an appender and does something at one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.at: dict[int, Callable[[], None]] = {}
        self.always: Callable[[], None] = lambda: None

    def step(self) -> None:
        self.count += 1
        self.always()
        action = self.at.pop(self.count, None)
        if action is not None:
            action()


class Bytes:
    """One opening of a file with byte locks."""

    def __init__(self, table: dict[int, Bytes], steps: Steps | None = None) -> None:
        self._table = table
        self._steps = steps

    def _step(self) -> None:
        if self._steps is not None:
            self._steps.step()

    def take(self, number: int) -> bool:
        self._step()
        return self._table.setdefault(number, self) is self

    def give_back(self, number: int) -> None:
        self._step()
        if self._table.get(number) is self:
            del self._table[number]
        self._step()

    def close(self) -> None:
        for number in [number for number, holder in self._table.items() if holder is self]:
            del self._table[number]


class SteppedWords:
    """The words of a row, each access a step."""

    def __init__(self, words: Any, steps: Steps) -> None:
        self._words = words
        self._steps = steps

    def __getitem__(self, place: int) -> int:
        self._steps.step()
        return self._words[place]

    def __setitem__(self, place: int, value: int) -> None:
        self._steps.step()
        self._words[place] = value
        self._steps.step()

    def release(self) -> None:
        self._words = memoryview(b"")
        self._words.release()


class SteppedFile:
    """A file whose writes are steps; one in the middle leaves half of them written."""

    def __init__(self, file: Any, steps: Steps) -> None:
        self._file = file
        self._steps = steps
        self._closed = False
        self.path = file.path

    def size(self) -> int:
        return self._file.size()

    def pread(self, size: int, position: int) -> bytes:
        return self._file.pread(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(bytes(each) for each in buffers)
        half = len(data) // 128 * 64
        self._steps.step()
        self._write(data[:half], position)
        self._steps.step()
        self._write(data[half:], position + half)
        self._steps.step()

    def _write(self, data: bytes, position: int) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "closed")
        self._file.pwritev([data], position)

    def close(self) -> None:
        self._closed = True


class OnceFiles(MemoryFiles):
    """Files that notice when a batch in a segment is written over."""

    def __init__(self) -> None:
        super().__init__()
        self.overwritten: list[str] = []

    def create(self, path: str, size: int = 0) -> OnceFile:
        super().create(path, size)
        return OnceFile(path, self.contents[path], self)

    def open(self, path: str, *, write: bool = False) -> OnceFile:
        return OnceFile(path, self._content(path), self)


class OnceFile(MemoryFile):
    """One open file of OnceFiles."""

    __slots__ = ("_files",)

    def __init__(self, path: str, content: Content, files: OnceFiles) -> None:
        super().__init__(path, content)
        self._files = files

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        if self.path.endswith(".segment") and position >= DATA_START:
            if any(self.pread(sum(map(len, buffers)), position)):
                self._files.overwritten.append(f"{self.path} at {position}")
        super().pwritev(buffers, position)


class LentLog:
    """A log with its broker, and the appender of its one producer, which sends again what is in doubt."""

    def __init__(self, *, segment_bytes: int = 1 << 20) -> None:
        self.files = OnceFiles()
        self.table: dict[int, Bytes] = {}
        self.steps = Steps()
        self.incarnation = 1
        self.options = LogOptions(segment_bytes=segment_bytes, commit="written")
        self.numbers = 0
        self.acked: list[bytes] = []
        self.seen: list[bytes] = []
        self.limit = 0
        self.resent: list[tuple[bytes, int]] = []
        self.board = Board.private(1, slots=0)
        self.log = LogWriter.create(
            PATH, files=self.files, log_id=LOG_ID, options=self.options, order=Sole(Promises("/promises", self.files))
        )
        self._hold()
        self.sequence = 0
        self.append(b"first")
        self.log.sync()
        self.grant()

    # -- the broker ---------------------------------------------------------------------------------

    def _hold(self) -> None:
        self.row = self.board.row(0)
        self.row.assign(log_number(LOG_ID), generation=self.log.generation, level=Level.WRITTEN)
        self.log.on_segment = lambda _: self.publish()
        self.publish()
        self.lender = Lender(
            self.log, self.row, 0, Bytes(self.table), publish=self.publish,
            incarnation=self.incarnation, lock_file=(0, 0),
        )  # fmt: skip

    def publish(self) -> None:
        log = self.log
        self.row.publish(log.generation, log.written, log.durable, 0)

    def append(self, value: bytes, **producer: int) -> None:
        """The broker appends a record."""
        self.log.append([encode([value], **producer)], TIME)
        self.publish()

    def grant(self) -> LogGrant | None:
        if not self.log.ready:
            self.append(b"broker's")
            self.log.sync()
        self.numbers += 1
        terms = Terms(PRODUCER, 0, self.sequence, lambda _: None)
        found = self.lender.lend(self.numbers, terms, time_us=TIME, monotonic_s=0.0)
        self.appender = None if found is None else self._appender(found)
        return found

    def _appender(self, grant: LogGrant) -> DirectAppender:
        active, steps = self.log.opened[-1], self.steps
        words = self.row.words
        assert len(words) == ROW_WORDS
        return DirectAppender(
            grant, Row(cast("memoryview", SteppedWords(words, steps))), Bytes(self.table, steps),
            cast("File", SteppedFile(self.files.open(active.ref.path, write=True), steps)),
            cast("File", SteppedFile(self.files.open(active.ref.index_path, write=True), steps)),
            incarnation=self._incarnation, monotonic=lambda: 0.0,
        )  # fmt: skip

    def _incarnation(self) -> int:
        self.steps.step()
        return self.incarnation

    def borrow(self) -> None:
        """Append something of the broker's, as an effect would be; nothing while the byte is busy."""
        if self.lender.lent and self.lender.borrow(LATER):
            self.append(b"broker's")
            self.lender.give_back()

    def recall(self) -> None:
        if self.lender.lent:
            self.lender.recall(LATER)

    def force(self) -> None:
        if self.lender.lent:
            self.lender.force(LATER)

    def end_grant(self) -> None:
        """Recall, and by force what is not free."""
        self.recall()
        self.force()

    def restart(self, *, board_lost: bool = False) -> None:
        """The broker is killed, and the next one opens the log."""
        forced = bool(self.table)
        self.incarnation += 1
        if board_lost:
            self.board = Board.private(1, slots=0)  # the appender and the reader have the old one
        else:
            self.row.release()
        order = Sole(Promises("/promises", self.files))
        self.log = LogWriter.open(PATH, files=self.files, options=self.options, order=order)
        if forced:
            self.log.cut_here()
        self._hold()

    # -- the producer -------------------------------------------------------------------------------

    def send(self, value: bytes) -> Appended | None:
        """Append directly or, where that cannot be, through the broker. Killed: it is not sent again."""
        sequence, self.sequence = self.sequence, self.sequence + 1
        batch = encode([value], producer_id=PRODUCER, first_sequence=sequence)
        appended = None
        try:
            if self.appender is not None:
                appended = self.appender.append(batch)
        except KeyboardInterrupt:
            pass
        if appended is not None:
            self.acked.append(value)
        else:
            self.resend(value, sequence)
        return appended

    def resend(self, value: bytes, sequence: int) -> None:
        """Through the broker, which takes the log back first and knows a duplicate by its sequence."""
        self.end_grant()
        if all(batch.first_sequence != sequence for batch in self.batches() if batch.producer_id == PRODUCER):
            self.append(value, producer_id=PRODUCER, first_sequence=sequence)
        self.acked.append(value)

    # -- what is there ------------------------------------------------------------------------------

    def contents(self) -> tuple[dict[str, bytes], list[int]]:
        """The bytes of all files, and the words of the row."""
        return {path: bytes(content.data) for path, content in self.files.contents.items()}, list(self.row.words)

    # -- readers ------------------------------------------------------------------------------------

    def batches(self) -> list[Batch]:
        """What the log has, by the broker."""
        reader = self.log.reader()
        cursor, found = reader.cursor(0), []
        while (chunk := cursor.next(1 << 20)) is not None:
            found += chunk.batches
        reader.close()
        return found

    def values(self) -> list[bytes]:
        return [values_of(batch)[0] for batch in self.batches()]

    def look(self, row: Row, incarnation: int) -> None:
        """A mapped reader looks, and reads up to where it may."""
        limit = max(self.limit, row.trusted_word(lambda: self.incarnation == incarnation))
        if limit > self.limit:
            self.limit = limit
            names = self.files.listdir(PATH)
            self.seen = read_to(self.files, limit, names)


def values_of(batch: Batch) -> list[bytes]:
    from penstock.storage.columns import decode_variable
    from penstock.storage.header import ColumnId

    column = batch.column(ColumnId.VALUE)
    assert column is not None
    return decode_variable(column, batch.record_count)


def read_to(files: MemoryFiles, limit: int, names: list[str]) -> list[bytes]:
    """Every value up to a word, by the files alone."""
    from penstock.storage.reader import LogReader

    assert names
    reader = LogReader(PATH, files, limit=lambda: limit, log_id=LOG_ID)
    cursor, found = reader.cursor(0), []
    while (chunk := cursor.next(1 << 20)) is not None:
        for batch in chunk.batches:
            batch.check()
            found += values_of(batch)
    assert reader.end_offset_at(split(limit)[1]) == len(found)
    reader.close()
    return found
