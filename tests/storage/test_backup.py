"""A backup has every log as it was at its place; a power cut leaves it whole or absent; damage is found before use."""

from __future__ import annotations

import random
from pathlib import PurePath

import pytest
from msgspec.structs import replace
from penstock.storage import backup_point, layout, log_ids, snapshots
from penstock.storage.backup import Backup, BackupPlace, Made, Moved
from penstock.storage.batch import encode
from penstock.storage.data_directory import Identity, claim, identify
from penstock.storage.errors import AlreadyOpen, BadChecksum, Corrupt, Error, ForeignDirectory, InvalidArgument
from penstock.storage.files import Files
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.restore import TERM_LEAP, check, restore
from penstock.storage.verify import verify
from support.bad_sectors import BadSectors
from support.files import Disk, RecordingFiles

TOPIC = bytes(range(16))
PATHS = {name: f"topics/{TOPIC.hex()}/{name}" for name in ("0", "1")}
NOW = 1_700_000_000_000_000


class Node:
    """A data directory with two logs of a topic and no catalogue, which backups know nothing of."""

    def __init__(self, files: Files, data: str = "/data") -> None:
        self.files = files
        self.data = data
        self.now = NOW
        self.promises: Promises | None = None
        self.logs: dict[str, LogWriter] = {}

    def open(self) -> Node:
        fresh = identify(self.files, self.data) is None
        if fresh:
            self.files.mkdir(self.data)
            claim(self.files, self.data)
        self.promises = Promises(f"{self.data}/promises", self.files)
        options = {"options": LogOptions(segment_bytes=1 << 16), "order": Sole(self.promises)}
        for name, path in PATHS.items():
            where = f"{self.data}/{path}"
            if fresh:
                log_id = log_ids.own_id(where) or bytes(16)
                self.logs[name] = LogWriter.create(where, files=self.files, log_id=log_id, **options)
            else:
                self.logs[name] = LogWriter.open(where, files=self.files, **options)
        return self

    def append(self, name: str, *sizes: int) -> None:
        for size in sizes:
            self.now += 1
            self.logs[name].append([encode([self.now.to_bytes(8, "big").ljust(size, b".")])], self.now)
        self.logs[name].sync()

    def places(self, first: int = 1 << 40) -> list[BackupPlace]:
        return [BackupPlace(PATHS[name], name, log.log_id, log.durable, first) for name, log in self.logs.items()]

    def close(self) -> None:
        for log in self.logs.values():
            log.close()

    def values(self) -> dict[str, list[bytes]]:
        return {name: values_of(self.files, f"{self.data}/{path}") for name, path in PATHS.items()}


def values_of(files: Files, path: str) -> list[bytes]:
    reader = LogReader(path, files, mapped=False, limit=lambda: None)
    cursor, found = reader.cursor(reader.first_offset), list[bytes]()
    while (chunk := cursor.next()) is not None:
        found += [bytes(value) for batch in chunk.batches for value in batch.values()]
    reader.close()
    return found


def back_up(node: Node, target: str = "/backups", *, keep: int = 0, places: list[BackupPlace] | None = None) -> Made:
    backup = Backup(node.files, node.data, target)
    try:
        backup.pin(node.places() if places is None else places)
        node.now += 1
        return backup.make({}, node.now, keep=keep)
    finally:
        backup.close()


def restored(files: Files, name: str, data: str = "/again", target: str = "/backups") -> Node:
    restore(files, target, backup_point.read_point(files, target, name), data)
    return Node(files, data)


@pytest.fixture
def node() -> Node:
    made = Node(MemoryFiles()).open()
    made.append("0", *[20_000] * 8, 100)
    made.append("1", 10)
    return made


def test_what_is_restored_has_every_record_up_to_its_place_and_goes_on(node: Node) -> None:
    made, before = back_up(node), node.values()
    node.append("0", 300)
    assert made.copied == made.point.size
    again = restored(node.files, made.name)
    assert again.values() == before != node.values()
    for path in PATHS.values():
        assert verify(node.files, f"{again.data}/{path}").clean
    assert identify(node.files, again.data) == identify(node.files, node.data)
    again.open().append("1", 77)
    assert len(again.values()["1"]) == 2
    assert again.logs["1"].term > node.logs["1"].term + TERM_LEAP - 1, "its own terms, not those after the point"
    again.close()


