"""What all stores have in common: logs by topic, trash, snapshots, and segments that go once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from penstock.storage import snapshots
from penstock.storage.batch import encode
from penstock.storage.data_directory import partition_path
from penstock.storage.errors import InvalidTopic, StorageFull
from penstock.storage.jobs import InlineJobs
from penstock.storage.log import LogWriter
from penstock.storage.log_store import LogStore
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.promises import Promises
from penstock.storage.segment import reference
from penstock.storage.segment_reader import SegmentCache
from support.files import RecordingFiles, SyncDir

TOPIC = bytes(range(16))
HOME = f"data/topics/{TOPIC.hex()}"


class Settings(NamedTuple):
    """What a topic says of its logs."""

    commit: str = "durable"
    segment_bytes: int = 64 << 10


class LateJobs:
    """Keeps what is asked until it is told to do it, or to fail."""

    def __init__(self, files: MemoryFiles) -> None:
        self._inline = InlineJobs(files)
        self.asked: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def unlink(
        self, directory: str, names: Sequence[str], done: Callable[[int], None], failed: Callable[[], None]
    ) -> None:
        self.asked.append((lambda: self._inline.unlink(directory, names, done, failed), failed))

    def finish_snapshot(
        self, directory: str, seq: int, log_id: bytes, runs: Sequence[int], done: Callable[[int], None]
    ) -> None:
        self.asked.append((lambda: self._inline.finish_snapshot(directory, seq, log_id, runs, done), lambda: None))

    def remove_tree(self, path: str) -> None:
        self.asked.append((lambda: self._inline.remove_tree(path), lambda: None))

    def work(self) -> None:
        asked, self.asked = self.asked, []
        for do, _ in asked:
            do()

    def fail(self) -> None:
        asked, self.asked = self.asked, []
        for _, failed in asked:
            failed()


class FullFiles(MemoryFiles):
    """No directory can be made while `full`; the name `stuck` cannot be removed."""

    full = False
    stuck = ""

    def mkdir(self, path: str) -> None:
        if self.full:
            raise StorageFull(f"cannot create {path}: no space is left on the device")
        super().mkdir(path)

    def unlink(self, path: str) -> None:
        if self.stuck and path.endswith(self.stuck):
            raise OSError(5, "Input/output error")
        super().unlink(path)


def opened(files: MemoryFiles, jobs: Any = None) -> LogStore:
    files.mkdir("data/topics")
    return LogStore(
        "data", files, promises=Promises("data/promises", files), cache=SegmentCache(files),
        jobs=jobs or InlineJobs(files), max_batch_bytes=1 << 20,
    )  # fmt: skip


def filled(store: LogStore, batches: int = 40) -> LogWriter:
    log = store.create(TOPIC, 0, Settings())
    for number in range(batches):
        log.append([encode([bytes([number]) * 9000])], number)
    log.sync()
    return log


def oldest(log: LogWriter, count: int = 1) -> list[Any]:
    return [reference(log.path, name) for name in log.names[:count]]


def test_a_log_has_the_options_of_its_topic_and_is_found_again():
    files = MemoryFiles()
    store = opened(files)
    log = store.create(TOPIC, 3, Settings("written", 1 << 20))
    log.reader().offset_at(0)
    assert store._cache._open
    store.close()
    assert not store._cache._open
    assert log.path == store.directory(TOPIC, 3) == partition_path("data", TOPIC, 3) == f"{HOME}/3"
    assert (log.options.commit, log.options.segment_bytes, log.options.max_batch_bytes) == ("written", 1 << 20, 1 << 20)
    store.configure(log, Settings("durable", 2 << 20))
    assert (log.options.commit, log.options.segment_bytes) == ("durable", 2 << 20)
    assert store.row(log) == -1
    log.append([encode([b"x"])], 1)
    log.close()
    again = opened(files).open(TOPIC, 3, Settings())
    assert (again.log_id, again.end_offset) == (log.log_id, 1)
    with pytest.raises(InvalidTopic):
        store.open(TOPIC, 4, Settings())


def test_logs_have_ids_of_their_own_and_the_metadata_log_is_found_again():
    files = MemoryFiles()
    store = opened(files)
    metadata = store.metadata()
    assert metadata.path == "data/metadata"
    assert metadata.log_id != store.create(TOPIC, 0, Settings()).log_id
    metadata.close()
    assert opened(files).metadata().log_id == metadata.log_id


def test_a_deleted_topic_is_in_the_trash_until_it_is_removed():
    files = MemoryFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    filled(store).close()
    store.delete(TOPIC)
    assert not files.exists(HOME)
    (trashed,) = files.listdir("data/trash")
    assert trashed.startswith(f"{TOPIC.hex()}-")
    later = LateJobs(files)
    opened(files, later).empty_trash()  # another start, before the removal came to it
    assert files.listdir("data/trash") == [trashed]
    later.work()
    assert files.listdir("data/trash") == []
    jobs.work()
    store.delete(TOPIC)  # nothing is there, which is fine
    assert jobs.asked == []


def test_a_file_in_place_of_the_trash_is_set_aside_at_the_start():
    files = MemoryFiles()
    opened(files)
    files.create("data/trash").close()
    store = opened(files)
    store.empty_trash()
    assert files.is_file("data/trash.lost")
    store.close()
    store.create(TOPIC, 0, Settings()).close()
    store.delete(TOPIC)
    assert files.listdir("data/trash") == []


def test_both_directories_are_synced_when_a_topic_goes_to_the_trash():
    files = RecordingFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    filled(store).close()
    files.journal.clear()
    store.delete(TOPIC)
    synced = [each.path for each in files.journal if isinstance(each, SyncDir)]
    assert synced == ["data/topics", "data/trash"]


def test_on_a_full_disk_a_deleted_topic_makes_room_where_it_is():
    files = FullFiles()
    store = opened(files)
    filled(store).close()
    files.full = True
    with pytest.raises(StorageFull):
        store.delete(TOPIC)
    assert not files.exists(HOME)


def test_nothing_of_a_deleted_log_stays_open_or_is_remembered():
    files = MemoryFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    log = filled(store)
    log.reader().offset_at(0)
    assert [key for key in store._cache._open if key[0] == log.path]
    store.save_snapshot(log, log.written, 1, b"state")
    log.close()
    store.delete(TOPIC)
    assert not [key for key in store._cache._open if key[0] == log.path]
    jobs.work()
    assert store._stored == {}
    assert store._of_topic == {}


def test_a_snapshot_makes_durable_what_it_covers_and_two_of_them_cover():
    files = MemoryFiles()
    store = opened(files)
    log = store.create(TOPIC, 0, Settings("written"))
    for number in range(1, 4):
        log.append([encode([b"x"])], number)
        if number < 3:
            store.runs(log).save(number, b"run")
            store.save_snapshot(log, number, 1, b"state %d" % number)
            assert log.durable == number
            assert store.runs(log).unsynced == []
            assert store.covered(log) == number - 1
    found = store.load_snapshot(log)
    assert found is not None
    assert (found.seq, bytes(found.body)) == (2, b"state 2")
    assert store.covered(log) == 1
    before = store.load_snapshot(log, below=2)
    assert before is not None
    assert (before.seq, store.covered(log)) == (1, 0)
    assert [name for name in files.listdir(log.path) if snapshots.seq_of(name)] == [snapshots.file_name(1)]
    assert store.load_snapshot(log, below=1) is None
    assert store.covered(log) == 0


def test_a_snapshot_covers_and_its_runs_are_durable_only_once_it_is_finished():
    files = MemoryFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    log = filled(store)
    store.save_snapshot(log, 5, 1, b"state")
    jobs.work()
    store.runs(log).save(9, b"run")
    store.save_snapshot(log, 9, 1, b"state")
    store.runs(log).save(10, b"of the next")
    assert (store.covered(log), store.runs(log).unsynced) == (0, [9, 10])
    jobs.work()
    assert (store.covered(log), store.runs(log).unsynced) == (5, [10])


def test_a_snapshot_of_what_is_durable_syncs_nothing():
    store = opened(MemoryFiles())
    log = store.create(TOPIC, 0, Settings("written"))
    log.append([encode([b"x"])], 1)
    log.sync()
    log.append([encode([b"y"])], 2)
    store.save_snapshot(log, 1, 1, b"state")
    assert log.durable == 1


def test_segments_go_once_and_are_forgotten_when_they_are_gone():
    files = MemoryFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    log = filled(store)
    names = list(log.names)
    assert len(names) > 2
    store.retire(log, oldest(log))
    store.retire(log, oldest(log))
    assert len(jobs.asked) == 1
    assert log.names == names
    jobs.work()
    assert log.names == names[1:]
    store.retire(log, oldest(log))
    jobs.work()
    assert log.names == names[2:]
    assert store._stored[log].retiring == set()
    left = files.listdir(log.path)
    assert not [name for name in names[:2] if name.segment_file in left or name.index_file in left]
    assert names[2].segment_file in left


def test_no_segment_goes_before_it_is_known_that_those_before_it_are_gone():
    """Between one that could not be removed and the rest of the log, there would be a hole."""
    files = FullFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    log = filled(store)
    names = list(log.names)
    assert len(names) > 2
    store.retire(log, oldest(log))
    store.retire(log, oldest(log, 2))
    files.stuck = names[0].segment_file
    (first, _), *others = jobs.asked
    with pytest.raises(OSError, match="Input/output"):
        first()
    for do, _ in others:
        do()
    left = files.listdir(log.path)
    assert [name for name in names if name.segment_file in left] == log.names == names
    store.retire(log, oldest(log, 2))
    files.stuck = ""
    jobs.work()
    assert log.names == names[2:]


def test_segments_go_only_from_the_oldest_on():
    """A member asks for those that it noted first: of some that were noted before them, not all may have gone."""
    files = MemoryFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    log = filled(store)
    one, two, three = oldest(log, 3)
    for segments in ([two], [two, three], [two, one], [one, three]):
        store.retire(log, segments)
        assert jobs.asked == []
    store.retire(log, [one, two])
    jobs.work()
    assert log.names[0] == three.name


def test_a_segment_that_could_not_be_removed_is_asked_for_again():
    files = FullFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    log = filled(store)
    names = list(log.names)
    store.retire(log, oldest(log))
    jobs.fail()
    assert log.names == names
    store.retire(log, oldest(log))
    assert len(jobs.asked) == 1


def test_inline_a_segment_that_cannot_be_removed_is_an_error_and_may_be_tried_again():
    files = FullFiles()
    store = opened(files)
    log = filled(store)
    names = list(log.names)
    files.stuck = names[0].index_file
    with pytest.raises(OSError, match="Input/output"):
        store.retire(log, oldest(log))
    assert log.names == names
    files.stuck = ""
    store.retire(log, oldest(log))
    assert log.names == names[1:]


def test_a_topic_may_go_while_its_segments_are_on_their_way_out():
    files = MemoryFiles()
    jobs = LateJobs(files)
    store = opened(files, jobs)
    log = filled(store)
    store.retire(log, oldest(log))
    log.close()
    store.delete(TOPIC)
    jobs.work()
    assert files.listdir("data/trash") == []
    assert store._stored == {}
