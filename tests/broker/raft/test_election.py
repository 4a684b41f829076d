"""How a node becomes the leader, and how one that leads stops."""

from __future__ import annotations

import pytest
from penstock.broker.raft.messages import ConfState, Entry, EntryKind, Kind, Message, Promise, Snapshot
from penstock.broker.raft.state import Role
from support.raft_rig import TICKS, Rig, entry, of, one_of


def test_a_node_votes_once_in_a_term_and_for_the_same_candidate_again():
    rig = Rig()
    assert not one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 2, term=1)).reject
    assert one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 3, term=1)).reject
    assert not one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 2, term=1)).reject
    assert not one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 3, term=2)).reject


def test_a_vote_is_kept_over_a_restart():
    rig = Rig(promise=Promise(3, vote=2))
    assert one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 3, term=3)).reject


def test_a_node_that_hears_a_leader_in_the_term_votes_for_no_other():
    rig = Rig(check_quorum=False)
    rig.hears(Kind.HEARTBEAT, 2, term=1)
    assert one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 3, term=1)).reject


@pytest.mark.parametrize(
    ("index", "term", "granted"), [(3, 2, True), (2, 2, False), (9, 1, False), (1, 3, True), (4, 2, True)]
)
def test_a_vote_goes_only_to_a_log_that_has_all_of_this_one(index, term, granted):
    ack = one_of(Kind.VOTE_ACK, Rig(1, 2, 2).hears(Kind.VOTE, 2, term=5, index=index, log_term=term))
    assert ack.reject is not granted


@pytest.mark.parametrize(("kind", "answer"), [(Kind.VOTE, Kind.VOTE_ACK), (Kind.PRE_VOTE, Kind.PRE_VOTE_ACK)])
def test_a_node_that_hears_a_leader_ignores_candidates_until_its_timeout(kind, answer):
    rig = Rig()
    rig.hears(Kind.HEARTBEAT, 2, term=1)
    rig.ticks(TICKS - 1)
    assert rig.hears(kind, 3, term=2) == []
    rig.node.forget_leader()
    rig.turn()
    assert one_of(answer, rig.hears(kind, 3, term=2)).term == 2


def test_a_node_that_hears_a_leader_votes_for_one_that_the_leader_handed_over_to():
    rig = Rig()
    rig.hears(Kind.HEARTBEAT, 2, term=1)
    assert not one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 3, term=2, force=True)).reject


def test_asking_before_a_vote_changes_no_term():
    rig = Rig()
    asked = rig.ticks(TICKS)
    assert {(message.kind, message.term) for message in asked} == {(Kind.PRE_VOTE, 1)}
    assert (rig.node.term, rig.node.role) == (0, Role.PRE_CANDIDATE)
    other = Rig(node=2)
    assert not one_of(Kind.PRE_VOTE_ACK, other.hears(Kind.PRE_VOTE, 1, term=1)).reject
    assert (other.node.term, other.status.vote) == (0, 0)


def test_a_pre_vote_of_an_earlier_term_is_refused_in_the_term_of_now():
    refusal = one_of(Kind.PRE_VOTE_ACK, Rig(promise=Promise(5)).hears(Kind.PRE_VOTE, 2, term=4))
    assert (refusal.reject, refusal.term) == (True, 5)


def test_a_candidate_leads_with_a_majority_and_begins_with_an_entry_of_its_term():
    rig = Rig(1, pre_vote=False)
    rig.ticks(TICKS)
    assert (rig.node.role, rig.node.term) == (Role.CANDIDATE, 2)
    appends = of(Kind.APPEND, rig.hears(Kind.VOTE_ACK, 3))
    assert rig.node.role is Role.LEADER
    assert [(one.term, one.index, bytes(one.data)) for one in appends[0].entries] == [(2, 2, b"")]


def test_a_candidate_that_a_majority_refuses_follows_again():
    rig = Rig(pre_vote=False)
    rig.ticks(TICKS)
    for other in (2, 3):
        rig.hears(Kind.VOTE_ACK, other, reject=True)
    assert (rig.node.role, rig.node.term) == (Role.FOLLOWER, 1)


def test_a_voter_that_answers_twice_counts_once():
    rig = Rig(voters=(1, 2, 3, 4, 5), pre_vote=False)
    rig.ticks(TICKS)
    for _ in range(3):
        rig.hears(Kind.VOTE_ACK, 2)
    assert rig.node.role is Role.CANDIDATE


def test_its_own_vote_counts_only_once_it_is_written():
    rig = Rig(voters=(1,), pre_vote=False)
    rig.node.campaign()
    assert rig.node.role is Role.CANDIDATE
    rig.turn()
    assert rig.node.role is Role.LEADER


def test_answers_to_another_kind_of_vote_are_no_votes():
    rig = Rig(pre_vote=False)
    rig.ticks(TICKS)
    rig.hears(Kind.PRE_VOTE_ACK, 2)
    assert rig.node.role is Role.CANDIDATE


def test_a_learner_never_campaigns():
    rig = Rig(voters=(2, 3), learners=(1,))
    assert rig.ticks(5 * TICKS) == []
    assert not rig.node.campaign()
    rig.hears(Kind.CAMPAIGN_NOW, 2)
    assert rig.node.role is Role.FOLLOWER


