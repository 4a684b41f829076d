"""Members that add a log up to different states: what a majority has is right, and a member that differs fetches it."""

from __future__ import annotations

import pytest
from penstock.broker.raft.messages import Entry, EntryKind, Kind, Message
from penstock.broker.replica import digests
from penstock.broker.replica.damage import noted
from penstock.broker.replica.digesting import parts
from penstock.broker.replica.digests import (
    AT_ONCE,
    PART,
    ROUNDS,
    TOLD_AT_ONCE,
    DigestReport,
    DigestVotes,
    OwnDigests,
    layout,
)
from penstock.broker.replica.entries import encode_flush
from penstock.storage.errors import Corrupt, InvalidBatch
from support.altered import alter, are_equal, history_of
from support.damaged import a_follower, is_whole, produce
from support.members import DATA, Member, Shard

EVERY = 8


def scene(seed: int) -> tuple[Shard, bytes, Member]:
    """A shard with a topic, and its leader."""
    shard = Shard(seed, checkpoint_every=EVERY)
    topic = shard.topic("t")
    produce(shard, topic, 4, size=10)
    assert shard.leader is not None
    return shard, topic, shard.leader


def until_equal(shard: Shard, topic: bytes) -> None:
    for _ in range(10):
        if are_equal(shard):
            shard.invariants.altered = False
            shard.invariants.check(full=True)
            return
        produce(shard, topic, EVERY, size=10)
        shard.rounds(12)
    raise AssertionError("states differ for ever")


def test_members_with_equal_states_go_on():
    shard, topic, leader = scene(1)
    produce(shard, topic, 5 * EVERY, size=10)
    shard.rounds(10)
    assert leader.replica is not None
    assert leader.replica.digesting._votes._rounds, "they were compared"
    assert shard.leader is leader
    assert "closed by an error" not in shard.counts


@pytest.mark.parametrize("leads", [False, True])
def test_a_member_that_differs_from_a_majority_closes_and_fetches_the_log(leads):
    shard, topic, leader = scene(2)
    member = leader if leads else a_follower(shard)
    alter(member, topic)
    until_equal(shard, topic)
    assert shard.counts["alteration noticed"] == 1
    assert noted(member.files, DATA) is None
    assert not history_of(member, topic).committed.groups.by_name
    assert is_whole(shard)


def test_what_was_noticed_is_named_with_the_log_which_is_fetched_whole():
    shard, topic, _ = scene(3)
    close, notes = shard._close, []

    def noting(member, error):
        close(member, error)
        notes.append(noted(member.files, DATA))

    shard._close = noting
    alter(a_follower(shard), topic)
    until_equal(shard, topic)
    assert notes[0].paths == [f"{DATA}/topics/{topic.hex()}/0"]
    assert "adds up to at entry" in notes[0].reason


def test_a_state_that_was_saved_and_loaded_again_is_noticed_too():
    shard, topic, _ = scene(4)
    member = a_follower(shard)
    alter(member, topic)
    member.replica.node._upkeep.snapshot(history_of(member, topic))
    member.crash(power=False)
    member.start()
    assert history_of(member, topic).committed.groups.by_name
    until_equal(shard, topic)
    assert shard.counts["alteration noticed"] == 1


def test_two_members_that_differ_are_shown_and_go_on_until_a_third_decides():
    shard, topic, leader = scene(5)
    member = a_follower(shard)
    third = next(each for each in shard.members.values() if each not in (leader, member))
    third.crash(power=True)
    alter(member, topic)
    produce(shard, topic, 2 * EVERY, size=10)
    shard.rounds(12)
    digesting = leader.replica.digesting
    assert digesting.undecided() == {f"{DATA}/topics/{topic.hex()}/0": sorted([leader.number, member.number])}
    produce(shard, topic, 2 * EVERY, size=10)
    assert "alteration noticed" not in shard.counts
    third.start()
    until_equal(shard, topic)
    produce(shard, topic, 2 * EVERY, size=10)
    shard.rounds(12)
    assert leader.replica.digesting.undecided() == {}
    assert not history_of(member, topic).committed.groups.by_name


def test_a_lead_that_is_lost_takes_what_others_said_with_it():
    shard, topic, leader = scene(6)
    digesting = leader.replica.digesting
    digesting._votes.undecided[b"x" * 16] = [1, 2]
    assert digesting.undecided() == {}, "a log that is not open here"
    produce(shard, topic, 2 * EVERY, size=10)
    leader.replica.core.transfer(a_follower(shard).number)
    shard.until(lambda: shard.leader not in (None, leader))
    shard.rounds(2)
    assert digesting._votes.undecided == digesting._votes._rounds == {}


