"""Damage that takes marks with it: what was durable is named as lost, the rest is kept, no log is served as empty."""

from __future__ import annotations

import random

import pytest
from penstock.storage import snapshots
from penstock.storage.embedded import Log
from penstock.storage.errors import Corrupt, StorageFull
from penstock.storage.files import Files
from penstock.storage.layout import DATA_START
from penstock.storage.log import LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.repair import repair
from penstock.storage.verify import verify
from support.crashes import LOG_ID, PATH, Survivor, World
from support.files import RecordingFiles

NOISE_BYTES = 4096
KINDS = {"noise": lambda size: random.Random(size).randbytes(size), "zeros": bytes}


def segments_of(files: MemoryFiles, directory: str = PATH) -> list[str]:
    return sorted(name for name in files.contents if name.startswith(directory) and name.endswith(".segment"))


def damage(files: MemoryFiles, path: str, position: int, data: bytes) -> None:
    content = files.contents[path].data
    content[position : position + len(data)] = data[: max(0, len(content) - position)]


def made(sizes: list[int], *, snapshot: int = 0) -> tuple[MemoryFiles, dict[int, bytes]]:
    """A log that was closed in good order, and its records by offset; a snapshot at a seq if asked."""
    files = MemoryFiles()
    with Log(PATH, files=files, segment_bytes="24KB") as log:
        for number, size in enumerate(sizes):
            log.append(b"%d" % number * size)
        values = {record.offset: record.value for record in log}
    if snapshot:
        snapshots.save(files, PATH, snapshot, 1, b"state")
    return files, values


def read_on(log: Log) -> tuple[dict[int, bytes], list[Corrupt]]:
    """What a reader gets that goes around damage, and what it is told."""
    found: dict[int, bytes] = {}
    errors: list[Corrupt] = []
    while True:
        try:
            for record in log:
                found[record.offset] = record.value
            return found, errors
        except Corrupt as error:
            errors.append(error)
            if error.next_offset is None:
                return found, errors
            log.seek(error.next_offset)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_lost_its_marks_and_first_batch_is_damaged_and_keeps_the_rest(kind: str) -> None:
    files, values = made([300] * 10, snapshot=8)
    (path,) = segments_of(files)
    damage(files, path, 1204 if kind == "noise" else 600, KINDS[kind](NOISE_BYTES))
    report = verify(files, PATH)
    assert [(bad.first_seq, bad.offset) for bad in report.damage] == [(1, 0)]
    assert (report.durable_seq, report.end_offset) == (8, 10)
    lost = report.damage[0].next_offset
    assert lost is not None
    assert 0 < lost < 5
    with Log(PATH, files=files, read_only=True) as reader:
        assert read_on(reader)[0] == dict(list(values.items())[lost:])
    for _ in range(2):
        with Log(PATH, files=files) as log:
            found, errors = read_on(log)
            assert [error.next_offset for error in errors] == [lost]
            offset = log.append(b"more")
            values[offset] = b"more"
        assert found | {offset: b"more"} == {each: value for each, value in values.items() if each >= lost}
    assert not verify(files, PATH).ok
    assert repair(files, PATH, now_us=1, accept_loss=True).after.clean
    with Log(PATH, files=files) as log:
        assert log.append(b"after") == 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("snapshot", [0, 8])
def test_where_nothing_says_how_it_goes_on_the_log_is_not_opened_before_the_loss_is_accepted(
    kind: str, snapshot: int
) -> None:
    files, values = made([300] * 10, snapshot=snapshot)
    (path,) = segments_of(files)
    damage(files, path, 600, KINDS[kind](1 << 20))
    for read_only in (False, True):
        with pytest.raises(Corrupt, match=r"held batches from 1 \(offset 0\) on that cannot be read any more"):
            list(Log(PATH, files=files, read_only=read_only))
    report = verify(files, PATH)
    assert [(bad.first_seq, bad.next_seq, bad.offset, bad.next_offset) for bad in report.damage] == [(1, None, 0, None)]
    assert not repair(files, PATH, now_us=1).after.ok
    assert not repair(files, PATH, now_us=1, accept_loss=True, dry_run=True).before.ok
    repaired = repair(files, PATH, now_us=1, accept_loss=True)
    assert repaired.after.clean, repaired
    assert [given.first_seq for given in repaired.after.accepted] == [1]
    assert values
    with Log(PATH, files=files) as log:
        assert log.append(b"anew") == 0
    with Log(PATH, files=files) as log:
        assert list(log.values()) == [b"anew"]