def test_the_next_backup_copies_only_what_is_new_and_each_point_stays_as_it_was(node: Node) -> None:
    points: list[tuple[str, dict[str, list[bytes]]]] = []
    segments = 0
    for sizes in ((), (5,), (), (40_000, 40_000, 9)):
        node.append("0", *sizes)
        made = back_up(node)
        points.append((made.name, node.values()))
        fresh, segments = segments, sum(len(log.segments) for log in made.point.logs)
        if points[1:]:
            assert made.copied <= sum(sizes) + 600 * len(sizes) + layout.DATA_START * (segments - fresh)
    for number, (name, values) in enumerate(points):
        assert restored(node.files, name, f"/again{number}").values() == values


def test_nothing_is_copied_twice_where_nothing_was_written(node: Node) -> None:
    back_up(node)
    assert back_up(node).copied == 0


def test_a_batch_that_came_after_the_place_is_not_in_the_backup(node: Node) -> None:
    places, values = node.places(), node.values()
    node.append("0", 50, 60_000, 60_000)
    node.append("1", 50)
    made = back_up(node, places=places)
    assert restored(node.files, made.name).values() == values


def test_an_empty_log_and_one_with_a_segment_just_begun_are_restored() -> None:
    node = Node(MemoryFiles()).open()
    made = back_up(node)
    again = restored(node.files, made.name).open()
    again.append("0", 1)
    assert [len(values) for values in again.values().values()] == [1, 0]


def test_files_that_are_unlinked_once_they_are_open_are_copied(node: Node) -> None:
    backup = Backup(node.files, node.data, "/backups")
    values = node.values()
    backup.pin(node.places())
    for path in PATHS.values():
        for name in node.files.listdir(f"{node.data}/{path}"):
            node.files.unlink(f"{node.data}/{path}/{name}")
    made = backup.make({}, NOW)
    backup.close()
    assert restored(node.files, made.name).values() == values


def drop_first_segment(node: Node, *, snapshot_at: int | None) -> None:
    directory = f"{node.data}/{PATHS['0']}"
    names, _ = layout.live_segments(node.files.listdir(directory))
    if snapshot_at is not None:
        snapshots.save(node.files, directory, snapshot_at, 1, b"state", node.logs["0"].log_id)
    for name in (names[0].segment_file, names[0].index_file):
        node.files.unlink(f"{directory}/{name}")


def test_a_log_that_begins_later_comes_with_the_snapshot_that_reaches_it(node: Node) -> None:
    second = node.logs["0"].segments()[1]
    drop_first_segment(node, snapshot_at=second.base_seq)
    values = node.values()
    made = back_up(node)
    again = restored(node.files, made.name)
    assert again.values() == values
    found = snapshots.load_newest(node.files, f"{again.data}/{PATHS['0']}", first_seq=second.base_seq)
    assert found is not None
    assert found.body == b"state"


def test_records_that_the_place_needs_and_retention_took_ask_for_a_new_place(node: Node) -> None:
    with pytest.raises(Moved):
        back_up(node, places=[BackupPlace("topics/none/0", "gone", bytes(16), 1, 0)])
    seq = node.logs["0"].durable
    drop_first_segment(node, snapshot_at=seq)
    with pytest.raises(Moved):  # offset 0 was there at that moment
        back_up(node, places=node.places(first=0))
    with pytest.raises(Moved):  # the snapshot knows more than the place
        back_up(node, places=[BackupPlace(PATHS["0"], "0", node.logs["0"].log_id, seq - 1, 1 << 40)])
    assert backup_point.point_names(node.files, "/backups") == []


def test_a_batch_that_is_needed_below_the_first_offset_and_went_asks_for_a_new_place(node: Node) -> None:
    second, place = node.logs["0"].segments()[1], node.places()[0]
    drop_first_segment(node, snapshot_at=second.base_seq)
    with pytest.raises(Moved):  # staged, or carried forward: it takes no offset there
        back_up(node, places=[replace(place, needed=second.base_seq - 1)])
    back_up(node, places=[replace(place, needed=second.base_seq)])


