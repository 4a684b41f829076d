"""A member that needs more than the order still has fetches what differs, and installs it at opening."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from penstock.broker.member.member import ShardMember
from penstock.broker.peers.greeting import PeerIdentity
from penstock.broker.peers.links import PeerArrival
from penstock.broker.raft.messages import Kind, Message, Snapshot
from penstock.broker.replica import catchup_messages as cm
from penstock.broker.replica import shipping
from penstock.broker.replica.catching_up import RETRY_TICKS, TRIES
from penstock.broker.replica.catchup_messages import AskBatches, Asked
from penstock.broker.replica.checkpoint import Checkpoint
from penstock.broker.replica.errors import ReplicaBroken
from penstock.broker.replica.exchange import Exchange
from penstock.broker.replica.room import RESERVE_BYTES
from penstock.broker.replica.staging import read_record
from penstock.storage import runs
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.storage.runs import RUN_BYTES, RunFiles
from penstock.transport import messages as m
from support.damaged import flip
from support.members import DATA, Member, Shard


def fill(shard: Shard, topic: bytes, count: int, size: int = 2_000) -> None:
    for number in range(count):
        value = b"%d" % number
        answer = shard.ask(lambda n, at=number: m.Produce(n, topic, at % 2), bytes(encode([value.ljust(size, b".")])))
        assert isinstance(answer, m.Produced)


def behind(seed: int) -> tuple[Shard, bytes, Member]:
    """A shard, its topic, and a member that is down and below the order of the others."""
    shard = Shard(seed)
    topic = shard.topic("t")
    fill(shard, topic, 4)
    away = next(member for member in shard.members.values() if member is not shard.leader)
    away.crash(power=True)
    fill(shard, topic, 30)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    assert leader.replica.order.first_index() > 10
    return shard, topic, away


def caught_up(shard: Shard) -> bool:
    entries = {each.replica.places.entry if each.replica else 0 for each in shard.members.values()}
    return len(entries) == 1


def test_a_member_below_the_order_fetches_what_differs_and_goes_on():
    shard, topic, away = behind(1)
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    shard.invariants.check(full=True)
    fill(shard, topic, 2)
    assert not away.files.exists(f"{DATA}/staged")


def test_a_member_that_was_brought_up_to_date_may_lead():
    shard, topic, away = behind(2)
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    leader.replica.core.transfer(away.number)
    shard.until(lambda: shard.leader is away)
    fill(shard, topic, 2)


@pytest.mark.parametrize("power", [False, True])
def test_an_install_that_is_cut_short_at_any_step_is_carried_out_again(power):
    shard, topic, away = behind(4)
    shard.begin(away)
    while not shard.counts.get("installs"):
        for member in shard.members.values():
            shard.guard(member, lambda replica: replica.tick())
            shard.turn(member)
        while shard.network and not shard.counts.get("installs"):
            shard.turn(shard.deliver(0))
        shard.now_s += 0.1
    assert read_record(away.files, DATA, shard.ids.order) is not None
    steps = 0
    while away.replica is None:
        steps += 1
        away.files.full_at = steps
        try:
            away.start()
        except StorageFull:
            away.crash(power=power)
    away.files.full_at = 0
    assert steps > 5
    shard.closed.clear()
    shard.until(lambda: caught_up(shard))
    fill(shard, topic, 2)


def test_batches_that_went_with_a_deleted_topic_are_not_waited_for():
    shard = Shard(5, order_segments=100)
    topic, other = shard.topic("t"), shard.topic("other")
    away = next(member for member in shard.members.values() if member is not shard.leader)
    away.crash(power=True)
    fill(shard, topic, 2, size=40_000)
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)
    fill(shard, other, 12)
    leader = shard.leader
    assert leader is not None
    assert not leader.files.exists(f"{DATA}/topics/{topic.hex()}")
    shard.begin(away)
    shard.until(lambda: caught_up(shard))
    assert shard.counts.get("installs")


def test_batches_that_went_with_a_topic_are_replaced_by_a_checkpoint_that_is_made_for_it():
    """However long the next one would be off: nothing else may be written meanwhile."""
    shard = Shard(5, order_segments=100, checkpoint_every=1000)
    topic = shard.topic("t")
    away = next(member for member in shard.members.values() if member is not shard.leader)
    away.crash(power=True)
    fill(shard, topic, 2, size=40_000)
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)
    shard.begin(away)
    shard.until(lambda: caught_up(shard))
    assert shard.counts.get("installs")


def test_files_stay_while_a_member_fetches_them_and_go_when_it_falls_silent():
    shard, topic, away = behind(6)
    leader = shard.leader
    assert leader is not None
    replica = leader.replica
    assert replica is not None
    found = replica.checkpoint()
    time_us = replica.order.log.place_behind(found.entry)[0].time_us
    listing = shipping.ManifestDraft(found, time_us, replica.logs())
    assert listing.step()
    replica.exchange.shipping.begin(away.number, listing)
    first = replica.order.first_index()
    fill(shard, topic, 12)
    assert replica.order.first_index() == first
    shard.rounds(120)
    assert replica.exchange.shipping.entry() is None
    fill(shard, topic, 12)
    assert replica.order.first_index() > first


def test_files_stay_for_a_member_that_waits_for_a_manifest_when_another_one_has_its_state():
    shard, _, away = behind(6)
    leader = shard.leader
    assert leader is not None
    replica = leader.replica
    assert replica is not None
    ask = Message(Kind.SHIP, leader.number, away.number, context=cm.encode(cm.AskManifest(0)))
    replica.exchange.take(ask, {})
    replica.exchange.shipping._hold(False)
    assert replica.keeps_files
    shard.turn(leader)
    assert replica.exchange.shipping.entry() is not None
    assert not replica.exchange.is_busy
    replica.exchange.shipping.end(away.number)
    assert not replica.keeps_files


def test_a_manifest_that_is_in_the_making_is_not_begun_again(monkeypatch):
    shard, _, away = behind(6)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    exchange = leader.replica.exchange
    monkeypatch.setattr(shipping.ManifestDraft, "step", lambda draft: False)
    third = next(member for member in shard.members.values() if member not in (leader, away))
    for member, begins in ((away, True), (away, False), (third, True)):
        exchange.take(Message(Kind.SHIP, leader.number, member.number, context=cm.encode(cm.AskManifest(0))), {})
        assert exchange.waits == begins
        shard.turn(leader)


def trimmed_beyond(seed: int) -> tuple[Shard, bytes, Member]:
    """A shard, its topic, and a member that is down and has nothing of what its logs begin with elsewhere."""
    shard = Shard(seed)
    settings = {"retention_records": 3, "segment_bytes": 64 << 10}
    topic = shard.ask(lambda number: m.CreateTopic(number, "t", 2, settings)).topics[0].topic
    fill(shard, topic, 4)
    away = next(member for member in shard.members.values() if member is not shard.leader)
    away.crash(power=True)
    for _ in range(2):
        fill(shard, topic, 44, size=20_000)
        shard.now_s += 100
        shard.rounds(3)
    return shard, topic, away


def test_a_log_that_the_leader_has_trimmed_beyond_the_member_is_replaced_whole():
    shard, topic, away = trimmed_beyond(7)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    first = {log.path: log.names[0].base_seq for log in leader.replica.node.logs[1:]}
    assert min(first.values()) > 3, "what follows the member's own batches is gone"
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    shard.invariants.check(full=True)
    assert away.replica is not None
    assert all(log.names[0].base_seq >= first[log.path] for log in away.replica.node.logs[1:])
    leader.crash(power=True)
    fill(shard, topic, 2)


@pytest.mark.parametrize("rotten", [1, 2])
def test_a_snapshot_that_has_rotted_at_the_leader_is_not_shipped(rotten):
    """The one before it is. Without one the leader closes, and the member has the state of another."""
    shard, topic, away = trimmed_beyond(7)
    leader = shard.leader
    assert leader is not None
    path = f"{DATA}/topics/{topic.hex()}/0/snapshot-"
    names = sorted(name for name in leader.files.contents if name.startswith(path))
    assert len(names) == 2
    for name in names[-rotten:]:
        flip(leader, name, 70)
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    assert (shard.leader is leader) == (rotten == 1)
    assert ("damage" in shard.counts) == (rotten == 2)
    shard.invariants.check(full=True)
    fill(shard, topic, 2)


def test_a_run_that_has_rotted_at_the_leader_is_not_shipped():
    """The member would install it, and find the log damaged."""
    shard, topic, away = trimmed_beyond(8)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    path = f"{DATA}/topics/{topic.hex()}/0"
    log = next(log for log in leader.replica.node.logs if log.path == path)
    RunFiles(leader.files, path, log.log_id).save(1, b"a large part of a state")
    leader.files.sync_all()
    flip(leader, f"{path}/{runs.file_name(1)}", RUN_BYTES)
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    assert shard.leader is not leader
    assert not away.files.exists(f"{path}/{runs.file_name(1)}")


def test_a_checkpoint_that_was_begun_before_a_member_asked_is_none_for_it():
    shard, _, away = behind(6)
    leader = shard.leader
    assert leader is not None
    replica = leader.replica
    assert replica is not None
    older = replica.checkpoint()
    fill(shard, shard.topic("other"), 1)
    ask = Message(Kind.SHIP, leader.number, away.number, context=cm.encode(cm.AskManifest(0)))
    replica.exchange.take(ask, {})
    replica.exchange.checkpointed(older)
    assert replica.exchange.waits
    assert not replica.exchange._listings
    replica.exchange.checkpointed(replica.checkpoint())
    assert not replica.exchange.waits
    assert len(replica.exchange._listings) == 1


@pytest.mark.parametrize("power", [False, True])
def test_a_catch_up_that_a_crash_cuts_short_goes_on_behind_what_is_staged(power, monkeypatch):
    monkeypatch.setattr(shipping, "PIECE_BYTES", 4_000)
    asks: list[AskBatches] = []
    put_ask = Exchange._put_ask

    def note(exchange: Exchange, leader: int, asked: Asked) -> None:
        if isinstance(asked, AskBatches):
            asks.append(asked)
        put_ask(exchange, leader, asked)

    monkeypatch.setattr(Exchange, "_put_ask", note)
    shard, topic, away = behind(8)
    shard.begin(away)
    while len(asks) < 4:
        for member in shard.members.values():
            shard.guard(member, lambda replica: replica.tick())
            shard.turn(member)
        while shard.network and len(asks) < 4:
            shard.turn(shard.deliver(0))
        shard.now_s += 0.1
    before = asks[:]
    assert len({each.log_id for each in before}) == 1
    assert before[0].seq < before[-1].seq
    away.crash(power=power)
    shard.network.clear()
    shard.begin(away)
    shard.until(lambda: len(asks) > len(before))
    again = asks[len(before)]
    assert again.log_id == before[0].log_id
    assert again.seq == before[0].seq if power else again.seq == before[-1].seq, "a power cut takes what is not synced"
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    shard.invariants.check(full=True)
    fill(shard, topic, 2)


def test_a_leader_whose_own_entry_waits_for_a_member_below_its_order_brings_it_up_to_date():
    """Nothing else could: the third has lost its disk, so the lead is confirmed by that member alone."""
    shard, topic, away = behind(9)
    leader = shard.leader
    assert leader is not None
    third = next(member for member in shard.members.values() if member not in (leader, away))
    third.wipe()
    leader.crash(power=True)
    leader.start()
    shard.begin(away)
    shard.until(lambda: shard.counts.get("installs") and shard.leader)
    fill(shard, topic, 2)


def test_a_state_of_a_term_that_is_not_promised_yet_is_not_taken():
    """An opening takes a journal that ends below the term of the order for one that has lost something."""
    shard, _, away = behind(10)
    shard.begin(away)
    replica, leader = away.replica, shard.leader
    assert replica is not None
    assert leader is not None
    replica.exchange.catching_up.begin(leader.number)

    def offer(term: int, version: int = 1) -> None:
        checkpoint = Checkpoint(version=version, entry=99, term=term, commit=99, acked=99, logs=[])
        manifest = cm.Manifest(99, msgspec.msgpack.encode(checkpoint), 0, [])
        replica.step(Message(Kind.PIECE, away.number, leader.number, context=cm.encode(manifest)))

    offer(replica.promised + 1)
    offer(replica.promised, version=2)  # of a later version: no damage of the files here
    assert not away.files.exists(f"{DATA}/staged")
    with pytest.raises(ReplicaBroken, match="staged"):
        offer(replica.promised)


def fetching(seed: int) -> tuple[Shard, Member, Member]:
    """A shard, its leader, and a member whose first question for batches is on its way."""
    shard, _, away = behind(seed)
    leader = shard.leader
    assert leader is not None
    shard.begin(away)
    while not any(isinstance(asked_in(sent.message), AskBatches) for sent in shard.network):
        if shard.network:
            shard.turn(shard.deliver(0))
            continue
        shard.now_s += 0.1
        for member in shard.members.values():
            shard.tick(member)
            shard.turn(member)
    return shard, leader, away


def asked_in(message: Message) -> object:
    return cm.decode(message.context) if message.kind is Kind.SHIP else None


@pytest.mark.parametrize("later", [0, 1])
def test_an_offer_is_never_acknowledged_as_if_its_entries_were_here(later):
    """Also where it is of a term that this member has not heard of yet."""
    shard, _, away = behind(11)
    shard.begin(away)
    leader, replica = shard.leader, away.replica
    assert leader is not None
    assert leader.replica is not None
    assert replica is not None
    found = leader.replica.checkpoint()
    snapshot = Snapshot(found.entry, found.term, found.members().configuration)
    term, before = leader.replica.core.term + later, replica.core.committed
    replica.core.step(Message(Kind.HEARTBEAT, away.number, leader.number, leader.replica.core.term))
    replica.step(Message(Kind.SNAPSHOT, away.number, leader.number, term, snapshot=snapshot))
    shard.turn(away)
    assert replica.core.committed == before
    assert replica.exchange.catching_up.source == (0 if later else leader.number)
    acknowledged = [sent.message.index for sent in shard.network if sent.message.kind is Kind.APPEND_ACK]
    assert acknowledged == ([] if later else [before]), "what it has applied"
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))


def test_an_offer_is_answered_by_no_acknowledgement_of_a_term_that_is_not_promised_yet():
    shard, _, away = behind(11)
    shard.begin(away)
    leader, replica = shard.leader, away.replica
    assert leader is not None
    assert leader.replica is not None
    assert replica is not None
    found, term = leader.replica.checkpoint(), leader.replica.core.term + 1
    snapshot = Snapshot(found.entry, found.term, found.members().configuration)
    replica.core.step(Message(Kind.HEARTBEAT, away.number, leader.number, term))
    assert replica.promised < replica.core.term == term
    replica.step(Message(Kind.SNAPSHOT, away.number, leader.number, term, snapshot=snapshot))
    assert replica.exchange.catching_up.source == leader.number
    assert not [sent for sent in shard.network if sent.message.kind is Kind.APPEND_ACK]


def test_a_manifest_that_was_not_asked_for_does_not_say_what_is_fetched():
    """A second answer to a question that was asked twice names a later entry. Up to that one nothing is staged."""
    shard, leader, away = fetching(12)
    replica = away.replica
    assert replica is not None
    wanted = replica.exchange._wanted
    checkpoint = Checkpoint(entry=wanted[0] + 50, term=wanted[1], commit=99, acked=99, logs=[])
    later = cm.Manifest(wanted[0] + 50, msgspec.msgpack.encode(checkpoint), 0, [])
    replica.step(Message(Kind.PIECE, away.number, leader.number, context=cm.encode(later)))
    assert replica.exchange._wanted == wanted
    replica.exchange.take(Message(Kind.PIECE, away.number, leader.number, context=cm.encode(cm.Withdrawn(1))), {})
    assert replica.exchange.catching_up.progress(), "another manifest was withdrawn"
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))


def test_a_manifest_that_takes_longer_than_a_member_asks_for_it_is_taken(monkeypatch):
    """The checkpoint of a leader with many logs may take seconds."""
    shard, _, away = behind(13)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    with monkeypatch.context() as patched:
        patched.setattr(leader.replica._checkpoints, "work", lambda replica, *, begin: None)
        shard.begin(away)
        shard.until(lambda: away.replica and away.replica.exchange.catching_up.source == leader.number)
        shard.rounds(RETRY_TICKS * (TRIES + 1))
        assert away.replica is not None
        assert away.replica.exchange.catching_up.source == 0
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"), rounds=15)


def test_a_member_that_ends_while_its_manifest_is_withdrawn_is_offered_a_state_again(monkeypatch):
    shard, leader, away = fetching(14)

    def refuse(shipment: shipping.Shipment, ask: AskBatches) -> list[bytes]:
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(shipping.Shipment, "batches", refuse)
        while not any(sent.message.kind is Kind.PIECE for sent in shard.network):
            shard.turn(shard.deliver(0))
    assert leader.replica is not None
    assert leader.replica.exchange.shipping.entry() is None
    away.crash(power=True)
    shard.network.clear()
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    assert shard.leader is leader


class PlayedLinks:
    """Links that tell of one member that began anew."""

    def __init__(self, leader: Member, restarted: Member) -> None:
        peers = {number: f"ipc://{number}" for number in leader.shard.numbers}
        self.own = PeerIdentity(cluster="c", node=leader.number, uuid=leader.uuid, incarnation=1, peers=peers)
        self._restarted = {restarted.number}

    def take(self) -> list[PeerArrival]:
        return []

    def renewed(self) -> set[int]:
        return set()

    def restarted(self) -> set[int]:
        return self._restarted

    def flush(self, now_s: float) -> None:
        pass


def test_a_member_that_began_anew_is_offered_a_state_at_once():
    shard, leader, away = fetching(15)
    assert leader.replica is not None
    away.crash(power=True)
    shard.network.clear()
    shard.begin(away)
    links: Any = PlayedLinks(leader, away)
    standing: Any = SimpleNamespace(look=lambda: None)
    ShardMember(leader.replica, links, standing, leader.now).flush(leader.now)
    assert not leader.replica.keeps_files
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"), rounds=20)


def test_a_member_without_room_fetches_nothing():
    """Its disk was filled by what it fetched. It would end each time that it went on."""
    shard, leader, away = fetching(16)
    assert leader.replica is not None
    away.crash(power=True)
    shard.network.clear()
    shard.begin(away)
    leader.replica.exchange.restarted(away.number)
    assert away.replica is not None
    away.room = RESERVE_BYTES // 2 - 1
    shard.rounds(60)
    assert "installs" not in shard.counts
    away.room = RESERVE_BYTES // 2
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
