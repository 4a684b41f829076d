"""A log of a member that is gone, or lacks its beginning, is damage, whatever names it."""

from __future__ import annotations

import msgspec
import pytest
from penstock.broker.replica.beginning import ids_of
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.broker.replica.errors import ReplicaDamaged
from penstock.broker.replica.installing import install
from penstock.broker.replica.places import Places
from penstock.broker.replica.replicated import Replicated
from penstock.broker.replica.staging import InstalledLog, InstallRecord
from penstock.broker.replica.start import open_files
from penstock.storage import log_ids, snapshots
from penstock.storage.log import LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.promises import Promises
from penstock.storage.recovery import LogEnd
from penstock.transport import messages as m
from support.damaged import a_follower, flip, is_whole, produce, segments
from support.members import DATA, Shard
from support.order import stamped
from support.writeback import WritebackFiles


@pytest.mark.parametrize("size", [100, INLINE_BYTES + 1])
def test_a_log_that_is_gone_is_damage_where_only_the_order_names_it(size):
    shard = Shard(15, checkpoint_every=10_000)
    topic = shard.topic("t")
    produce(shard, topic, 4, size)
    member = a_follower(shard)
    member.crash(power=False)
    member.files.remove_tree(f"{DATA}/topics/{topic.hex()}")
    shard.begin(member)
    assert member.recovery is not None
    assert "missing" in member.recovery.damage.reason
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)


def small_segments(shard: Shard, **settings: int) -> bytes:
    """A topic of which a few records fill a segment."""
    made = shard.ask(lambda n: m.CreateTopic(n, "t", 2, {"segment_bytes": 65536, **settings}))
    return made.topics[0].topic


@pytest.mark.parametrize("size", [12_000, INLINE_BYTES + 1])
@pytest.mark.parametrize("behind", [0, 8])
def test_a_log_that_has_lost_its_oldest_segments_is_damage(size, behind):
    """With `behind`, they are gone from behind the place that the checkpoint has of the log."""
    shard = Shard(16, checkpoint_every=10_000)
    topic = small_segments(shard)
    member = a_follower(shard)
    produce(shard, topic, behind, size)
    if behind:
        shard.rounds(2)
        member.replica.checkpoint()
    produce(shard, topic, 24, size)
    member.crash(power=False)
    assert len(segments(member, f"{DATA}/topics/{topic.hex()}/0")) > 1
    for path in segments(member, f"{DATA}/topics/{topic.hex()}/0")[:-1]:
        member.files.unlink(path)
    shard.begin(member)
    assert member.recovery is not None
    assert "what was before it is gone" in member.recovery.damage.reason
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)


@pytest.mark.parametrize("checkpoint", ["whole", "rotten", "lost"])
def test_segments_that_retention_took_are_no_damage_where_the_checkpoint_has_rotted_or_is_lost_that_they_went_behind(
    checkpoint,
):
    """Its name says that the first offset is committed, and so does the order itself."""
    shard = Shard(17, checkpoint_every=10_000)
    topic = small_segments(shard, retention_bytes=65536)
    produce(shard, topic, 60, INLINE_BYTES + 1)
    shard.rounds(100)
    leader = shard.leader
    assert leader is not None
    leader.replica.checkpoint()
    path = f"{DATA}/topics/{topic.hex()}/0"
    assert next(log for log in leader.replica.node.logs if log.path == path).names[0].base_seq > 1
    last = leader.replica.order.last_index()
    leader.crash(power=True)
    newest = max(name for name in leader.files.contents if name.startswith(f"{DATA}/order/snapshot-"))
    if checkpoint == "rotten":
        flip(leader, newest, 70)
    elif checkpoint == "lost":
        leader.files.unlink(newest)
    shard.begin(leader)
    assert leader.replica.order.last_index() == last
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)


def test_a_log_that_begins_behind_where_an_install_goes_on_is_damage():
    files = MemoryFiles()
    path = f"{DATA}/topics/{bytes(16).hex()}/0"
    log_id = log_ids.own_id(path) or b""
    start = LogEnd(10, 10, 0, 99, 1, 1).at_start()
    LogWriter.create(path, files=files, log_id=log_id, order=Replicated(Places(0, {})), start=start).close()
    body = msgspec.msgpack.encode(InstallRecord(1, 20, False, [InstalledLog(log_id, bytes(16), 0, False, 9, 12, 7)]))
    snapshots.save(files, f"{DATA}/staged", 20, 0, body, bytes(16))
    with pytest.raises(ReplicaDamaged, match="holds batches 11 to 10, and had 9") as raised:
        install(files, DATA, bytes(16))
    assert raised.value.path == path


def test_an_install_writes_what_a_log_has_anew_where_a_sync_of_it_never_answered():
    """The system may have given up on bytes that it still shows."""
    files = WritebackFiles()
    path = f"{DATA}/topics/{bytes(16).hex()}/0"
    log_id = log_ids.own_id(path) or b""
    batches = [stamped(log_id, 1, b"one")]
    batches.append(stamped(log_id, 2, b"two", previous=batches[0].checksum))
    log = LogWriter.create(path, files=files, log_id=log_id, order=Replicated(Places(0, {})))
    log.append_stamped(batches[0].buffers)
    with files.open(f"{path}/{log.names[-1].segment_file}") as keepers:
        files.fail_next(f"{path}/{log.names[-1].segment_file}")
        with pytest.raises(OSError, match="error"):
            keepers.sync()  # and ends before it can say so
    log.close(clean=False)
    staged, start = f"{DATA}/staged/{log_id.hex()}", log.end().at_start()
    behind = LogWriter.create(staged, files=files, log_id=log_id, order=Replicated(Places(0, {})), start=start)
    behind.append_stamped(batches[1].buffers)
    behind.close()
    files.mkdir(f"{DATA}/order")
    named = InstalledLog(log_id, bytes(16), 0, False, 1, 2, batches[1].checksum)
    body = msgspec.msgpack.encode(InstallRecord(1, 20, False, [named]))
    snapshots.save(files, f"{DATA}/staged", 20, 0, body, bytes(16))
    Promises(f"{DATA}/promises", files).close()
    with pytest.raises(ReplicaDamaged, match="has no checkpoint"):  # the order, of which there is nothing here
        open_files(files, DATA, ids_of("simulated", [1]), suspect=[path])
    left = LogWriter.open(path, files=files.power_cut(), order=Replicated(Places(0, {})))
    assert [left.checksum_at(1), left.checksum_at(2)] == [each.checksum for each in batches]
