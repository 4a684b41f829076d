"""A member that has lost something is no voter until it has fetched a whole state, in a term above its promises."""

from __future__ import annotations

import errno

import msgspec
import pytest
from penstock.broker.raft.errors import EntriesLost
from penstock.broker.raft.messages import Kind, Message
from penstock.broker.replica import catchup_messages as cm
from penstock.broker.replica import checkpoint
from penstock.broker.replica.checkpoint import Checkpoint
from penstock.broker.replica.damage import NotedDamage, note, note_of, noted, why_anew
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.broker.replica.errors import ReplicaBroken, ReplicaDamaged
from penstock.broker.replica.recovering import LEADER_TICKS, sound_end
from penstock.storage import snapshots
from penstock.storage.batch import encode
from penstock.storage.data_directory import ASIDE
from penstock.storage.errors import Corrupt, OutOfBounds, Poisoned, StorageFull
from penstock.storage.layout import DATA_START
from penstock.storage.memory_files import MemoryFiles
from penstock.transport import messages as m
from support.damaged import a_follower, cut, damaged, flip, is_whole, produce, rot, segments
from support.members import DATA, Shard


@pytest.mark.parametrize("power", [False, True])
def test_a_member_that_lost_a_log_fetches_it_in_a_term_of_its_own_and_votes_again(power):
    shard, topic, member = damaged(1, power=power)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    term = leader.replica.core.term
    assert noted(member.files, DATA) is not None
    shard.until(lambda: is_whole(shard))
    assert shard.leader is leader, "it leads again, a term later"
    assert leader.replica.core.term == term + 1
    assert noted(member.files, DATA) is None
    assert len(member.files.listdir(f"{DATA}/{ASIDE}")) == 2, "the log, and the order as it was"
    shard.invariants.check(full=True)
    leader.crash(power=True)
    produce(shard, topic, 2)


def test_a_recovering_member_names_no_leader_that_has_been_silent():
    """Its status said that the cluster has one, as long as none was elected."""
    shard, _, member = damaged(25)
    recovery, leader = member.recovery, shard.leader
    assert recovery is not None
    assert leader is not None
    assert leader.replica is not None
    heartbeat = Message(Kind.HEARTBEAT, member.number, leader.number, leader.replica.core.term)
    recovery.step(heartbeat)
    assert (recovery.leader, recovery.term) == (leader.number, heartbeat.term)
    for left in reversed(range(LEADER_TICKS + 1)):
        recovery.tick()
        assert recovery.leader == (leader.number if left else 0)
    assert recovery.term == heartbeat.term
    recovery.step(heartbeat)
    recovery.tick()
    assert recovery.leader == leader.number


def test_only_what_is_lost_is_fetched():
    """The other partition is whole up to its checkpoint, so what follows there is all that it needs."""
    shard, _, member = damaged(2)
    fetched = 0
    recovery = member.recovery
    assert recovery is not None
    shard.until(lambda: member.recovery is None)
    fetched = recovery.catching_up.fetched_bytes
    assert 15 * 3_000 < fetched < 24 * 3_000, "15 records of the lost log, and what is behind the checkpoint"


def test_a_recovering_member_neither_votes_nor_acknowledges():
    shard, topic, member = damaged(3)
    leader = shard.leader
    assert leader is not None
    other = next(each for each in shard.members.values() if each not in (leader, member))
    other.crash(power=True)
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    shard.rounds(60)
    assert shard.answer(leader, request) is None
    assert shard.leader is None, "one of three is no majority"
    assert member.recovery is not None
    shard.begin(other)
    shard.until(lambda: is_whole(shard))


