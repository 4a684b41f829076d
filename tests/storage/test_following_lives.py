"""Random lives of a log that follows: leaders come and go, their batches are taken as they are, tails are cut.

After each step it holds what the model says, and so does every disk that a power cut during it could leave; readers
that have been there from the start never see a batch that was not committed.
"""

from __future__ import annotations

import errno
import random

import pytest
from penstock.storage.errors import Poisoned, StorageFull
from penstock.storage.log import LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import Cursor
from penstock.storage.verify import verify
from support.files import Disk, RecordingFiles
from support.following import LOG_ID, OPTIONS, PATH, Group, Promise, held, leader, opened, stored

STEPS = ("lead", "lead", "follow", "follow", "follow", "follow", "sync", "commit", "kill", "close", "fail", "fail")
SIZES = (0, 10, 2000, 9000, 17_000)
FAILURES = ("write", "sync_dir", "create", "allocate", "open")


class Life:
    """A follower, its model, and the leader it follows now."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.files = RecordingFiles(directories=[PATH, ""])
        self.order = Group()
        self.log = opened(self.files, self.order)
        self.batches: list[bytes] = []
        self.least = 0  # so many of them a crash must leave
        self.older: tuple[tuple[bytes, ...], ...] = ()  # what it may leave instead, until a failed cut is done
        self.leading: list[bytes] = []
        self.term = 0
        self.seen: dict[Cursor, list[bytes]] = {}
        self.counted = dict.fromkeys(("cuts", "deep cuts", "failed", "failed cuts", "images"), 0)
        self.readers = [self.log.reader(), self.log.reader(mapped=True)]
        self.begin_to_read()

    def begin_to_read(self) -> None:
        self.readers = [self.log.reader(), self.log.reader(mapped=True)]
        self.seen = {each.cursor(0): [] for each in self.readers}

    def promise(self, *others: list[bytes]) -> None:
        histories = (tuple(self.batches), *map(tuple, others), *self.older)
        self.files.note(Promise(self.least, histories))

    def run(self, step: str) -> None:
        start = len(self.files.journal)
        self.promise()
        getattr(self, step)()
        self.promise()
        assert held(self.log) == self.batches
        self.read()
        self.crash(start)

    def read(self) -> None:
        """Copying and mapped readers see all that is committed, once, and nothing else."""
        for cursor, seen in self.seen.items():
            while (chunk := cursor.next(5000)) is not None:
                seen += [bytes(batch.buffer) for batch in chunk.batches]
            assert seen == self.batches[: self.order.commit]
        if self.older:
            return  # the files of a cut that failed are still there
        extents = self.log.segments()
        assert [each.end_offset for each in extents[:-1]] == [each.base_offset for each in extents[1:]]
        assert sum(each.record_bytes for each in extents) == sum(map(len, self.batches))

    def crash(self, start: int) -> None:
        """Open what a power cut at some points since `start` could leave."""
        disk, promise = Disk(self.files), None
        for place, operation in enumerate(self.files.journal):
            disk.apply(operation)
            promise = getattr(operation, "value", promise)
            if place >= start and (place == len(self.files.journal) - 1 or self.choose.random() < 0.3):
                image = disk.image(self.choose, self.choose.choice(("none", "all", "some", "some")))
                assert isinstance(promise, Promise)
                files = RecordingFiles(image, [PATH, ""])
                log = opened(files, Group(self.term, self.order.commit))
                assert promise.kept_by(held(log)), (promise.least, len(held(log)))
                assert not log.damage
                self.counted["images"] += 1

    # -- steps ------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Another leader, which has everything that is committed and perhaps more of what is here."""
        self.term += self.choose.randint(1, 2)
        fork = self.choose.randint(self.order.commit, len(self.batches))
        sizes = self.choose.choices(SIZES, k=self.choose.randint(1, 4))
        self.leading = leader(self.term, self.batches[:fork], sizes)
        self.order.its_term = self.term

    def common(self) -> int:
        same = (ours == theirs for ours, theirs in zip(self.batches, self.leading, strict=False))
        return next((place for place, equal in enumerate(same) if not equal), min(len(self.batches), len(self.leading)))

    def follow(self) -> None:
        """Cut what the leader does not have, then take some of what it has."""
        common = self.common()
        if common < len(self.batches) and common < len(self.leading):
            self.cut(common)
        if common < len(self.leading) and common == len(self.batches):
            self.take(self.leading[common : common + self.choose.randint(1, 3)])

    def cut(self, seq: int) -> None:
        self.counted["cuts"] += 1
        self.counted["deep cuts"] += seq < self.log.durable
        before = tuple(self.batches)
        self.least, self.older = min(self.least, seq), (*self.older, before)
        self.promise()
        try:
            self.log.cut(seq)
            self.settle()
        finally:
            assert self.log.written in (seq, len(before))
            self.batches = self.batches[: self.log.written]

    def settle(self) -> None:
        """A generation began at the end: all of it is durable, and nothing else can be there."""
        self.least, self.older = self.log.durable, ()

    def take(self, batches: list[bytes]) -> None:
        pending = self.log.must_cut
        self.promise([*self.batches, *batches])
        self.log.append_stamped(batches)
        if pending:
            self.settle()
        self.batches += batches

    def sync(self) -> None:
        pending = self.log.must_cut
        self.least = max(self.least, self.log.sync())
        assert pending or self.least == len(self.batches)

    def commit(self) -> None:
        if not self.log.must_cut:
            self.sync()
            self.order.commit = max(self.order.commit, self.choose.randint(0, self.common()))

    def kill(self) -> None:
        """The process dies. A failed cut was never reported as done."""
        self.log = opened(self.files, self.order)
        self.batches = held(self.log)
        self.promise()
        self.settle()
        self.begin_to_read()

    def close(self) -> None:
        self.log.close()
        self.kill()

    def fail(self) -> None:
        """The disk is full at some call of the next steps, once."""
        self.files.fail(self.choose.choice(FAILURES), self.choose.randint(1, 4), errno.ENOSPC)
        try:
            self.follow()
        except StorageFull:
            self.counted["failed"] += 1
            self.counted["failed cuts"] += bool(self.older)
        except Poisoned:
            self.files.heal()
            self.log.close()
            self.kill()
        self.files.heal()


