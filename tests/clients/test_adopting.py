"""A log of `penstock.Log` becomes a topic: what it has is served, and whatever ends the move leaves it whole."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock import Log
from penstock.broker import ServeConfig
from penstock.broker.errors import InvalidSettings, TopicExists
from penstock.clients import InvalidArgument, connect
from penstock.clients.adopting import ALONE, adopt
from penstock.storage import layout, lock
from penstock.storage.errors import (
    AlreadyOpen,
    Corrupt,
    Error,
    ForeignDirectory,
    InvalidTopic,
    NewerFormat,
    OutOfBounds,
    StorageError,
)
from penstock.storage.files import Files
from penstock.storage.first import write_first
from penstock.storage.promises import Promises
from penstock.storage.verify import verify
from support.processes import Serving
from support.reading import fetched

COUNT = 200


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Beside it: a data directory to be, and whatever else."""
    return tmp_path / "log"


def fill(place: Path, **how) -> None:
    with Log(place, segment_bytes="4KB", flush_records=10, **how) as log:
        for number in range(COUNT):
            log.write(b"%d" % number, key=b"k%d" % (number % 3), headers={"n": b"%d" % number})


def read(url: str, topic: str, count: int, **how):
    with connect(url) as client, client.consumer(topic, group="g", **how) as consumer:
        return fetched(consumer, count)


def test_what_the_log_has_is_the_topic(place, tmp_path):
    fill(place)
    before = sorted(path.stat().st_ino for path in place.glob("*.segment"))
    with Log(place, read_only=True) as log:
        wanted = [(each.offset, each.value, each.key, dict(each.headers), each.timestamp) for each in log]
    made = adopt(str(tmp_path / "data"), "flights", str(place), commit="written", retention_s="7d")
    assert not place.exists()
    assert (made.name, made.records, made.settings["commit"], made.settings["retention_s"]) == (
        "flights", COUNT, "written", 7 * 86400
    )  # fmt: skip
    found = read(f"file://{tmp_path}/data", "flights", COUNT)
    assert [(r.offset, r.value, r.key, dict(r.headers), r.timestamp) for r in found] == wanted
    (partition,) = made.partitions
    assert sorted(path.stat().st_ino for path in Path(partition.directory).glob("*.segment"))[: len(before)] == before
    assert not {*ALONE} & {*os.listdir(partition.directory)}
    assert verify(Files(), partition.directory).clean