def test_a_member_is_not_served_in_the_term_in_which_it_acknowledged_what_it_lost():
    """Its leader may yet commit by that acknowledgement; as a voter the member would help to elect one without it."""
    shard = Shard(4)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    leader, member = shard.leader, a_follower(shard)
    assert leader is not None
    other = next(each for each in shard.members.values() if each not in (leader, member))
    shard.cut = {pair for n in (leader.number, member.number) for pair in ((n, other.number), (other.number, n))}
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([b"kept"])))
    for _ in range(3):
        shard.turn(leader, sync=False)
        while shard.network:
            shard.deliver(0)
        shard.turn(member)
    member.crash(power=True)
    cut(member, segments(member, f"{DATA}/topics/{topic.hex()}/1")[0])
    shard.begin(member)
    for _ in range(6):
        shard.tick(leader)
        shard.turn(leader, sync=False)
        while shard.network:
            shard.deliver(0)
        if not member.is_up:
            shard.begin(member)
        shard.turn(member)
    shard.sync(leader)
    answer = shard.answer(leader, request)
    assert answer is None or isinstance(answer, m.Produced)
    leader.crash(power=True)
    shard.cut.clear()
    shard.rounds(60)
    assert shard.leader is None
    leader.start()
    shard.until(lambda: is_whole(shard) and shard.leader)
    shard.invariants.check(full=True)


def test_a_state_of_a_term_that_is_not_above_its_promises_is_not_taken():
    shard, _, member = damaged(5)
    recovery, leader = member.recovery, shard.leader
    assert recovery is not None
    assert leader is not None
    recovery.catching_up.begin(leader.number)
    shard.network.clear()

    def offer(term: int, broken: bytes = b"") -> int:
        checkpoint = Checkpoint(entry=99, term=term, commit=99, acked=99, logs=[])
        manifest = cm.Manifest(99, broken or msgspec.msgpack.encode(checkpoint), 0, [])
        said = Message(Kind.PIECE, member.number, leader.number, context=cm.encode(manifest))
        try:
            recovery.step(said)
        except ReplicaBroken:
            return 1
        return 0

    assert offer(recovery.promised + 1, broken=b"\x91\x01") == 0, "no damage of the files here"
    assert [offer(recovery.promised + above) for above in (-1, 0, 1)] == [0, 0, 1]
    assert member._promised() == recovery.promised + 1, "before it is installed: the next loss is later"


def test_a_leader_whose_reads_meet_damage_closes_and_another_answers():
    shard = Shard(6)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    leader = shard.leader
    assert leader is not None
    flip(leader, segments(leader, f"{DATA}/topics/{topic.hex()}/0")[0], DATA_START + 5)
    fetch = lambda n: m.Fetch(n, topic, 0, 0, term=-1, max_bytes=1 << 20, wait_ms=0)  # noqa: E731
    first = shard.send(leader, fetch)
    shard.rounds(1)
    assert shard.answer(leader, first) is None, "what the others have is not reported as lost"
    assert leader in shard.closed or leader.recovery is not None
    answer = shard.ask(fetch)
    assert isinstance(answer, m.Fetched), answer
    assert shard.leader is not leader
    shard.until(lambda: is_whole(shard))


def test_a_leader_notices_a_value_that_rotted_before_it_hands_it_out():
    shard = Shard(8)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    leader = shard.leader
    assert leader is not None
    rot(leader, topic, 0, b"4".ljust(3_000, b"."))
    fetch = lambda n: m.Fetch(n, topic, 0, 0, term=-1, max_bytes=1 << 20, wait_ms=0)  # noqa: E731
    first = shard.send(leader, fetch)
    shard.rounds(1)
    assert shard.answer(leader, first) is None
    assert isinstance(shard.ask(fetch), m.Fetched)
    assert shard.leader is not leader
    shard.until(lambda: is_whole(shard))
    assert noted(leader.files, DATA) is None, "it has fetched what it had lost"


def test_a_leader_without_which_there_is_no_majority_goes_on_with_its_damage_and_says_so():
    """A third node alone could not lead: the shard would stand still for one rotten value."""
    shard, topic, member = damaged(9)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    told: list[str] = []
    leader.replica._answers.tell = lambda damage: told.append(damage.path)
    rot(leader, topic, 0, b"4".ljust(3_000, b"."))
    shard.until(lambda: told)
    shard.rounds(8)
    assert member.recovery is not None
    assert shard.leader is leader
    assert told == [f"{DATA}/topics/{topic.hex()}/0"], "once, though it is met again"
    produce(shard, topic, 2)