def test_a_damaged_snapshot_that_a_log_needs_leaves_that_log_out(node: Node) -> None:
    drop_first_segment(node, snapshot_at=node.logs["0"].durable)
    path = f"{node.data}/{PATHS['0']}/{snapshots.file_name(node.logs['0'].durable)}"
    with node.files.open(path, write=True) as file:
        file.pwritev([b"?"], 64)
    made = back_up(node)
    assert (list(made.point.left_out), [log.title for log in made.point.logs]) == (["0"], ["1"])


def test_another_history_of_a_log_in_the_same_directory_gets_files_of_its_own(node: Node) -> None:
    """The restored log and its original both go on, and both are backed up into the same place."""
    base = back_up(node)
    node.append("1", 1000)
    original, first = back_up(node), node.values()
    node.close()
    again = restored(node.files, base.name).open()
    again.now = node.now + 1000
    again.append("1", 1000)
    branch, second = back_up(again), again.values()
    assert first != second
    assert restored(node.files, original.name, "/r1").values() == first
    assert restored(node.files, branch.name, "/r2").values() == second


def test_bytes_that_are_not_what_was_copied_are_not_continued(node: Node) -> None:
    """A segment of the same name whose batches are others: the checksum at the end of the copy tells."""
    back_up(node)
    other = Node(MemoryFiles(), "/data").open()
    other.now += 500
    other.append("0", *[20_000] * 8, 100, 100)
    other.append("1", 10, 10)
    for path, content in list(other.files.contents.items()):  # type: ignore[attr-defined]
        if path.endswith((".segment", ".index")):
            node.files.contents[path] = content  # type: ignore[attr-defined]
    made = back_up(node, places=other.places())
    assert restored(node.files, made.name).values() == other.values()


def test_older_points_and_what_only_they_named_are_removed_on_request(node: Node) -> None:
    first = back_up(node)
    node.files.create("/backups/" + first.point.logs[0].log_id + "/left-over").close()
    drop_first_segment(node, snapshot_at=node.logs["0"].durable)
    for _ in range(2):
        node.append("1", 10)
        last = back_up(node, keep=2)
    names = backup_point.point_names(node.files, "/backups")
    assert (len(names), names[-1], first.name in names) == (2, last.name, False)
    found = {
        f"{log}/{name}"
        for log in node.files.listdir("/backups") if len(log) == 32
        for name in node.files.listdir(f"/backups/{log}")
    }  # fmt: skip
    assert found == last.point.names()
    restored(node.files, last.name)


def test_one_backup_at_a_time_and_one_node_a_directory(node: Node) -> None:
    backup = Backup(node.files, node.data, "/backups")
    with pytest.raises(AlreadyOpen):
        Backup(node.files, node.data, "/backups")
    backup.close()
    other = Node(node.files, "/other").open()
    Backup(node.files, other.data, "/backups").close()  # the first was given no places, so it has taken nothing
    back_up(node)
    with pytest.raises(ForeignDirectory, match="has backups of node"):
        Backup(node.files, other.data, "/backups")
    node.files.create("/strange/thing").close()
    with pytest.raises(ForeignDirectory, match="thing"):
        Backup(node.files, node.data, "/strange")
    with pytest.raises(ForeignDirectory, match="no data directory yet"):
        Backup(node.files, "/nothing", "/backups")
    back_up(node)


def test_a_directory_in_use_is_not_restored_into(node: Node) -> None:
    made = back_up(node)
    with pytest.raises(ForeignDirectory, match="not empty"):
        restored(node.files, made.name, node.data)
    node.files.create("/home/letter").close()
    with pytest.raises(ForeignDirectory, match="not empty"):
        restored(node.files, made.name, "/home")
    with pytest.raises(InvalidArgument, match=made.name):
        restored(node.files, "20200101T000000.000000Z")


