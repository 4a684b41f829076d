"""Changing who is a member, and handing the lead over."""

from __future__ import annotations

import pytest
from penstock.broker.raft.errors import Unfit
from penstock.broker.raft.membership import Configuration, changed, joined, left, restored, simply
from penstock.broker.raft.messages import Change, ConfState, Kind, Snapshot, Transition
from penstock.broker.raft.node import RaftNode
from penstock.broker.raft.state import Role
from support.raft_rig import TICKS, Rig, change, of, one_of


def acknowledge(rig: Rig, *nodes: int) -> None:
    for node in nodes:
        rig.hears(Kind.APPEND_ACK, node, index=rig.status.last)


def test_a_configuration_counts_from_when_its_entry_is_applied():
    rig = Rig().lead()
    assert rig.propose_change("v4")
    rig.turn()
    assert rig.status.configuration.voters == {1, 2, 3}
    acknowledge(rig, 2)
    assert rig.status.configuration.voters == {1, 2, 3, 4}


def test_one_change_is_in_flight_at_a_time():
    rig = Rig().lead()
    assert rig.propose_change("v4")
    assert rig.propose_change("v5") is None
    assert "not applied yet" in rig.node.refusal(change("v5"))
    rig.turn()
    acknowledge(rig, 2)
    assert rig.propose_change("l5")


def test_a_new_leader_waits_for_changes_that_it_may_have_inherited():
    rig = Rig(1, 1).lead(commit=False)
    assert "not applied yet" in rig.node.refusal(change("v4"))
    acknowledge(rig, 2)
    assert rig.node.refusal(change("v4")) == ""


@pytest.mark.parametrize("steps", ["r1", "l1", "r1 v4", "l1 v4 v5"])
def test_a_leader_is_neither_removed_nor_demoted(steps):
    rig = Rig(voters=(1, 2, 3, 6)).lead()
    assert "hand over" in rig.node.refusal(change(steps))
    assert rig.propose_change(steps) is None
    assert rig.turn() == []


def test_only_a_leader_changes_the_configuration():
    assert "does not lead" in Rig().node.refusal(change("v4"))


def test_a_change_of_several_goes_through_a_joint_configuration_and_leaves_it():
    rig = Rig(voters=(1, 2)).lead()
    rig.propose_change("v3 v4")
    rig.turn()
    acknowledge(rig, 2)
    joint = rig.status.configuration
    assert (joint.voters, joint.outgoing, joint.auto_leave) == ({1, 2, 3, 4}, {1, 2}, True)
    acknowledge(rig, 2)
    assert rig.status.configuration.joint  # the incoming half has no majority yet
    acknowledge(rig, 3)
    assert rig.status.configuration == Configuration(voters=frozenset((1, 2, 3, 4)))


def test_an_explicit_joint_configuration_is_left_by_an_empty_change():
    rig = Rig(voters=(1, 2)).lead()
    data = b"EntryConfChangeV2 2 v3"
    assert rig.node.propose_change(Change(change("v3").steps, Transition.EXPLICIT), data)
    rig.turn()
    acknowledge(rig, 2)
    acknowledge(rig, 3)
    assert rig.status.configuration.joint
    assert rig.node.propose_change(Change(), b"")
    rig.turn()
    acknowledge(rig, 2)
    assert not rig.status.configuration.joint


def test_a_leader_that_the_next_configuration_demotes_hands_over_before_the_joint_one_is_left():
    rig = Rig(2, voters=(1, 2, 3))
    rig.log.base = _at(rig, ConfState((2, 3), (), (1, 2, 3), (1,), True))
    rig = _reopened(rig).lead(commit=False)
    told = of(Kind.CAMPAIGN_NOW, _all_acknowledge(rig))
    assert [message.to for message in told] == [2]
    assert rig.status.configuration.joint


def test_a_new_member_is_sent_entries_at_once():
    rig = Rig().lead()
    rig.propose_change("l4")
    rig.turn()
    appends = of(Kind.APPEND, rig.hears(Kind.APPEND_ACK, 2, index=rig.status.last))
    assert 4 in {message.to for message in appends}


def test_a_removed_leader_steps_down():
    rig = Rig().lead()
    rig.node.apply_change(change("r1"), 1)
    assert rig.node.role is Role.FOLLOWER


def test_a_smaller_configuration_may_commit_what_waited():
    rig = Rig(voters=(1, 2, 3, 4)).lead()
    rig.node.propose(b"a")
    rig.turn()
    acknowledge(rig, 2)
    assert rig.node.committed == 1
    rig.node.apply_change(change("r4"), 1)
    assert rig.node.committed == 2


def test_a_member_that_stays_keeps_its_progress():
    rig = Rig().lead()
    rig.node.apply_change(change("l3"), 1)
    peer = rig.state.peers[3]
    assert (peer.match, peer.learner) == (1, True)