def test_a_leader_notices_a_value_that_rotted_before_a_member_that_is_behind_gets_it():
    shard = Shard(10)
    topic = shard.topic("t")
    leader, member = shard.leader, a_follower(shard)
    assert leader is not None
    assert leader.replica is not None
    member.crash(power=True)
    produce(shard, topic, 2, size=INLINE_BYTES + 1)
    rot(leader, topic, 0, b"0".ljust(INLINE_BYTES, b"."))
    leader.replica._answers.spared = lambda: True
    member.start()
    shard.until(lambda: leader in shard.closed or leader.recovery is not None)
    assert noted(leader.files, DATA) is not None


def test_a_snapshot_that_is_damaged_has_its_log_fetched():
    shard = Shard(7)
    topic = shard.topic("t")
    produce(shard, topic, 60)
    member = a_follower(shard)
    member.crash(power=False)
    path = f"{DATA}/topics/{topic.hex()}/0"
    names = [name for name in member.files.listdir(path) if snapshots.seq_of(name) is not None]
    assert names
    log_id = next(log.log_id for log in shard.leader.replica.node.logs if log.path == path)
    first = shard.leader.replica.node.history_of(log_id)
    assert sound_end(member.files, path, log_id, first.log.written, first.log.checksum) is not None
    for name in names:
        flip(member, f"{path}/{name}", 70)
    shard.begin(member)
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)


def test_own_batches_count_as_far_as_every_byte_of_them_verifies():
    shard = Shard(8)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    member = a_follower(shard)
    path = f"{DATA}/topics/{topic.hex()}/0"
    log = next(log for log in member.replica.node.logs if log.path == path)
    found = sound_end(member.files, path, log.log_id, log.written, log.checksum)
    assert found is not None
    assert (found.seq, found.offset, found.checksum) == (log.written, log.end_offset, log.checksum)
    assert sound_end(member.files, path, log.log_id, log.written, log.checksum + 1) is None
    assert sound_end(member.files, f"{DATA}/none", log.log_id, 1, 1) is None
    flip(member, segments(member, path)[0], DATA_START + 1_500)  # in a column: no header says so
    with pytest.raises(Corrupt):
        sound_end(member.files, path, log.log_id, log.written, log.checksum)


def test_damage_that_was_found_once_counts_until_a_state_is_installed():
    shard = Shard(9)
    topic = shard.topic("t")
    produce(shard, topic, 30)
    member = a_follower(shard)
    member.crash(power=False)
    path = segments(member, f"{DATA}/topics/{topic.hex()}/0")[0]
    whole = {path: member.files.contents.pop(path)}
    member.start()
    member.crash(power=False)
    assert noted(member.files, DATA) is not None
    for name in list(member.files.contents):
        if name.startswith(f"{DATA}/topics/{topic.hex()}/0/"):
            del member.files.contents[name]
    member.files.contents.update(whole)
    with pytest.raises(ReplicaDamaged):
        member._open()
    member.start()
    shard.until(lambda: is_whole(shard))


@pytest.mark.parametrize("power", [False, True])
def test_an_install_of_a_damaged_member_is_repeated_wherever_it_is_cut_short(power):
    shard, topic, member = damaged(10, behind=6)
    while member.is_up:
        for each in shard.members.values():
            shard.tick(each)
            shard.turn(each)
        while shard.network and member.is_up:
            shard.turn(shard.deliver(0))
        shard.now_s += 0.1
    steps = 0
    while member.replica is None:
        steps += 1
        member.files.full_at = steps
        try:
            member.start()
            assert member.recovery is None
        except StorageFull:
            member.crash(power=power)
    member.files.full_at = 0
    assert steps > 3
    assert noted(member.files, DATA) is None
    shard.closed.clear()
    shard.until(lambda: is_whole(shard))
    produce(shard, topic, 2)


def test_a_record_that_cannot_be_carried_out_is_dropped_and_all_is_fetched_again():
    shard, topic, member = damaged(11)
    shard.until(lambda: not member.is_up or member.replica)
    if member.replica is None:
        staged = segments(member, f"{DATA}/staged")
        for name in staged:
            cut(member, name)
    shard.until(lambda: is_whole(shard))
    produce(shard, topic, 2)


def test_a_full_disk_keeps_damage_from_being_noted_and_says_so(monkeypatch):
    files = MemoryFiles()
    files.mkdir("d")
    monkeypatch.setattr(files, "rewrite", lambda path, data: (_ for _ in ()).throw(StorageFull("no space is left")))
    assert note_of(files, "d", Corrupt("bad", path="d/topics/a/0")) == "no space is left"
    assert noted(files, "d") is None


