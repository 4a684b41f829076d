"""Configurations, and the changes between them. Pure.

Idea: a change of one voter needs nothing in between, because majorities of the old and the new configuration overlap.
Any other goes through a joint configuration, in which both halves must agree. Each function takes a configuration and
returns the next one, or raises `Unfit`.

Invariant: no node is a learner and a voter; `learners_next` are voters of the outgoing half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .errors import Unfit
from .messages import NONE, Change, ChangeStep, ConfState, Operation, Transition

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of the group. `outgoing` has voters while the configuration is joint."""

    voters: frozenset[int] = NOTHING
    outgoing: frozenset[int] = NOTHING
    learners: frozenset[int] = NOTHING
    learners_next: frozenset[int] = NOTHING
    auto_leave: bool = False

    @property
    def joint(self) -> bool:
        """Two halves decide together."""
        return bool(self.outgoing)

    def members(self) -> list[int]:
        """All members, in ascending order."""
        return sorted(self.voters | self.outgoing | self.learners)

    def all_voters(self) -> list[int]:
        """The voters of both halves, in ascending order."""
        return sorted(self.voters | self.outgoing)

    def stored(self) -> ConfState:
        """This configuration as it is written down."""
        return ConfState(
            voters=tuple(sorted(self.voters)),
            learners=tuple(sorted(self.learners)),
            outgoing=tuple(sorted(self.outgoing)),
            learners_next=tuple(sorted(self.learners_next)),
            auto_leave=self.auto_leave,
        )


def restored(state: ConfState) -> Configuration:
    """The configuration that was written down; raises `Unfit` when it contradicts itself."""
    found = Configuration(
        voters=frozenset(state.voters),
        outgoing=frozenset(state.outgoing),
        learners=frozenset(state.learners),
        learners_next=frozenset(state.learners_next),
        auto_leave=state.auto_leave,
    )
    voting = found.voters | found.outgoing
    if found.learners & voting or not found.learners_next <= found.outgoing - found.voters:
        raise Unfit(f"{state} has a node twice")
    if not found.joint and (found.learners_next or found.auto_leave):
        raise Unfit(f"{state} ends a joint configuration that it is not in")
    return found


def changed(before: Configuration, change: Change) -> Configuration:
    """The configuration after a change; raises `Unfit`."""
    if not change.steps and change.transition is Transition.AUTO:
        return left(before)
    if len(change.steps) > 1 or change.transition is not Transition.AUTO:
        return joined(before, change.steps, auto_leave=change.transition is not Transition.EXPLICIT)
    return simply(before, change.steps)


def simply(before: Configuration, steps: Iterable[ChangeStep]) -> Configuration:
    """One voter more or less, and any number of learners."""
    if before.joint:
        raise Unfit("a joint configuration has to be left first")
    after = _stepped(before, steps)
    if len(before.voters ^ after.voters) > 1:
        raise Unfit("changing several voters needs a joint configuration")
    return after


def joined(before: Configuration, steps: Iterable[ChangeStep], *, auto_leave: bool) -> Configuration:
    """The joint configuration of `before` and what the steps make of it."""
    if before.joint:
        raise Unfit("the configuration is joint already")
    if not before.voters:
        raise Unfit("a configuration without voters has no majority that could join")
    return replace(_stepped(replace(before, outgoing=before.voters), steps), auto_leave=auto_leave)


def left(before: Configuration) -> Configuration:
    """The incoming half alone."""
    if not before.joint:
        raise Unfit("the configuration is not joint")
    return Configuration(voters=before.voters, learners=before.learners | before.learners_next)


def _stepped(before: Configuration, steps: Iterable[ChangeStep]) -> Configuration:
    after = before
    for step in steps:
        if step.node != NONE and not (step.operation is Operation.LEARNER and step.node in after.learners):
            after = _placed(_without(after, step.node), step)
    if not after.voters:
        raise Unfit("no voter would be left")
    return after


def _without(before: Configuration, node: int) -> Configuration:
    gone = {node}
    return replace(
        before,
        voters=before.voters - gone,
        learners=before.learners - gone,
        learners_next=before.learners_next - gone,
    )


def _placed(before: Configuration, step: ChangeStep) -> Configuration:
    added = {step.node}
    if step.operation is Operation.VOTER:
        return replace(before, voters=before.voters | added)
    if step.operation is Operation.REMOVE:
        return before
    if step.node in before.outgoing:  # still a voter there until the joint configuration ends
        return replace(before, learners_next=before.learners_next | added)
    return replace(before, learners=before.learners | added)
