"""Appends that are cut short inside one process, by Ctrl-C or a full disk: what follows them stays readable.

The bytes and files they leave behind were never acknowledged, and must not stand in the way of what is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import Cursor
from support.files import Disk, RecordingFile, RecordingFiles
from support.interrupts import interrupts

PATH = "/log"
OPTIONS = LogOptions(segment_bytes=20_000, allocate_bytes=4096)


class Interrupted(RecordingFiles):
    """Raises after (or instead of) the nth call of a kind, as a signal that arrives during a system call does."""

    def __init__(self) -> None:
        super().__init__()
        self.arm("", 0, KeyboardInterrupt)

    def arm(self, kind: str, nth: int, error: type[BaseException]) -> None:
        self.kind, self.nth, self.error = kind, nth, error

    def strike(self, kind: str) -> None:
        if kind == self.kind:
            self.nth -= 1
            if self.nth == 0:
                raise self.error("now")

    def create(self, path: str, size: int = 0) -> Any:
        super().create(path, size).close()
        file = InterruptedFile(path, self, self.contents[path])
        self.strike("create")
        return file

    def open(self, path: str, *, write: bool = False) -> Any:
        super().open(path, write=write).close()
        return InterruptedFile(path, self, self.contents[path])

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.strike("rename")

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.strike("sync_dir")


class InterruptedFile(RecordingFile):
    __slots__ = ()

    def pwritev(self, buffers: Sequence[Any], position: int) -> None:
        super().pwritev(buffers, position)
        assert isinstance(self._files, Interrupted)
        self._files.strike("write" if self.path.endswith(".segment") and position >= 4096 else "other")

    def allocate(self, size: int) -> None:
        super().allocate(size)
        assert isinstance(self._files, Interrupted)
        self._files.strike("allocate")

    def sync(self) -> None:
        super().sync()
        assert isinstance(self._files, Interrupted)
        self._files.strike("sync")


def opened(files: RecordingFiles) -> LogWriter:
    promises = Promises("/promises", files)
    return LogWriter.create_or_open(PATH, files=files, log_id=b"l" * 16, options=OPTIONS, order=Sole(promises))


def values(cursor: Cursor, limit: int) -> list[bytes]:
    """Everything the cursor has yet to give, as the engine reads: up to a seq that it says itself."""
    found: list[bytes] = []
    while (chunk := cursor.next(1 << 20, limit)) is not None:
        for batch in chunk.batches:
            found += batch.values()
    return [value[:4] for value in found]


def batch(name: bytes, size: int = 0) -> bytes:
    return bytes(encode([name.ljust(4) + bytes(size)]))


STRIKES: list[tuple[str, int]] = [
    *((kind, nth) for kind in ("create", "rename", "sync_dir", "sync", "allocate") for nth in (1, 2)),
    ("write", 1), ("write", 2),
]  # fmt: skip


@pytest.mark.parametrize("error", [KeyboardInterrupt, StorageFull])
@pytest.mark.parametrize(("kind", "nth"), STRIKES)
def test_an_append_that_was_interrupted_at_any_call_costs_nothing_that_comes_after(
    kind: str, nth: int, error: type[BaseException]
) -> None:
    files = Interrupted()
    log = opened(files)
    log.append([batch(b"one"), batch(b"two", 9000)], 1)
    log.sync()
    ahead, behind = log.reader().cursor(0), log.reader().cursor(0)
    assert values(ahead, log.committed) == [b"one ", b"two "]
    behind.next(1, log.committed)
    files.arm(kind, nth, error)
    acknowledged = [b"one ", b"two "]
    try:
        log.append([batch(b"gone"), batch(b"far", 9000), batch(b"away", 9000)], 2)
        acknowledged += [b"gone", b"far ", b"away"]
    except (KeyboardInterrupt, StorageFull):
        acknowledged = acknowledged[:2]
    files.arm("", 0, error)
    log.segments()  # as retention does at any time
    for number in range(6):
        log.append([batch(b"%d" % number, 5000)], 3)
        acknowledged.append(b"%d   " % number)
        log.sync()
    assert values(ahead, log.committed) == acknowledged[2:]
    assert values(behind, log.committed) == acknowledged[1:]
    extents = log.segments()
    assert [each.end_offset for each in extents[:-1]] == [each.base_offset for each in extents[1:]]
    again = opened(RecordingFiles({path: bytes(content.data) for path, content in files.contents.items()}, [PATH, ""]))
    assert values(again.reader().cursor(0), again.committed) == acknowledged


@pytest.mark.parametrize("error", [KeyboardInterrupt, StorageFull])
@pytest.mark.parametrize(("kind", "nth"), [("write", 1), ("sync", 1), ("rename", 1)])
def test_what_stands_before_an_append_that_failed_is_durable_once_the_log_is_closed(
    kind: str, nth: int, error: type[BaseException]
) -> None:
    files = Interrupted()
    log = opened(files)
    log.append([batch(b"one")], 1)
    files.arm(kind, nth, error)
    with pytest.raises(error):
        log.append([batch(b"gone", 9000), batch(b"away", 9000)], 2)
    files.arm("", 0, error)
    has_more = log.must_cut
    log.close()
    disk = Disk(files)
    for operation in files.journal:
        disk.apply(operation)
    again = opened(RecordingFiles(disk.image(random.Random(0), "none"), [PATH, ""]))
    assert values(again.reader().cursor(0), again.written) == [b"one "]
    again.append([batch(b"next")], 3)
    assert again.generation == 1 + has_more, "in place only where nothing can lie behind the end"


def test_a_poison_that_is_interrupted_while_it_is_written_down_holds() -> None:
    files = Interrupted()
    log = opened(files)
    log.append([batch(b"one")], 1)
    files.arm("rename", 1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        log.poison("a sync failed")
    assert log.poisoned is not None


def test_a_log_whose_first_reading_was_interrupted_closes() -> None:
    for interrupt in interrupts(("storage",), above=5):
        log = opened(RecordingFiles())
        with interrupt:
            log.segments()
        log.close()


def test_a_cut_that_was_interrupted_at_any_moment_is_made_by_the_next_append() -> None:
    for interrupt in interrupts(("storage",), above=40):
        log = opened(RecordingFiles())
        log.append([batch(b"one")], 1)
        with interrupt:
            log.cut_here()
        log.append([batch(b"two")], 2)
        log.sync()
        assert values(log.reader().cursor(0), log.committed) == [b"one ", b"two "]
        log.close()
        again = opened(log.files)  # pyright: ignore[reportArgumentType]
        assert values(again.reader().cursor(0), again.committed) == [b"one ", b"two "]