def test_what_is_damage_and_what_is_not():
    files = MemoryFiles()
    files.mkdir("d")
    assert note_of(files, "d", ReplicaBroken("a state is staged")) == ""
    assert note_of(files, "d", StorageFull("full")) == ""
    assert noted(files, "d") is None
    assert note_of(files, "d", Corrupt("bad", path="d/topics/a/0/x.segment")) == ""
    assert note_of(files, "d", EntriesLost("entry 9 is committed")) == ""
    note(files, "d", "again", "d/topics/b/0")
    note(files, "d", "again", "d/topics/b/0")
    assert noted(files, "d") == NotedDamage("bad", ["d/topics/a/0/x.segment", "d/topics/b/0"])
    files.rewrite("d/damaged", b"{")
    found = noted(files, "d")
    assert found is not None, "a note that cannot be read is one"
    assert "cannot be read" in found.reason


@pytest.mark.parametrize(
    "error", [Corrupt("bad"), EntriesLost("bad"), Poisoned("bad"), ReplicaBroken("bad"), StorageFull("bad")]
)
def test_what_closes_a_replica_in_the_course_of_things_is_one_sentence(error):
    assert why_anew(error) == "this node closes its files and opens them anew: bad"


def test_a_disk_that_fails_where_no_log_is_written_closes_a_replica_too():
    shard = Shard(21)
    shard.topic("t")
    member = shard.members[1]
    assert member.replica is not None
    member.files.fails_at, member.files.within = 1, checkpoint.save.__code__
    with pytest.raises(OSError, match="Input/output error") as found:
        member.replica.checkpoint()
    assert why_anew(found.value) == f"this node closes its files and opens them anew: {found.value}"


def test_what_should_not_happen_has_no_sentence():
    errors = KeyError("bad"), OutOfBounds("bad"), AssertionError(), FileNotFoundError(errno.ENOENT, "bad")
    assert [why_anew(each) for each in errors] == [""] * 4


def test_a_leader_that_cannot_begin_a_term_yet_serves_nobody_in_the_old_one():
    shard, topic, member = damaged(12)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    core = leader.replica.core
    renew, asked = core.renew, list[int]()
    core.renew = asked.append
    shard.rounds(30)
    assert asked
    assert member.recovery is not None
    assert leader.replica.exchange.shipping.entry() is None
    core.renew = renew
    shard.until(lambda: is_whole(shard))
    produce(shard, topic, 1)


def test_a_damaged_log_of_a_topic_that_was_deleted_meanwhile_is_set_aside():
    shard = Shard(13)
    topic, other = shard.topic("t"), shard.topic("other")
    produce(shard, topic, 12)
    member = a_follower(shard)
    member.crash(power=True)
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)
    cut(member, segments(member, f"{DATA}/topics/{topic.hex()}/0")[0])
    shard.begin(member)
    assert member.recovery is not None
    shard.until(lambda: is_whole(shard))
    assert not member.files.listdir(f"{DATA}/topics/{topic.hex()}")
    assert len(member.files.listdir(f"{DATA}/{ASIDE}")) >= 2
    produce(shard, other, 1)


@pytest.mark.parametrize("place", ["metadata", "topics"])
def test_a_batch_of_state_that_cannot_be_read_is_not_passed_over(place):
    """What follows it would add up to another state than that of the others."""
    shard = Shard(14)
    topic = shard.topic("t")
    produce(shard, topic, 4)
    member = a_follower(shard)
    member.crash(power=False)
    path = segments(member, f"{DATA}/metadata" if place == "metadata" else f"{DATA}/topics/{topic.hex()}/0")[0]
    flip(member, path, DATA_START + 5)
    shard.begin(member)
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)


def test_a_checkpoint_says_of_no_entry_that_it_is_committed_before_it_is_durable_here():
    """A power cut may take it, and an opening that misses it would take that for damage."""
    shard = Shard(21)
    produce(shard, shard.topic("t"), 2)
    replica = a_follower(shard).replica
    assert replica is not None
    durable = replica.prefix.entry
    replica.order.commit = durable + 1  # as the leader says, of an entry that is not synced yet
    assert replica.checkpoint().commit == durable