def test_a_snapshot_says_what_was_durable_where_the_last_segment_was_never_marked() -> None:
    for snapshot, damaged in ((0, False), (3, True)):
        world = World()
        for operation in ("append", "roll", "sync", "append_big"):
            world.run(operation)
        assert world.writer is not None
        files = world.files
        last = segments_of(files)[-1]
        damage(files, last, 600, bytes(3000))  # its marks: as if the sync had never been
        if snapshot:
            world.writer.sync(mark=False)
            snapshots.save(files, PATH, snapshot, 1, b"state", LOG_ID)
        damage(files, last, DATA_START, bytes(1 << 16))
        if damaged:
            with pytest.raises(Corrupt, match="from 3 "):
                LogWriter.open(PATH, files=files, order=Sole(Promises(f"{PATH}/other", files)))
            assert not verify(files, PATH).ok
        else:
            opened = LogWriter.open(PATH, files=files, order=Sole(Promises(f"{PATH}/other", files)))
            assert (opened.written, opened.damage) == (2, [])


def test_a_segment_that_begins_a_generation_says_that_all_before_it_was_durable() -> None:
    files = RecordingFiles()
    with Log(PATH, files=files, commit="written") as log:
        log.append(b"marked")
        log.sync()
        log.append(b"synced by the cut")
        files.fail("write", 2)
        with pytest.raises(StorageFull):
            log.append(b"refused")
        files.heal()
        log.append(b"of the next generation")
    first, second = segments_of(files)
    place = files.contents[first].data.index(b"synced by the cut")
    damage(files, first, place - 64, bytes(128))
    damage(files, second, 1204, KINDS["noise"](2000))
    assert [(bad.first_seq, bad.next_seq) for bad in verify(files, PATH).damage] == [(2, 3)]
    with Log(PATH, files=files) as log:
        found, errors = read_on(log)
        assert (sorted(found), [error.next_offset for error in errors]) == ([0, 2], [2])
        assert log.append(b"more") == 3


@pytest.mark.parametrize("snapshot", [0, 9])
def test_noise_anywhere_loses_nothing_in_silence(snapshot: int) -> None:
    """4 KiB at every place behind a header of a log of several segments: each record is read, or missed aloud."""
    original, values = made([400, 8000, 300, 9000, 200, 12_000, 500, 20, 20], snapshot=snapshot)
    base = {path: bytes(content.data) for path, content in original.contents.items()}
    for path in segments_of(original):
        for position in range(512, len(base[path]), 448):
            files = MemoryFiles()
            files.mkdir(PATH)
            for name, data in base.items():
                files.create(name).pwritev([data], 0)
            damage(files, path, position, KINDS["noise"](NOISE_BYTES))
            context = f"{path} at {position}"
            try:
                with Log(PATH, files=files) as log:
                    found, errors = read_on(log)
                    end = log.append(b"more")
            except Corrupt:
                assert not verify(files, PATH).ok, context
                assert repair(files, PATH, now_us=1, accept_loss=True).after.ok, context
                with Log(PATH, files=files) as log:
                    log.append(b"more")
                continue
            assert end == len(values), context
            assert all(values[offset] == value for offset, value in found.items()), context
            assert len(found) == len(values) or errors, context
            assert len(found) == len(values) or not verify(files, PATH).ok, context


@pytest.mark.parametrize("slots", [(1024,), (2048,)])
def test_one_torn_mark_is_no_damage(slots: tuple[int, ...]) -> None:
    world = World()
    for operation in ("append", "sync", "append", "roll", "append", "sync"):
        world.run(operation)
    for path in segments_of(world.files):
        for slot in slots:
            image = {name: bytes(content.data) for name, content in world.files.contents.items()}
            torn = bytearray(image[path])
            torn[slot + 100 : slot + 400] = b"?" * 300
            image[path] = bytes(torn)
            Survivor(image, world.history, world.truth())


def test_a_log_on_a_disk_is_damaged_in_the_same_way(tmp_path) -> None:
    with Log(tmp_path / "log") as log:
        for number in range(20):
            log.append(b"%d" % number * 500)
    (path,) = (tmp_path / "log").glob("*.segment")
    with open(path, "r+b") as file:
        file.seek(1204)
        file.write(KINDS["noise"](NOISE_BYTES))
    assert not verify(Files(), str(tmp_path / "log")).ok
    with Log(tmp_path / "log") as log:
        found, errors = read_on(log)
        assert errors
        assert log.end_offset == 20
        assert max(found) == 19
