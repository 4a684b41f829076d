"""Lives of a `penstock.Log` in which calls of the file system fail and the power goes: what was durable stays."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from penstock.storage.embedded import Log
from penstock.storage.errors import Error, StorageFull
from penstock.storage.log import LogWriter
from support.files import Disk, RecordingFiles

PATH = "/log"
CALLS = ("create", "open", "allocate", "write", "sync", "sync_dir")
CODES = (errno.ENOSPC, errno.EIO, errno.EMFILE)
STEPS = ("append", "append", "append_big", "append_many", "write", "flush", "sync", "truncate", "close")


class FailingLife:
    """A log, and what it was given.

    `history`: records by offset, as far as they are in the log; `waiting`: those that are buffered; `given`: those of
    the append that goes on. Records up to `durable` may not be lost, and none before `first` may come back.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files = RecordingFiles(directories=[PATH, ""])
        self.commit = self.chance.choice(["durable", "written"])
        self.how: dict[str, Any] = {"commit": self.commit, "segment_bytes": self.chance.choice([4096, 4096, 20000])}
        if self.chance.random() < 0.3:
            self.how["retention_bytes"] = self.chance.choice([5000, 12000])
        self.history, self.waiting, self.given = list[bytes](), list[bytes](), list[bytes]()
        self.durable = self.first = self.made = 0
        self.log = Log(PATH, files=self.files, **self.how)

    def run(self) -> None:
        for _ in range(self.chance.randint(6, 16)):
            if self.chance.random() < 0.5:
                code, once = self.chance.choice(CODES), self.chance.random() < 0.7
                self.files.fail(self.chance.choice(CALLS), self.chance.randint(1, 5), code, once=once)
            self.given = []
            try:
                getattr(self, self.chance.choice(STEPS))()
                self.files.heal()
            except (Error, OSError) as error:
                self.files.heal()
                self.failed(error)
            if self.chance.random() < 0.3:
                self.lose_power()

    def fresh(self, count: int, size: int) -> list[bytes]:
        self.made += count
        return [b"%d" % (self.made - number) + b"." * size for number in range(count)]

    # -- steps --------------------------------------------------------------------------------------

    def append(self, count: int = 1, size: int = 300) -> None:
        self.given = self.fresh(count, size)
        offset = self.log.append(self.given)
        self.stored(self.given)
        assert offset == len(self.history) - count

    def append_big(self) -> None:
        self.append(1, 3000)

    def append_many(self) -> None:
        self.append(3)

    def write(self) -> None:
        self.waiting += self.fresh(1, 200)
        self.log.write(self.waiting[-1])

    def flush(self) -> None:
        self.log.flush()
        self.stored()

    def sync(self) -> None:
        self.log.sync()
        self.stored(durably=True)

    def truncate(self) -> None:
        self.flush()
        before = self.chance.randint(self.log.first_offset, self.log.end_offset)
        self.log.truncate(before)
        self.stored(durably=True)
        self.first = max(self.first, before)

    def close(self) -> None:
        self.given = []
        self.log.close()
        self.stored(durably=True)
        self.files.heal()
        self.log = Log(PATH, files=self.files, **self.how)

    def stored(self, given: list[bytes] | None = None, *, durably: bool = False) -> None:
        """All that was given is in the log."""
        self.history += [*self.waiting, *(given or ())]
        self.waiting = []
        if durably or self.commit == "durable":
            self.durable = len(self.history)

    # -- what fails -----------------------------------------------------------------------------------

    def failed(self, error: Exception) -> None:
        """What a full disk refused is not there, and the log may go on; else the process ends, and another opens it."""
        refused = isinstance(error, StorageFull) and bool(self.given)
        if refused and self.chance.random() < 0.5:
            more = self.log._writer.end_offset - len(self.history)  # pyright: ignore[reportOptionalMemberAccess]
            assert more in (0, len(self.waiting)), "a part of what was refused is there"
            self.history, self.waiting = self.history + self.waiting[:more], self.waiting[more:]
            return
        given, self.given, lost, self.waiting = self.given, [], self.waiting, []
        self.files.locks.clear()
        self.log._closing.clear()
        self.log = Log(PATH, files=self.files, **self.how)
        first, end = self.log.first_offset, self.log.end_offset
        assert end >= self.durable
        found = [record.value for record in self.log]
        assert found[: len(self.history) - first] == self.history[first:end]
        more = found[len(self.history) - first :]
        assert more in [(lost + given)[: len(more)], given[: len(more)]]
        assert not (refused and set(more) & set(given)), "what was refused came back"
        self.history = self.history[:end] + more
        self.durable = end

    def lose_power(self) -> None:
        """All that is not certain to be on the disk is lost."""
        disk = Disk(self.files)
        for operation in self.files.journal:
            disk.apply(operation)
        with Log(PATH, files=RecordingFiles(disk.image(self.chance, "none"), [PATH, ""])) as log:
            assert log.first_offset >= self.first
            assert log.end_offset >= self.durable
            for record in log:
                assert record.offset >= len(self.history) or record.value == self.history[record.offset]


class Killed(BaseException):
    """The end of a process, wherever it is."""


@pytest.mark.parametrize("how", ["none", "some"])
def test_what_a_killed_process_was_not_told_of_its_last_sync_is_no_matter(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells once that it could not write; no later sync writes those pages, and it says that all is well."""

    def killed(*_: object) -> None:
        raise Killed

    files = RecordingFiles(directories=[PATH, ""])
    log = Log(PATH, files=files)
    log.append(b"durable")
    files.fail("sync", 1, errno.EIO)
    with monkeypatch.context() as patched:
        patched.setattr(LogWriter, "poison", killed)
        with pytest.raises(Killed):
            log.append(b"unanswered")
    files.locks.clear()
    log._closing.clear()
    with Log(PATH, files=files) as again:
        again.append(b"later")
        disk = Disk(files)
        for operation in files.journal:
            disk.apply(operation)
    for seed in range(20):
        with Log(PATH, files=RecordingFiles(disk.image(random.Random(seed), how), [PATH, ""])) as found:
            assert [record.value for record in found] == [b"durable", b"unanswered", b"later"]


@pytest.mark.parametrize("shard", range(8))
def test_what_was_durable_stays_whatever_fails(shard: int) -> None:
    for seed in range(shard, 320, 8):
        life = FailingLife(seed)
        try:
            life.run()
        except AssertionError as error:
            error.add_note(f"in life {seed}")
            raise
