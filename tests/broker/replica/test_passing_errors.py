"""Errors that may pass: they are no damage, nothing is removed for them, and a full disk is waited for."""

from __future__ import annotations

import errno
import os
from typing import Any

import msgspec
import pytest
from penstock.broker.keeper.unresolved_syncs import Doubt
from penstock.broker.member.doubts import suspects
from penstock.broker.raft.messages import Kind, Message
from penstock.broker.replica import catchup_messages as cm
from penstock.broker.replica.bodies import Gone, bodies_of
from penstock.broker.replica.catchup_messages import LogStart, ShippedLog
from penstock.broker.replica.checkpoint import Checkpoint
from penstock.broker.replica.damage import note, noted
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.broker.replica.errors import ReplicaBroken
from penstock.broker.replica.installing import _staged
from penstock.broker.replica.recovering import FULL_TICKS, _newest_checkpoint
from penstock.broker.replica.shipping import ManifestDraft
from penstock.broker.replica.staging import InstalledLog, StagedLog
from penstock.storage import runs, snapshots
from penstock.storage.data_directory import ASIDE
from penstock.storage.errors import Corrupt, StorageFull
from penstock.storage.log import LogOptions
from penstock.storage.recovery import NOTHING
from penstock.storage.room import RESERVE_BYTES
from support.damaged import a_follower, cut, damaged, is_whole, produce, rot, segments
from support.files import RecordingFiles
from support.logs import LOG_ID, build
from support.members import DATA, Member, Shard


def test_a_bad_sector_that_an_opening_meets_is_damage_that_heals():
    shard = Shard(20)
    topic = shard.topic("t")
    produce(shard, topic, 30)
    member = a_follower(shard)
    member.crash(power=False)
    files, path = member.files, segments(member, f"{DATA}/topics/{topic.hex()}/0")[0]
    files.disk(files.contents[path]).unreadable = errno.EIO
    shard.begin(member)
    assert member.recovery is not None
    found = noted(files, DATA)
    assert found is not None
    assert (found.paths, found.judged) == ([path], True)
    shard.until(lambda: is_whole(shard))
    assert any(name.startswith(f"{DATA}/{ASIDE}/") for name in files.contents), "nothing is removed for it"


def test_a_bad_sector_that_a_leader_meets_as_it_hands_a_log_out_costs_it_the_lead():
    """The third node has the log whole. The member asked this leader again and again."""
    shard, topic, member = damaged(24)
    leader = shard.leader
    assert leader is not None
    bad_sector(leader, topic)
    shard.until(lambda: member.recovery is None and is_whole(shard), rounds=400)
    produce(shard, topic, 1)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOMEM])
def test_a_bad_sector_in_a_batch_of_an_append_is_damage_of_that_log(code):
    shard = Shard(28)
    topic = shard.topic("t")
    produce(shard, topic, 1, INLINE_BYTES + 1)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    bad_sector(leader, topic, code)
    order, met = leader.replica.order, list[Corrupt]()
    entries = [order.entries(index, index + 1)[0] for index in range(1, order.last_index() + 1)]
    if code == errno.EIO:
        assert isinstance(bodies_of(entries, leader.replica.node, met.append), Gone)
        assert [damage.path for damage in met] == [f"{DATA}/topics/{topic.hex()}/0"]
    else:
        with pytest.raises(OSError, match=os.strerror(code)):
            bodies_of(entries, leader.replica.node, met.append)
        assert met == []


@pytest.mark.parametrize(("code", "told"), [(errno.EIO, Corrupt), (errno.ENOMEM, OSError)])
def test_a_bad_sector_that_a_manifest_meets_is_damage_of_that_log(code, told):
    shard = Shard(27)
    topic = shard.topic("t")
    produce(shard, topic, 60)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    files, log = leader.files, f"{DATA}/topics/{topic.hex()}/0"
    assert any(name.startswith(f"{log}/snapshot-") for name in files.contents)
    run = f"{log}/{runs.file_name(9)}"
    files.create(run, 64).close()
    files.disk(files.contents[run]).unreadable = code
    draft = ManifestDraft(leader.replica.checkpoint(), 0, leader.replica.logs())
    with pytest.raises(told) as raised:
        draft.step()
    assert getattr(raised.value, "path", log) == log


