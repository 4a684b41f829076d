"""How the conductor and the roles of the demo talk."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

import pytest
from penstock.broker.errors import UnknownTopic
from penstock.demo.errors import RoleFailed
from penstock.demo.roles import Conductor, Go, Part, Progress, Role, RoleDone, Stop

Start = Callable[[Part], Role]
GO = Go("unix:///x", "t", 3, group="g", delivery="mapped", report="/r")


@pytest.fixture
def start() -> Iterator[Start]:
    roles: list[Role] = []

    def fork(part: Part) -> Role:
        roles.append(Role(f"role {len(roles)}", part, list(roles)))
        return roles[-1]

    yield fork
    for role in roles:
        role.end()


def hear_until(role: Role, condition: Callable[[], bool]) -> None:
    while not condition():
        assert select.select([role], [], [], 10)[0], "the role said nothing"
        role.hear()


def test_a_role_goes_says_how_far_it_is_and_is_done(start: Start) -> None:
    def part(conductor: Conductor) -> None:
        order = conductor.wait_for_go()
        assert order == GO
        conductor.progress(1)
        conductor.progress(2)  # too soon after the other to be said
        conductor.say(RoleDone(3, 0.5))

    role = start(part)
    role.tell(GO)
    hear_until(role, lambda: role.done)
    assert (role.records, role.seconds) == (3, 0.5)


def test_a_role_hears_stop_without_waiting_for_it(start: Start) -> None:
    def part(conductor: Conductor) -> None:
        conductor.wait_for_go()
        assert not conductor.should_stop()
        conductor.say(Progress(1))
        while not conductor.should_stop():
            pass
        conductor.say(RoleDone(1, 0.0))

    role = start(part)
    role.tell(GO)
    hear_until(role, lambda: role.records == 1)
    role.tell(Stop())
    hear_until(role, lambda: role.done)


def test_an_expected_error_of_a_role_is_raised_under_its_own_class(start: Start) -> None:
    def part(conductor: Conductor) -> None:
        raise UnknownTopic("topic 't' does not exist")

    role = start(part)
    with pytest.raises(UnknownTopic, match="role 0: topic 't' does not exist"):
        hear_until(role, lambda: False)


def test_a_role_that_ends_early_is_missed(start: Start) -> None:
    role = start(lambda conductor: None)
    with pytest.raises(RoleFailed, match="role 0 ended before it was done"):
        hear_until(role, lambda: False)


def test_roles_end_when_their_conductor_lets_go(start: Start) -> None:
    def part(conductor: Conductor) -> None:
        assert conductor.wait_for_go() is None
        conductor.say(RoleDone(0, 0.0))

    first, second = start(part), start(part)
    for role in (first, second):
        os.dup2(os.open(os.devnull, os.O_WRONLY), role._orders)  # the only writing end there is
        hear_until(role, lambda role=role: role.done)
