"""Making many logs takes seconds. It is done in portions while peers are served, so the leader keeps the lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from penstock.broker.engine.logs.overlays import OPENED_AT_ONCE
from penstock.broker.member.member import ShardMember
from penstock.broker.raft.messages import Kind, Message
from penstock.broker.replica import catchup_messages as cm
from penstock.broker.replica.order_checkpoints import SYNCED_AT_ONCE
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import DATA, Member, Shard

STEP_S = 0.005
TICK_S = 0.05
SYNC_S = 0.001
"""What a sync takes: meanwhile its member hears and says nothing."""


class Timed:
    """A shard in which syncs take time, and members work side by side."""

    def __init__(self, shard: Shard, sync_s: float = SYNC_S) -> None:
        self.shard = shard
        self.sync_s = sync_s
        self.busy_s = dict.fromkeys(shard.members.values(), 0.0)
        self.tick_s = dict.fromkeys(shard.members.values(), 0.0)

    def step(self) -> None:
        """A few milliseconds."""
        shard = self.shard
        shard.now_s += STEP_S
        for member in shard.members.values():
            if self.busy_s[member] <= shard.now_s:
                before = member.files.syncs
                self._work(member)
                self.busy_s[member] = shard.now_s + self.sync_s * (member.files.syncs - before)

    def _work(self, member: Member) -> None:
        shard = self.shard
        for sent in [sent for sent in shard.network if sent.message.to == member.number]:
            shard.deliver(shard.network.index(sent))
        if self.tick_s[member] <= shard.now_s:  # a late one counts once
            self.tick_s[member] = shard.now_s + TICK_S
            shard.tick(member)
        shard.turn(member)


def test_the_leader_keeps_lead_and_term_over_a_topic_of_a_thousand_partitions():
    shard = Shard(1)
    shard.topic("small", 1)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    term, timed = leader.replica.core.term, Timed(shard)
    request = shard.send(leader, lambda number: m.CreateTopic(number, "large", 1000, {}))
    while shard.answer(leader, request) is None:
        timed.step()
        assert leader.leads, f"the lead is lost after {shard.now_s:.1f} s"
        assert shard.now_s < 120
    answer = shard.answer(leader, request)
    assert isinstance(answer, m.Topics), answer
    assert leader.replica.core.term == term
    for _ in range(400):
        timed.step()
    assert leader.leads
    topic = answer.topics[0].topic
    produced = shard.ask(lambda number: m.Produce(number, topic, 999), bytes(encode([b"x"])))
    assert isinstance(produced, m.Produced)
    shard.invariants.check(full=True)
    assert all(len(each.replica.node.logs) == 1002 for each in shard.members.values())


@pytest.mark.parametrize("killed", ["none", "all", "followers"])
def test_first_appends_to_many_logs_open_a_few_in_each_turn(killed: str):
    shard, leader, topic = wide(6, used=killed != "none")
    for member in [each for each in shard.members.values() if killed == "all" or each is not leader]:
        if killed != "none":
            member.crash(power=False)
            member.start()
    shard.network.clear()
    leader = shard.until(lambda: shard.leader)
    assert leader.replica is not None
    term = leader.replica.core.term
    requests = [
        shard.send(leader, lambda number, at=partition: m.Produce(number, topic, at), bytes(encode([b"first"])))
        for partition in range(30)
    ]
    opened = dict.fromkeys(shard.members.values(), 0)
    for _ in range(60):
        for member in shard.members.values():
            before, resting = member.files.syncs, resting_logs(member)
            for sent in [sent for sent in shard.network if sent.message.to == member.number]:
                shard.deliver(shard.network.index(sent))
            shard.tick(member)
            shard.guard(member, lambda replica: replica.turn(leader.now))
            found = resting - resting_logs(member)
            assert found <= 16, "8 with the messages, however many these are, and 8 in the turn"
            assert member.files.syncs - before <= 20
            opened[member] += found
            shard.sync(member)
    assert all(isinstance(shard.answer(leader, request), m.Produced) for request in requests)
    kept_open = [leader] if killed == "followers" else []
    assert all(30 <= count <= 31 for each, count in opened.items() if each not in kept_open), "the catalogue's, too"
    assert leader.leads
    assert leader.replica.core.term == term
    shard.invariants.check(full=True)


def test_a_leader_that_was_cut_off_cuts_a_few_logs_in_each_turn():
    shard, old, topic = wide(7, 60)
    others = [each for each in shard.members.values() if each is not old]
    for each in others:
        shard.cut |= {(old.number, each.number), (each.number, old.number)}
    produce = [lambda number, at=partition: m.Produce(number, topic, at) for partition in range(60)]
    for request in produce:
        shard.send(old, request, bytes(encode([b"never committed"])))
    while old.leads:  # until no other member has answered for long
        shard.tick(old)
        shard.turn(old)
    shard.network.clear()
    shard.until(lambda: any(each.leads for each in others))
    new = next(each for each in others if each.leads)
    requests = [shard.send(new, request, bytes(encode([b"instead"]))) for request in produce]
    shard.until(lambda: all(shard.answer(new, request) is not None for request in requests))
    assert old.replica is not None
    assert new.replica is not None
    places = old.replica.places
    assert len({row.log_id for row in places.rows(places.entry + 1, places.last)}) >= 60
    shard.cut.clear()
    shard.network.clear()
    for _ in range(60):
        for member in shard.members.values():
            before = member.files.syncs
            for sent in [sent for sent in shard.network if sent.message.to == member.number]:
                shard.deliver(shard.network.index(sent))
            shard.tick(member)
            shard.guard(member, lambda replica, at=member: replica.turn(at.now))
            assert member.files.syncs - before <= 60
            shard.sync(member)
    assert new.leads
    assert old.replica.places.applied == new.replica.places.applied
    shard.invariants.check(full=True)


def resting_logs(member: Member) -> int:
    """Logs that a first append has to open."""
    assert member.replica is not None
    return sum(log.rests for log in member.replica.node.logs)


def wide(seed: int, partitions: int = 30, *, used: bool = True) -> tuple[Shard, Member, bytes]:
    """A shard with a record in each of many partitions, none of which is synced but in the order; and its leader.

    Not `used`: without the records.
    """
    shard = Shard(seed, checkpoint_every=10_000)
    leader = shard.until(lambda: shard.leader)
    request = shard.send(leader, lambda number: m.CreateTopic(number, "wide", partitions, {}))
    topic = shard.until(lambda: shard.answer(leader, request), rounds=100 + 2 * partitions).topics[0].topic
    assert leader.replica is not None
    for partition in range(partitions if used else 0):
        shard.send(leader, lambda number, at=partition: m.Produce(number, topic, at), bytes(encode([b"x"])))
    for _ in range(4 + partitions // OPENED_AT_ONCE):
        for member in shard.members.values():
            shard.tick(member)
            shard.guard(member, lambda replica: replica.turn(leader.now))
            shard.guard(member, lambda replica: replica.order.log.sync() and None)
            shard.guard(member, lambda replica: replica.synced(leader.now))
        while shard.network:
            shard.deliver(0)
    assert not used or sum(log.durable < log.written for log in leader.replica.node.logs) >= partitions
    return shard, leader, topic


def test_a_checkpoint_waits_for_the_syncs_of_a_few_logs_at_a_time():
    shard, leader, topic = wide(2)
    replica = leader.replica
    assert replica is not None
    entry, unsynced = replica.places.entry, sum(log.durable < log.written for log in replica.logs())
    before, portions = replica._checkpoints.entry, list[int]()
    replica._checkpoints.change(replica.directories.members)
    while replica._checkpoints.entry == before:
        syncs = leader.files.syncs
        replica.turn(leader.now)
        is_written = replica._checkpoints.entry != before
        assert leader.files.syncs - syncs <= SYNCED_AT_ONCE * is_written, "a turn waits for none of the logs"
        waiting = [log for log in replica.dirty() if log is not replica.order.log]
        if not is_written:
            portions.append(len(waiting))
            for log in waiting[1:]:
                log.sync()
            replica.turn(leader.now)
            assert replica.dirty() == [], "each is asked for once, and all are waited for"
            assert replica._checkpoints.entry == before
        assert len(portions) < 9
        for log in waiting:
            log.sync()
        if len(portions) == 2:  # what comes meanwhile is of the next one
            shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([b"later"])))
    assert replica._checkpoints.entry == entry
    assert portions == [SYNCED_AT_ONCE] * 3 + [unsynced - 3 * SYNCED_AT_ONCE]
    leader.crash(power=True)
    leader.start()
    assert leader.recovery is None
    assert isinstance(shard.ask(lambda n: m.Produce(n, topic, 3), bytes(encode([b"y"]))), m.Produced)
    shard.invariants.check(full=True)


def test_a_leader_that_waits_for_the_syncs_of_a_checkpoint_does_not_run_in_circles():
    shard, leader, _ = wide(8)
    replica = leader.replica
    assert replica is not None
    member = next(each for each in shard.members.values() if each is not leader)
    own = SimpleNamespace(peers=dict.fromkeys(shard.numbers, ""), node=leader.number)
    links: Any = SimpleNamespace(own=own, readable=False, wait=lambda now_s: 1.0)
    driven = ShardMember(replica, links, cast("Any", None), leader.now)
    ask = Message(Kind.SHIP, leader.number, member.number, context=cm.encode(cm.AskManifest(0)))
    replica.exchange.take(ask, {})
    replica.turn(leader.now)
    assert replica.exchange.waits
    assert driven.tick(leader.now) > 0.0
    replica.exchange.checkpointed(replica.checkpoint())
    assert driven.tick(leader.now) == 0.0, "a manifest is in the making"


def test_a_checkpoint_that_waits_for_a_log_of_a_deleted_topic_begins_anew():
    _, leader, _ = wide(3)
    replica = leader.replica
    assert replica is not None
    checkpoints = replica._checkpoints
    before = checkpoints.entry
    checkpoints.change(replica.directories.members)
    replica.turn(leader.now)
    assert not checkpoints.due(replica)
    checkpoints._unsynced[0][0].close(clean=False)  # as when the deletion of its topic is applied
    assert checkpoints.work(replica, begin=False) is None
    assert checkpoints.due(replica)
    assert checkpoints.work(replica, begin=False) is None, "it is given up"
    assert checkpoints.entry == before


def test_what_comes_behind_a_large_topic_waits_for_its_logs_and_is_taken_in_order():
    shard = Shard(4)
    small = shard.topic("small", 1)
    leader = shard.leader
    assert leader is not None
    member = next(each for each in shard.members.values() if each is not leader)
    assert leader.replica is not None
    assert member.replica is not None
    last = leader.replica.order.last_index()
    shard.send(leader, lambda number: m.CreateTopic(number, "large", 20, {}))
    while leader.replica.order.last_index() == last:
        shard.turn(leader)
    shard.send(leader, lambda number: m.Produce(number, small, 0), bytes(encode([b"behind"])))
    shard.turn(leader)
    appends = [sent for sent in shard.network if sent.message.to == member.number and sent.message.entries]
    assert len(appends) == 2
    for sent in appends:
        shard.deliver(shard.network.index(sent))
    replica, logs = member.replica, len(member.files.listdir(f"{DATA}/topics"))
    assert replica.preparing
    assert replica.order.last_index() == last
    while replica.preparing:
        shard.turn(member)
    shard.turn(member)
    assert replica.order.last_index() == last + 2
    assert len(member.files.listdir(f"{DATA}/topics")) == logs
    answers = [sent.message for sent in shard.network if sent.message.kind is Kind.APPEND_ACK]
    assert [each.index for each in answers][-1] == last + 2
    assert not any(each.reject for each in answers), "nothing was dropped, so nothing is sent again"


def test_a_leader_of_an_earlier_term_has_no_logs_made():
    shard = Shard(5)
    shard.topic("small", 1)
    leader = shard.leader
    assert leader is not None
    member = next(each for each in shard.members.values() if each is not leader)
    assert leader.replica is not None
    assert member.replica is not None
    last = leader.replica.order.last_index()
    shard.send(leader, lambda number: m.CreateTopic(number, "large", 20, {}))
    while leader.replica.order.last_index() == last:
        shard.turn(leader)
    (append,) = [sent for sent in shard.network if sent.message.to == member.number and sent.message.entries]
    member.replica.core._state.follow(append.message.term + 1, 0)
    shard.deliver(shard.network.index(append))
    assert not member.replica.preparing
    assert len(member.files.listdir(f"{DATA}/topics")) == 1


def test_an_append_that_comes_again_does_not_open_the_logs_of_a_topic_that_was_deleted():
    shard = Shard(1686)
    shard.topic("kept", 1)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    member = next(each for each in shard.members.values() if each is not leader)
    last = leader.replica.order.last_index()
    request = shard.send(leader, lambda number: m.CreateTopic(number, "deleted", 2, {}))
    while leader.replica.order.last_index() == last:
        shard.turn(leader)
    (append,) = [sent for sent in shard.network if sent.message.to == member.number and sent.message.entries]
    shard.rounds(3)
    topic = shard.answer(leader, request).topics[0].topic
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)
    shard.rounds(3)
    assert member.replica is not None
    logs = member.replica.node.logs
    assert len(logs) == 2
    shard.network.append(append)
    shard.deliver(0)
    assert member.replica.node.logs == logs


def sync_what_is_waited_for(shard: Shard, member: Member) -> None:
    """As a keeper does it: small batches stay unsynced in their logs."""

    def work(replica):
        for log in replica.dirty():
            log.sync()
        replica.synced(member.now)

    shard.guard(member, work)


def test_a_member_that_asks_for_a_state_costs_no_lead_where_many_logs_are_to_be_synced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Shard, "sync", sync_what_is_waited_for)
    shard = Shard(7, checkpoint_every=10_000)
    leader = shard.until(lambda: shard.leader)
    request = shard.send(leader, lambda number: m.CreateTopic(number, "large", 200, {}))
    topic = shard.until(lambda: shard.answer(leader, request), rounds=600).topics[0].topic
    assert leader.replica is not None
    for number in range(200):
        shard.send(leader, lambda request, at=number: m.Produce(request, topic, at), bytes(encode([b"x"])))
    shard.rounds(3)
    logs = leader.replica.logs()
    assert sum(log.durable < log.written for log in logs) >= 200
    member = next(each for each in shard.members.values() if each is not leader)
    ask = Message(Kind.SHIP, leader.number, member.number, context=cm.encode(cm.AskManifest(0)))
    shard.sent(ask, [])
    term, timed = leader.replica.core.term, Timed(shard, sync_s=0.01)
    until_s = shard.now_s + 20
    listed = 0
    while leader.replica.exchange.shipping.entry() is None:
        timed.step()
        listed += bool(leader.replica.exchange._listings)
        assert shard.now_s < until_s
        assert leader.leads, "two seconds of syncs in one turn"
    assert listed >= 3
    for _ in range(800):
        timed.step()
    assert leader.leads
    assert leader.replica.core.term == term
    assert not any(log.durable < log.written for log in logs)