def test_every_damaged_byte_is_found_before_anything_is_made() -> None:
    node = Node(MemoryFiles()).open()
    node.append("0", 10)
    made = back_up(node)
    files = node.files
    assert isinstance(files, MemoryFiles)
    named = [f"/backups/{name}" for name in sorted(made.point.names())] + [
        backup_point.point_path("/backups", made.name)
    ]
    for path in named:
        content = files.contents[path].data
        for position in range(0, len(content), 7):
            content[position] ^= 0x40
            with pytest.raises((BadChecksum, Corrupt)):
                restored(files, made.name)
            content[position] ^= 0x40
        kept = bytes(content)
        for size in {0, len(content) // 2, len(content) - 1}:
            files.contents[path].data[:] = kept[:size]
            with pytest.raises((BadChecksum, Corrupt)):
                restored(files, made.name)
        files.contents[path].data[:] = kept
        del_path = files.contents.pop(path)
        with pytest.raises((Corrupt, InvalidArgument)):
            restored(files, made.name)
        files.contents[path] = del_path
    assert not files.exists("/again")
    restored(files, made.name)


def images(files: RecordingFiles, start: int) -> list[RecordingFiles]:
    """Disks that a power cut could leave at every point from `start` on."""
    choose, disk, found = random.Random(7), Disk(files), list[RecordingFiles]()
    for place, operation in enumerate([*files.journal, None]):
        for how in ("none", "all", "some") if place >= start else ():
            image = disk.image(choose, how)
            found.append(RecordingFiles(image, [str(above) for path in image for above in PurePath(path).parents]))
        if operation is not None:
            disk.apply(operation)
    return found


def recorded() -> Node:
    node = Node(RecordingFiles()).open()
    node.append("0", 30_000, 30_000)
    node.append("1", 10)
    return node


def test_a_power_cut_leaves_the_points_there_were_or_the_new_one_too() -> None:
    node = recorded()
    files = node.files
    assert isinstance(files, RecordingFiles)
    first, values = back_up(node), [node.values()]
    node.append("0", 300, 50_000)
    node.append("1", 10)
    values.append(node.values())
    start = len(files.journal)
    second = back_up(node)
    seen = set[int]()
    for disk in images(files, start):
        names = backup_point.point_names(disk, "/backups")
        assert names in ([first.name], [first.name, second.name])
        seen.add(len(names))
        for name in names:
            check(disk, "/backups", backup_point.read_point(disk, "/backups", name))
        if len(seen) < 2 or random.Random(len(disk.contents)).random() < 0.1:
            assert restored(disk, names[-1]).values() == values[len(names) - 1]
    assert seen == {1, 2}


def test_after_a_power_cut_the_next_backup_is_whole_and_nothing_is_left_behind() -> None:
    node = recorded()
    files = node.files
    assert isinstance(files, RecordingFiles)
    start = len(files.journal)
    back_up(node)
    for disk in images(files, start)[::5]:
        after = Node(disk).open()
        made = back_up(after)
        named = {f"/backups/{name}" for point in backup_point.point_names(disk, "/backups")
                 for name in backup_point.read_point(disk, "/backups", point).names()}  # fmt: skip
        assert {path for path in disk.contents if path.startswith("/backups/") and path.count("/") == 3} == named
        assert restored(disk, made.name).values() == after.values()


def test_a_restore_that_was_ended_is_refused_by_nodes_and_can_be_run_again() -> None:
    node = recorded()
    files, made = node.files, back_up(node)
    assert isinstance(files, RecordingFiles)
    start = len(files.journal)
    restored(files, made.name)
    whole = 0
    for disk in images(files, start):
        if disk.exists(f"/again/{layout.NODE}"):
            whole += 1
            with pytest.raises(ForeignDirectory):
                restored(disk, made.name)
        else:
            if set(disk.listdir("/again")) - {layout.LOCK, "node.json.new"}:
                with pytest.raises(Error):
                    identify(disk, "/again")
            restored(disk, made.name)
        assert Node(disk, "/again").values() == node.values()
    assert whole


@pytest.mark.parametrize("kind", ["create", "write", "sync", "sync_dir"])
def test_a_full_or_failing_disk_leaves_the_points_there_were(kind: str) -> None:
    node = recorded()
    files = node.files
    assert isinstance(files, RecordingFiles)
    first = back_up(node)
    node.append("0", 300)
    failed = 0
    for nth in range(1, 40):
        files.fail(kind, nth)
        try:
            back_up(node)
        except (Error, OSError):
            failed += 1
            for name in backup_point.point_names(files, "/backups"):
                check(files, "/backups", backup_point.read_point(files, "/backups", name))
        else:
            break
        finally:
            files.heal()
    assert failed
    assert first.name in backup_point.point_names(files, "/backups")
    made = back_up(node)
    assert restored(files, made.name).values() == node.values()


@pytest.mark.parametrize("elsewhere", ["../x", "/x", "topics/../../x", ".", "", "topics//x", "topics/\0"])
@pytest.mark.parametrize("field", ["directory", "log_id", "name", "file"])
def test_a_point_that_names_a_place_elsewhere_is_refused(field: str, elsewhere: str):
    files = MemoryFiles()
    files.mkdir("/backups")
    copy = backup_point.FileCopy("1.snapshot", "1.snapshot-1", 0, 0)
    log = backup_point.LogCopy("topics/t/0", "t/0", "0a", 0, 0, [], [copy])
    good = backup_point.Point(1, 0, Identity(1, "n", "c"), [log], {}, [])
    backup_point.write_point(files, "/backups", "20260101T000000.000000Z", good)
    assert backup_point.read_point(files, "/backups", "20260101T000000.000000Z") == good
    if field in ("name", "file"):
        log = replace(log, files=[replace(copy, **{field: elsewhere})])
    else:
        log = replace(log, **{field: elsewhere})
    backup_point.write_point(files, "/backups", "20260101T000000.000000Z", replace(good, logs=[log]))
    with pytest.raises(Corrupt, match="elsewhere"):
        backup_point.read_point(files, "/backups", "20260101T000000.000000Z")


def test_a_backup_made_after_the_clock_was_set_back_is_the_newest(node: Node) -> None:
    before = [back_up(node, keep=2).name for _ in range(2)]
    node.append("0", 5)
    node.now = NOW - 10**12
    made = back_up(node, keep=2)
    assert backup_point.point_names(node.files, "/backups") == [before[1], made.name]
    assert restored(node.files, made.name).values() == node.values()


@pytest.mark.parametrize("size", [0, 100, 1024, 1500, layout.DATA_START, layout.DATA_START + 100])
def test_a_segment_that_was_cut_short_is_backed_up_as_far_as_it_goes(node: Node, size: int) -> None:
    whole, name = node.values(), node.logs["0"].names[1]
    del node.files.contents[f"/data/{PATHS['0']}/{name.segment_file}"].data[size:]
    made = back_up(node)
    restore(node.files, "/backups", backup_point.read_point(node.files, "/backups", made.name), "/again")
    assert values_of(node.files, f"/again/{PATHS['1']}") == whole["1"]
    report = verify(node.files, f"/again/{PATHS['0']}")
    assert [bad.first_seq for bad in report.damage][-1:] == [name.base_seq]
    assert report.batches < len(whole["0"])


def test_a_page_that_the_disk_cannot_read_is_damage_in_the_backup() -> None:
    files = BadSectors()
    node = Node(files).open()
    node.append("0", *[20_000] * 8)
    node.append("1", 10)
    whole, name = node.values(), node.logs["0"].names[1]
    files.bad = {(f"/data/{PATHS['0']}/{name.segment_file}", 2)}
    again = restored(files, back_up(node).name)
    assert values_of(files, f"{again.data}/{PATHS['1']}") == whole["1"]
    report = verify(files, f"{again.data}/{PATHS['0']}")
    assert [(bad.first_seq, bad.next_seq) for bad in report.damage] == [(name.base_seq, name.base_seq + 1)]
    files.bad = set()
    restore(files, "/backups", backup_point.read_point(files, "/backups", back_up(node).name), "/healed")
    assert values_of(files, f"/healed/{PATHS['0']}") == whole["0"]
