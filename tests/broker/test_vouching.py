"""What a keeper may vouch for: never more than its own descriptors were told of."""

from __future__ import annotations

import pytest
from penstock.broker.keeper import messages
from penstock.broker.keeper.unresolved_syncs import doubts_of
from penstock.storage.board import split
from penstock.storage.errors import StorageFull
from penstock.storage.files import File
from penstock.storage.log import LogWriter
from support.pair import Pair
from support.writeback import WritebackFiles


def segment_of(log: LogWriter) -> str:
    """Path of the segment that is written to."""
    newest = max(name for name in log.files.listdir(log.path) if name.endswith(".segment"))
    return f"{log.path}/{newest}"


def poisoned(pair: Pair, *, inline: bool) -> LogWriter:
    """A log with one durable batch and two behind it whose sync failed, in the broker or in the keeper."""
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log)
    pair.round(0.0)
    pair.append(log, 2)
    pair.files.fail_next(segment_of(log))
    pair.publish(log, idle=inline)
    pair.round(1.0)
    assert (log.durable, log.poisoned is None) == (1, False)
    return log


@pytest.mark.parametrize("inline", [False, True], ids=["keeper", "inline"])
def test_a_new_keeper_vouches_for_nothing_of_a_log_whose_sync_failed_before_it_came(inline: bool):
    pair = Pair(WritebackFiles())
    log = poisoned(pair, inline=inline)
    pair.kill_keeper()
    pair.start_keeper()
    pair.round(2.0)
    assert split(pair.board.row(pair.watermarks.number_of(log)).synced)[1] <= 1
    assert Pair(pair.files).open("/a").written == 1  # no mark says that the lost bytes are there


def test_a_poison_that_comes_while_a_sync_is_under_way_stands_above_its_result():
    pair = Pair(WritebackFiles())
    log = pair.open("/a")
    pair.append(log, 2)
    pair.publish(log)
    steps, _ = pair.keeper.begin(0.0)
    done = pair.keeper.sync(steps)
    row = pair.board.row(pair.watermarks.number_of(log))
    row.poison = row.written  # the broker's inline sync was told of a failure that the keeper's descriptor missed
    pair.keeper.finish(done)
    assert row.synced == 0
    assert pair.keeper.begin(1.0)[0] == []


class FewFiles(WritebackFiles):
    """No descriptor for the next file that is opened for writing."""

    refuse = False

    def open(self, path: str, *, write: bool = False) -> File:
        if write and self.refuse:
            self.refuse = False
            raise StorageFull(f"cannot open {path}: too many open files")
        return super().open(path, write=write)


def test_a_keeper_that_could_not_open_one_segment_does_not_vouch_for_the_ones_behind_it():
    files = FewFiles()
    pair = Pair(files)
    log = pair.open("/a", segment_bytes=16384)
    pair.append(log, 1, size=9000)
    pair.publish(log)
    pair.round(0.0)
    refused = 0
    for _ in range(2):  # each goes to a segment of its own
        pair.append(log, 1, size=9000)
        pair.watermarks.flushed([log], idle=False, now_s=0.0)
        files.refuse = not refused
        for command in pair.link.commands:
            if isinstance(command, messages.Register):
                try:
                    pair.keeper.register(command)
                except StorageFull:
                    refused += 1
        pair.link.commands.clear()
    assert refused == 1
    pair.round(1.0)
    assert Pair(files.power_cut()).open("/a").written >= log.durable
    pair.watermarks.refused(
        pair.watermarks.number_of(log), "no descriptors"
    )  # the report arrives: the broker does it by itself
    assert log.durable == 3
    assert Pair(files.power_cut()).open("/a").written == 3


class Killed(BaseException):
    """Stands for SIGKILL."""


def killed(reason: str) -> None:
    raise Killed(reason)


def test_a_broker_that_dies_in_a_sync_of_its_own_leaves_a_doubt():
    """The kernel told it that the write-back failed; it was killed before it could say so, and has no keeper."""
    files = WritebackFiles()
    pair = Pair(files)
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log, idle=True)
    pair.kill_keeper()
    pair.append(log, 2)
    files.fail_next(segment_of(log))
    log.poison = killed
    with pytest.raises(Killed):
        pair.publish(log, idle=True)
    assert [(doubt.poisoned, doubt.durable) for doubt in doubts_of(pair.board)] == [(False, 1)]
    assert Pair(files).open("/a", suspect=True).written == 3
    assert Pair(files.power_cut()).open("/a").written == 3
