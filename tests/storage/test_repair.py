"""Repair puts right what can be, gives up only what it is told to, and a writer goes on afterwards."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

import pytest
from penstock.storage import layout, lock, log_ids, snapshots
from penstock.storage.accepted import Accepted, write_accepted
from penstock.storage.batch import encode
from penstock.storage.errors import AlreadyOpen, Corrupt
from penstock.storage.files import Files
from penstock.storage.log import LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.repair import repair
from penstock.storage.scan import Good, scan
from penstock.storage.verify import verify
from support.logs import LOG_ID, Built, add_snapshots, build, content, copy_of, put

FINALS = "finals-" + "0" * 32 + "-" + "0" * 20
NOW = 1_800_000_000_000_000


def edit(built: Built, path: str, position: int, data: bytes) -> None:
    old = content(built.files, path)
    put(built.files, path, old[:position] + data + old[position + len(data) :])


def goods(built: Built) -> list[int]:
    return [found.batch.seq for found in scan(built.files, built.directory) if isinstance(found, Good)]


def append_one(built: Built) -> int:
    """What the next writer does: open, append, sync, close. Returns the offset it got."""
    log = LogWriter.open("/log", files=built.files, order=Sole(Promises("/log/promises", built.files)))
    (appended,) = log.append([encode([b"after the repair"])], NOW)
    log.sync()
    log.close()
    return appended.base_offset


def test_a_log_in_order_needs_nothing() -> None:
    built = build()
    add_snapshots(built, 2, 4)
    done = repair(built.files, "/log", now_us=NOW)
    assert done.actions == []
    assert done.after.clean


def test_an_index_is_rebuilt_byte_for_byte() -> None:
    built = build(shape=[(2, 0, 1), (3, 1)])
    whole = [content(built.files, built.index_path(i)) for i in (0, 1)]
    edit(built, built.index_path(0), layout.index_position(1, 2), b"\xff" * 40)
    built.files.unlink(built.index_path(1))
    done = repair(built.files, "/log", now_us=NOW)
    assert len(done.actions) == 2
    assert all("rebuild" in action for action in done.actions)
    assert [content(built.files, built.index_path(i)) for i in (0, 1)] == whole
    assert done.after.clean


@pytest.mark.parametrize("which", [0, 1])
def test_a_segments_header_is_rebuilt_byte_for_byte(which: int) -> None:
    built = build(shape=[(2, 0, 1), (3, 1)])
    whole = content(built.files, built.segment_path(which))
    edit(built, built.segment_path(which), 41, b"\xff")
    done = repair(built.files, "/log", now_us=NOW)
    assert done.actions == [f"rebuild the header of {built.segment_path(which)}"]
    assert content(built.files, built.segment_path(which)) == whole
    assert done.after.clean


def test_a_torn_tail_is_cut_into_a_new_generation_and_writing_goes_on() -> None:
    built = build(shape=[(2, 0, 1)], unmarked=2)
    edit(built, built.segment_path(), built.places[3][1] + 256, b"\xff")
    done = repair(built.files, "/log", now_us=NOW)
    assert len(done.actions) == 1
    assert done.actions[0].startswith(f"cut {built.segment_path()} at {built.places[3][1]}")
    assert done.after.clean
    assert [s.generation for s in done.after.segments] == [1, 2]
    assert append_one(built) == 2
    assert goods(built)[:2] == [1, 2]
    assert verify(built.files, "/log").clean


def test_a_poisoned_log_is_cut_at_its_mark() -> None:
    built = build(shape=[(2, 0, 1)], unmarked=2)
    put(built.files, "/log/poison", b"fdatasync said EIO\ndurable up to seq 1")
    done = repair(built.files, "/log", now_us=NOW)
    assert done.actions == ["cut at the last mark, because a sync failed: fdatasync said EIO\ndurable up to seq 1"]
    assert goods(built) == [1]
    assert not built.files.exists("/log/poison")
    assert done.after.clean
    assert append_one(built) == 2


def test_a_damaged_snapshot_is_dropped_for_the_one_before() -> None:
    built = build()
    add_snapshots(built, 2, 4)
    edit(built, "/log/snapshot-00000000000000000004", 64, b"!")
    done = repair(built.files, "/log", now_us=NOW)
    assert len(done.actions) == 1
    assert [s.seq for s in done.after.snapshots] == [2]
    assert done.after.clean


def test_the_last_snapshot_that_could_reach_the_log_is_never_dropped_but_set_aside() -> None:
    built = build(shape=[(1, 1), (1, 1)])
    add_snapshots(built, 2)
    built.files.unlink(built.segment_path(0))
    built.files.unlink(built.index_path(0))
    edit(built, "/log/snapshot-00000000000000000002", 64, b"!")
    assert not repair(built.files, "/log", now_us=NOW).actions
    damaged = content(built.files, "/log/snapshot-00000000000000000002")
    done = repair(built.files, "/log", now_us=NOW, accept_loss=True)
    assert content(built.files, "/log/snapshot-00000000000000000002.lost") == damaged
    assert done.after.clean


def test_damage_is_left_alone_unless_its_loss_is_accepted() -> None:
    built = build(shape=[(2, 2, 2)])
    edit(built, built.segment_path(), built.places[2][1] + 256, b"\xff")
    done = repair(built.files, "/log", now_us=NOW)
    assert (done.actions, done.after.ok) == ([], False)
    done = repair(built.files, "/log", now_us=NOW, accept_loss=True)
    assert done.actions == ["accept the loss of offsets 2 to 3"]
    assert (done.after.ok, done.after.accepted[0].time_us) == (True, NOW)
    assert goods(built) == [1, 3]
    assert repair(built.files, "/log", now_us=NOW, accept_loss=True).actions == []
    assert append_one(built) == 6


def zero_first_page(built: Built, which: int) -> None:
    """The header, both marks and the header of the first batch."""
    edit(built, built.segment_path(which), 0, bytes(layout.DATA_START + 128))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("shape", [[(2, 0, 1), (3, 1, 2)], [(2, 0, 1), (3, 1, 2), (1,)]])
def test_a_first_page_is_written_anew_and_only_the_batch_behind_it_is_lost(
    which: int, shape: list[tuple[int, ...]]
) -> None:
    built = build(shape=shape)
    zero_first_page(built, which)
    lost = built.names[which].base_seq
    if which == 0:
        with pytest.raises(Corrupt, match="accept-loss"):
            append_one(built)
    done = repair(built.files, "/log", now_us=NOW, accept_loss=True)
    assert done.after.ok
    assert goods(built) == [seq for seq in built.batches if seq != lost]
    assert append_one(built) == built.end.offset
    assert verify(built.files, "/log").ok


@pytest.mark.parametrize("length", [0, 63, layout.DATA_START])
def test_a_log_of_which_nothing_is_left_goes_on_at_the_offset_that_its_index_names(length: int) -> None:
    built = build(shape=[(2, 0, 1)])
    put(built.files, built.segment_path(), content(built.files, built.segment_path())[:length])
    if length:
        edit(built, built.segment_path(), 0, bytes(length))
    with pytest.raises(Corrupt, match="no segment in /log"):
        append_one(built)
    done = repair(built.files, "/log", now_us=NOW, accept_loss=True)
    assert "accept the loss of offsets 0 to 2" in done.actions
    assert append_one(built) == 3
    assert LogWriter.open("/log", files=built.files, order=Sole(Promises("/p", built.files))).log_id == LOG_ID
    assert goods(built) == [4]


def test_a_log_without_segments_and_indexes_that_say_anything_begins_anew() -> None:
    built = build(shape=[(2, 0, 1)])
    put(built.files, built.segment_path(), b"")
    put(built.files, built.index_path(), b"")
    assert repair(built.files, "/log", now_us=NOW, accept_loss=True).after.ok
    assert append_one(built) == 0


def test_a_segment_of_which_nothing_says_where_it_begins_is_set_aside_or_refused() -> None:
    built = build(shape=[(2, 0, 1), (3, 1), (1,)])
    for which in (0, 2):
        for path in (built.segment_path(which), built.index_path(which)):
            built.files.unlink(path)
    put(built.files, built.index_path(1), b"")
    zero_first_page(built, 1)
    before = content(built.files, built.segment_path(1))
    with pytest.raises(Corrupt, match="restore it from a copy"):
        repair(built.files, "/log", now_us=NOW, accept_loss=True)
    assert content(built.files, built.segment_path(1)) == before
    add_snapshots(built, 6)
    beside = build(built.files, "/other", shape=[(2, 0, 1), (3, 1), (1,)])
    for path in (beside.segment_path(2), beside.index_path(2)):
        built.files.rename(path, path.replace("/other", "/log"))
    done = repair(built.files, "/log", now_us=NOW, accept_loss=True)
    said = f"set {built.segment_path(1)} aside as {built.segment_path(1)}.lost: nothing says at which offset it begins"
    assert said in done.actions
    assert append_one(built) == 8


def test_a_rebuilt_index_has_no_row_for_what_is_damaged() -> None:
    built = build(shape=[(2, 2, 2)])
    whole = content(built.files, built.index_path())
    edit(built, built.segment_path(), built.places[2][1] + 256, b"\xff")
    built.files.unlink(built.index_path())
    repair(built.files, "/log", now_us=NOW)
    rebuilt = content(built.files, built.index_path())
    start = layout.index_position(1, 2)
    assert rebuilt == whole[:start] + bytes(64) + whole[start + 64 :]


def test_a_dry_run_says_the_same_and_does_nothing() -> None:
    built = build(shape=[(2, 2, 2)], unmarked=1)
    add_snapshots(built, 1, 2)
    edit(built, built.segment_path(), built.places[1][1] + 256, b"\xff")
    edit(built, built.segment_path(), built.places[3][1] + 256, b"\xff")
    edit(built, "/log/snapshot-00000000000000000002", 64, b"!")
    built.files.unlink(built.index_path())
    before = {name: content(built.files, f"/log/{name}") for name in built.files.listdir("/log")}
    planned = repair(built.files, "/log", now_us=NOW, accept_loss=True, dry_run=True).actions
    after = {name: content(built.files, f"/log/{name}") for name in built.files.listdir("/log") if name != "lock"}
    assert after == before
    assert repair(built.files, "/log", now_us=NOW, accept_loss=True).actions == planned
    assert len(planned) == 4


def outcome(built: Built, files: Files, *, accept_loss: bool, dry_run: bool) -> list[str] | str:
    try:
        return repair(files, built.directory, now_us=NOW, accept_loss=accept_loss, dry_run=dry_run).actions
    except Corrupt as error:
        return error.message


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_dry_run_says_the_same_whatever_is_damaged(accept_loss: bool) -> None:
    chance = random.Random(1)
    seen: set[str] = set()
    for _ in range(60):
        built = build(shape=[(2, 0, 1), (3, 1, 2), (1, 2)], unmarked=chance.choice([0, 0, 1]))
        add_snapshots(built, *chance.choice([(), (4,), (2, 6), (7,)]))
        for name in chance.sample(sorted(built.files.listdir("/log")), 2):
            path = f"/log/{name}"
            size = len(content(built.files, path))
            position, length = chance.choice([(0, 4300), (0, 600), (600, 3000), (size // 2, size // 2), (0, size)])
            if chance.random() < 0.2:
                built.files.unlink(path)
            else:
                edit(built, path, min(position, size), bytes(min(length, size - min(position, size))))
        files = copy_of(built)
        before = {name: content(files, f"/log/{name}") for name in files.listdir("/log")}
        planned = outcome(built, files, accept_loss=accept_loss, dry_run=True)
        assert {name: content(files, f"/log/{name}") for name in files.listdir("/log") if name != "lock"} == before
        done = outcome(built, files, accept_loss=accept_loss, dry_run=False)
        assert planned == done
        seen |= {action.split()[0] for action in done} if isinstance(done, list) else {"refused"}
    assert seen >= ({"rebuild", "drop", "accept", "write", "give"} if accept_loss else {"rebuild", "drop"})


def test_what_is_set_aside_never_takes_the_name_of_what_was_set_aside_before(tmp_path: Path) -> None:
    built = build(Files(), f"{tmp_path}/log", shape=[(2, 0, 1)])
    place = Path(built.index_path())
    for number, name in enumerate([f"{place}.lost", f"{place}.2.lost", f"{place}.3.lost"]):
        place.unlink()
        place.mkdir()
        (place / str(number)).touch()
        (action, *_) = repair(built.files, built.directory, now_us=NOW).actions
        assert action.startswith(f"set {place} aside as {name}: ")
        assert [path.name for path in Path(name).iterdir()] == [str(number)]


def test_repairing_twice_finds_nothing_the_second_time() -> None:
    built = build(shape=[(2, 2), (2, 2)], unmarked=1)
    edit(built, built.segment_path(), built.places[4][1] + 256, b"\xff")
    edit(built, built.segment_path(0), 41, b"\xff")
    built.files.unlink(built.index_path(0))
    assert repair(built.files, "/log", now_us=NOW).after.clean
    assert repair(built.files, "/log", now_us=NOW).actions == []


def test_a_log_that_somebody_writes_is_not_repaired() -> None:
    built = build()
    held = lock.take_head("/log/lock", built.files, endpoint="ipc:///run/penstock.sock")
    with pytest.raises(AlreadyOpen, match=r"ipc:///run/penstock\.sock"):
        repair(built.files, "/log", now_us=NOW)
    held.release()
    assert repair(built.files, "/log", now_us=NOW).after.clean
    assert repair(built.files, "/log", now_us=NOW).after.clean, "the lock was given back"


def test_a_missing_directory_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="no log in /nowhere"):
        repair(build().files, "/nowhere", now_us=NOW)


@pytest.mark.parametrize("kind", ["directory", "link", "socket"])
@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000001-00000001.index",
        "accepted",
        snapshots.file_name(2),
        "poison",
        "poison.new",
        "board",
        FINALS,
    ],
)
def test_what_is_no_file_and_can_be_done_without_is_set_aside(tmp_path: Path, name: str, kind: str) -> None:
    directory = f"{tmp_path}/log"
    built = build(Files(), directory, shape=[(2, 0, 1)])
    place = tmp_path / "log" / name
    place.unlink(missing_ok=True)
    if kind == "directory":
        (place / "inside").mkdir(parents=True)
    elif kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(place.parent):
            bound.bind(name)
    found = verify(built.files, directory)
    assert (found.strangers, found.clean) == ([str(place)], False)
    planned = repair(built.files, directory, now_us=NOW, dry_run=True).actions
    done = repair(built.files, directory, now_us=NOW)
    assert planned == done.actions
    assert f"set {place} aside as {place}.lost: a directory, a link or a socket where a file belongs" in done.actions
    assert done.after.clean
    assert f"{name}.lost" in built.files.listdir(directory)
    order = Sole(Promises(f"{directory}/promises", built.files))
    LogWriter.open(directory, files=built.files, order=order).close()
    assert repair(built.files, directory, now_us=NOW).actions == []


def test_a_spare_that_is_no_file_stands_in_no_way(tmp_path: Path) -> None:
    directory = f"{tmp_path}/log"
    built = build(Files(), directory, shape=[(2, 0, 1)])
    (tmp_path / "log" / "spare-x").mkdir()
    LogWriter.open(directory, files=built.files, order=Sole(Promises(f"{directory}/promises", built.files))).close()
    assert repair(built.files, directory, now_us=NOW).after.clean


def test_a_segment_that_is_no_file_is_left_to_people_until_its_loss_is_accepted(tmp_path: Path) -> None:
    directory = f"{tmp_path}/log"
    built = build(Files(), directory, shape=[(2, 0, 1), (2, 1)])
    place = Path(built.segment_path())
    place.unlink()
    place.mkdir()
    done = repair(built.files, directory, now_us=NOW)
    (bad,) = done.after.unaccepted
    assert (bad.file, bad.first_seq, bad.next_seq, bad.offset) == (str(place), 4, None, 3)
    assert bad.reason == "a directory, a link or a socket where a file belongs"
    assert place.is_dir()
    done = repair(built.files, directory, now_us=NOW, accept_loss=True)
    assert done.after.ok
    assert Path(f"{place}.lost").is_dir()
    order = Sole(Promises(f"{directory}/promises", built.files))
    LogWriter.open(directory, files=built.files, order=order).close()


GONE = f"data/topics/{'1a' * 16}/0"


@pytest.mark.parametrize("left", ["nothing", "an empty directory", "all but segments"])
def test_a_partition_that_is_gone_is_damage_until_it_is_made_anew(left: str) -> None:
    built = build(directory=GONE, shape=[(2, 0, 1)], log_id=log_ids.own_id(GONE))
    files = built.files
    snapshots.save(files, GONE, 2, 1, b"state", log_ids.own_id(GONE))
    write_accepted(files, GONE, [Accepted(built.segment_path(), 0, 2, None, 2, None, "gone before", NOW)])
    for name in files.listdir(GONE):
        if left != "all but segments" or name.endswith(".segment"):
            files.unlink(f"{GONE}/{name}")
    if left == "nothing":
        files.remove_tree(GONE)
    done = repair(files, GONE, now_us=NOW)
    assert done.actions == []
    (bad,) = done.after.unaccepted
    assert (bad.file, bad.reason, bad.next_offset) == (GONE, "the log is gone: no segment of it is there", None)
    planned = repair(files, GONE, now_us=NOW, accept_loss=True, dry_run=True)
    assert not planned.before.ok
    done = repair(files, GONE, now_us=NOW, accept_loss=True)
    assert done.actions == planned.actions
    assert "make an empty log" in done.actions[0]
    assert done.after.clean
    assert done.after.accepted == []
    log = LogWriter.open(GONE, files=files, order=Sole(Promises("data/promises", files)))
    assert (log.written, log.end_offset) == (0, 0)
    assert log.log_id != log_ids.own_id(GONE), "another incarnation is another log"
    log.close()
    assert verify(files, GONE).clean


def test_an_index_without_batches_is_rebuilt_once() -> None:
    built = build(shape=[[]])
    whole = content(built.files, built.index_path())
    built.files.unlink(built.index_path())
    assert repair(built.files, "/log", now_us=NOW).actions == [f"rebuild {built.index_path()}: missing"]
    assert content(built.files, built.index_path()) == whole
    assert repair(built.files, "/log", now_us=NOW).actions == []


@pytest.mark.parametrize("index", ["whole", "with a wrong row"])
def test_the_index_of_a_segment_that_says_nothing_any_more_is_left_until_the_loss_is_accepted(index: str) -> None:
    built = build(shape=[(2, 0, 1)])
    put(built.files, built.segment_path(), b"G" * len(content(built.files, built.segment_path())))
    if index != "whole":
        edit(built, built.index_path(), layout.index_position(1, 3), b"wrong")
    before = content(built.files, built.index_path())
    assert repair(built.files, "/log", now_us=NOW).actions == []
    assert content(built.files, built.index_path()) == before
    assert repair(built.files, "/log", now_us=NOW, accept_loss=True).after.ok
    assert append_one(built) == (3 if index == "whole" else 2)


def test_records_behind_a_lost_beginning_are_read_once_its_loss_is_accepted() -> None:
    built = build(shape=[(2, 0, 1), (3, 1)])
    for path in (built.segment_path(0), built.index_path(0)):
        built.files.unlink(path)
    reach = Accepted("/log", 0, 1, 4, 0, 3, "what an older version accepted, and no broker opened", NOW)
    write_accepted(built.files, "/log", [reach])
    assert not verify(built.files, "/log").ok
    done = repair(built.files, "/log", now_us=NOW, accept_loss=True)
    assert done.after.clean
    assert "what batches 1 to 3 held is given up, and what they did, too" in done.actions[0]
    assert goods(built) == [4, 5]
    assert snapshots.load_newest(built.files, "/log", LOG_ID, first_seq=done.after.first_seq) is None
    assert append_one(built) == 7


def test_a_snapshot_of_another_log_is_set_aside_as_it_is() -> None:
    built = build()
    snapshots.save(built.files, "/log", 2, 1, b"state of another", bytes(range(64, 80)))
    theirs = content(built.files, f"/log/{snapshots.file_name(2)}")
    assert repair(built.files, "/log", now_us=NOW).after.clean
    assert content(built.files, f"/log/{snapshots.file_name(2)}.lost") == theirs