def bad_sector(member: Member, topic: bytes, code: int = errno.EIO) -> None:
    """The disk of a member does not hand out the first segment of a topic any more."""
    files = member.files
    files.disk(files.contents[segments(member, f"{DATA}/topics/{topic.hex()}/0")[0]]).unreadable = code


def test_files_of_others_between_topics_and_partitions_are_in_the_way_of_no_opening_and_no_state():
    shard = Shard(23)
    topic = shard.topic("t")
    produce(shard, topic, 30)
    member = a_follower(shard)
    left = [f"{DATA}/topics/.DS_Store", f"{DATA}/topics/{topic.hex()}/notes", f"{DATA}/topics/copy/0/notes"]
    for path in left:
        member.files.mkdir(path.rpartition("/")[0])
        member.files.create(path).close()
    assert member.replica is not None
    doubts: Any = Doubts()
    open_logs = {log.path for log in member.replica.node.logs}
    assert set(suspects(member.files, DATA, doubts)) - {f"{DATA}/order"} == open_logs
    member.crash(power=False)
    shard.begin(member)
    assert member.recovery is None
    member.crash(power=False)
    cut(member, segments(member, f"{DATA}/topics/{topic.hex()}/0")[0])
    shard.begin(member)
    assert member.recovery is not None
    shard.until(lambda: is_whole(shard))
    assert all(member.files.exists(path) for path in left)


class Doubts:
    """About every log."""

    def about(self, _: bytes) -> Doubt:
        return Doubt("", False)


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EACCES])
def test_what_keeps_an_opening_from_reading_now_is_no_damage(code):
    shard = Shard(21)
    topic = shard.topic("t")
    produce(shard, topic, 30)
    member = a_follower(shard)
    member.crash(power=False)
    disk = member.files.disk(member.files.contents[segments(member, f"{DATA}/topics/{topic.hex()}/0")[0]])
    disk.unreadable = code
    with pytest.raises(OSError, match="Errno"):
        member.start()
    assert noted(member.files, DATA) is None
    disk.unreadable = 0
    shard.begin(member)
    shard.until(lambda: is_whole(shard))


def test_a_sync_of_names_that_fails_at_an_opening_is_no_damage(monkeypatch):
    shard = Shard(22)
    member = a_follower(shard)
    member.crash(power=False)
    strange = f"{DATA}/topics/{bytes(16).hex()}/0"
    built = build(member.files, strange)
    monkeypatch.setattr(member.files, "sync_dir", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "failed")))
    with pytest.raises(OSError, match="failed"):
        member.start()
    assert built.batches
    assert noted(member.files, DATA) is None


@pytest.mark.parametrize(("code", "error"), [(errno.EMFILE, StorageFull), (errno.ENOMEM, OSError)])
def test_what_cannot_be_read_now_is_not_judged(code, error):
    files = RecordingFiles()
    built = build(files, "d/order", shape=((1, 1),))
    snapshots.save(files, "d/order", 2, 1, b"no checkpoint", LOG_ID)
    note(files, "d", "bad")
    wanted = InstalledLog(LOG_ID, b"", 0, False, 0, 2, built.end.checksum)
    for read in (
        lambda: noted(files, "d"),
        lambda: list(_staged(files, "d/order", wanted)),
        lambda: _newest_checkpoint(files, "d", LOG_ID),
    ):
        files.fail("open", 1, code)
        with pytest.raises(error):
            read()
    found = noted(files, "d")
    assert found is not None
    assert found.reason == "bad"
    files.fail("open", 1, errno.EIO)
    found = noted(files, "d")
    assert found is not None
    assert "cannot be read" in found.reason, "it is damaged, whatever it has lost"
    assert _newest_checkpoint(files, "d", LOG_ID) is None


