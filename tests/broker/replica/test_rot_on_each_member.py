"""Batches that have rotted are had from any member that holds them whole, whether it leads, follows or recovers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from penstock.broker.replica import catchup_messages as cm
from penstock.broker.replica import mending
from penstock.broker.replica.catchup_messages import AskWhole
from penstock.broker.replica.damage import NotedDamage, forget, log_in, note, note_mended, note_of, noted
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.broker.replica.errors import StateDiffers
from penstock.storage.batch import encode
from penstock.storage.data_directory import ASIDE, ORDER
from penstock.storage.errors import Corrupt, InvalidBatch
from penstock.storage.layout import DATA_START
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.scan import Good, scan
from penstock.storage.scrubbing import log_paths
from penstock.storage.verify import verify
from penstock.transport import messages as m
from support.damaged import a_follower, cut, flip, is_whole, produce, rot, segments
from support.members import DATA, Member, Shard


def value(number: int) -> bytes:
    return (b"%d" % number).ljust(3_000, b".")


def log_of(topic: bytes, partition: int = 0) -> str:
    return f"topics/{topic.hex()}/{partition}"


def scene(seed: int, records: int = 20) -> tuple[Shard, bytes]:
    """A shard with a topic whose partitions have several segments on every member."""
    shard = Shard(seed)
    topic = shard.topic("t")
    produce(shard, topic, records)
    shard.rounds(3)
    return shard, topic


def rot_each(shard: Shard, topic: bytes, numbers: Sequence[int] = (2, 4, 6)) -> None:
    """One byte on each member, in another batch of the same log."""
    for member, number in zip(shard.members.values(), numbers, strict=True):
        rot(member, topic, 0, value(number))


def scrubbed(shard: Shard, member: Member, log: str) -> None:
    """Tell a member that something of a log has rotted, as its keeper does."""
    damage = Corrupt(f"{log} rots", path=f"{DATA}/{log}")
    shard.guard(member, lambda replica: replica.exchange.mend(damage))


def is_clean(member: Member) -> bool:
    return all(verify(member.files, path).ok for path in log_paths(member.files, DATA))


def are_clean(shard: Shard) -> bool:
    return all(each.replica is not None and is_clean(each) for each in shard.members.values())


def with_notes(shard: Shard, log: str, *, judged: bool = True) -> None:
    """End all members, and open each with a note that a log of it has rotted."""
    for member in shard.members.values():
        member.crash(power=False)
        note(member.files, DATA, "a batch cannot be read", f"{DATA}/{log}", judged=judged)
        shard.begin(member)
        assert member.recovery is not None


def test_members_that_scrub_mend_each_other_and_go_on_meanwhile():
    shard, topic = scene(1)
    leader = shard.leader
    rot_each(shard, topic)
    assert not any(map(is_clean, shard.members.values()))
    for member in shard.members.values():
        scrubbed(shard, member, log_of(topic))
    shard.until(lambda: are_clean(shard), rounds=40)
    produce(shard, topic, 2)
    assert shard.leader is leader
    assert not {"damage", "closed by an error", "installs"} & set(shard.counts), "none has closed"
    for member in shard.members.values():
        assert member.replica.heartbeats.sparing.found is None
    shard.invariants.check(full=True)


def test_batches_of_appends_in_the_same_frame_are_not_taken_for_those_that_were_asked_for():
    """An answer with others beside it counted as wrong: the member closed, and fetched the log from the leader."""
    shard, topic = scene(21)
    member, leader = a_follower(shard), shard.leader
    for partition in (0, 1):
        rot(member, topic, partition, value(4 + partition))
        scrubbed(shard, member, log_of(topic, partition))
    next(each for each in shard.members.values() if each not in (member, leader)).crash(power=False)
    large = bytes(encode([bytes(INLINE_BYTES)]))  # it goes beside its entry
    while member.replica.exchange.mending.is_busy:
        shard.tick(member)  # which asks, and the leader answers in the turn in which it appends
        for partition in (0, 1):
            shard.send(leader, lambda n, at=partition: m.Produce(n, topic, at), large)
        while shard.network:
            shard.turn(shard.deliver(0))
        shard.rounds()
    assert not {"damage", "closed by an error", "installs"} & set(shard.counts), "it has not closed"
    assert is_clean(member)
    assert member.replica.heartbeats.sparing.found is None


def test_only_what_was_mended_is_told_as_mended():
    shard, topic = scene(14)
    member, told = a_follower(shard), list[str]()
    rot(member, topic, 0, value(4))
    for partition, name in ((0, "rotten"), (0, "again"), (1, "whole")):
        damage = Corrupt(f"{name} rots", path=f"{DATA}/{log_of(topic, partition)}")
        shard.guard(
            member, lambda replica, damage=damage, name=name: replica.exchange.mend(damage, lambda: told.append(name))
        )
    shard.until(lambda: not member.replica.exchange.mending.is_busy)
    assert told == ["rotten", "again"]
    found = member.replica.heartbeats.sparing.found
    assert found is not None, "it was read with damage, so it is fetched"
    assert "no batch of it has rotted" in found.message


def test_a_member_that_opens_with_rot_asks_no_leader_while_it_is_mended():
    shard, topic = scene(15)
    member = a_follower(shard)
    rot(member, topic, 0, value(4))
    member.crash(power=False)
    note(member.files, DATA, "a batch cannot be read", f"{DATA}/{log_of(topic)}", judged=True)
    shard.begin(member)
    recovery, leader = member.recovery, shard.leader
    term = leader.replica.core.term
    shard.until(lambda: member.replica is not None and is_whole(shard))
    assert recovery.catching_up.source == 0
    assert (shard.leader, leader.replica.core.term) == (leader, term), "no term is begun for it"
    assert is_clean(member)


@pytest.mark.parametrize("power", [False, True])
def test_three_that_are_damaged_mend_each_other_without_a_leader(power: bool):
    """Each fetched from a leader before, and none was whole: so none of them could ever be opened."""
    shard, topic = scene(2)
    rot_each(shard, topic)
    with_notes(shard, log_of(topic))
    if power:
        for member in shard.members.values():
            member.crash(power=True)
            shard.begin(member)
    shard.until(lambda: are_clean(shard) and is_whole(shard))
    assert not any(noted(each.files, DATA) for each in shard.members.values())
    assert not any(each.files.listdir(f"{DATA}/{ASIDE}") for each in shard.members.values()), "no log is fetched whole"
    produce(shard, topic, 2)
    assert "installs" not in shard.counts
    shard.invariants.check(full=True)


def test_a_member_that_reads_damage_closes_and_is_mended_by_followers():
    shard, topic = scene(3)
    leader = shard.leader
    rot(leader, topic, 0, value(4))
    fetch = lambda n: m.Fetch(n, topic, 0, 0, term=-1, max_bytes=1 << 20, wait_ms=0)  # noqa: E731
    shard.send(leader, fetch)
    shard.until(lambda: leader.recovery is not None)
    found = noted(leader.files, DATA)
    assert found is not None
    assert found.judged
    shard.until(lambda: are_clean(shard) and is_whole(shard))
    assert "installs" not in shard.counts
    assert isinstance(shard.ask(fetch), m.Fetched)


def answers_of_a_leader_that_may_not_close(shard: Shard, topic: bytes) -> list[Any]:
    """What it answers to one reader after the other, until all records are read or one is refused for good."""
    leader, offset, answers = shard.leader, 0, []
    leader.replica._answers.spared = lambda: False
    while offset < 10 and len(answers) < 200:
        fetch = lambda n: m.Fetch(n, topic, 0, offset, term=-1, max_bytes=1 << 20, wait_ms=0)  # noqa: B023, E731
        answers.append(shard.ask(fetch))
        if isinstance(answers[-1], m.Fetched):
            offset = answers[-1].next_offset
        elif not answers[-1].retry:
            break
    assert shard.leader is leader
    return answers


def test_readers_wait_for_what_others_have_where_the_leader_may_not_close():
    """They were told of damage at once, and went on behind records that two other nodes had whole."""
    shard, topic = scene(16)
    rot_each(shard, topic)
    waited, *_, last = answers_of_a_leader_that_may_not_close(shard, topic)
    assert (waited.code, waited.retry) == ("read_failed", True)
    assert isinstance(last, m.Fetched)
    assert is_clean(shard.leader)


def test_a_reader_whose_first_batch_has_a_rotten_header_waits_too():
    shard, topic = scene(17)
    leader = shard.leader
    flip(leader, segments(leader, f"{DATA}/{log_of(topic)}")[0], DATA_START + 9)
    waited, *_, last = answers_of_a_leader_that_may_not_close(shard, topic)
    assert waited.code == "read_failed"
    assert isinstance(last, m.Fetched)
    assert is_clean(leader)


def test_readers_miss_no_more_than_the_batch_that_no_member_has():
    """Its columns are verified by those who read it. They were told that all before it is damaged, too."""
    shard, topic = scene(18)
    rot_each(shard, topic, (4, 4, 4))
    answers = answers_of_a_leader_that_may_not_close(shard, topic)
    assert {each.code for each in answers if isinstance(each, m.Failure)} == {"read_failed"}
    assert isinstance(answers[-1], m.Fetched)


def named_batches(seed: int) -> tuple[Shard, bytes]:
    """A shard whose checkpoint is long ago, and whose entries since then only name their batches."""
    shard = Shard(seed, checkpoint_every=10_000)
    topic = shard.topic("t")
    produce(shard, topic, 12, size=INLINE_BYTES + 1_000)
    shard.rounds(3)
    return shard, topic


def test_three_whose_openings_find_a_header_rotten_that_only_its_log_has():
    shard, topic = named_batches(4)
    for number, member in enumerate(shard.members.values()):
        path = f"{DATA}/{log_of(topic)}"
        place = next(
            each.position
            for each in scan(member.files, path)
            if isinstance(each, Good) and each.batch.seq == 2 + number
        )
        flip(member, segments(member, path)[0], place + 9)
        member.crash(power=True)
        shard.begin(member)
        assert member.recovery is not None
        assert member.recovery.damage.paths == [f"{DATA}/{log_of(topic)}"], "it is named, though the order ends there"
    shard.until(lambda: are_clean(shard) and is_whole(shard))
    assert "installs" not in shard.counts
    produce(shard, topic, 2)


@pytest.mark.parametrize("place", [9, 150, 1_000])
def test_three_whose_orders_have_rotted(place: int):
    shard = Shard(5, checkpoint_every=10_000)
    topic = shard.topic("t")
    produce(shard, topic, 20)
    shard.rounds(3)
    for number, member in enumerate(shard.members.values()):
        flip(member, segments(member, f"{DATA}/{ORDER}")[1 + number], DATA_START + place)
        member.crash(power=False)
        shard.begin(member)
        assert member.recovery is not None
        assert [log_in(DATA, path) for path in member.recovery.damage.paths] == [ORDER]
    shard.until(lambda: are_clean(shard) and is_whole(shard))
    assert "installs" not in shard.counts
    produce(shard, topic, 2)


def test_a_member_that_has_lost_a_log_gets_it_from_members_that_have_rot_in_it():
    """The leader and the other follower mend what they meet while they ship, and close for nothing."""
    shard, topic = scene(6)
    leader, member = shard.leader, a_follower(shard)
    other = next(each for each in shard.members.values() if each not in (leader, member))
    member.crash(power=False)
    rot(leader, topic, 0, value(4))
    rot(other, topic, 0, value(8))
    cut(member, segments(member, f"{DATA}/{log_of(topic)}")[0])
    shard.begin(member)
    assert member.recovery is not None
    shard.until(lambda: member.replica is not None and is_whole(shard), rounds=400)
    assert is_clean(leader)
    produce(shard, topic, 2)


def test_what_no_member_has_whole_is_said_and_the_member_goes_the_way_of_other_damage():
    shard, topic = scene(7)
    rot_each(shard, topic, (4, 4, 4))
    member = a_follower(shard)
    scrubbed(shard, member, log_of(topic))
    shard.until(lambda: member.recovery is not None)
    found = noted(member.files, DATA)
    assert found is not None
    assert "have rotted, and no other node has them whole" in found.reason
    shard.until(lambda: member.recovery.problem)
    assert member.recovery.problem == found.reason
    shard.rounds(20)
    produce(shard, topic, 2)
    assert noted(member.files, DATA) == found


def test_without_a_leader_the_others_are_asked_again_and_again():
    shard, topic = scene(8)
    rot_each(shard, topic)
    first, second, third = shard.members.values()
    shard.cut = {(one, other) for one in shard.numbers for other in shard.numbers if one != other}
    with_notes(shard, log_of(topic))
    shard.until(lambda: all(each.recovery.problem for each in shard.members.values()), rounds=600)
    assert "none of the other nodes that answer" in first.recovery.problem
    shard.cut.clear()
    shard.until(lambda: are_clean(shard) and is_whole(shard), rounds=400)
    assert second.replica is not None
    assert third.replica is not None


def test_what_is_noted_of_more_than_files_is_not_taken_back():
    """An entry that was acknowledged and is gone, or a state that differs, is nothing that an opening would see."""
    shard, topic = scene(9)
    rot_each(shard, topic)
    with_notes(shard, log_of(topic), judged=False)
    shard.rounds(60)
    assert all(each.recovery is not None for each in shard.members.values())
    assert not any(map(is_clean, shard.members.values()))
    assert shard.leader is None


def test_a_note_is_of_files_alone_as_long_as_all_that_is_noted_is():
    files = MemoryFiles()
    files.mkdir("d")
    log = f"d/topics/{bytes(16).hex()}/0"
    assert note_of(files, "d", Corrupt("bad", path=f"{log}/x.segment")) == ""
    assert noted(files, "d").judged
    assert note_of(files, "d", StateDiffers("other", path=log)) == ""
    assert not noted(files, "d").judged
    assert note_of(files, "d", Corrupt("bad", path=log)) == ""
    assert not noted(files, "d").judged
    files.unlink("d/damaged")
    assert note_of(files, "d", StateDiffers("other", path=log)) == ""
    assert not noted(files, "d").judged
    files.unlink("d/damaged")
    assert note_of(files, "d", Corrupt("bad")) == ""
    assert not noted(files, "d").judged, "no log is named"


@pytest.mark.parametrize("power", [False, True])
def test_one_that_is_cut_short_between_mending_and_saying_so_goes_on(power: bool):
    shard, topic = scene(12)
    rot_each(shard, topic)
    with_notes(shard, log_of(topic))
    shard.until(lambda: all(each.recovery and each.recovery.mending.batches for each in shard.members.values()))
    for member in shard.members.values():
        member.crash(power=power)
        assert is_clean(member)
        assert noted(member.files, DATA) is not None
        shard.begin(member)
    shard.closed.clear()
    shard.until(lambda: is_whole(shard) and shard.leader)
    assert "installs" not in shard.counts


def test_damage_beside_batches_is_judged_once_and_then_fetched_from_a_leader(monkeypatch: pytest.MonkeyPatch):
    """Else a member would mend nothing, open, and find the same again, for ever."""
    monkeypatch.setattr(mending, "look_for_rot", lambda *_: iter(()))
    shard, topic = scene(13)
    member = a_follower(shard)
    member.crash(power=False)
    cut(member, segments(member, f"{DATA}/{log_of(topic)}")[0])
    shard.begin(member)
    assert member.recovery.damage.judged
    starts = member.starts
    shard.until(lambda: is_whole(shard))
    assert member.starts == starts + 2, "opened once more, and once to install"
    assert shard.counts["installs"] == 1
    assert noted(member.files, DATA) is None


def test_what_is_found_after_all_was_mended_is_judged_again_if_it_is_of_another_log():
    files = MemoryFiles()
    files.mkdir("d")
    one, other = "d/order", "d/metadata"
    assert note(files, "d", "first", one, judged=True) == NotedDamage("first", [one], judged=True)
    note_mended(files, "d", noted(files, "d"))
    assert noted(files, "d") == NotedDamage("first", [one], judged=True, mended=True)
    assert note(files, "d", "second", other, judged=True) == NotedDamage("second", [one, other], judged=True)
    note_mended(files, "d", noted(files, "d"))
    assert note(files, "d", "third", f"{one}/x", judged=True) == NotedDamage("third", [one, other, f"{one}/x"])
    files.unlink("d/damaged")
    note(files, "d", "first", one, judged=True)
    note_mended(files, "d", noted(files, "d"))
    assert note(files, "d", "lost", other) == NotedDamage("lost", [one, other])
    forget(files, "d")
    forget(files, "d")
    assert noted(files, "d") is None


def test_the_log_that_a_path_leads_into():
    topic = bytes(16).hex()
    found = {
        path: log_in("/d", path)
        for path in (
            *("/d/order", "/d/order/snapshot-1", "/d/metadata/x.segment", f"/d/topics/{topic}/3/x.segment"),
            *(f"/d/topics/{topic}", "/d/topics", "/d/promises", "/other/order", "order", "/d", "", "/d/staged/order"),
        )
    }
    assert {path: log for path, log in found.items() if log} == {
        "/d/order": "order",
        "/d/order/snapshot-1": "order",
        "/d/metadata/x.segment": "metadata",
        f"/d/topics/{topic}/3/x.segment": f"topics/{topic}/3",
    }


def test_a_state_that_differs_is_nothing_to_mend():
    shard, topic = scene(10)
    member = a_follower(shard)
    damage = StateDiffers("other", path=f"{DATA}/{log_of(topic)}")
    shard.guard(member, lambda replica: replica.exchange.mend(damage))
    assert member.replica.heartbeats.sparing.found is damage
    assert not member.replica.exchange.mending.is_busy


@pytest.mark.parametrize("log", ["", "..", "topics/../../etc", "topics/x/0", "staged/order", "order/x", "/order"])
def test_a_question_for_anything_but_a_log_is_none(log: str):
    asked = cm.encode(AskWhole(log, bytes(16), 1, 1))
    with pytest.raises(InvalidBatch):
        cm.decode(asked)
