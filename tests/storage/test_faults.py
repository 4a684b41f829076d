"""A disk that is full, a sync that fails, a process out of descriptors: every call that can fail does, one by one."""

from __future__ import annotations

import errno
import os
import random
import resource
from collections.abc import Iterator

import pytest
from penstock.storage import layout
from penstock.storage.batch import encode
from penstock.storage.errors import Poisoned, StorageFull
from penstock.storage.files import Files
from penstock.storage.log import LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.scan import Bad, Good, scan
from support.crashes import LOG_ID, OPTIONS, PATH, Survivor, Truth, World
from support.files import Disk, RecordingFiles

FULL = ("create", "allocate", "write")
STEPS = ("append", "append_big", "roll", "cursor_commit", "sync", "append")
CALLS_MAX = 100


def attempt(world: World) -> int:
    """Run the steps, each once; how many were refused with StorageFull."""
    refused = 0
    for step in STEPS:
        try:
            world.run(step)
        except StorageFull:
            refused += 1
    return refused


@pytest.mark.parametrize("kind", FULL)
def test_a_full_disk_refuses_what_does_not_fit_and_keeps_all_the_rest(kind: str) -> None:
    for nth in range(1, CALLS_MAX):
        world = World()
        world.run("append")
        world.files.fail(kind, nth)
        refused = attempt(world)
        world.files.heal()
        world.run("sync")
        image = {path: bytes(content.data) for path, content in world.files.contents.items()}
        Survivor(image, world.history, world.truth())
        if not refused:
            return
    pytest.fail(f"{CALLS_MAX} calls of {kind} in so few steps")


def test_a_mark_that_finds_no_room_takes_back_no_sync() -> None:
    world = World()
    world.run("append")
    world.run("sync")
    world.run("append")
    world.files.fail("write", 1)
    world.run("sync")
    assert world.files.calls["write"] == 1, "the mark is all that a sync writes"
    assert (world.durable, world.open().durable) == (2, 2)


@pytest.mark.parametrize("kind", FULL)
def test_a_full_disk_that_stays_full_refuses_again_and_again_but_reads_go_on(kind: str) -> None:
    world = World()
    world.run("append")
    world.files.fail(kind, 1, once=False)
    for _ in range(3):
        attempt(world)
    writer = world.open()
    chunk = LogReader(PATH, world.files, limit=lambda: writer.written).cursor(0).next()
    assert chunk is not None
    assert chunk.batches[0].values()[0] == world.history[0]
    world.files.heal()
    world.run("append")
    world.run("sync")
    assert writer.durable == len(world.history)


@pytest.mark.parametrize("kind", FULL)
def test_what_was_refused_is_never_seen_not_even_after_a_kill(kind: str) -> None:
    for nth in range(1, CALLS_MAX):
        world = World()
        world.run("append")
        world.files.fail(kind, nth)
        try:
            world.run("roll")
        except StorageFull:
            world.files.heal()
            world.run("kill")
            assert world.open().written == 1
        else:
            return


@pytest.mark.parametrize("steps", [("append",), ("append", "append_big"), ("append", "roll", "append")])
def test_a_failed_sync_poisons_for_good_and_acknowledges_nothing(steps: tuple[str, ...]) -> None:
    for nth in range(1, CALLS_MAX):
        world = World()
        world.run("append")
        world.run("sync")
        durable = world.durable
        for step in steps:
            world.run(step)
        world.files.fail("sync", nth, errno.EIO)
        writer = world.open()
        try:
            writer.sync()
        except Poisoned:
            assert writer.durable == durable
            assert_stays_poisoned(world, writer, durable)
        else:
            assert nth > 1
            return


