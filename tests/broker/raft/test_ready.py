"""What a node wants done, and in which order."""

from __future__ import annotations

import msgspec
import pytest
from penstock.broker.raft.errors import Broken, Unfit
from penstock.broker.raft.log_view import LogView
from penstock.broker.raft.messages import ENTRY_OVERHEAD, ConfState, Kind, Message, Promise, Snapshot
from penstock.broker.raft.state import RaftOptions, Role
from support.raft_log import MemoryLog
from support.raft_rig import Rig, entry, of


def settle(rig: Rig, messages: list[Message]) -> None:
    for message in messages:
        if message.to == rig.state.node:
            rig.node.settle(message)


def test_messages_of_a_new_term_are_held_until_it_is_synced():
    rig = Rig(pre_vote=False)
    rig.node.campaign()
    ready = rig.node.ready()
    assert (ready.hold, ready.must_sync, ready.promise) == (True, True, Promise(1, 1, 0))
    assert [message.kind for message in ready.messages] == [Kind.VOTE, Kind.VOTE]


def test_appends_of_a_leader_may_leave_before_its_own_sync():
    rig = Rig().lead()
    rig.node.propose(b"a")
    ready = rig.node.ready()
    assert (ready.hold, ready.must_sync, len(of(Kind.APPEND, ready.messages))) == (False, True, 2)


def test_an_acknowledgement_and_a_vote_wait_for_the_write():
    rig = Rig()
    rig.hears_only(Kind.APPEND, 2, term=1, entries=[entry(1, 1)])
    ready = rig.node.ready()
    assert [message.kind for message in ready.responses] == [Kind.APPEND_ACK]
    rig.node.advance()
    rig.hears_only(Kind.VOTE, 3, term=2, index=9, log_term=9)
    rig.node.forget_leader()
    rig.hears_only(Kind.VOTE, 3, term=2, index=9, log_term=9)
    ready = rig.node.ready()
    assert [message.kind for message in ready.responses] == [Kind.VOTE_ACK]
    assert (ready.hold, ready.promise) == (True, Promise(2, 3, 0))


def test_a_new_vote_in_the_same_term_has_to_be_synced():
    rig = Rig(promise=Promise(4))
    rig.hears_only(Kind.VOTE, 3)
    ready = rig.node.ready()
    assert (ready.hold, ready.must_sync) == (True, True)


def test_a_bare_commit_is_written_without_a_sync():
    rig = Rig(1, promise=Promise(1))
    rig.hears(Kind.HEARTBEAT, 2)
    rig.hears_only(Kind.HEARTBEAT, 2, commit=1)
    ready = rig.node.ready()
    assert (ready.must_sync, ready.hold, ready.promise) == (False, False, Promise(1, 0, 1))


def test_each_thing_is_handed_out_once():
    rig = Rig().lead()
    rig.node.propose(b"a")
    assert rig.node.has_ready()
    rig.write(rig.node.ready())
    assert not rig.node.has_ready()
    rig.node.advance()
    assert not rig.node.has_ready()


def test_a_change_of_the_role_or_the_leader_is_told_once():
    rig = Rig()
    rig.hears_only(Kind.HEARTBEAT, 2, term=1)
    standing = rig.node.ready().standing
    assert standing is not None
    assert (standing.role, standing.leader) == (Role.FOLLOWER, 2)
    rig.node.advance()
    rig.hears_only(Kind.HEARTBEAT, 2)
    assert rig.node.ready().standing is None


def test_an_asynchronous_node_applies_only_what_is_written():
    rig = Rig(voters=(1, 2), asynchronous=True)
    rig.hears_only(Kind.APPEND, 2, term=1, entries=[entry(1, 1)], commit=1)
    ready = rig.node.ready()
    assert (rig.node.committed, ready.committed) == (1, [])
    assert not rig.node.has_ready()
    rig.write(ready)
    settle(rig, ready.responses)
    applying = rig.node.ready()
    assert [one.index for one in applying.committed] == [1]
    assert rig.status.applied == 0
    assert applying.applied is not None
    rig.node.settle(applying.applied)
    assert rig.status.applied == 1


def test_a_write_of_an_earlier_term_does_not_count_for_what_took_its_place():
    rig = Rig(voters=(1, 2, 3), asynchronous=True)
    rig.hears_only(Kind.APPEND, 2, term=1, entries=[entry(1, 1)])
    first = rig.node.ready()
    rig.hears_only(Kind.APPEND, 3, term=2, entries=[entry(1, 2)])
    rig.write(first)
    settle(rig, first.responses)
    assert [one.term for one in rig.state.log.unstable.entries] == [2]


