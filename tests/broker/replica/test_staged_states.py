"""What a member has staged of a state goes, where it is not needed any more, and not before."""

from __future__ import annotations

from support.damaged import a_follower, produce
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
