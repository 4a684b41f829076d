"""Majorities, single and joint. Pure.

Idea: an index is committed, and a vote won, when a majority of each half of a configuration says so. A half without
voters agrees with everything, so that a configuration that is not joint is one whose other half is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum

EVERYTHING = 2**63 - 1  # what a half without voters has committed


class Result(Enum):
    """How a vote stands."""

    PENDING = 0
    LOST = 1
    WON = 2


def committed(voters: Collection[int], index_of: Callable[[int], int]) -> int:
    """The highest index that a majority of `voters` has reached; `index_of` says how far a voter is."""
    if not voters:
        return EVERYTHING
    reached = sorted(map(index_of, voters))
    return reached[(len(reached) - 1) // 2]


def jointly_committed(incoming: Collection[int], outgoing: Collection[int], index_of: Callable[[int], int]) -> int:
    """The highest index that a majority of each half has reached."""
    if not outgoing:
        return committed(incoming, index_of)
    return min(committed(incoming, index_of), committed(outgoing, index_of))


def result(voters: Collection[int], votes: Mapping[int, bool]) -> Result:
    """How the vote stands among `voters`; one that has not answered may still say either."""
    if not voters:
        return Result.WON
    needed = len(voters) // 2 + 1
    yes = sum(votes.get(voter) is True for voter in voters)
    no = sum(votes.get(voter) is False for voter in voters)
    if yes >= needed:
        return Result.WON
    return Result.PENDING if len(voters) - no >= needed else Result.LOST


def joint_result(incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]) -> Result:
    """How the vote stands among both halves: lost in either is lost."""
    results = {result(incoming, votes), result(outgoing, votes)}
    if Result.LOST in results:
        return Result.LOST
    return Result.PENDING if Result.PENDING in results else Result.WON