def test_what_cannot_be_read_is_ignored_and_what_a_majority_has_is_obeyed():
    shard, topic, leader = scene(7)
    produce(shard, topic, 2 * EVERY, size=10)
    shard.rounds(4)
    member = a_follower(shard)
    replica, log_id = member.replica, history_of(member, topic).log.log_id
    own = replica.digesting._own
    entry = max(own._found)

    def said(kind: Kind, digest: int, at: int = entry) -> Message:
        return Message(kind, member.number, leader.number, context=digests.encode(at, [(log_id, digest)]))

    digesting = replica.digesting
    digesting.take(Message(Kind.HEARTBEAT, member.number, leader.number, context=b"\x93"))
    digesting.take(said(Kind.HEARTBEAT, own._found[entry][log_id]))
    digesting.take(said(Kind.HEARTBEAT, 1, at=1))
    digesting.take(said(Kind.HEARTBEAT_ACK, 1))
    digesting.take(said(Kind.READ, 1))
    with pytest.raises(Corrupt, match="differs from what a majority") as caught:
        digesting.take(said(Kind.HEARTBEAT, 1))
    assert caught.value.path.endswith(f"{topic.hex()}/0")


# -- the parts ----------------------------------------------------------------------------------------


class Log:
    """A state that is its seq."""

    def __init__(self, seq: int = 1) -> None:
        self.seq = seq
        self.taken = 0

    def digest(self) -> int:
        self.taken += 1
        return self.seq


def own_of(logs: dict[bytes, Log], every: int = 10) -> OwnDigests:
    return OwnDigests(100, every, logs.get)


def names(count: int) -> list[bytes]:
    return [b"%016d" % number for number in range(count)]


def begin(own: OwnDigests, entry: int, logs: dict[bytes, Log]) -> None:
    own.begin(entry, {log_id: (log.seq, 7) for log_id, log in logs.items()})


def test_an_entry_asks_so_many_entries_after_the_last_one_that_asked():
    own = own_of({})
    assert [own.asks(entry) for entry in (109, 110, 111, 119, 120)] == [False, True, False, False, True]
    own.begin(125, {})
    assert [own.asks(entry) for entry in (134, 135)] == [False, True]


def test_logs_are_digested_some_in_each_turn_and_before_they_move():
    logs = {log_id: Log() for log_id in names(2 * AT_ONCE + 1)}
    own = own_of(logs)
    own.moving(list(logs)[:1])
    assert own.take() is None, "before anything asks"
    begin(own, 110, logs)
    last = names(2 * AT_ONCE + 1)[-1]
    own.moving([last, b"another"])
    assert [each.taken for each in logs.values()] == [0] * 2 * AT_ONCE + [1]
    logs[last].seq = 2
    own.work()
    assert sum(each.taken for each in logs.values()) == AT_ONCE + 1
    own.work()
    own.work()
    own.moving(list(logs))
    assert {each.taken for each in logs.values()} == {1}
    told = own.take()
    assert told is not None
    assert (told.layout, told.entry, told.logs[0][0]) == (layout(), 110, last)
    assert len(dict(told.logs)) == len(logs)
    assert len(set(dict(told.logs).values())) == 1, "the last one was taken before it moved"
    assert own.take() is None


def test_of_many_logs_each_entry_asks_for_a_part_that_is_the_same_on_every_member():
    members = [{log_id: Log() for log_id in names(1000)} for _ in range(2)]
    owns = [own_of(logs, every=1600) for logs in members]
    untaken = []
    for entry in range(1700, 1700 + 100 * 100, 100):
        for own, logs in zip(owns, members, strict=True):
            begin(own, entry, logs)
            own.moving(list(logs))
            for log in logs.values():
                log.seq += 1
        told = [own.take() for own in owns]
        assert told[0] == told[1]
        assert told[0] is not None
        assert 0 < len(told[0].logs) < 2 * PART, "one turn may move all logs"
        untaken.append(sum(not log.taken for log in members[0].values()))
    assert untaken[15] < 600
    assert untaken[-1] < 10, "in time each has its turn"


def test_entries_ask_the_more_often_the_more_parts_there_are():
    own = own_of({}, every=1600)
    begin(own, 1700, {log_id: Log() for log_id in names(16 * PART)})
    assert [own.asks(entry) for entry in (1799, 1800, 1899, 1900)] == [False, True, False, True]
    begin(own, 2000, {log_id: Log() for log_id in names(PART)})
    assert [own.asks(entry) for entry in (3599, 3600)] == [False, True]
    begin(own, 4000, {log_id: Log() for log_id in names(2000 * PART)})
    assert own.asks(4001)


def test_a_log_that_has_not_moved_is_not_digested_again():
    logs = {log_id: Log() for log_id in names(2)}
    own = own_of(logs)
    for entry in (110, 120):
        begin(own, entry, logs)
        own.work()
        logs[names(1)[0]].seq += 1
    assert [each.taken for each in logs.values()] == [2, 1]


def test_the_place_of_a_log_is_in_its_digest():
    found = set()
    for place in ((1, 7), (2, 7), (1, 8)):
        own = own_of({b"a": Log()})
        own.begin(110, {b"a": place})
        own.work()
        found.add(own.take().logs[0][1])
    assert len(found) == 3


