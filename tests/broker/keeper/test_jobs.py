"""Jobs of the broker: who does them, and what is called back."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from penstock.broker.keeper import messages
from penstock.broker.keeper.jobs import KeeperJobs
from penstock.broker.keeper.link import KeeperLink
from penstock.broker.packets import PacketSocket
from penstock.storage import snapshots
from penstock.storage.errors import StorageError
from penstock.storage.layout import SegmentName
from penstock.storage.log_store import RETIRE_MOST, LogStore
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.promises import Promises
from penstock.storage.segment import reference
from penstock.storage.segment_reader import SegmentCache
from support.pair import ListLink

LOG_ID = b"\1" * 16


class Desk:
    """Jobs as a broker asks for them, and what it is told."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.mkdir("/log")
        self.jobs = KeeperJobs(self.files)
        self.told: list[tuple[str, int]] = []

    def unlink(self, name: str = "old") -> None:
        self.jobs.unlink("/log", [name], self._done("unlinked"), lambda: self.told.append(("kept", 0)))

    def snapshot(self, seq: int = 7) -> None:
        self.jobs.finish_snapshot("/log", seq, LOG_ID, [2], self._done("saved"))

    def _done(self, what: str) -> Callable[[int], None]:
        return lambda result: self.told.append((what, result))

    def make(self, name: str) -> None:
        self.files.create(name, 1).close()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_jobs_are_sent_once_each_and_those_that_are_open_to_the_next_keeper(desk: Desk):
    desk.make("/trash/there")
    first, second = ListLink(), ListLink()
    desk.unlink()
    desk.jobs.remove_tree("/trash/there")
    desk.jobs.remove_tree("/trash/removed")
    desk.jobs.prepare_spare(1, "/log", 4096)  # of no use when a keeper comes
    unlink, tree = messages.Unlink(1, "/log", ["old"]), messages.RemoveTree("/trash/there")
    snapshot = messages.FinishSnapshot(2, "/log", 7, LOG_ID, [2])
    desk.jobs.keeper_started(first)  # pyright: ignore[reportArgumentType]
    assert first.commands == [tree, unlink]
    desk.snapshot()
    spare, later = messages.PrepareSpare(1, "/log", 4096), messages.RemoveTree("/trash/later")
    desk.jobs.prepare_spare(1, "/log", 4096)
    desk.jobs.remove_tree("/trash/later")
    assert first.commands == [tree, unlink, snapshot, spare, later]
    desk.jobs.answered(messages.Unlinked(1))
    desk.jobs.keeper_lost()
    desk.unlink("new")
    assert len(first.commands) == 5
    desk.jobs.keeper_started(second)  # pyright: ignore[reportArgumentType]
    assert second.commands == [tree, snapshot, messages.Unlink(3, "/log", ["new"])]


def test_directories_that_a_keeper_removed_are_forgotten_when_others_come(desk: Desk):
    for number in range(100):
        desk.make(f"/trash/{number}")
        desk.jobs.remove_tree(f"/trash/{number}")
        if number != 1:
            desk.files.remove_tree(f"/trash/{number}")
    assert desk.jobs._trees == ["/trash/1", "/trash/99"]


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (messages.Unlinked(1), [("unlinked", 0)]),
        (messages.Refused(-1, 1, "no"), [("kept", 0)]),
        (messages.SnapshotSaved(2, 5), [("saved", 5)]),
        (messages.Refused(-1, 2, "no"), []),
        (messages.Refused(3, 0, "no"), []),
        (messages.Unlinked(9), []),
        (messages.Spared(1, "/log/spare"), []),
    ],
    ids=repr,
)
def test_what_a_keeper_answers_is_told_once(desk: Desk, report: messages.Report, told: list[tuple[str, int]]):
    desk.unlink()
    desk.snapshot()
    desk.jobs.answered(report)
    desk.jobs.answered(report)
    assert desk.told == told


@pytest.mark.parametrize("error", [OSError("read-only"), StorageError("not now")], ids=repr)
def test_the_broker_does_at_its_end_what_is_open_and_says_what_it_cannot_do(
    desk: Desk, error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Snapshot 7 is the second, so that something is told of what is covered."""
    for seq in (3, 7):
        snapshots.prepare(desk.files, "/log", seq, 1, b"body", LOG_ID)
    snapshots.commit(desk.files, "/log", 3, LOG_ID)
    desk.make("/log/old")
    desk.make("/log/stays")
    unlink = desk.files.unlink

    def refuse(path: str) -> None:
        if path.endswith("stays"):
            raise error
        unlink(path)

    monkeypatch.setattr(desk.files, "unlink", refuse)
    desk.unlink("stays")
    desk.unlink()
    desk.snapshot()
    for _ in range(2):
        desk.jobs.do_the_rest()
        assert desk.told == [("unlinked", 0), ("saved", 3)], "each once"
    assert not desk.files.exists("/log/old")
    assert caplog.messages == [f"Unlink failed: {error}"]


class Topic:
    """The settings of a log."""

    commit = "durable"
    segment_bytes = 64 << 10


def test_a_log_may_lose_any_number_of_segments_and_its_keeper_hears_of_them_and_of_what_follows(desk: Desk):
    """A packet that is larger than the kernel takes would be the end of the link, and of the next keeper's."""
    store = LogStore(
        "data", desk.files, promises=Promises("promises", desk.files), cache=SegmentCache(desk.files), jobs=desk.jobs,
        max_batch_bytes=1 << 20,
    )  # fmt: skip
    log = store.create(bytes(16), 0, Topic())
    log.names = [SegmentName(seq, 1) for seq in range(1, 10_000)]
    gone = [reference(log.path, name) for name in log.names]
    ours, theirs = PacketSocket.pair()
    link, keeper = KeeperLink(ours, os.eventfd(0), os.eventfd(0)), PacketSocket(theirs)
    desk.jobs.keeper_started(link)
    asked: list[str] = []
    for job in (1, 2):
        store.retire(log, gone[(job - 1) * RETIRE_MOST :])
        desk.jobs.answered(messages.Unlinked(job))
        link.send([messages.Forget(job)])
        while (received := keeper.receive()) is not None:
            for command in messages.decode_commands(received[0]):
                asked += command.names if isinstance(command, messages.Unlink) else [str(command)]
    names = [[name for ref in part for name in (ref.name.segment_file, ref.name.index_file)]
             for part in (gone[:RETIRE_MOST], gone[RETIRE_MOST : 2 * RETIRE_MOST])]  # fmt: skip
    assert asked == [*names[0], str(messages.Forget(1)), *names[1], str(messages.Forget(2))]
    link.close()
    keeper.close()
