"""How a task ended is found in the log again: after restarts, crashes, lost files and full disks."""

from __future__ import annotations

import errno

import pytest
from penstock.broker.engine.logs.finals import in_rows
from penstock.broker.engine.logs.partition import Partition
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.broker.errors import Unavailable
from penstock.storage.finals import CHUNK, Final, Outcome, final_of
from support.bad_sectors import BadSectors
from support.engine import MemoryStore, Rig
from support.files import RecordingFiles

RESULT, DISCARDED, CANCELLED = Outcome


def partition(rig: Rig) -> Partition:
    (found,) = rig.node._registry.partitions.values()
    return found


def log(rig: Rig, *effects: fx.AnyEffect) -> int:
    """Have effects committed; their seq."""
    for effect in effects:
        partition(rig).propose(effect)
    rig.turn()
    return partition(rig).seq


def started(store: MemoryStore | None = None) -> tuple[Rig, dict[int, Final | None]]:
    """A rig whose group has ended records in all ways, and how."""
    rig = Rig(store)
    topic = rig.topic()
    rig.produce(topic, [b"value"] * 12)
    settings = QueueSettings().named()
    log(rig, fx.QueueSet("g", settings, 0), fx.LeaseGranted("g", 1, "w", 9, [(0, 8, 1)], 8))
    died = log(
        rig, fx.TasksDied("g", 1, [(4, 2, 1)], "no"), fx.TasksFinished("g", 1, [(0, 4)], [(1, b"one"), (2, b"2")])
    )
    later = log(rig, fx.TasksDiscarded("g", [(4, 2)]), fx.TasksCancelled("g", [10]))
    ends: dict[int, Final | None] = dict.fromkeys(range(12))
    ends |= {1: Final(RESULT, died), 2: Final(RESULT, died), 4: Final(DISCARDED, later), 5: Final(DISCARDED, later)}
    return rig, ends | {10: Final(CANCELLED, later)}


def looked(rig: Rig) -> dict[int, Final | None]:
    return {offset: partition(rig).finals.look("g", offset) for offset in range(12)}


def test_what_ended_with_something_to_tell_has_a_word_and_a_plain_ack_has_none() -> None:
    rig, ends = started()
    assert looked(rig) == ends
    assert partition(rig).committed.queues.by_name["g"].finals == 5


def test_nothing_is_written_for_a_group_that_acks_plainly() -> None:
    rig = Rig()
    rig.produce(rig.topic(), [b"value"] * 3)
    log(rig, fx.QueueSet("g", QueueSettings().named(), 0), fx.LeaseGranted("g", 1, "w", 9, [(0, 3, 1)], 3))
    log(rig, fx.TasksFinished("g", 1))
    rig.restart()
    assert not [name for name in rig.store.files.contents if "finals" in name]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("boot", [True, False])
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("snapshot", [True, False])
def test_it_is_found_again_after_any_restart(clean: bool, boot: bool, lost: bool, snapshot: bool) -> None:
    """`boot`: of the machine; `lost`: what was not synced is gone, as if the power had been cut."""
    rig, ends = started()
    if snapshot:
        rig.node._upkeep.snapshot(partition(rig).history)
    if clean:
        rig.node.close(rig.now)
    if boot:
        rig.store.boot_id = b"else" * 4
        if lost and not clean:
            for name in [name for name in rig.store.files.contents if "finals" in name]:
                rig.store.files.unlink(name)
    rig.restart(clean=False)
    assert looked(rig) == ends
    rig.restart()
    assert looked(rig) == ends


def test_after_a_clean_close_another_boot_reads_no_batch_again() -> None:
    rig, ends = started()
    rig.node.close(rig.now)
    for name in [name for name in rig.store.files.contents if "finals" in name and name[-21] == "-"]:
        file = rig.store.files.open(name, write=True)
        file.pwritev([bytes(file.size() - 1), b"\x01"], 0)  # so that a second writing would be seen
    rig.store.boot_id = b"else" * 4
    rig.restart(clean=False)
    assert looked(rig) == dict.fromkeys(range(12))
    assert any(ends.values())


def words_of(rig: Rig) -> list[str]:
    return [name for name in rig.store.files.contents if "finals" in name and name[-21] == "-"]