TOTAL: dict[str, int] = {}
SHARDS = 4


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_log_that_follows_holds_what_its_leaders_had_after_any_crash(shard: int) -> None:
    for seed in range(shard * 1000, shard * 1000 + 60):
        life, steps = Life(seed), []
        try:
            for _ in range(24):
                steps.append(life.choose.choice(STEPS))
                life.run(steps[-1])
            end_of(life)
        except Exception as error:
            error.add_note(f"seed {seed}, {steps}, {life.counted}")
            raise
        for name, count in life.counted.items():
            TOTAL[name] = TOTAL.get(name, 0) + count
    TOTAL["shards"] = TOTAL.get("shards", 0) + 1


def end_of(life: Life) -> None:
    """The log is whole, and a sole writer goes on with it under a term of its own."""
    if life.log.must_cut:
        life.log.cut(len(life.batches))
    life.log.close()
    report = verify(life.files, PATH)
    assert not report.damage, report.damage
    order = Sole(Promises("/promises", life.files))
    log = LogWriter.open(PATH, files=life.files, order=order, options=OPTIONS)
    assert log.log_id == LOG_ID
    used = max((0, *(row_term(log, seq) for seq in range(1, log.written + 1))))
    log.append([leader(99, [], [5])[0]], 1)
    assert row_term(log, log.written) == log.term > used
    assert stored(log.reader(), log.written)[:-1] == life.batches


def row_term(log: LogWriter, seq: int) -> int:
    row = log.reader().row(seq)
    assert row is not None
    return row.term


def test_the_lives_had_something_in_them() -> None:
    if TOTAL.get("shards") != SHARDS:
        pytest.skip("not all shards of this file ran before it in this process")
    assert TOTAL["images"] > 5000, TOTAL
    assert min(TOTAL["cuts"], TOTAL["deep cuts"], TOTAL["failed"]) > 100, TOTAL
    assert TOTAL["failed cuts"] > 20, TOTAL
