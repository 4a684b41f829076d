"""A member that needs more than the order still has fetches what differs, and installs it at opening."""

from __future__ import annotations

import msgspec
import pytest
from penstock.broker.raft.messages import Kind, Message
from penstock.broker.replica import catchup_messages as cm
from penstock.broker.replica import shipping
from penstock.broker.replica.catchup_messages import AskBatches, Asked
from penstock.broker.replica.checkpoint import Checkpoint
from penstock.broker.replica.errors import ReplicaBroken
from penstock.broker.replica.exchange import Exchange
from penstock.broker.replica.staging import read_record
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
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


def test_a_log_that_the_leader_has_trimmed_beyond_the_member_is_replaced_whole():
    shard = Shard(7)
    settings = {"retention_records": 3, "segment_bytes": 64 << 10}
    topic = shard.ask(lambda number: m.CreateTopic(number, "t", 2, settings)).topics[0].topic
    fill(shard, topic, 4)
    away = next(member for member in shard.members.values() if member is not shard.leader)
    away.crash(power=True)
    for _ in range(2):
        fill(shard, topic, 44, size=20_000)
        shard.now_s += 100
        shard.rounds(3)
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

    def offer(term: int) -> None:
        checkpoint = Checkpoint(entry=99, term=term, commit=99, acked=99, logs=[])
        manifest = cm.Manifest(99, msgspec.msgpack.encode(checkpoint), 0, [])
        replica.step(Message(Kind.PIECE, away.number, leader.number, context=cm.encode(manifest)))

    offer(replica.promised + 1)
    assert not away.files.exists(f"{DATA}/staged")
    with pytest.raises(ReplicaBroken, match="staged"):
        offer(replica.promised)
