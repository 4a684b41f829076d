"""A log under test that remembers what it was told, and whether a disk found after a crash keeps faith with it.

Idea: a `World` runs operations on a log over RecordingFiles. `history` is every batch ever handed to the log in
its present life, `durable` how many of them were acknowledged. `Survivor` opens one disk image and holds what
it finds against that: a prefix of history, at least the durable part, nothing else, terms never reused.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

from penstock.storage import jobs, layout, snapshots
from penstock.storage.batch import Batch, Kind, encode, encode_state, of_kind
from penstock.storage.errors import InvalidTopic, Poisoned
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import Cursor, LogReader
from support.files import Disk, RecordingFiles

PATH = "/log"
LOG_ID = bytes(range(16))
OPTIONS = LogOptions(segment_bytes=24 << 10, allocate_bytes=8 << 10)
OPERATIONS = ("append", "append_big", "roll", "sync", "snapshot", "retention", "cursor_commit", "close", "kill")


@dataclass(frozen=True)
class Truth:
    """What was promised at one point: so many batches durable, those up to `covered` may be gone, `term` was used."""

    durable: int
    covered: int
    term: int = 0


@dataclass
class World:
    """A log, and everything it was asked to keep. Batches are known by their bytes: each is different."""

    files: RecordingFiles = field(default_factory=lambda: RecordingFiles(directories=[PATH, ""]))
    history: list[bytes] = field(default_factory=list)
    durable: int = 0
    covered: int = 0
    term: int = 0
    label: str = "a"
    writer: LogWriter | None = None
    incarnation_term: int = 0
    handed: int = 0

    def truth(self) -> Truth:
        return Truth(self.durable, self.covered, self.term)

    def open(self) -> LogWriter:
        if self.writer is None:
            promises = Promises(f"{PATH}/promises", self.files)
            self.writer = LogWriter.create_or_open(
                PATH, files=self.files, log_id=LOG_ID, order=Sole(promises), options=OPTIONS
            )
            self.incarnation_term = self.term + 1
        return self.writer

    def run(self, operation: str) -> None:
        getattr(self, operation)(self.open())
        self.files.note(self.truth())

    def _put(self, writer: LogWriter, size: int, kind: Kind = Kind.RECORDS) -> None:
        self.handed += 1
        text = f"{self.label}{self.handed}".encode()
        payload = text + b"." * (size - len(text))
        batch = encode_state(payload) if kind == Kind.STATE else of_kind(encode([payload, text]), kind)
        writer.append([batch], len(self.history) + 1)
        self.history.append(payload)
        assert writer.term >= self.incarnation_term, "a term was used twice"
        self.term = writer.term

    def append(self, writer: LogWriter) -> None:
        self._put(writer, 10)

    def append_big(self, writer: LogWriter) -> None:
        self._put(writer, 9000)

    def roll(self, writer: LogWriter) -> None:
        """A batch that fills a whole segment: it goes into a new one unless the log is empty."""
        self._put(writer, OPTIONS.segment_bytes - layout.DATA_START - 512)

    def cursor_commit(self, writer: LogWriter) -> None:
        self._put(writer, 100, Kind.STATE)

    def stage(self, writer: LogWriter) -> None:
        self._put(writer, 10, Kind.STAGED)

    def stage_big(self, writer: LogWriter) -> None:
        self._put(writer, 17_000, Kind.STAGED)

    def sync(self, writer: LogWriter) -> None:
        self.durable = writer.sync()

    def snapshot(self, writer: LogWriter) -> None:
        snapshots.save(self.files, PATH, writer.durable, writer.term, b"state at %d" % writer.durable)

    def retention(self, writer: LogWriter) -> None:
        """The first offset moves as far as it may; segments before it go, all by one job."""
        covered = snapshots.second_newest_seq(self.files, PATH)
        writer.set_first(writer.end_offset_at(writer.durable))
        gone = writer.expired(covered)
        if gone:
            self.files.note(Truth(self.durable, covered, self.term))
            jobs.unlink(
                self.files, PATH, [name for ref in gone for name in (ref.name.segment_file, ref.name.index_file)]
            )
        writer.forget(gone)
        self.covered = covered if gone else self.covered

    def close(self, writer: LogWriter) -> None:
        writer.close()
        self.durable = len(self.history)
        self.writer = None

    def kill(self, _: LogWriter) -> None:
        """The process dies, the machine does not: all that was written is still there, and kept by the next one."""
        self.writer = None
        assert self.open().written == len(self.history)
        self.durable = len(self.history)

    def sync_fails(self, writer: LogWriter) -> None:
        """The disk fails once. The log is closed and opened again: what was acknowledged is there, in order."""
        self._fail_sync(writer, 1)

    def second_sync_fails(self, writer: LogWriter) -> None:
        """As `sync_fails`, but the first of the dirty segments is synced well."""
        self._fail_sync(writer, 2)

    def _fail_sync(self, writer: LogWriter, nth: int) -> None:
        self.files.fail("sync", nth, errno.EIO)
        try:
            self.durable = writer.sync()
        except Poisoned:
            assert writer.durable == self.durable
        self.files.heal()
        writer.close()
        self.writer = None
        reopened = self.open()
        assert self.durable <= reopened.written <= len(self.history)
        self.history = self.history[: reopened.written]
        self.durable = reopened.written


def populated() -> World:
    """A log with two full segments, two snapshots, closed: every operation finds something to do."""
    world = World(label="p")
    for operation in ("append", "roll", "sync", "snapshot", "append", "roll", "sync", "snapshot", "append", "close"):
        world.run(operation)
    base = {path: bytes(content.data) for path, content in world.files.contents.items()}
    world.files = RecordingFiles(base, [PATH, ""])
    return world


class Survivor:
    """One disk, opened for writing. Raises AssertionError when it breaks a promise."""

    def __init__(self, image: dict[str, bytes], history: list[bytes], truth: Truth) -> None:
        self.files = RecordingFiles(image, [PATH, ""])
        seen = self._read_without_writer()
        self.world = World(self.files, label="s")
        self.writer = self.world.open()
        self.batches = self._read(self.writer.written)
        assert seen is None or seen == [batch.seq for batch in self.batches], "a reader and the writer disagree"
        self._check(history, truth)
        self.world.history = history[: self.writer.written]
        self.world.durable = self.writer.written
        self.world.covered = truth.covered
        self.world.term = truth.term
        self.world.incarnation_term = truth.term + 1

    def _read_without_writer(self) -> list[int] | None:
        try:
            reader = LogReader(PATH, self.files)
        except InvalidTopic:
            return None
        return [batch.seq for batch in self._all(reader, reader.limit())]

    def _read(self, limit: int) -> list[Batch]:
        return self._all(LogReader(PATH, self.files, limit=lambda: limit), limit)

    def _all(self, reader: LogReader, limit: int) -> list[Batch]:
        name, first = reader.names[0], reader.base_offset(0)
        cursor = Cursor(reader, name, name.base_seq, layout.DATA_START, first, whole=True)
        found: list[Batch] = []
        while (chunk := cursor.next(limit_seq=limit)) is not None:
            found += chunk.batches
        return found

    def _check(self, history: list[bytes], truth: Truth) -> None:
        seqs = [batch.seq for batch in self.batches]
        first = seqs[0] if seqs else self.writer.written + 1
        assert seqs == list(range(first, self.writer.written + 1)), f"a hole: {seqs}"
        assert first - 1 <= truth.covered, f"batches before {first} are gone, only {truth.covered} are covered"
        assert truth.durable <= self.writer.written <= len(history), (truth, self.writer.written, len(history))
        for batch in self.batches:
            batch.check()
            payload = batch.effects() or batch.values()[0]
            assert payload == history[batch.seq - 1], f"batch {batch.seq} is {payload[:20]!r}"
        terms = [batch.term for batch in self.batches]
        assert terms == sorted(terms)
        assert not self.writer.damage, self.writer.damage
        if first > 1:
            assert snapshots.load_newest(self.files, PATH) is not None
        self._check_readers()

    def _check_readers(self) -> None:
        """Who reads records gets all of them, and nothing that is staged."""
        reader = LogReader(PATH, self.files, limit=lambda: self.writer.written)
        cursor, seen = reader.cursor(reader.first_offset), list[Batch]()
        while (chunk := cursor.next()) is not None:
            seen += chunk.batches
        kinds = {batch.kind for batch in seen}
        assert Kind.STAGED not in kinds
        wanted = [batch.seq for batch in self.batches if batch.kind == Kind.RECORDS]
        assert [batch.seq for batch in seen if batch.kind == Kind.RECORDS] == wanted


def images(
    files: RecordingFiles, choose: random.Random, start: int, hows: tuple[str, ...], truth: Truth
) -> list[tuple[dict[str, bytes], Truth]]:
    """Disks of every point of a journal from `start` on, each with what was promised there."""
    disk, found = Disk(files), []
    for place, operation in enumerate([*files.journal, None]):
        if place >= start:
            found += [(disk.image(choose, how), truth) for how in hows]
        if operation is None:
            break
        disk.apply(operation)
        value = getattr(operation, "value", None)
        if isinstance(value, Truth):
            truth = value
    return found