def test_what_is_kept_and_told_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(digests, "PART", 1000)
    logs = {log_id: Log() for log_id in names(TOLD_AT_ONCE + 3)}
    own = own_of(logs)
    for entry in range(110, 110 + 10 * (ROUNDS + 1), 10):
        begin(own, entry, logs)
        for _ in range(len(logs)):
            own.work()
    assert len(own._found) == ROUNDS
    told = []
    while (each := own.take()) is not None:
        told.append((each.entry, len(each.logs)))
    asked = range(120, 120 + 10 * ROUNDS, 10)
    assert told == [(entry, count) for entry in asked for count in (TOLD_AT_ONCE, 3)]
    begin(own, 200, {})
    assert own._known == {}


def test_the_log_of_a_deleted_topic_is_passed_over():
    own = own_of({b"a": Log()})
    own.begin(110, {b"gone": (1, 1), b"a": (1, 1)})
    own.work()
    assert [log_id for log_id, _ in own.take().logs] == [b"a"]


def report(digest: int, entry: int = 110, log_id: bytes = b"a") -> DigestReport:
    return DigestReport(layout(), entry, [(log_id, digest)])


def test_a_majority_of_the_voters_decides_and_who_differs_hears_of_it():
    votes = DigestVotes()
    votes.heard(1, report(5), [1, 2, 3])
    votes.heard(4, report(5), [1, 2, 3])
    assert votes.undecided == {}, "a learner has no vote"
    votes.heard(2, report(6), [1, 2, 3])
    assert votes.undecided == {b"a": [1, 2, 4]}
    assert [votes.right(node) for node in (1, 2, 3, 4)] == [None] * 4
    votes.heard(3, report(6), [1, 2, 3])
    assert votes.undecided == {}
    assert votes.right(2) is votes.right(3) is None
    assert votes.right(1) == votes.right(4) == report(6)
    assert votes.right(1) is None, "once"


def test_half_of_the_voters_is_no_majority():
    votes = DigestVotes()
    for node, digest in ((1, 5), (2, 5), (3, 6)):
        votes.heard(node, report(digest), [1, 2, 3, 4])
    assert votes.right(3) is None
    assert votes.undecided == {b"a": [1, 2, 3]}
    votes.heard(4, report(5), [1, 2, 3, 4])
    assert votes.right(3) == report(5)


def test_a_later_entry_at_which_all_agree_settles_it():
    votes = DigestVotes()
    votes.heard(1, report(5), [1, 2, 3])
    votes.heard(2, report(6), [1, 2, 3])
    for node in (1, 2):
        votes.heard(node, report(7, entry=120), [1, 2, 3])
    assert votes.undecided == {}


def test_votes_of_older_entries_and_of_other_layouts_do_not_count():
    votes = DigestVotes()
    entries = [*range(110, 120 + 10 * ROUNDS, 10)]
    for entry in (*entries, 110):
        votes.heard(1, report(5, entry=entry), [1, 2, 3])
    assert sorted(votes._rounds) == entries[1:]
    votes.heard(2, DigestReport(layout() + 1, 130, [(b"a", 6)]), [1, 2, 3])
    assert votes.undecided == {}


def test_what_a_majority_has_is_told_one_entry_at_a_time():
    votes = DigestVotes()
    for entry in (110, 120):
        for node, digest in ((1, 5), (2, 6), (3, 6)):
            votes.heard(node, report(digest, entry=entry), [1, 2, 3])
    assert [votes.right(1), votes.right(1), votes.right(1)] == [report(6, 110), report(6, 120), None]


def test_a_member_compares_what_it_still_knows():
    own = own_of({b"a": Log()})
    own.begin(110, {b"a": (1, 7)})
    own.work()
    (mine,) = dict(own.take().logs).values()
    assert own.differing(report(mine)) is None
    assert own.differing(report(mine, entry=100)) is own.differing(report(1, entry=100)) is None
    assert own.differing(report(1, log_id=b"b")) is None
    assert own.differing(report(mine + 1)) == b"a"


def test_digests_come_back_as_they_went_and_nothing_else_does():
    assert digests.decode(digests.encode(9, [(b"a", 1 << 63)])) == DigestReport(layout(), 9, [(b"a", 1 << 63)])
    whole = digests.encode(9, [(b"a", 1)])
    for end in range(len(whole)):
        with pytest.raises(InvalidBatch):
            digests.decode(whole[:end])


def test_entries_are_applied_in_parts_that_end_where_digests_are_asked_for():
    asks, plain = encode_flush(1, [], digest=True), encode_flush(1, [])
    given = [Entry(at, 1, data) for at, data in enumerate([plain, asks, asks, b"", plain], 1)]
    assert [[each.index for each in part] for part in parts(given)] == [[1, 2], [3], [4, 5]]
    assert [len(part) for part in parts(given[:2])] == [2]
    assert list(parts([])) == []
    assert [len(part) for part in parts([Entry(1, 1, asks, EntryKind.CHANGE), given[0]])] == [2]
