"""How entries reach followers, and when they are committed."""

from __future__ import annotations

import pytest
from penstock.broker.raft.errors import Broken
from penstock.broker.raft.messages import Kind, Message, Promise
from penstock.broker.raft.progress import FollowerPace
from support.raft_rig import Rig, entry, of, one_of


def test_a_follower_commits_no_further_than_the_entries_it_was_just_sent():
    rig = Rig(1, 1, 1)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.APPEND, 2, term=2, index=1, log_term=1, commit=3))
    assert (ack.index, rig.node.committed) == (1, 1)
    rig.hears(Kind.APPEND, 2, index=1, log_term=1, commit=3, entries=[entry(2, 2)])
    assert rig.node.committed == 2


def test_a_late_shorter_append_removes_nothing():
    rig = Rig(1, 1, 1)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.APPEND, 2, index=0, entries=[entry(1, 1)]))
    assert (ack.index, rig.status.last) == (1, 3)


def test_entries_that_differ_are_replaced_with_all_that_follows():
    rig = Rig(1, 1, 1)
    rig.hears(Kind.APPEND, 2, term=2, index=1, log_term=1, entries=[entry(2, 2, b"new")])
    assert [(one.term, bytes(one.data)) for one in rig.log.stored] == [(1, b"x"), (2, b"new")]


def test_an_append_below_the_commit_is_answered_with_the_commit():
    rig = Rig(1, 1, 1)
    rig.hears(Kind.APPEND, 2, index=3, log_term=1, commit=2)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.APPEND, 2, index=1, log_term=1, entries=[entry(2, 7)]))
    assert (ack.index, ack.reject, rig.log.term(2)) == (2, False, 1)


def test_an_append_that_would_replace_a_committed_entry_breaks_the_node():
    rig = Rig(1, 1, 1)
    rig.hears(Kind.APPEND, 2, index=3, log_term=1, commit=2)
    with pytest.raises(Broken, match="committed"):
        rig.state.log.append([entry(2, 3)])


def test_a_follower_refuses_what_does_not_join_its_log_and_says_where_it_could():
    rig = Rig(1, 1, 3)
    refusal = one_of(Kind.APPEND_ACK, rig.hears(Kind.APPEND, 2, term=4, index=9, log_term=2))
    assert (refusal.reject, refusal.index, refusal.hint, refusal.log_term) == (True, 9, 2, 1)


def test_an_append_of_an_earlier_term_is_not_taken_but_tells_its_sender_of_the_term():
    rig = Rig(1, promise=Promise(5))
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.APPEND, 2, term=4, index=1, log_term=1, entries=[entry(2, 4)]))
    assert (ack.term, rig.status.last, rig.node.leader) == (5, 1, 0)


def test_a_refused_leader_steps_back_to_where_the_terms_allow_agreement():
    rig = Rig(1, 1, 2, 2).lead()
    _lose(rig, 2)
    append = one_of(Kind.APPEND, rig.hears(Kind.APPEND_ACK, 2, index=4, reject=True, hint=4, log_term=1))
    assert (append.index, append.log_term) == (2, 1)
    append = one_of(Kind.APPEND, rig.hears(Kind.APPEND_ACK, 2, index=2, reject=True, hint=1, log_term=0))
    assert append.index == 1


def test_a_refusal_of_an_older_append_is_ignored():
    rig = Rig(1, 1, 1).lead()
    peer = rig.state.peers[2]
    assert peer.pace is FollowerPace.REPLICATE
    assert rig.hears(Kind.APPEND_ACK, 2, index=peer.match, reject=True, hint=0) == []
    assert (peer.pace, peer.next) == (FollowerPace.REPLICATE, peer.match + 1)
    rig.node.report_unreachable(2)
    assert rig.hears(Kind.APPEND_ACK, 2, index=peer.match - 1, reject=True, hint=0) == []


def test_a_late_acknowledgement_of_less_changes_nothing():
    rig = Rig(1, 1).lead()
    assert rig.hears(Kind.APPEND_ACK, 2, index=1) == []
    assert rig.status.members[2].match == 3


def test_a_follower_is_never_sent_entries_below_its_match_again():
    rig = Rig(1, 1, 1).lead()
    rig.node.report_unreachable(2)
    peer = rig.state.peers[2]
    rig.hears(Kind.APPEND_ACK, 2, index=peer.match, reject=True, hint=0)
    assert peer.next == peer.match + 1


def test_entries_of_an_earlier_term_are_committed_only_with_one_of_this_term():
    rig = Rig(1, 1).lead(commit=False)
    rig.hears(Kind.APPEND_ACK, 2, index=2)
    assert rig.node.committed == 0
    rig.hears(Kind.APPEND_ACK, 2, index=3)
    assert rig.node.committed == 3


