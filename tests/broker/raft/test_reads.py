"""Reads that see everything committed before they were asked for."""

from __future__ import annotations

from dataclasses import replace

from penstock.broker.raft.membership import Configuration
from penstock.broker.raft.messages import Kind, Message
from penstock.broker.raft.state import Role
from support.raft_rig import Rig, of, one_of


def answers(rig: Rig) -> list[tuple[int, bytes]]:
    return [(read.index, read.context) for read in rig.reads]


def test_a_read_is_answered_with_the_commit_once_a_quorum_confirms_the_lead():
    rig = Rig().lead()
    assert rig.node.read(b"a")
    beats = of(Kind.HEARTBEAT, rig.turn())
    assert len(beats) == 2
    assert answers(rig) == []
    rig.hears(Kind.HEARTBEAT_ACK, 2, round=beats[0].round)
    assert answers(rig) == [(1, b"a")]


def test_a_lone_voter_answers_a_read_only_when_its_term_has_a_commit():
    rig = Rig(1, 1, voters=(1,), pre_vote=False)
    rig.node.campaign()
    rig.node.ready()
    rig.node.advance()
    assert rig.node.role is Role.LEADER
    rig.node.read(b"a")
    ready = rig.node.ready()
    assert (ready.reads, rig.node.committed) == ([], 0)
    rig.write(ready)
    rig.node.advance()
    rig.turn()
    assert answers(rig) == [(3, b"a")]


def test_reads_before_the_first_commit_of_a_term_wait_for_it():
    rig = Rig(1, 1).lead(commit=False)
    rig.node.read(b"a")
    assert of(Kind.HEARTBEAT, rig.turn()) == []
    beats = of(Kind.HEARTBEAT, rig.hears(Kind.APPEND_ACK, 2, index=3))
    rig.hears(Kind.HEARTBEAT_ACK, 3, round=beats[0].round)
    assert answers(rig) == [(3, b"a")]


def test_reads_of_one_turn_share_a_round_and_later_ones_need_another():
    rig = Rig().lead()
    for context in (b"a", b"b", b"c"):
        rig.node.read(context)
    first = of(Kind.HEARTBEAT, rig.turn())
    rig.node.read(b"d")
    second = of(Kind.HEARTBEAT, rig.turn())
    assert (len(first), len(second)) == (2, 2)
    rig.hears(Kind.HEARTBEAT_ACK, 2, round=first[0].round)
    assert [context for _, context in answers(rig)] == [b"a", b"b", b"c"]
    rig.hears(Kind.HEARTBEAT_ACK, 3, round=second[0].round)
    assert [context for _, context in answers(rig)] == [b"a", b"b", b"c", b"d"]


def test_an_acknowledged_round_confirms_those_before_it():
    rig = Rig().lead()
    for context in (b"a", b"b"):
        rig.node.read(context)
        last = of(Kind.HEARTBEAT, rig.turn())[0]
    rig.hears(Kind.HEARTBEAT_ACK, 2, round=last.round)
    assert [context for _, context in answers(rig)] == [b"a", b"b"]


def test_a_lost_round_is_repeated_by_the_next_heartbeat():
    rig = Rig().lead()
    rig.node.read(b"a")
    lost = of(Kind.HEARTBEAT, rig.turn())[0]
    assert of(Kind.HEARTBEAT, rig.ticks(1))[0].round == lost.round
    rig.hears(Kind.HEARTBEAT_ACK, 2, round=lost.round)
    assert of(Kind.HEARTBEAT, rig.ticks(1))[0].round == 0


def test_answers_of_one_voter_and_of_learners_are_no_quorum():
    rig = Rig(voters=(1, 2, 3, 4, 5), learners=(6, 7)).lead()
    rig.node.read(b"a")
    beat = of(Kind.HEARTBEAT, rig.turn())[0]
    for node in (6, 7, 2, 2):
        rig.hears(Kind.HEARTBEAT_ACK, node, round=beat.round)
    assert answers(rig) == []
    rig.hears(Kind.HEARTBEAT_ACK, 3, round=beat.round)
    assert answers(rig) == [(1, b"a")]


def test_a_leader_that_is_no_voter_any_more_does_not_confirm_itself():
    rig = Rig(voters=(1, 2), step_down_on_removal=False).lead()
    rig.state.configure(_without(rig, 1))
    rig.node.read(b"a")
    rig.turn()
    assert answers(rig) == []


def test_reads_are_dropped_with_the_lead():
    rig = Rig().lead()
    rig.node.read(b"a")
    beat = of(Kind.HEARTBEAT, rig.turn())[0]
    rig.hears(Kind.HEARTBEAT, 2, term=9)
    rig.node.step(_late_ack(beat))
    rig.lead()
    rig.hears(Kind.HEARTBEAT_ACK, 2, round=beat.round)
    rig.ticks(1)
    rig.hears(Kind.HEARTBEAT_ACK, 2, round=beat.round)
    assert answers(rig) == []


def test_a_follower_asks_the_leader():
    follower, leader = Rig(node=2), Rig().lead()
    assert not follower.node.read(b"a")
    follower.hears(Kind.HEARTBEAT, 1, term=leader.node.term)
    assert follower.node.read(b"a")
    question = one_of(Kind.READ, follower.turn())
    leader.node.step(question)
    beat = of(Kind.HEARTBEAT, leader.turn())[0]
    answer = one_of(Kind.READ_ACK, leader.hears(Kind.HEARTBEAT_ACK, 3, round=beat.round))
    follower.node.step(answer)
    follower.turn()
    assert answers(follower) == [(1, b"a")]


def test_a_candidate_reads_nothing():
    rig = Rig(pre_vote=False)
    rig.ticks(10)
    assert not rig.node.read(b"a")


def _without(rig: Rig, node: int) -> Configuration:
    configuration = rig.state.configuration
    return replace(configuration, voters=configuration.voters - {node})


def _late_ack(beat: Message) -> Message:
    return Message(Kind.HEARTBEAT_ACK, 1, 2, beat.term, round=beat.round)