def test_changes_that_do_not_fit_say_why():
    plain, joint = Configuration(frozenset((1, 2))), Configuration(frozenset((1, 2)), frozenset((1,)))
    for wrong in (
        lambda: simply(plain, change("v3 v4").steps),
        lambda: simply(plain, change("r1 r2").steps),
        lambda: simply(joint, change("v3").steps),
        lambda: joined(joint, (), auto_leave=False),
        lambda: joined(Configuration(), (), auto_leave=False),
        lambda: left(plain),
        lambda: changed(plain, Change()),
        lambda: restored(ConfState((1, 2), (2,))),
        lambda: restored(ConfState((1,), (), (), (1,))),
        lambda: restored(ConfState((1,), auto_leave=True)),
    ):
        with pytest.raises(Unfit):
            wrong()


def test_a_voter_that_is_demoted_in_a_joint_configuration_is_a_learner_after_it():
    joint = joined(Configuration(frozenset((1, 2))), change("l1 v3").steps, auto_leave=True)
    assert (joint.learners, joint.learners_next, joint.members()) == (frozenset(), {1}, [1, 2, 3])
    assert restored(joint.stored()) == joint
    assert left(joint) == Configuration(voters=frozenset((2, 3)), learners=frozenset((1,)))


def test_a_learner_that_is_made_one_again_stays_and_a_promoted_one_votes():
    before = Configuration(frozenset((1,)), learners=frozenset((2,)))
    assert simply(before, change("l2").steps) == before
    assert simply(before, change("v2").steps) == Configuration(frozenset((1, 2)))


# --- handing over


def test_a_voter_with_the_whole_log_is_told_at_once():
    rig = Rig().lead()
    assert rig.node.transfer(2)
    assert one_of(Kind.CAMPAIGN_NOW, rig.turn()).to == 2


def test_a_voter_that_lags_is_told_when_it_has_the_whole_log():
    rig = Rig().lead()
    rig.node.propose(b"a")
    rig.turn()
    rig.node.transfer(2)
    assert of(Kind.CAMPAIGN_NOW, rig.turn()) == []
    assert one_of(Kind.CAMPAIGN_NOW, rig.hears(Kind.APPEND_ACK, 2, index=2)).to == 2


def test_nothing_is_proposed_while_the_lead_is_handed_over_and_it_goes_on_after_a_timeout():
    rig = Rig().lead()
    rig.node.transfer(2)
    assert rig.node.next_place() is None
    assert rig.node.propose(b"a") is None
    rig.ticks(TICKS - 1)
    assert rig.node.next_place() is None
    rig.hears(Kind.HEARTBEAT_ACK, 2)
    rig.ticks(1)
    assert rig.node.next_place() is not None


def test_the_lead_goes_to_voters_only():
    rig = Rig(learners=(4,)).lead()
    assert [rig.node.transfer(node) for node in (4, 1, 9)] == [False, False, False]
    assert not Rig().node.transfer(2)


def test_another_transfer_takes_the_place_of_the_first():
    rig = Rig().lead()
    rig.node.transfer(2)
    rig.turn()
    rig.node.transfer(3)
    assert one_of(Kind.CAMPAIGN_NOW, rig.turn()).to == 3
    rig.node.transfer(3)
    assert rig.turn() == []


def test_a_node_that_is_told_campaigns_at_once_and_by_force():
    rig = Rig(node=2)
    rig.hears(Kind.HEARTBEAT, 1, term=1)
    asked = rig.hears(Kind.CAMPAIGN_NOW, 1)
    assert {(message.kind, message.force, message.term) for message in asked} == {(Kind.VOTE, True, 2)}


def _at(rig: Rig, members: ConfState):
    return Snapshot(0, 0, members)


def _reopened(rig: Rig) -> Rig:
    rig.node = RaftNode(rig.state.options, rig.log)
    return rig


def _all_acknowledge(rig: Rig):
    sent = []
    for node in (2, 3):
        sent += rig.hears(Kind.APPEND_ACK, node, index=rig.status.last)
    return sent


# --- a new term of the same leader


def test_a_leader_begins_a_term_above_its_own_and_a_given_one_and_asks_others_by_force():
    for above, term in ((0, 2), (1, 2), (7, 8)):
        rig = Rig().lead()
        assert rig.node.term == 1
        rig.node.renew(above)
        asked = of(Kind.VOTE, rig.turn())
        assert [(each.to, each.term, each.force) for each in asked] == [(2, term, True), (3, term, True)]
        assert rig.node.role is Role.CANDIDATE
        rig.hears(Kind.VOTE_ACK, 2)
        assert (rig.node.role, rig.status.members[2].match) == (Role.LEADER, 0)


def test_only_a_leader_begins_a_term_so_and_not_before_it_has_applied_a_change():
    rig = Rig()
    rig.node.renew(5)
    assert rig.turn() == []
    assert rig.node.term == 0
    rig = Rig(learners=(4,)).lead()
    rig.node.propose_change(change("v4"), b"")
    rig.turn()
    rig.hears_only(Kind.APPEND_ACK, 2, index=2)
    rig.node.renew(5)
    assert rig.node.role is Role.LEADER