def test_the_leader_counts_its_own_entry_only_once_it_is_written():
    rig = Rig(voters=(1, 2)).lead()
    rig.node.propose(b"a")
    rig.node.step(_ack(rig, 2, 2))
    assert rig.node.committed == 1
    rig.turn()
    assert rig.node.committed == 2


def test_a_quorum_is_counted_without_learners():
    rig = Rig(learners=(4, 5)).lead()
    rig.node.propose(b"a")
    rig.turn()
    for learner in (4, 5):
        rig.hears(Kind.APPEND_ACK, learner, index=2)
    assert rig.node.committed == 1


def test_a_full_window_pauses_the_stream_until_something_of_it_is_acknowledged():
    rig = Rig(max_inflight=2).lead()
    sent = [len(of(Kind.APPEND, _proposed(rig, b"a"))) for _ in range(3)]
    assert sent == [2, 2, 0]
    resumed = of(Kind.APPEND, rig.hears(Kind.APPEND_ACK, 2, index=2))
    assert [one.index for message in resumed for one in message.entries] == [4]


def test_a_window_is_bounded_in_bytes_too_and_one_large_entry_passes():
    rig = Rig(max_inflight_bytes=100).lead()
    assert len(of(Kind.APPEND, _proposed(rig, b"a" * 500))) == 2
    assert of(Kind.APPEND, _proposed(rig, b"b")) == []


def test_a_heartbeat_answer_makes_a_full_window_say_where_it_stands():
    rig = Rig(max_inflight=1).lead()
    _proposed(rig, b"a")
    append = one_of(Kind.APPEND, rig.hears(Kind.HEARTBEAT_ACK, 2))
    assert (append.index, append.entries) == (2, [])


def test_one_append_carries_no_more_bytes_than_allowed_but_at_least_one_entry():
    rig = Rig(max_append_bytes=90).lead()
    rig.node.propose(b"a" * 10, b"b" * 10, b"c" * 200, b"d")
    assert _sizes(rig.turn()) == [[10, 10]]
    assert _sizes(rig.hears(Kind.APPEND_ACK, 2, index=3)) == [[200], [1]]


def test_a_probed_follower_gets_one_message_at_a_time():
    rig = Rig(1).lead(commit=False)
    assert rig.state.peers[2].pace is FollowerPace.PROBE
    assert of(Kind.APPEND, _proposed(rig, b"a")) == []
    rig.hears(Kind.APPEND_ACK, 2, index=2)
    assert rig.state.peers[2].pace is FollowerPace.REPLICATE


def test_a_follower_hears_of_a_commit_once():
    rig = Rig().lead()
    _proposed(rig, b"a")
    told = of(Kind.APPEND, rig.hears(Kind.APPEND_ACK, 2, index=2))
    assert {(message.to, message.commit) for message in told} == {(2, 2), (3, 2)}
    assert rig.hears(Kind.APPEND_ACK, 2, index=2) == []


def test_a_heartbeat_tells_no_more_of_the_commit_than_the_follower_has():
    rig = Rig().lead()
    _proposed(rig, b"a")
    rig.hears(Kind.APPEND_ACK, 2, index=2)
    beats = of(Kind.HEARTBEAT, rig.ticks(1))
    assert {beat.to: beat.commit for beat in beats} == {2: 2, 3: 1}


def test_a_commit_beyond_the_log_breaks_the_node():
    with pytest.raises(Broken, match="lost"):
        Rig(1).hears(Kind.HEARTBEAT, 2, commit=2)


def test_the_data_of_entries_is_handed_on_and_never_copied():
    rig = Rig().lead()
    data = memoryview(bytearray(b"records"))
    rig.node.propose(data)
    ready = rig.node.ready()
    assert ready.entries[0].data is data
    assert [message.entries[0].data is data for message in ready.messages] == [True, True]


def _proposed(rig: Rig, *datas: bytes) -> list[Message]:
    assert rig.node.propose(*datas)
    return rig.turn()


def _sizes(messages: list[Message]) -> list[list[int]]:
    """Bytes of the entries in each append to node 2."""
    appends = [message for message in of(Kind.APPEND, messages) if message.to == 2]
    return [[len(one.data) for one in message.entries] for message in appends]


def _ack(rig: Rig, sender: int, index: int) -> Message:
    return Message(Kind.APPEND_ACK, rig.state.node, sender, rig.node.term, index)


def _lose(rig: Rig, node: int) -> None:
    """The leader knows nothing of a follower, and has just probed it at the end of its log before it led."""
    peer = rig.state.peers[node]
    peer.match, peer.next, peer.pace = 0, 5, FollowerPace.PROBE