def test_a_node_outside_of_the_configuration_never_campaigns():
    rig = Rig(voters=(2, 3))
    assert rig.ticks(5 * TICKS) == []


def test_a_node_that_may_not_stand_forgets_a_leader_that_is_silent():
    rig = Rig(voters=(2, 3), learners=(1,))
    rig.hears(Kind.HEARTBEAT, 2, term=1)
    assert rig.ticks(TICKS - 1) == []
    assert rig.node.leader == 2
    assert rig.ticks(1) == []
    assert (rig.node.leader, rig.node.role, rig.node.term) == (0, Role.FOLLOWER, 1)


def test_a_learner_votes_because_its_configuration_may_be_old():
    rig = Rig(voters=(2, 3), learners=(1,))
    assert not one_of(Kind.VOTE_ACK, rig.hears(Kind.VOTE, 2, term=1)).reject


def test_a_node_does_not_campaign_over_a_change_that_it_has_to_apply():
    rig = Rig(1, 1)
    rig.log.stored[1] = Entry(2, 1, b"EntryConfChangeV2 0 v4", EntryKind.CHANGE)
    rig.node.step(_beat(rig, commit=2))
    assert not rig.node.campaign()
    rig.turn()
    assert rig.node.campaign()


def test_a_node_does_not_campaign_while_it_installs_a_snapshot():
    rig = Rig(asynchronous=True)
    rig.node.step(_snapshot(rig))
    ready = rig.node.ready()
    assert not rig.node.campaign()
    rig.write(ready)
    for message in ready.responses:
        if message.to == 1:
            rig.node.settle(message)
    assert rig.node.campaign()


def test_a_leader_knows_who_is_there_by_what_it_heard_in_this_lead_alone():
    """One that led before would believe in members that have left since, and close itself for damage."""
    rig = Rig().lead()
    rig.ticks(TICKS)
    assert rig.node.spares(1)  # heard of before the last check of the quorum
    rig.hears(Kind.HEARTBEAT_ACK, 2)
    rig.ticks(TICKS)
    assert [rig.node.spares(each) for each in (1, 2, 3)] == [False, False, True]
    rig.hears(Kind.HEARTBEAT, 2, term=rig.node.term + 1)
    rig.lead(commit=False)
    assert not rig.node.spares(1)


def test_a_leader_that_hears_of_no_quorum_steps_down():
    rig = Rig().lead()
    rig.ticks(TICKS)
    assert rig.node.role is Role.LEADER
    rig.hears(Kind.HEARTBEAT_ACK, 2)
    rig.ticks(TICKS)
    assert rig.node.role is Role.LEADER
    rig.ticks(TICKS)
    assert (rig.node.role, rig.node.leader) == (Role.FOLLOWER, 0)


def test_learners_keep_no_leader_in_its_lead():
    rig = Rig(learners=(4, 5)).lead()
    rig.ticks(TICKS)
    for learner in (4, 5):
        rig.hears(Kind.HEARTBEAT_ACK, learner)
    rig.ticks(TICKS)
    assert rig.node.role is Role.FOLLOWER


def test_a_higher_term_ends_a_lead_and_forgets_the_vote():
    rig = Rig().lead()
    rig.hears(Kind.APPEND_ACK, 2, term=7)
    assert (rig.node.role, rig.node.term, rig.status.vote) == (Role.FOLLOWER, 7, 0)


def test_a_candidate_that_hears_a_leader_of_its_term_follows_it():
    rig = Rig(pre_vote=False)
    rig.ticks(TICKS)
    rig.hears(Kind.APPEND, 3, entries=[entry(1, 1)])
    assert (rig.node.role, rig.node.leader, rig.status.last) == (Role.FOLLOWER, 3, 1)


def test_a_leader_heard_of_in_time_is_not_challenged():
    rig = Rig()
    for _ in range(3):
        rig.ticks(TICKS - 1)
        rig.hears(Kind.HEARTBEAT, 2, term=1)
    assert rig.node.role is Role.FOLLOWER


def test_each_term_draws_its_timeout_anew():
    drawn = iter(range(TICKS, 100))
    rig = Rig(draw_timeout=lambda: next(drawn))
    first = rig.state.timeout
    rig.hears(Kind.HEARTBEAT, 2, term=1)
    assert rig.state.timeout == first + 1


def _beat(rig: Rig, **fields: int) -> Message:
    return Message(Kind.HEARTBEAT, 1, 2, rig.node.term, **fields)


def _snapshot(rig: Rig) -> Message:
    return Message(Kind.SNAPSHOT, 1, 2, rig.node.term, snapshot=Snapshot(9, 0, ConfState((1, 2, 3))))


def test_a_term_is_settled_once_something_of_it_is_known_to_be_committed():
    rig = Rig(1)
    assert not rig.node.is_settled
    rig.hears(Kind.APPEND, 2, term=2, index=1, log_term=1, entries=[entry(2, 2)], commit=1)
    assert not rig.node.is_settled, "of the term before"
    rig.hears(Kind.APPEND, 2, term=2, index=2, log_term=2, commit=2)
    assert rig.node.is_settled
    rig.hears(Kind.HEARTBEAT, 3, term=3)
    assert not rig.node.is_settled