@pytest.mark.parametrize("other_boot", [False, True])
def test_words_that_became_zeros_are_missed_aloud_and_written_again_at_the_start(other_boot: bool) -> None:
    rig, ends = started()
    for name in words_of(rig):
        data = rig.store.files.contents[name].data
        data[:] = bytes(len(data))
    with pytest.raises(Unavailable, match="nothing but zeros"):
        partition(rig).finals.look("g", 1)
    if other_boot:
        rig.store.boot_id = b"else" * 4
    rig.restart()
    assert looked(rig) == ends


@pytest.mark.parametrize("other_boot", [False, True])
def test_words_that_are_gone_at_a_start_are_written_again(other_boot: bool) -> None:
    rig, ends = started()
    rig.node.close(rig.now)
    for name in words_of(rig):
        rig.store.files.unlink(name)
    if other_boot:
        rig.store.boot_id = b"else" * 4
    rig.restart(clean=False)
    assert looked(rig) == ends


def test_words_that_go_while_they_are_needed_are_missed_aloud() -> None:
    rig, ends = started()
    for name in words_of(rig):
        rig.store.files.unlink(name)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"is gone.*start the broker again"):
            partition(rig).finals.look("g", 1)
    rig.node._upkeep.snapshot(partition(rig).history)
    rig.restart()
    assert looked(rig) == ends


@pytest.mark.parametrize("dashes", [1, 2])
def test_files_that_the_disk_cannot_read_are_missed_aloud_and_written_again_at_the_start(dashes: int) -> None:
    """`dashes`: in the name of the header, which look-ups do without, or of a file of words."""
    files = BadSectors()
    rig, ends = started(MemoryStore(files))
    (path,) = [path for path in files.contents if "finals" in path and path.rpartition("/")[2].count("-") == dashes]
    files.bad.add((path, 0))
    if dashes == 2:
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"Input/output error.*start the broker again"):
                partition(rig).finals.look("g", 1)
    rig.restart(clean=False)
    assert files.refused
    assert looked(rig) == ends


def test_a_look_up_that_cannot_read_for_now_is_asked_again() -> None:
    files = RecordingFiles()
    rig, ends = started(MemoryStore(files))
    files.fail("open", 1, errno.EACCES)
    with pytest.raises(OSError, match="EACCES"):
        partition(rig).finals.look("g", 1)
    files.heal()
    assert looked(rig) == ends


def test_a_deleted_group_is_not_remembered_by_one_of_the_same_name() -> None:
    rig, _ = started()
    log(rig, fx.QueueDeleted("g"))
    log(rig, fx.QueueSet("g", QueueSettings().named(), 0))
    assert looked(rig) == dict.fromkeys(range(12))
    rig.restart(clean=False)
    assert looked(rig) == dict.fromkeys(range(12))


def test_a_full_disk_is_said_and_the_next_start_writes_what_is_missing() -> None:
    files = RecordingFiles()
    rig, ends = started(MemoryStore(files))
    finals = partition(rig).finals
    files.fail("write", 1)
    finals.noted("g", [(RESULT, 11, 1)])
    finals.batch_applied(partition(rig).seq)
    files.heal()
    with pytest.raises(Unavailable, match=r"could not be written .*start the broker again"):
        finals.look("g", 1)
    rig.node._upkeep.snapshot(partition(rig).history)
    rig.restart()
    assert looked(rig) == ends


def test_words_of_files_below_the_first_offset_go() -> None:
    rig, ends = started()
    finals = partition(rig).finals
    finals.noted("g", [(RESULT, CHUNK, 1)])
    finals.batch_applied(9)
    finals.trimmed(["g"], CHUNK - 1)
    assert finals.look("g", 1) == ends[1]
    finals.trimmed(["g"], CHUNK)
    assert (finals.look("g", 1), finals.look("g", CHUNK)) == (None, Final(RESULT, 9))


def test_records_that_follow_each_other_are_one_row() -> None:
    rows = list(in_rows([(RESULT, 7, 1), (DISCARDED, 2, 3), (CANCELLED, 5, 1), (RESULT, 8, 1)], 3))
    shown = [(first, [final_of(int(value)) for value in words]) for first, words in rows]
    assert shown == [
        (2, [*[Final(DISCARDED, 3)] * 3, Final(CANCELLED, 3)]),
        (7, [Final(RESULT, 3)] * 2),
    ]
    assert list(in_rows([], 3)) == []
