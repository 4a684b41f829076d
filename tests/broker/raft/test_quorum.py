"""Majorities, single and joint."""

from __future__ import annotations

import random
from itertools import product

import pytest
from penstock.broker.raft.quorum import EVERYTHING, Result, committed, joint_result, jointly_committed, result


def naively(voters: set[int], indexes: dict[int, int]) -> int:
    """The highest index that more than half of the voters have reached."""
    if not voters:
        return EVERYTHING
    reached = [n for n in range(12) if sum(indexes[voter] >= n for voter in voters) * 2 > len(voters)]
    return max(reached)


def test_what_a_quorum_has_reached_is_what_counting_says(seed):
    rng = random.Random(seed)
    for _ in range(500):
        indexes = {voter: rng.randrange(10) for voter in range(1, 8)}
        incoming = set(rng.sample(range(1, 8), rng.randint(1, 7)))
        outgoing = set(rng.sample(range(1, 8), rng.randint(0, 7)))
        assert committed(incoming, indexes.__getitem__) == naively(incoming, indexes)
        both = min(naively(incoming, indexes), naively(outgoing, indexes))
        assert jointly_committed(incoming, outgoing, indexes.__getitem__) == both


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_vote_is_won_or_lost_when_nothing_can_change_it(size):
    voters = list(range(1, size + 1))
    for answers in product((True, False, None), repeat=size):
        votes = {voter: answer for voter, answer in zip(voters, answers, strict=True) if answer is not None}
        waiting = size - len(votes)
        yes = sum(votes.values())
        open_still = Result.PENDING if (yes + waiting) * 2 > size else Result.LOST
        assert result(voters, votes) is (Result.WON if yes * 2 > size else open_still)


def test_both_halves_have_to_win_and_either_can_lose():
    assert joint_result((1,), (2,), {1: True}) is Result.PENDING
    assert joint_result((1,), (2,), {1: True, 2: True}) is Result.WON
    assert joint_result((1,), (2,), {2: False}) is Result.LOST
    assert joint_result((1,), (), {1: True}) is Result.WON