def test_what_was_staged_stays_where_it_cannot_be_opened_now():
    files = RecordingFiles()
    batches = list(build(shape=((1, 1),)).batches.values())
    shipped = ShippedLog(LOG_ID, b"", 0, LogStart(0, 0, 0, 0, 0), 3, 0, [])

    def staged() -> StagedLog:
        return StagedLog(shipped, "d/staged/log", files, start=NOTHING, replaced=True)

    first = staged()
    first.open(LogOptions())
    first.add_batches(batches)
    first.close(clean=True)
    for kind in ("open", "sync_dir"):
        files.fail(kind, 1, errno.EMFILE)
        if kind == "open":
            with pytest.raises(StorageFull):
                staged().open(LogOptions())
    files.heal()
    again = staged()
    again.open(LogOptions())
    assert again.written == 2


def test_a_recovering_member_fetches_nothing_while_its_disk_is_full_and_goes_on_once_there_is_room():
    shard, _, member = damaged(30)
    recovery, starts = member.recovery, member.starts
    assert recovery is not None
    recovery.room.own = RESERVE_BYTES // 2 - 1
    shard.rounds(60)
    assert (member.recovery, member.starts, recovery.catching_up.fetched_bytes) == (recovery, starts, 0)
    assert recovery.leader, "it hears of one"
    recovery.room.own = RESERVE_BYTES // 2
    shard.until(lambda: is_whole(shard))


@pytest.mark.parametrize("use", [1, 2, 3, 4, 6, 9, 14])
def test_a_piece_that_finds_no_room_is_fetched_later_by_the_same_replica(use):
    shard, topic, member = damaged(31)
    recovery, starts = member.recovery, member.starts
    assert recovery is not None
    member.files.full_at = use
    shard.until(lambda: recovery.refused)
    assert "no space is left" in recovery.refused
    assert recovery.waits
    shard.tick(member)
    assert recovery.catching_up.source == 0, "it asks for nothing"
    shard.rounds(FULL_TICKS - 40)
    assert (member.recovery, member.starts, recovery.catching_up.source) == (recovery, starts, 0)
    shard.until(lambda: is_whole(shard))
    assert member.starts == starts + 1, "to install what it has fetched"
    assert recovery.refused == ""
    assert shard.counts.get("closed by an error", 0) == 0
    produce(shard, topic, 2)


def test_a_manifest_that_comes_while_the_disk_is_full_is_as_good_as_lost():
    shard, _, member = damaged(32)
    recovery, leader = member.recovery, shard.leader
    assert recovery is not None
    assert leader is not None
    checkpoint = Checkpoint(entry=99, term=recovery.promised + 1, commit=99, acked=99, logs=[])
    manifest = cm.Manifest(99, msgspec.msgpack.encode(checkpoint), 0, [])
    said = Message(Kind.PIECE, member.number, leader.number, context=cm.encode(manifest))
    recovery.room.own = 0
    recovery.step(said)
    recovery.room.own = RESERVE_BYTES
    with pytest.raises(ReplicaBroken, match="is staged"):
        recovery.step(said)


def test_what_is_mended_is_noted_once_there_is_room(monkeypatch):
    shard = Shard(33)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    member, path = a_follower(shard), f"{DATA}/topics/{topic.hex()}/0"
    rot(member, topic, 0, b"4".ljust(3_000, b"."))
    member.crash(power=False)
    note(member.files, DATA, f"a batch of {path} cannot be read", path, judged=True)
    shard.begin(member)
    recovery, rewrite, full = member.recovery, member.files.rewrite, [True]
    assert recovery is not None

    def rewritten(name: str, content: bytes) -> None:
        if full:
            raise StorageFull("no space is left")
        rewrite(name, content)

    monkeypatch.setattr(member.files, "rewrite", rewritten)
    shard.until(lambda: recovery.refused)
    full.clear()
    shard.rounds(FULL_TICKS - 20)
    assert member.recovery is recovery
    shard.until(lambda: is_whole(shard))
    assert shard.counts["mended"] == 1
