"""A member whose disk fails to sync closes, opens anew, and promises or acknowledges nothing that a power cut takes."""

from __future__ import annotations

import errno
from functools import partial

import pytest
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.broker.replica.errors import ReplicaBroken
from penstock.broker.replica.replicated import Replicated
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import DATA, Member, Shard


def led(seed: int, topic: str) -> tuple[Shard, Member, Member, bytes]:
    """A shard with a topic, its leader and another member."""
    shard = Shard(seed)
    made = shard.topic(topic)
    leader = shard.until(lambda: shard.leader)
    return shard, leader, next(each for each in shard.members.values() if each is not leader), made


@pytest.mark.parametrize("again", [False, True])
def test_a_promise_that_could_not_be_synced_is_durable_before_its_member_speaks(again: bool):
    shard, leader, member, topic = led(1, "t")
    journal, starts = f"{DATA}/promises", member.starts
    member.files.fail_next(journal)
    shard.guard(leader, lambda replica: replica.core.transfer(member.number))
    shard.until(lambda: member in shard.closed)
    assert member.files.disk(member.files.contents[journal]).errors == 1
    if again:
        member.files.fail_next(journal)
    shard.until(lambda: member.is_up)
    assert member.starts == starts + 1 + again
    assert isinstance(shard.ask(lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"]))), m.Produced)
    shard.invariants.check(full=True)


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("path", ["order", "topic"])
def test_a_log_that_could_not_be_synced_has_its_member_open_anew_and_fetch_what_it_lacks(path: str, leads: bool):
    shard, leader, other, topic = led(2, "t")
    member = leader if leads else other
    log = f"{DATA}/order" if path == "order" else f"{DATA}/topics/{topic.hex()}/0"
    starts = member.starts
    value = b"v" * (2 * INLINE_BYTES if path == "topic" else 1)  # in its log alone, or in the entry, too
    for name in [name for name in member.files.contents if name.startswith(f"{log}/") and name.endswith(".segment")]:
        member.files.fail_next(name)
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([value])))
    shard.until(lambda: member in shard.closed)
    shard.until(lambda: member.replica is not None and member.starts > starts)
    answer = shard.answer(leader, request)
    if not leads:
        answer = shard.until(lambda: shard.answer(leader, request))
        assert isinstance(answer, m.Produced)
    for each in shard.members.values():
        each.crash(power=True)
        each.start()
    again = shard.ask(lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    assert isinstance(again, m.Produced)
    assert not isinstance(answer, m.Produced) or again.offset > answer.offset
    shard.rounds(20)
    shard.invariants.check(full=True)


def test_a_leader_with_a_log_that_could_not_be_cut_appends_to_no_other_and_closes():
    shard = Shard(31)
    topic, leader = shard.topic("t"), shard.leader
    assert leader is not None
    assert leader.replica is not None
    for partition in range(2):
        shard.send(leader, partial(m.Produce, topic=topic, partition=partition), bytes(encode([b"x"])))
    leader.files.within = Replicated._all_or_none.__code__
    leader.files.full_at, leader.files.fails_at = 2, 1
    with pytest.raises(ReplicaBroken, match="could not be cut"):
        leader.replica.turn(leader.now)


def test_a_member_whose_disk_fails_as_it_makes_a_log_is_opened_anew(monkeypatch: pytest.MonkeyPatch):
    shard, _, member, _ = led(4, "t")
    starts, make = member.starts, member.files.sync_dir

    def failing(path: str) -> None:
        if path.startswith(f"{DATA}/topics") and member.starts == starts:
            raise OSError(errno.EIO, "Input/output error")
        make(path)

    monkeypatch.setattr(member.files, "sync_dir", failing)
    shard.topic("u")
    shard.until(lambda: member.replica is not None and member.starts > starts)
    shard.invariants.check(full=True)
