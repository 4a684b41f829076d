"""Whole members in simulation: engine, logs, order and Raft over fake disks and a fake network."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import pytest
from penstock.broker.engine.ports import NodeStanding
from penstock.broker.raft.state import Role
from penstock.broker.replica.damage import note
from penstock.broker.replica.errors import PromisesLost, ReplicaDamaged
from penstock.storage.batch import encode
from penstock.storage.promises import Promises
from penstock.transport import messages as m
from support.member_invariants import Invariants
from support.member_life import FAULTS, MemberLife
from support.members import Member, Shard
from support.sightings import FEWEST, missed
from support.sim import failure, lived, met, shrink


def one(value: bytes) -> bytes:
    return bytes(encode([value]))


def produce(shard: Shard, topic: bytes, value: bytes, partition: int = 0) -> m.Produced:
    answer = shard.ask(lambda number: m.Produce(number, topic, partition), one(value))
    assert isinstance(answer, m.Produced), answer
    return answer


def test_three_members_elect_a_leader_and_serve():
    shard = Shard(1)
    topic = shard.topic("t")
    assert produce(shard, topic, b"small").offset == 0
    assert produce(shard, topic, b"large".ljust(40_000, b"."), 1).offset == 0
    shard.rounds(3)
    ends = {(r.order.last_index(), r.places.entry) for m in shard.members.values() if (r := m.replica)}
    assert len(ends) == 1


@pytest.mark.parametrize("power", [False, True])
def test_what_was_acknowledged_survives_the_death_of_the_leader(power):
    shard = Shard(2)
    topic = shard.topic("t")
    produce(shard, topic, b"one")
    leader = shard.leader
    assert leader is not None
    leader.crash(power=power)
    assert produce(shard, topic, b"two").offset == 1
    shard.heal()
    assert produce(shard, topic, b"three").offset == 2


def test_what_was_acknowledged_survives_the_loss_of_power_everywhere():
    shard = Shard(3)
    topic = shard.topic("t")
    for number in range(12):
        produce(shard, topic, b"%d" % number)
    for member in shard.members.values():
        member.crash(power=True)
    shard.heal()
    assert produce(shard, topic, b"next").offset == 12


def test_a_leader_that_is_cut_off_answers_nothing_and_steps_down():
    shard = Shard(4)
    topic = shard.topic("t")
    produce(shard, topic, b"one")
    old = shard.leader
    assert old is not None
    shard.cut = {pair for n in shard.numbers for pair in ((old.number, n), (n, old.number)) if n != old.number}
    write = shard.send(old, lambda number: m.Produce(number, topic, 0), one(b"lost"))
    read = shard.send(old, lambda number: m.ListTopics(number, ["t"]))
    shard.rounds(60)
    assert shard.answer(old, write) is shard.answer(old, read) is None
    assert not old.leads
    assert old.roles[-1][0] == 0
    shard.cut.clear()
    assert produce(shard, topic, b"two").offset == 1


def test_a_member_that_does_not_lead_refuses_all_but_greetings_and_says_what_it_was_told_of_the_leader():
    shard = Shard(5)
    topic = shard.topic("t")
    leader = shard.leader
    other = next(member for member in shard.members.values() if member is not leader)
    assert leader is not None
    assert other.replica is not None
    for make in (lambda number: m.Produce(number, topic, 0), lambda number: m.ListTopics(number, [])):
        answer = shard.answer(other, shard.send(other, make, one(b"x")))
        assert (answer.code, answer.retry) == ("no_leader", True)
    other.replica.node.standing = NodeStanding("follower", 4, ("unix:///leader",))
    answer = shard.answer(other, shard.send(other, lambda number: m.Produce(number, topic, 0), one(b"x")))
    assert (answer.code, answer.retry, answer.where, answer.term) == ("not_leader", True, "unix:///leader", 4)
    answer = shard.answer(other, shard.send(other, lambda number: m.Hello(number, 1, 1, "test")))
    assert (answer.role, answer.leader) == ("follower", ["unix:///leader"])
    answer = shard.answer(other, shard.send(other, lambda number: m.Hello(number, 1, 1, "test", 5)))
    assert answer.code == "no_leader", "the client knows of a later term than that leader's"
    other.replica.node.standing = NodeStanding("", 4, ())
    answer = shard.answer(other, shard.send(other, lambda number: m.Hello(number, 1, 1, "test")))
    assert answer.code == "no_leader", "a refused greeting does not wait for a round either"


def test_a_leader_greets_a_client_that_knows_of_a_later_term_once_a_majority_follows_it():
    """None of such a term has served, then, as where the cluster was made anew under its name."""
    shard = Shard(5)
    shard.topic("t")
    leader = shard.leader
    assert leader is not None

    def greeting(number: int) -> m.Hello:
        return m.Hello(number, 1, 1, "test", 99)

    assert isinstance(shard.answer(leader, shard.send(leader, lambda number: m.Hello(number, 1, 1, "test"))), m.Welcome)
    request = shard.send(leader, greeting)
    assert shard.answer(leader, request) is None
    shard.rounds()
    assert isinstance(shard.answer(leader, request), m.Welcome)
    other = next(member for member in shard.members.values() if member is not leader)
    assert shard.answer(other, shard.send(other, greeting)).code == "no_leader"
    shard.cut = {(a, b) for a in shard.numbers for b in shard.numbers if leader.number in (a, b)}
    request = shard.send(leader, greeting)
    shard.until(lambda: not leader.leads)
    assert shard.answer(leader, request) is None, "it may have been deposed"


def test_a_topic_whose_commits_do_not_wait_for_the_disk_is_refused_with_the_way_out():
    shard = Shard(6)
    answer = shard.ask(lambda number: m.CreateTopic(number, "t", 1, {"commit": "written"}))
    assert answer.code == "invalid_settings"
    assert "commit=durable" in answer.message


def test_files_of_a_deleted_topic_go_once_a_checkpoint_covers_the_deletion():
    shard = Shard(7, checkpoint_every=10_000)
    topic, other = shard.topic("t"), shard.topic("other")
    produce(shard, topic, b"one")
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)
    path = f"data/topics/{topic.hex()}"
    assert all(member.files.exists(path) for member in shard.members.values())
    for member in shard.members.values():
        member.crash(power=True)
    shard.heal()
    produce(shard, other, b"one")
    for member in shard.members.values():
        assert member.replica is not None
        member.replica.checkpoint()
        assert not member.files.exists(path)
    for member in shard.members.values():
        member.crash(power=True)
    shard.heal()
    produce(shard, other, b"two")


def test_nothing_is_acknowledged_before_a_majority_has_synced_it():
    shard = Shard(8)
    topic = shard.topic("t")
    leader = shard.leader
    assert leader is not None
    shard.syncing = False
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), one(b"x"))
    shard.rounds(5)
    assert leader.leads
    assert shard.answer(leader, request) is None
    shard.syncing = True
    shard.rounds(3)
    assert isinstance(shard.answer(leader, request), m.Produced)


def test_an_office_opens_only_when_an_entry_of_its_own_term_is_applied():
    shard = Shard(9)
    shard.topic("t")
    shard.syncing = False
    old = shard.leader
    assert old is not None
    old.crash(power=False)
    shard.rounds(40)
    found = [each.replica for each in shard.members.values() if each.replica is not None]
    assert [replica for replica in found if replica.core.role is Role.LEADER]
    assert not [replica for replica in found if replica.node.leads]
    shard.syncing = True
    leader = shard.until(lambda: shard.leader)
    assert leader.replica.order.term(leader.replica.places.entry) == leader.replica.core.term


def test_a_member_whose_promises_are_gone_or_damaged_does_not_start():
    shard = Shard(10)
    shard.topic("t")
    member = shard.members[1]
    member.crash(power=False)
    path = "data/promises"
    kept = bytes(member.files.contents[path].data)
    assert len(kept) >= 64
    member.files.contents[path].data[:] = bytes(128) + kept[-64:]
    with pytest.raises(ReplicaDamaged, match="voted"):
        member.start()
    member.files.unlink(path)
    with pytest.raises(ReplicaDamaged, match="voted"):
        member.start()


def journal_of(member: Member) -> tuple[bytearray, bytes]:
    """The journal of a member that is down, and what is in it."""
    data = member.files.contents["data/promises"].data
    return data, bytes(data)


@pytest.mark.parametrize("recovers", [False, True])
def test_a_member_whose_promises_end_below_a_term_of_its_order_does_not_start(recovers):
    shard = Shard(11)
    topic = shard.topic("t")
    for _ in range(2):
        old = shard.leader
        old.crash(power=True)
        produce(shard, topic, b"x")
        shard.begin(old)
        shard.rounds(8)
    member = shard.members[1]
    member.replica.checkpoint()
    member.crash(power=False)
    data, kept = journal_of(member)
    path = "data/promises"
    promised = [Promises(path, member.files).term(shard.ids.order)]
    if recovers:
        note(member.files, "data", "lost")
    while kept[:-128] and promised[-1] == promised[0]:
        kept = kept[:-128]
        data[:] = kept
        promised.append(Promises(path, member.files).term(shard.ids.order))
    assert 0 < promised[-1] < promised[0]
    for lost in (kept, kept + bytes(64), b""):
        data[:] = lost
        with pytest.raises(PromisesLost, match="entries of term"):
            member.start()


def test_a_promise_that_a_crash_has_torn_is_none_that_is_missed():
    shard = Shard(12)
    topic = shard.topic("t")
    member = next(each for each in shard.members.values() if each is not shard.leader)
    member.crash(power=False)
    data, kept = journal_of(member)
    data[:] = kept + kept[-64:-30]
    member.start()
    shard.rounds(3)
    produce(shard, topic, b"x")
    assert member.replica is not None


@pytest.mark.parametrize("keys", [None, [b"k"]], ids=["plain", "keyed"])
def test_a_member_that_ends_with_proposals_on_their_way_leaves_nothing_in_memory(keys: list[bytes] | None):
    """It may be opened anew in its process. Answers that wait name what they are sent by, which names the member."""
    shard = Shard(1)
    topic = shard.topic("t")
    leader = shard.until(lambda: shard.leader)
    assert leader.replica is not None
    ended = weakref.ref(leader.replica)
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"], dedup=keys)))
    assert shard.answer(leader, request) is None
    leader.crash(power=False)
    gc.collect()
    assert ended() is None


LIVES = [range(first, first + 50) for first in range(0, 2000, 50)]


@pytest.mark.parametrize("seeds", LIVES, ids=str)
def test_random_lives_keep_every_invariant_and_go_on_at_the_end(seeds):
    failed, problem, _ = lived(seeds)
    assert problem == "", f"make sim SEEDS=2 FROM={failed}"


@pytest.mark.timeout(3600)  # alone, it runs all lives
def test_random_lives_meet_all_that_is_rare():
    assert missed(met(map(lived, LIVES))) == []


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 12_000, 50))
def test_longer_random_lives_keep_every_invariant(first):
    for seed in range(first, first + 50):
        MemberLife(seed).run()


def test_a_situation_that_is_met_too_seldom_is_said():
    enough = Counter(FEWEST)
    assert missed(enough) == []
    enough["entries are cut"] -= 1
    (said,) = missed(enough)
    assert said.startswith(f"entries are cut: {FEWEST['entries are cut'] - 1} times")


def test_a_life_that_fails_is_shrunk_to_the_steps_and_faults_that_it_needs():
    asked = []

    def fails(steps, without):
        asked.append(steps)
        return steps >= 37 and "power" not in without and "full" not in without

    assert shrink(250, fails) == (37, set(FAULTS) - {"power", "full"})
    assert len(asked) < 30


def test_a_life_that_breaks_an_invariant_fails(monkeypatch):
    monkeypatch.setattr(Invariants, "check", lambda self, full=False: (_ for _ in ()).throw(AssertionError("broken")))
    assert "broken" in failure(1, 5)