def test_a_write_of_an_earlier_term_does_not_count_although_its_entry_is_back():
    rig = Rig(asynchronous=True)
    entries = [entry(1, 1)]
    rig.hears_only(Kind.APPEND, 2, term=1, entries=entries)
    first = rig.node.ready()
    rig.hears_only(Kind.APPEND, 3, term=2, entries=[entry(1, 2)])
    rig.node.ready()
    rig.hears_only(Kind.APPEND, 2, term=3, entries=entries)
    settle(rig, first.responses)  # the write of term 2 is still under way, and will replace it
    assert len(rig.state.log.unstable.entries) == 1


def test_an_entry_that_replaces_one_under_way_is_written_too():
    rig = Rig(asynchronous=True)
    rig.hears_only(Kind.APPEND, 2, term=1, entries=[entry(1, 1), entry(2, 1)])
    rig.node.ready()
    rig.hears_only(Kind.APPEND, 3, term=2, index=1, log_term=1, entries=[entry(2, 2)])
    assert [(one.index, one.term) for one in rig.node.ready().entries] == [(2, 2)]


def test_a_write_counts_only_with_the_term_of_its_last_entry():
    rig = Rig(voters=(1, 2, 3), asynchronous=True)
    rig.hears_only(Kind.APPEND, 2, term=1, entries=[entry(1, 1)])
    rig.node.ready()
    rig.state.log.unstable.stored(1, 2)
    assert len(rig.state.log.unstable.entries) == 1


def test_an_asynchronous_node_cannot_be_advanced():
    with pytest.raises(Broken, match="settle"):
        Rig(asynchronous=True).node.advance()


def test_entries_out_for_applying_are_bounded_in_bytes():
    rig = Rig(*[1] * 5, asynchronous=True, max_applying_bytes=2 * (ENTRY_OVERHEAD + 1), promise=Promise(1, 0, 5))
    ready = rig.node.ready()
    assert [one.index for one in ready.committed] == [1, 2]
    assert not rig.node.has_ready()
    assert ready.applied is not None
    rig.node.settle(ready.applied)
    assert [one.index for one in rig.node.ready().committed] == [3, 4]


def test_a_place_is_promised_and_then_taken():
    rig = Rig(1).lead()
    place = rig.node.next_place(10)
    assert place is not None
    assert (place.index, place.term) == (3, rig.node.term)
    assert rig.node.propose(b"a" * 10) == place
    assert rig.status.last == 3
    assert Rig().node.next_place() is None
    assert Rig().node.propose(b"a") is None


def test_uncommitted_bytes_are_bounded_and_the_first_proposal_always_fits():
    rig = Rig(max_uncommitted_bytes=200).lead()
    assert rig.node.propose(b"a" * 500)
    assert rig.node.next_place() is None
    assert rig.node.propose(b"a") is None
    rig.turn()
    rig.hears(Kind.APPEND_ACK, 2, index=2)
    assert rig.node.next_place(10) is not None
    assert rig.node.propose(b"a" * 100)
    assert rig.node.next_place(10) is not None
    assert rig.node.next_place(100) is None


def test_kinds_that_never_leave_a_node_and_answers_of_strangers_are_dropped():
    rig = Rig(1).lead(commit=False)
    for message in (
        Message(Kind.STORED, 1, 2, rig.node.term, index=2, log_term=2),
        Message(Kind.APPLIED, 1, 2, entries=[entry(1, 1)]),
        Message(Kind.APPEND_ACK, 1, 9, rig.node.term + 1),
        Message(Kind.HEARTBEAT, 1, 1, rig.node.term + 1),
    ):
        rig.node.step(message)
    assert (rig.node.role, rig.node.has_ready()) == (Role.LEADER, False)


def test_a_message_of_every_kind_survives_the_wire_and_its_data_is_not_copied():
    decoder = msgspec.msgpack.Decoder(Message)
    for kind in Kind:
        sent = Message(
            kind, 2, 1, 3, 4, 5, 6, [entry(7, 8, b"data")], True, 9, 10, True, Snapshot(1, 2, ConfState((3,)))
        )
        got = decoder.decode(msgspec.msgpack.encode(sent))
        assert isinstance(got.entries[0].data, memoryview)
        assert got == sent


def test_options_that_cannot_work_are_refused():
    for wrong in ({"node": 0}, {"heartbeat_ticks": 0}, {"heartbeat_ticks": 10}):
        with pytest.raises(Unfit):
            RaftOptions(**{"node": 1, "draw_timeout": lambda: 10, **wrong})


def test_a_committed_entry_that_is_gone_before_it_was_applied_breaks_the_node():
    log = MemoryLog()
    log.base = Snapshot(3, 1, ConfState((1,)))
    view = LogView(log, 3, 3, 100)
    log.stored = [entry(4, 1), entry(5, 1)]
    view.unstable.offset = view.unstable.begun = 6
    view.commit(5)
    log.compact(4)
    with pytest.raises(Broken, match="gone"):
        view.next_to_apply(unstored=True)