def assert_stays_poisoned(world: World, writer: LogWriter, durable: int) -> None:
    """No call revives it, and the next opening cuts at what was durable."""
    world.files.heal()
    syncs = world.files.calls["sync"]
    for again in (writer.sync, lambda: writer.append([encode([b"x"])], 1)):
        with pytest.raises(Poisoned):
            again()
    assert world.files.calls["sync"] == syncs, "a failed sync was retried"
    writer.close()
    reopened = LogWriter.open(
        PATH, files=world.files, options=OPTIONS, order=Sole(Promises(f"{PATH}/promises", world.files))
    )
    assert reopened.written == durable
    assert reopened.append([encode([b"after"])], 2)[0].seq == durable + 1
    assert reopened.generation == 2
    assert not world.files.exists(f"{PATH}/{layout.POISON}")
    assert reopened.sync() == durable + 1


@pytest.mark.parametrize("kind", ["create", "allocate", "write", "sync", "sync_dir"])
def test_a_generation_that_the_disk_refuses_poisons_and_the_next_opening_begins_it(kind: str) -> None:
    for nth in range(1, CALLS_MAX):
        world = World()
        world.run("append")
        world.run("sync")
        world.writer = None
        writer = world.open()
        world.files.fail(kind, nth, errno.EIO)
        try:
            world.run("append")
        except Poisoned:
            world.files.heal()
            with pytest.raises(Poisoned):
                writer.append([encode([b"again"])], 9)
            world.writer = None
            assert world.open().written == 1
            world.run("append")
            assert world.open().sync() == 2
        else:
            assert nth > 1
            return


def test_a_mark_that_the_disk_refuses_takes_back_no_sync() -> None:
    world = World()
    world.run("append")
    world.files.fail("write", 1, errno.EIO)
    world.run("sync")
    assert (world.durable, world.open().durable) == (1, 1)


def test_a_poisoned_log_that_loses_power_keeps_what_was_durable() -> None:
    """The mark that says so was carried by the very sync that failed; the poison says it as well."""
    world = World()
    world.run("append")
    world.run("sync")
    world.run("append")
    world.run("sync")
    world.run("append")
    world.files.fail("sync", 1, errno.EIO)
    with pytest.raises(Poisoned):
        world.open().sync()
    disk = Disk(world.files)
    for operation in world.files.journal:
        disk.apply(operation)
    survivor = Survivor(disk.image(random.Random(0), "none"), world.history, Truth(2, 0, world.term))
    assert survivor.writer.written == 2


@pytest.mark.parametrize("text", [b"", b"\0" * 60], ids=["empty", "zeros"])
def test_a_poison_that_lost_its_text_with_the_power_costs_nothing_that_was_durable(text: bytes) -> None:
    """The disk that failed the log failed the poison, too, and then kept its name alone."""
    world = World()
    for step in ("append", "sync", "append", "sync", "append"):
        world.run(step)
    world.files.fail("sync", 1, errno.EIO, once=False)
    with pytest.raises(Poisoned):
        world.open().sync()
    disk = Disk(world.files)
    for operation in world.files.journal:
        disk.apply(operation)
    image = {**disk.image(random.Random(0), "none"), f"{PATH}/{layout.POISON}": text}
    survivor = Survivor(image, world.history, Truth(2, 0, world.term))
    assert survivor.writer.written == 2
    assert not survivor.files.exists(f"{PATH}/{layout.POISON}")


