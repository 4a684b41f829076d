"""What a member has staged of a state goes, where it is not needed any more, and not before."""

from __future__ import annotations

import pytest
from penstock.broker.replica.catchup_messages import Asked, AskFile, LogStart, ShippedFile, ShippedLog, Staged
from penstock.broker.replica.exchange import Exchange
from penstock.broker.replica.shipping import ManifestDraft
from penstock.broker.replica.staging import StagedLog
from penstock.storage import runs
from penstock.storage.data_directory import log_path
from penstock.storage.log import LogOptions
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.recovery import NOTHING
from support.damaged import a_follower, is_whole, produce
from support.logs import LOG_ID, build
from support.members import DATA, Shard


def test_what_is_staged_of_a_state_goes_once_entries_have_come_after_all():
    """Another leader has them, for example. It may be a copy of everything."""
    shard = Shard(18)
    topic = shard.topic("t")
    member = a_follower(shard)
    path = f"{DATA}/staged/{bytes(16).hex()}"
    member.files.mkdir(path)
    member.files.create(f"{path}/left", 4096).close()
    member.crash(power=False)
    member.start()
    assert member.replica is not None
    member.replica.checkpoint()
    assert member.files.exists(path), "nothing has come yet, so it may go on from there"
    member.replica.exchange.catching_up.source = member.number
    produce(shard, topic, 10)
    assert member.files.exists(path), "a state is fetched"
    member.replica.exchange.catching_up.source = 0
    produce(shard, topic, 10)
    shard.rounds(2)
    assert not member.files.exists(f"{DATA}/staged")
    assert member.files.listdir(f"{DATA}/trash") == []


def test_a_file_that_another_leader_has_under_the_same_name_and_size_is_fetched_anew():
    """Each node files parts of a state by itself, so their numbers and sizes say nothing of what is in them."""
    files, name = MemoryFiles(), runs.file_name(3)
    batch = build(shape=((1,),)).batches[1]
    ours, theirs = (runs.encode_header(3, body, LOG_ID) + body for body in (b"one part", b"another!"))

    def staged(data: bytes) -> StagedLog:
        file = ShippedFile(name, len(data), int.from_bytes(data[:8], "little"))
        checksum = int.from_bytes(batch[:8], "little")
        shipped = ShippedLog(LOG_ID, b"", 0, LogStart(0, 0, 0, 0, 0), 1, checksum, [file])
        log = StagedLog(shipped, "d/staged/log", files, start=NOTHING, replaced=True)
        log.open(LogOptions())
        return log

    first = staged(ours)
    first.add_batches([batch])
    assert first.ask(9) == AskFile(9, LOG_ID, name, 0)
    first.add_piece(name, 0, ours)
    first.close(clean=True)
    again = staged(ours)
    assert again.ask(9) is None
    again.close()
    other = staged(theirs)
    assert other.ask(9) == AskFile(9, LOG_ID, name, 0)
    other.add_piece(name, 0, theirs)
    assert other.ask(9) is None
    other.close()
    assert files.read(f"d/staged/log/{name}") == theirs


def test_a_leader_says_which_files_it_has():
    shard = Shard(19)
    topic = shard.topic("t")
    produce(shard, topic, 60)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    draft = ManifestDraft(leader.replica.checkpoint(), 0, leader.replica.logs())
    assert draft.step()
    shipped = [(log, file) for log in draft.manifest().logs for file in log.files]
    assert shipped
    for log, file in shipped:
        found = leader.files.read(f"{log_path(DATA, log.topic, log.partition)}/{file.name}")
        assert (len(found), found[:8]) == (file.size, file.checksum.to_bytes(8, "little"))


@pytest.mark.parametrize("is_told", [True, False])
def test_a_member_that_has_installed_goes_on_with_entries_under_load(monkeypatch, is_told):
    """Its word that all is staged is lost with its process, and a busy leader has written newer checkpoints by the time
    that it is back. One state after the other was fetched, each with a restart, as long as the load lasted.

    `is_told`: the leader hears that word all the same.
    """
    shard = Shard(20)
    topic = shard.topic("t")
    produce(shard, topic, 4)
    away, leader = a_follower(shard), shard.leader
    assert leader is not None
    away.crash(power=True)
    produce(shard, topic, 30)
    replica = leader.replica
    assert replica is not None
    assert replica.order.first_index() > 10, "the member needs what the order has no more"
    monkeypatch.setattr(replica._checkpoints, "_keep", 100)  # the order has what follows
    put_ask = Exchange._put_ask

    def lose(exchange: Exchange, member: int, asked: Asked) -> None:
        if is_told or not isinstance(asked, Staged):
            put_ask(exchange, member, asked)

    monkeypatch.setattr(Exchange, "_put_ask", lose)
    shard.begin(away)
    while not shard.counts.get("installs"):
        step(shard)
    shard.closed.clear()
    produce(shard, topic, 20)
    assert replica._checkpoints.entry > replica.core.status().members[away.number].match
    replica.exchange.restarted(away.number)
    shard.begin(away)
    shard.until(lambda: is_whole(shard))
    assert shard.counts["installs"] == 1
    assert shard.leader is leader
    produce(shard, topic, 2)


def step(shard: Shard) -> None:
    """Each member ticks and takes a turn, and what is on its way arrives, as long as all of them are up."""
    shard.now_s += 0.1
    for member in shard.members.values():
        shard.tick(member)
        shard.turn(member)
    while shard.network and not shard.closed:
        shard.turn(shard.deliver(0))
