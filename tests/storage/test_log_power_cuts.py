"""Lives of a `penstock.Log` that is truncated and removes its oldest files, and the disks that a power cut leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from penstock.storage.embedded import Log
from support.files import Disk, Name, Note, RecordingFiles

PATH = "/log"
STEPS = (
    "append",
    "append",
    "append_big",
    "append_many",
    "write",
    "flush",
    "sync",
    "truncate",
    "empty",
    "close",
    "kill",
)
SHARE = 0.1
"""Of the points of a life at which the power goes, beside those where a file goes."""


@dataclass(frozen=True)
class Promised:
    """The log ends at `durable` at least and at `end` at most, and begins at `first` to `latest_first`."""

    durable: int = 0
    first: int = 0
    latest_first: int = 0
    end: int = 0


@dataclass
class Life:
    """A log that does some steps, and notes what it promises after each."""

    chance: random.Random
    files: RecordingFiles = field(default_factory=lambda: RecordingFiles(directories=[PATH, ""]))
    history: list[bytes] = field(default_factory=list)
    promised: Promised = Promised()

    def run(self) -> None:
        chance = self.chance
        how: dict[str, Any] = {"segment_bytes": chance.choice([4096, 9000, 20000])}
        if chance.random() < 0.4:
            how["retention_bytes"] = chance.choice([5000, 12000])
        self._commit = how["commit"] = chance.choice(["durable", "written"])
        self._how = how
        self._open()
        self._note()
        for _ in range(chance.randint(5, 14)):
            getattr(self, chance.choice(STEPS))()
            self._note(latest_first=max(self.promised.latest_first, self.log.first_offset))
        self.log.close()

    def _open(self) -> None:
        self.log = Log(PATH, files=self.files, **self._how)

    def _note(self, **changes: int) -> None:
        self.promised = replace(self.promised, end=len(self.history), **changes)
        self.files.note(self.promised)

    def _fresh(self, count: int, size: int) -> list[bytes]:
        found = [b"%d" % (len(self.history) + number) + b"." * size for number in range(count)]
        self.history += found
        return found

    def append(self, count: int = 1, size: int = 300) -> None:
        self.log.append(self._fresh(count, size))
        self._stored()

    def append_big(self) -> None:
        self.append(1, 3000)

    def append_many(self) -> None:
        self.append(3)

    def write(self) -> None:
        self.log.write(self._fresh(1, 200)[0])

    def flush(self) -> None:
        self.log.flush()
        self._stored()

    def _stored(self) -> None:
        if self._commit == "durable":
            self._durable()

    def _durable(self) -> None:
        self.promised = replace(self.promised, durable=self.log.end_offset)

    def sync(self) -> None:
        self.log.sync()
        self._durable()

    def truncate(self) -> None:
        self.flush()
        self._truncate(self.chance.randint(self.log.first_offset, self.log.end_offset))

    def empty(self) -> None:
        self.flush()
        self._truncate(self.log.end_offset)

    def _truncate(self, before: int) -> None:
        self._note(latest_first=max(self.promised.latest_first, before))
        self.log.truncate(before)
        self.promised = replace(self.promised, first=max(self.promised.first, before))
        self._durable()

    def close(self) -> None:
        self.log.close()
        self._open()
        self._durable()

    def kill(self) -> None:
        """What was buffered is lost with the process, and all else is in the page cache."""
        self.files.locks.clear()
        self.log._closing.clear()
        self._open()
        del self.history[self.log.end_offset :]
        self._durable()


def disks(life: Life) -> Iterator[tuple[dict[str, bytes], Promised, Promised]]:
    """Images at some points of a life, with what was promised before and is after."""
    notes = [each.value for each in life.files.journal if isinstance(each, Note)]
    assert all(isinstance(each, Promised) for each in notes)
    disk, passed = Disk(life.files), 0
    for operation in life.files.journal:
        disk.apply(operation)
        passed += isinstance(operation, Note)
        removes = isinstance(operation, Name) and operation.file is None
        if passed and (removes or life.chance.random() < SHARE):
            now, after = notes[passed - 1], notes[min(passed, len(notes) - 1)]
            for how in ("none", "all", *["some"] * (5 if removes else 1)):
                yield disk.image(life.chance, how), now, after


@pytest.mark.parametrize("seed", range(15))
def test_what_was_durable_is_there_after_a_power_cut_and_what_was_truncated_is_not(seed: int) -> None:
    life = Life(random.Random(seed))
    life.run()
    for image, now, after in disks(life):
        files = RecordingFiles(image, [PATH, ""])
        with Log(PATH, files=files) as log:
            first, end = log.first_offset, log.end_offset
            assert now.first <= first <= max(now.latest_first, after.latest_first)
            assert now.durable <= end <= max(now.end, after.end)
            assert [(each.offset, each.value) for each in log] == list(enumerate(life.history))[first:end]
            assert log.append(b"more") == end
        with Log(PATH, files=files) as log:
            assert (log.first_offset, log.end_offset) == (first, end + 1)