def test_a_poison_of_which_a_bit_rotted_costs_nothing_that_was_durable() -> None:
    world = World()
    for step in ("append", "sync", "append", "sync", "append"):
        world.run(step)
    world.files.fail("sync", 1, errno.EIO)
    with pytest.raises(Poisoned):
        world.open().sync()
    disk = Disk(world.files)
    for operation in world.files.journal:
        disk.apply(operation)
    image = disk.image(random.Random(0), "none")
    whole = image[f"{PATH}/{layout.POISON}"]
    for bit in range(8 * len(whole)):
        rotten = bytearray(whole)
        rotten[bit // 8] ^= 1 << bit % 8
        Survivor({**image, f"{PATH}/{layout.POISON}": bytes(rotten)}, world.history, Truth(2, 0, world.term))


def test_a_sync_that_fails_at_opening_loses_nothing_that_was_acknowledged() -> None:
    """The pages it was for are marked clean by then: the next opening must write them again, elsewhere."""
    for nth in range(1, CALLS_MAX):
        world = World()
        for step in ("append", "sync", "append", "sync", "append", "roll"):
            world.run(step)
        world.writer = None
        world.files.fail("sync", nth, errno.EIO)
        try:
            world.open()
        except Poisoned:
            world.files.heal()
            assert world.open().written == 4
            if nth == 1:
                assert world.files.exists(f"{PATH}/{layout.SegmentName(3, 2).segment_file}")
            world.run("append")
            assert world.open().generation == 2
            assert not world.files.exists(f"{PATH}/{layout.POISON}")
            assert len(read_all(world.files, 5)) == 5
        else:
            assert nth > 1
            return


def test_a_suspect_log_is_copied_to_fresh_blocks() -> None:
    """A sync that never answered may have failed: what is above the mark is written again, byte for byte."""
    world = World()
    for step in ("append", "sync", "append", "roll", "append"):
        world.run(step)
    before = read_all(world.files, 4)
    writer = LogWriter.open(
        PATH, files=world.files, options=OPTIONS, order=Sole(Promises(f"{PATH}/promises", world.files)), suspect=True
    )
    assert (writer.written, writer.generation) == (4, 2)
    assert read_all(world.files, 4) == before
    names = [layout.parse_segment_name(name) for name in world.files.listdir(PATH)]
    fresh = [name for name in names if name is not None and name.generation == 2]
    assert [name.base_seq for name in fresh] == [2]
    writer.append([encode([b"next"])], 9)
    assert (writer.generation, writer.sync()) == (2, 5)


def test_what_was_copied_does_not_come_back_when_retention_takes_the_copy() -> None:
    world = World()
    for step in ("append", "sync", "roll", "append", "append"):
        world.run(step)
    promises = Promises(f"{PATH}/promises", world.files)
    writer = LogWriter.open(PATH, files=world.files, options=OPTIONS, order=Sole(promises), suspect=True)
    writer.append([encode([bytes(OPTIONS.segment_bytes - layout.DATA_START - 512)])], 9)
    writer.sync()
    writer.set_first(writer.end_offset)
    for ref in writer.expired(writer.durable):
        world.files.unlink(ref.path)
        world.files.unlink(ref.index_path)
    found = list(scan(world.files, PATH))
    assert [each.batch.seq for each in found if isinstance(each, Good)] == [writer.written]
    assert not any(isinstance(each, Bad) for each in found)


def read_all(files: RecordingFiles, limit: int) -> list[bytes]:
    cursor = LogReader(PATH, files, limit=lambda: limit).cursor(0)
    found = []
    while (chunk := cursor.next()) is not None:
        found += [bytes(batch.buffer) for batch in chunk.batches]
    return found


@pytest.fixture
def descriptors() -> Iterator[list[int]]:
    """Every descriptor this process may have, taken; closing one frees one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []

    def take() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 20, hard))
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return

    held.append(os.open("/dev/null", os.O_RDONLY))
    take()
    yield held
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_too_many_open_files_refuse_a_roll_and_leak_nothing(tmp_path, request) -> None:
    files = Files()
    promises = Promises(f"{tmp_path}/promises", files)
    writer = LogWriter.create(f"{tmp_path}/log", files=files, log_id=LOG_ID, order=Sole(promises), options=OPTIONS)
    writer.append([encode([b"0"])], 1)
    before = open_descriptors()
    held, refused, written = request.getfixturevalue("descriptors"), 0, 1
    while writer.generation == 1 and written < 4:
        try:
            writer.append([encode([b"%d" % written, b"." * 15_000])], 1)
            written += 1
        except StorageFull:
            refused += 1
            os.close(held.pop())
    assert refused >= 2, "a roll needs two descriptors more"
    while held:
        os.close(held.pop())
    writer.append([encode([b"%d" % written])], 1)
    writer.sync()
    assert open_descriptors() <= before
    assert values(writer) == [b"%d" % number for number in range(written + 1)]
    writer.close()


def values(writer: LogWriter) -> list[bytes]:
    cursor, found = writer.reader().cursor(0), []
    while (chunk := cursor.next()) is not None:
        found += [batch.values()[0] for batch in chunk.batches]
    return found
