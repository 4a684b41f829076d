"""Each rule of opening and acknowledging, switched off once: crash images show what it is for."""

from __future__ import annotations

import random

import pytest
from penstock.broker.replica import acked, opening, walk
from penstock.broker.replica.durable_prefix import DurablePrefix
from penstock.broker.replica.entries import batches_of
from penstock.broker.replica.errors import ReplicaDamaged
from penstock.broker.replica.order_log import OrderLog
from penstock.broker.replica.places import Places
from penstock.broker.replica.replicated import Replicated
from penstock.broker.replica.start import open_files
from penstock.storage import layout, log_ids, snapshots
from penstock.storage.batch import encode
from penstock.storage.errors import InvalidBatch
from penstock.storage.log import LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.segment import reference
from support.files import RecordingFiles
from support.replica_images import OPERATIONS, begun, hold
from support.replica_life import DATA, DIRECTORIES, IDS, LARGE, LOGS, OPTIONS, PATHS, Found, ReplicaWorld, copy_of


def life(*names: str) -> None:
    world, start = begun()
    for name in names:
        OPERATIONS[name](world)
    hold(world, start, random.Random(7), ("none", "some", "all"), again=0.0)


def test_with_every_rule_these_lives_hold():
    life("small", "sync_order", "large", "sync_order", "sync_log", "conflict", "small")


def test_without_appending_inlined_batches_again_acknowledged_entries_are_lost(monkeypatch):
    def only_named(type_, data):
        return ((flush, row._replace(position=0)) for flush, row in batches_of(type_, data))

    monkeypatch.setattr(walk, "batches_of", only_named)
    with pytest.raises((AssertionError, ReplicaDamaged)):
        life("small", "sync_order")


def test_without_waiting_for_named_batches_acknowledged_entries_are_lost(monkeypatch):
    appended = DurablePrefix.appended
    monkeypatch.setattr(DurablePrefix, "appended", lambda prefix, entry, named: appended(prefix, entry, []))
    with pytest.raises((AssertionError, ReplicaDamaged)):
        life("large", "sync_order")


def test_without_waiting_for_the_order_log_acknowledged_entries_are_lost(monkeypatch):
    advance = DurablePrefix.advance
    early = lambda prefix, order, durable: advance(prefix, order + 1, durable)  # noqa: E731
    monkeypatch.setattr(DurablePrefix, "advance", early)
    with pytest.raises((AssertionError, ReplicaDamaged)):
        life("small", "sync_log", "small", "sync_log")


def test_without_cutting_tails_at_opening_a_log_has_batches_that_no_entry_names(monkeypatch):
    monkeypatch.setattr(opening._Logs, "end_at", lambda logs, log, seq: False)
    with pytest.raises((AssertionError, ReplicaDamaged)):
        life("small", "sync_logs")


def test_without_ending_the_order_at_a_missing_batch_an_entry_names_what_is_not_there(monkeypatch):
    def lenient(entries, places, checksum):
        for entry in entries:
            named = [row for _, row in walk.batches_of(entry.kind, entry.data)]
            places.appended(entry.index, [walk.LogRow(row.log_id, row.seq, row.checksum) for row in named])
        return []

    monkeypatch.setattr(opening, "walk", lenient)
    with pytest.raises((AssertionError, ReplicaDamaged)):
        life("large", "sync_order")


def test_without_cutting_logs_at_a_conflict_the_next_batches_do_not_follow(monkeypatch):
    monkeypatch.setattr(ReplicaWorld, "go_back", lambda world, log, seq: None)
    with pytest.raises(InvalidBatch, match="which ends at"):
        life("small", "sync_order", "conflict", "small", "sync_order")


# -- damage is not taken for a tail ------------------------------------------------------------------


def settled() -> ReplicaWorld:
    world, _ = begun()
    for name in ("small", "large", "sync_logs", "sync_order", "commit", "checkpoint", "small"):
        OPERATIONS[name](world)
    world.close()
    return world


def opens(files: dict[str, bytes], world: ReplicaWorld) -> Found:
    return Found(files, [world.promised()])


def segments_of(path: str, files: dict[str, bytes]) -> list[str]:
    return [name for name in files if name.startswith(f"{path}/") and layout.parse_segment_name(name.rsplit("/", 1)[1])]


def test_a_log_that_is_missing_is_damage():
    world = settled()
    files = {name: data for name, data in copy_of(world.files).items() if not name.startswith(f"{PATHS[1]}/")}
    with pytest.raises(ReplicaDamaged, match="missing"):
        opens(files, world)