def test_a_broker_serves_it_and_appends_to_it(place, tmp_path):
    fill(place)
    adopt(str(tmp_path / "data"), "flights", str(place))
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/b.sock",))
    with Serving(config) as served, connect(served.url) as client:
        assert client.producer("flights").send(b"more", key=b"k") == COUNT
        assert [record.value for record in client.read("flights", 0, COUNT - 1)] == [b"%d" % (COUNT - 1), b"more"]
        with client.worker("flights", group="q") as worker:
            assert [task.value for task in worker.fetch(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("first", [0, 1, 95, COUNT - 1, COUNT])
def test_a_log_that_was_truncated_begins_where_it_did(place, tmp_path, first):
    fill(place)
    with Log(place) as log:
        log.truncate(first)
        assert log.first_offset == first
    assert verify(Files(), str(place)).ok
    url = f"file://{tmp_path}/data"
    assert adopt(str(tmp_path / "data"), "flights", str(place)).records == COUNT - first
    with connect(url) as client:
        assert client.producer("flights").send(b"more") == COUNT
        assert fetched(client.consumer("flights", group="g"), 1)[0].offset == first
        if first:
            with pytest.raises(OutOfBounds):
                client.read("flights", 0, first - 1)
    with connect(url) as client:  # as a later start finds it
        assert fetched(client.consumer("flights", group="h"), 1)[0].offset == first


@pytest.mark.parametrize("damaged", ["the oldest", "the newest"])
def test_where_it_begins_is_said_by_two_snapshots(place, tmp_path, damaged):
    fill(place)
    with Log(place) as log:
        log.truncate(95)
    adopt(str(tmp_path / "data"), "flights", str(place))
    with connect(f"file://{tmp_path}/data") as client:
        directory = Path(client.topic("flights").partitions[0].directory)
    oldest, newest = sorted(directory.glob("snapshot-*"))
    (oldest if damaged == "the oldest" else newest).write_bytes(b"damaged")
    records = read(f"file://{tmp_path}/data", "flights", COUNT - 95)
    assert [record.offset for record in records] == list(range(95, COUNT))


def test_a_log_without_a_batch_begins_where_its_segment_does(place, tmp_path):
    """As a writer leaves it that is killed before the first batch of a new segment, once the others are gone."""
    with Log(place, segment_bytes="4KB", commit="written") as log:
        offset = 0
        while len(segments(place)) < 2:
            offset = log.append(b"v" * 500)
        shutil.copytree(place, tmp_path / "killed")
    last = max((tmp_path / "killed").glob("*.segment"))
    last.write_bytes(last.read_bytes()[: layout.DATA_START].ljust(last.stat().st_size, b"\0"))
    with Log(tmp_path / "killed") as log:
        assert log.truncate("latest") == log.end_offset == offset
    assert len(segments(tmp_path / "killed")) == 1
    made = adopt(str(tmp_path / "data"), "flights", str(tmp_path / "killed"))
    assert [(each.first, each.end) for each in made.partitions] == [(offset, offset)]
    with connect(f"file://{tmp_path}/data") as client:
        assert client.producer("flights").send(b"more") == offset


def test_a_log_that_was_truncated_where_a_power_cut_took_records_begins_at_its_end(place, tmp_path):
    fill(place)
    write_first(Files(), str(place), bytes.fromhex(verify(Files(), str(place)).log_id), COUNT + 5)
    (partition,) = adopt(str(tmp_path / "data"), "flights", str(place)).partitions
    assert (partition.first, partition.end) == (COUNT, COUNT)


def test_a_log_whose_oldest_files_are_gone_is_whole_and_can_be_adopted(place, tmp_path):
    fill(place, retention_bytes="5KB")
    found = verify(Files(), str(place))
    assert found.ok
    assert found.first_seq > 1
    adopt(str(tmp_path / "data"), "flights", str(place))
    records = read(f"file://{tmp_path}/data", "flights", COUNT - found.first_offset)
    assert [record.offset for record in records] == list(range(found.first_offset, COUNT))


def test_a_term_of_the_log_is_not_used_again(place, tmp_path):
    fill(place)
    (log_id,) = {verify(Files(), str(place)).log_id}
    alone = Promises(f"{place}/{layout.PROMISES}", Files())
    alone.promise(bytes.fromhex(log_id), 41)
    alone.close()
    adopt(str(tmp_path / "data"), "flights", str(place))
    with connect(f"file://{tmp_path}/data") as client:
        client.producer("flights").send(b"more")
    ours = Promises(f"{tmp_path}/data/{layout.PROMISES}", Files())
    assert ours.term(bytes.fromhex(log_id)) == 42
    ours.close()


# -- refused ---------------------------------------------------------------------------------------------


def segments(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.glob("*.segment")}


@pytest.fixture
def refused(place, tmp_path):
    """Says why; the log is as it was, and there is no topic."""

    def check(error: type[Exception], match: str, name: str = "flights") -> None:
        before = segments(place)
        with pytest.raises(error, match=match):
            adopt(str(tmp_path / "data"), name, str(place))
        assert segments(place) == before

    return check


def test_a_log_that_is_open_elsewhere_is_refused(place, refused):
    with Log(place) as log:
        log.append(b"v")
        refused(AlreadyOpen, "is open for writing in process")
        log.append(b"w")


def test_a_data_directory_that_is_open_elsewhere_is_refused(place, tmp_path, refused):
    fill(place)
    (tmp_path / "data").mkdir()
    guard = lock.take(f"{tmp_path}/data/lock", Files())
    refused(AlreadyOpen, "is open for writing in process")
    guard.release()


def test_no_log_is_refused(place, tmp_path, refused):
    refused(InvalidTopic, "there is no log in")
    place.mkdir()
    refused(InvalidTopic, "there is no log in .*: give the directory of a penstock.Log")
    with connect(f"file://{tmp_path}/data") as client:
        client.create_topic("flights")
        client.producer("flights").send(b"mine")
    place.rmdir()
    refused(InvalidTopic, "there is no log in")


def test_a_partition_of_a_data_directory_is_refused(place, tmp_path):
    with connect(f"file://{place}") as client:
        directory = client.create_topic("t").partitions[0].directory
    with pytest.raises(ForeignDirectory, match="a topic there already"):
        adopt(str(tmp_path / "data"), "flights", directory)


def kept(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in sorted(data.rglob("*.segment"))}


@pytest.mark.parametrize("what", ["record", "queue", "schedule", "stage"])
def test_a_topic_to_which_anything_was_written_is_refused(place, tmp_path, refused, what):
    fill(place)
    with connect(f"file://{tmp_path}/data") as client:
        client.create_topic("flights")
        if what == "record":
            client.producer("flights").send(b"mine")
        elif what == "queue":
            client.set_queue("flights", "tasks", max_attempts=3)
        elif what == "schedule":
            client.set_queue("flights", "tasks")
            client.schedule("flights", "daily", "0 6 * * *", b"x")
        else:
            client.staging().producer("flights").send(b"staged")
    before = kept(tmp_path / "data")
    refused(TopicExists, "something was written to it")
    assert kept(tmp_path / "data") == before


def test_a_topic_that_cannot_be_read_is_refused(place, tmp_path, refused):
    """However it comes that its partition shows no records: they may be there again tomorrow."""
    fill(place)
    with connect(f"file://{tmp_path}/data") as client:
        directory = Path(client.create_topic("flights").partitions[0].directory)
        client.producer("flights").send(b"mine")
    segment = max(directory.glob("*.segment"))
    segment.rename(tmp_path / "aside")
    segment.mkdir()
    refused(TopicExists, "or it cannot be read")
    assert segment.is_dir()
    segment.rmdir()
    directory.rename(tmp_path / "gone")
    refused(TopicExists, "or it cannot be read")


def test_a_topic_with_other_settings_is_refused(place, tmp_path):
    fill(place)
    with connect(f"file://{tmp_path}/data") as client:
        client.create_topic("flights", retention_s="7d")
    with pytest.raises(InvalidSettings, match="exists with"):
        adopt(str(tmp_path / "data"), "flights", str(place), retention_s="1d")
    assert place.exists()
    assert adopt(str(tmp_path / "data"), "flights", str(place), retention_s="7d").records == COUNT


@pytest.mark.parametrize(
    ("number", "error", "says"),
    [(errno.EXDEV, InvalidArgument, "different mounts"), (errno.EACCES, StorageError, "cannot be moved into .*denied")],
)
@pytest.mark.parametrize("was_there", [False, True])
def test_a_directory_that_cannot_be_moved_leaves_all_as_it_was(place, tmp_path, number, error, says, was_there):
    class Stuck(Files):
        def rename_dir(self, source: str, target: str) -> None:
            if source == str(place):
                raise OSError(number, os.strerror(number))
            super().rename_dir(source, target)

    fill(place)
    if was_there:
        with connect(f"file://{tmp_path}/data") as client:
            client.create_topic("flights")
    with pytest.raises(error, match=says):
        adopt(str(tmp_path / "data"), "flights", str(place), files=Stuck())
    with connect(f"file://{tmp_path}/data") as client:
        assert [(topic.name, topic.partitions[0].state) for topic in client.topics()] == [("flights", "ok")] * was_there
    assert adopt(str(tmp_path / "data"), "flights", str(place)).records == COUNT


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_what_fails_beside_the_move_is_told_as_it_is_and_the_same_call_goes_on(place, tmp_path, which, was_there):
    class Failing(Files):
        left = which

        def sync_dir(self, path: str) -> None:
            self.left -= 1
            if self.left == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            super().sync_dir(path)

    fill(place)
    if was_there:
        with connect(f"file://{tmp_path}/data") as client:
            client.create_topic("flights")
    with pytest.raises(OSError, match="Input/output error"):
        adopt(str(tmp_path / "data"), "flights", str(place), files=Failing())
    assert adopt(str(tmp_path / "data"), "flights", str(place)).records == COUNT


def test_another_file_system_is_refused(place, tmp_path, refused, monkeypatch):
    fill(place)
    (tmp_path / "data").mkdir()
    stat = os.stat

    def other(path, **how):
        found = stat(path, **how)
        return os.stat_result((*found[:2], 12345, *found[3:10])) if str(path) == str(place) else found

    monkeypatch.setattr("penstock.clients.adopting.os.stat", other)
    refused(InvalidArgument, "are on different file systems")


def test_a_damaged_log_is_refused(place, refused):
    fill(place)
    segment = min(place.glob("*.segment"))
    whole = segment.read_bytes()
    middle = whole.index(b"k1") + 1
    segment.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    refused(Corrupt, "is damaged: see penstock log verify, and repair it first")


def test_a_newer_format_is_refused(place, refused, monkeypatch):
    fill(place)

    def newer(*_, **__):
        raise NewerFormat("the segment has version 9")

    monkeypatch.setattr("penstock.clients.adopting.LogWriter.open", newer)
    refused(NewerFormat, "version 9")


def test_a_topic_with_records_is_refused(place, tmp_path, refused):
    fill(place)
    with connect(f"file://{tmp_path}/data") as client:
        client.create_topic("flights")
        client.producer("flights").send(b"v")
        client.create_topic("two", partitions=2)
    refused(TopicExists, "topic flights exists, and something was written to it")
    refused(InvalidSettings, "topic two exists with partitions=2, not 1", "two")
    assert [record.value for record in read(f"file://{tmp_path}/data", "flights", 1)] == [b"v"]


# -- interrupted -----------------------------------------------------------------------------------------


class Dying(Files):
    """A process that ends before the nth change that it makes to a directory."""

    left = 0

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


class Killed(BaseException):
    """Nothing catches it."""


STEPS = ("mkdir", "create", "rewrite", "rename", "rename_dir", "sync", "sync_dir", "unlink")


def _stepping(name: str):
    def act(self, *args, **how):
        self._step()
        return getattr(Files, name)(self, *args, **how)

    return act


for _name in STEPS:
    setattr(Dying, _name, _stepping(_name))


class Looking(Files):
    """While a directory moves, no process may open the log or the data directory."""

    def rename_dir(self, source: str, target: str) -> None:
        if os.path.exists(f"{source}/{layout.LOCK}"):  # of the log itself
            for path in (source, target.partition("/topics/")[0]):
                with pytest.raises(AlreadyOpen):
                    lock.take(f"{path}/{layout.LOCK}", Files())
            self.looked = True
        super().rename_dir(source, target)


def test_the_log_is_locked_while_it_moves(place, tmp_path):
    fill(place)
    files = Looking()
    adopt(str(tmp_path / "data"), "flights", str(place), files=files)
    assert files.looked


@pytest.mark.parametrize("first", [0, 95])
def test_whatever_ends_the_move_leaves_the_log_whole_in_one_place(tmp_path, first):
    ended = steps = 0
    while not ended:
        place, data = tmp_path / f"log{steps}", tmp_path / f"data{steps}"
        fill(place)
        with Log(place) as log:
            log.truncate(first)
        files = Dying()
        files.left = steps
        try:
            adopt(str(data), "flights", str(place), files=files)
            ended = steps
        except Killed:
            pass
        if place.exists():
            with Log(place, read_only=True) as log:
                assert [record.value for record in log] == [b"%d" % number for number in range(first, COUNT)]
        else:
            records = read(f"file://{data}", "flights", COUNT - first)
            assert [record.offset for record in records] == list(range(first, COUNT))
        made = adopt(str(data), "flights", str(place))
        assert made.records == COUNT - first
        assert not {*ALONE, layout.LOCK} & {*os.listdir(made.partitions[0].directory)}
        records = read(f"file://{data}", "flights", COUNT - first, member="m")
        assert [record.offset for record in records] == list(range(first, COUNT))
        assert not place.exists()
        steps += 1
    assert steps > 15


def test_calls_that_end_each_a_step_later_than_the_one_before_come_to_an_end(place, tmp_path):
    fill(place)
    with Log(place) as log:
        log.truncate(95)
    files = Dying()
    for step in range(1000):
        files.left = step
        try:
            made = adopt(str(tmp_path / "data"), "flights", str(place), files=files)
            break
        except Killed:
            if place.exists():
                with Log(place, read_only=True) as log:
                    assert [record.value for record in log] == [b"%d" % number for number in range(95, COUNT)]
    assert made.records == COUNT - 95
    assert verify(Files(), made.partitions[0].directory).clean


class Meanwhile(Files):
    """Another process makes the same call before the nth time that this one looks at a directory or changes it."""

    def __init__(self, step: int, call: Callable[[], object]) -> None:
        self.left, self.call = step, call
        self.refused: list[Error] = []

    def _step(self) -> None:
        self.left -= 1
        if self.left == -1:
            try:
                self.call()
            except Error as error:
                self.refused.append(error)


for _name in (*STEPS, "listdir", "try_lock"):
    setattr(Meanwhile, _name, _stepping(_name))


def test_of_two_calls_at_once_one_adopts_and_the_other_is_refused(tmp_path):
    step = refused = 0
    while True:
        place, data = tmp_path / f"log{step}", tmp_path / f"data{step}"
        fill(place)
        files = Meanwhile(step, lambda place=place, data=data: adopt(str(data), "flights", str(place)))
        try:
            adopt(str(data), "flights", str(place), files=files)
        except Error as error:
            files.refused.append(error)
        assert all(isinstance(each, (AlreadyOpen, TopicExists)) for each in files.refused), (step, files.refused)
        assert len(files.refused) < 2
        assert adopt(str(data), "flights", str(place)).records == COUNT
        refused += len(files.refused)
        if files.left >= 0:
            break
        step += 1
    assert refused > 10
