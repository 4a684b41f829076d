"""Followers that need what the log no longer has."""

from __future__ import annotations

import pytest
from penstock.broker.raft.errors import Broken
from penstock.broker.raft.messages import ConfState, Kind, Promise, Snapshot
from penstock.broker.raft.node import RaftNode, opening_promise
from penstock.broker.raft.progress import FollowerPace
from support.raft_rig import Rig, change, entry, of, one_of

MEMBERS = ConfState((1, 2, 3))


def lagging(*terms: int, **options) -> Rig:
    """A leader whose log begins behind entry 3, and a follower 3 that has none of it."""
    rig = Rig(*(terms or (1, 1, 1, 1)), **options).lead(commit=False)
    rig.hears(Kind.APPEND_ACK, 2, index=rig.status.last)
    rig.log.compact(3)
    rig.log.snapshots.append(Snapshot(3, 1, MEMBERS))
    rig.state.peers[3].active = True
    return rig


def refused(rig: Rig):
    peer = rig.state.peers[3]
    return rig.hears(Kind.APPEND_ACK, 3, index=peer.next - 1, reject=True, hint=0)


def test_a_follower_below_the_log_gets_a_snapshot_and_no_more_appends():
    rig = lagging()
    sent = one_of(Kind.SNAPSHOT, refused(rig))
    assert (sent.to, sent.snapshot) == (3, Snapshot(3, 1, MEMBERS))
    rig.node.propose(b"a")
    assert {message.to for message in of(Kind.APPEND, rig.turn())} == {2}


def test_a_follower_that_installed_is_fed_from_behind_the_snapshot():
    rig = lagging()
    refused(rig)
    rig.node.report_snapshot(3, installed=True)
    peer = rig.state.peers[3]
    assert (peer.pace, peer.next, peer.paused) == (FollowerPace.PROBE, 4, True)
    append = one_of(Kind.APPEND, rig.hears(Kind.HEARTBEAT_ACK, 3))
    assert (append.index, len(append.entries)) == (3, 2)


def test_after_a_failed_snapshot_another_is_sent():
    rig = lagging()
    refused(rig)
    rig.node.report_snapshot(3, installed=False)
    assert rig.state.peers[3].next == 1
    assert one_of(Kind.SNAPSHOT, rig.hears(Kind.HEARTBEAT_ACK, 3))


def test_an_acknowledgement_that_reaches_the_log_ends_the_wait():
    rig = lagging()
    refused(rig)
    assert one_of(Kind.APPEND, rig.hears(Kind.APPEND_ACK, 3, index=3)).index == 3
    assert rig.state.peers[3].pace is FollowerPace.REPLICATE


def test_an_acknowledgement_below_the_log_does_not_end_the_wait():
    rig = lagging()
    refused(rig)
    assert rig.hears(Kind.APPEND_ACK, 3, index=2) == []
    assert rig.state.peers[3].pace is FollowerPace.SNAPSHOT


def test_a_follower_that_was_not_heard_of_gets_no_snapshot():
    rig = lagging()
    peer = rig.state.peers[3]
    peer.next, peer.active, peer.paused = 1, False, False
    rig.node.propose(b"a")
    assert of(Kind.SNAPSHOT, rig.turn()) == []


def test_a_snapshot_from_before_the_last_change_is_not_sent():
    rig = lagging()
    rig.node.apply_change(change("l4"), 5)
    assert of(Kind.SNAPSHOT, refused(rig)) == []
    rig.log.snapshots.append(Snapshot(5, 1, ConfState((1, 2, 3), (4,))))
    assert one_of(Kind.SNAPSHOT, rig.hears(Kind.HEARTBEAT_ACK, 3)).snapshot.index == 5


def test_a_snapshot_that_does_not_name_the_follower_is_not_sent():
    rig = lagging()
    rig.log.snapshots[-1] = Snapshot(3, 1, ConfState((1, 2)))
    assert of(Kind.SNAPSHOT, refused(rig)) == []


def test_a_follower_begins_behind_a_snapshot_and_acknowledges_it():
    rig = Rig(1, 1)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.SNAPSHOT, 2, term=3, snapshot=Snapshot(9, 2, ConfState((1, 2), (3,)))))
    assert (ack.index, rig.node.committed, rig.status.first) == (9, 9, 10)
    assert (rig.status.applied, rig.status.configuration.learners) == (9, {3})
    assert rig.status.last == 9


def test_a_snapshot_that_is_no_news_is_answered_with_the_commit():
    rig = Rig(1, 1, 1)
    rig.hears(Kind.HEARTBEAT, 2, commit=2)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.SNAPSHOT, 2, snapshot=Snapshot(2, 1, MEMBERS)))
    assert (ack.index, rig.status.first) == (2, 1)


def test_a_snapshot_from_before_the_log_begins_does_not_take_it_back():
    rig = Rig()
    rig.log.base = Snapshot(7, 2, MEMBERS)
    rig.node = RaftNode(rig.state.options, rig.log)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.SNAPSHOT, 2, term=2, snapshot=Snapshot(5, 1, MEMBERS)))
    assert (ack.index, rig.status.first, rig.node.committed) == (7, 8, 7)


def test_a_snapshot_of_an_entry_that_the_log_has_only_commits_it():
    rig = Rig(1, 1, 1)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.SNAPSHOT, 2, snapshot=Snapshot(2, 1, MEMBERS)))
    assert (ack.index, rig.node.committed, rig.status.first, rig.status.last) == (2, 2, 1, 3)


def test_a_snapshot_that_does_not_name_this_node_is_ignored():
    rig = Rig(1)
    ack = one_of(Kind.APPEND_ACK, rig.hears(Kind.SNAPSHOT, 2, snapshot=Snapshot(9, 1, ConfState((2, 3)))))
    assert (ack.index, rig.status.last) == (0, 1)


def test_a_log_that_begins_behind_a_snapshot_has_committed_it():
    rig = Rig()
    rig.log.base = Snapshot(7, 2, MEMBERS)
    node = RaftNode(rig.state.options, rig.log)
    assert (node.committed, node.status().applied) == (7, 7)


def test_a_commit_beyond_the_log_or_below_what_was_applied_breaks_the_node_at_opening():
    with pytest.raises(Broken, match="out of order"):
        Rig(1, promise=Promise(1, 0, 2))
    with pytest.raises(Broken, match="out of order"):
        Rig(1, 1, promise=Promise(1, 0, 1), applied=2)


def test_a_node_opens_in_the_term_of_its_last_entry_without_a_vote_of_an_earlier_one():
    assert opening_promise(Promise(2, 3, 1), 5, 4) == Promise(5, 0, 4)
    assert opening_promise(Promise(5, 3, 6), 5, 4) == Promise(5, 3, 6)


def test_entries_below_a_snapshot_that_is_being_installed_are_not_applied():
    rig = Rig(1, 1, asynchronous=True)
    rig.hears_only(Kind.HEARTBEAT, 2, commit=1)
    rig.hears_only(Kind.SNAPSHOT, 2, snapshot=Snapshot(9, 1, MEMBERS))
    ready = rig.node.ready()
    assert (ready.committed, ready.snapshot.index) == ([], 9)
    rig.write(ready)
    for message in ready.responses:
        if message.to == 1:
            rig.node.settle(message)
    rig.hears_only(Kind.APPEND, 2, index=9, log_term=1, entries=[entry(10, 1)], commit=10)
    assert rig.status.applied == 9