def test_a_log_that_ends_before_its_place_is_damage():
    world = settled()
    other, _ = begun()
    files, older = copy_of(world.files), copy_of(other.files)
    files = {path: data for path, data in files.items() if not path.startswith(f"{PATHS[1]}/")}
    files |= {path: data for path, data in older.items() if path.startswith(f"{PATHS[1]}/")}
    with pytest.raises(ReplicaDamaged):
        opens(files, world)


def test_a_log_below_its_newest_snapshot_is_damage_and_the_snapshot_stays():
    world = settled()
    files = RecordingFiles(copy_of(world.files), DIRECTORIES)
    snapshots.save(files, PATHS[0], 99, 2, b"state", LOGS[0])
    with pytest.raises(ReplicaDamaged, match="lost what was durable"):
        opens(copy_of(files), world)


def test_an_order_below_what_was_acknowledged_is_damage():
    """It names a batch that its log never had, as far as that can tell: only the checkpoint knows better."""
    world, _ = begun()
    before = copy_of(world.files)
    world.flush([0, LARGE, 10])
    for name in ("sync_logs", "sync_order"):
        OPERATIONS[name](world)
    world.checkpoint()
    files = copy_of(world.files)
    for path in segments_of(PATHS[1], files):
        files[path] = before[path]
    for path in segments_of(f"{DATA}/order", files):
        files[path] = files[path][: acked.POSITION] + bytes(64) + files[path][acked.POSITION + 64 :]
    with pytest.raises(ReplicaDamaged, match="was acknowledged here"):
        opens(files, world)


def without_the_named_batch(world: ReplicaWorld) -> dict[str, bytes]:
    """What is left where a log loses a batch that only it has, and that was acknowledged after the last checkpoint."""
    before = copy_of(world.files)
    world.flush([0, LARGE, 10])
    for name in ("sync_logs", "sync_order"):
        OPERATIONS[name](world)
    files = copy_of(world.files)
    for path in segments_of(PATHS[1], files):
        files[path] = before[path]
    return files


def test_an_order_below_what_its_own_segments_say_was_acknowledged_is_damage():
    world, _ = begun()
    files = without_the_named_batch(world)
    assert world.prefix.entry == world.order.last_index()
    with pytest.raises(ReplicaDamaged, match="was acknowledged here"):
        opens(files, world)


@pytest.mark.parametrize("place", [0, 8, 31])
def test_a_sector_that_does_not_verify_says_nothing(place):
    world, _ = begun()
    files = without_the_named_batch(world)
    for path in segments_of(f"{DATA}/order", files):
        damaged = bytearray(files[path])
        damaged[acked.POSITION + place] ^= 1
        files[path] = bytes(damaged)
    order = OrderLog(f"{DATA}/order", RecordingFiles(files, DIRECTORIES), log_id=IDS.order, options=OPTIONS)
    assert list(acked.found(order.log)) == []


def committed(world: ReplicaWorld) -> list[int]:
    return [layout.split(word)[1] for word in acked.found(world.order.log, acked.COMMITTED)]


def test_what_the_order_says_is_committed_counts_where_no_checkpoint_does():
    world, _ = begun()
    for name in ("small", "sync_order", "commit", "small", "sync_order"):
        OPERATIONS[name](world)
    assert committed(world) == [world.commit]
    assert opens(copy_of(world.files), world).opened.order.commit == world.commit < world.prefix.entry
    world.order.commit = world.prefix.entry + 1
    world.order.note_acked(world.prefix.entry)
    assert committed(world) == [world.prefix.entry], "what is not durable here may yet be missing"


def test_an_order_below_what_its_own_segments_say_was_committed_is_damage():
    world, _ = begun()
    files = without_the_named_batch(world)
    world.commit_all()
    world.order.note_acked(world.prefix.entry)
    for path in segments_of(f"{DATA}/order", files):
        page = copy_of(world.files)[path][acked.COMMITTED : acked.COMMITTED + 32]
        files[path] = files[path][: acked.POSITION] + bytes(32) + page + files[path][acked.COMMITTED + 32 :]
    with pytest.raises(ReplicaDamaged, match="was acknowledged here"):
        opens(files, world)


def test_a_snapshot_of_a_batch_that_the_order_does_not_reach_is_damage():
    """The log has the batch, and so had the order: the state up to a batch is saved once that is committed."""
    world, _ = begun()
    before = copy_of(world.files)
    for name in ("small", "sync_logs", "sync_order", "commit"):
        OPERATIONS[name](world)
    log = world.logs[LOGS[0]]
    snapshots.save(world.files, PATHS[0], log.written, 2, b"state", LOGS[0])
    files = copy_of(world.files)
    opens(dict(files), world)
    for path in segments_of(f"{DATA}/order", files):
        files[path] = before[path]
    with pytest.raises(ReplicaDamaged, match=f"has a snapshot of batch {log.written}, which the order does not reach"):
        opens(files, world)


def test_what_was_acknowledged_and_then_cut_by_a_conflict_is_no_damage():
    world, _ = begun()
    for name in ("small", "commit", "small", "small", "sync_order", "conflict", "sync_order"):
        OPERATIONS[name](world)
    words = [layout.split(word) for word in acked.found(world.order.log)]
    assert max(entry for _, entry in words) >= world.order.last_index()
    opens(copy_of(world.files), world)


def on_a_disk(files: dict[str, bytes]) -> RecordingFiles:
    """The files, with a journal of promises."""
    disk = RecordingFiles(files, DIRECTORIES)
    disk.create(f"{DATA}/{layout.PROMISES}").close()
    return disk


def rotten_behind(world: ReplicaWorld, position: int) -> dict[str, bytes]:
    """The files, in which nothing verifies from a position of the order's newest segment on."""
    log, files = world.order.log, copy_of(world.files)
    path = reference(log.path, log.names[-1]).path
    files[path] = files[path][:position] + bytes([files[path][position] ^ 1]) + files[path][position + 1 :]
    return files


@pytest.mark.parametrize("suspect", [(), (f"{DATA}/order",)])
def test_an_order_that_has_rotted_above_its_mark_is_damage_where_that_was_acknowledged(suspect):
    """Where a sync never answered, what verifies is copied into a generation that begins at the mark."""
    world, _ = begun()
    log = world.order.log
    world.flush([10, 0, 10])
    position = log.end().position
    world.flush([10, 0, 10])
    log.sync(mark=False)
    world._advance()
    assert world.prefix.entry == log.written
    disk = on_a_disk(rotten_behind(world, position))
    names = sorted(disk.listdir(log.path))
    with pytest.raises(ReplicaDamaged, match=f"and {log.written} was acknowledged here"):
        open_files(disk, DATA, IDS, OPTIONS, suspect)
    assert sorted(disk.listdir(log.path)) == names, "a crash before that is noted forgets nothing"


def test_what_was_not_acknowledged_of_an_order_whose_sync_never_answered_is_cut():
    world, _ = begun()
    log, last = world.order.log, world.order.last_index()
    position = log.end().position
    world.flush([10, 0, 10])
    opened = open_files(on_a_disk(rotten_behind(world, position)), DATA, IDS, OPTIONS, [log.path])
    assert opened.order.last_index() == last


def test_what_another_leader_has_cut_is_not_missed_where_a_sync_never_answered():
    world, _ = begun()
    for name in ("small", "commit", "small", "small", "sync_order", "conflict", "sync_order"):
        OPERATIONS[name](world)
    words = [layout.split(word) for word in acked.found(world.order.log)]
    opened = open_files(on_a_disk(copy_of(world.files)), DATA, IDS, OPTIONS, [world.order.log.path])
    assert opened.order.last_index() == world.order.last_index() <= max(entry for _, entry in words)


def test_a_replica_without_a_checkpoint_does_not_open():
    world = settled()
    files = {name: data for name, data in copy_of(world.files).items() if "order/snapshot-" not in name}
    with pytest.raises(ReplicaDamaged, match="checkpoint"):
        opens(files, world)


def test_a_directory_that_no_entry_names_is_set_aside_and_kept():
    world = settled()
    files = copy_of(world.files)
    strange = f"{DATA}/topics/{bytes(16).hex()}/0"
    moved = MemoryFiles()
    order = Replicated(Places(0, {}))
    order.leading = 3
    log = LogWriter.create(strange, files=moved, log_id=log_ids.own_id(strange) or b"", order=order)
    log.append([encode([b"kept"])], 1)
    log.close()
    files.update(copy_of(moved))
    found = opens(files, world)
    (aside,) = found.opened.set_aside
    assert not found.files.exists(strange)
    assert found.files.listdir(aside)
