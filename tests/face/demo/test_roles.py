"""How the conductor and the roles of the demo talk."""

from __future__ import annotations

import os
import select
import signal
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


def test_what_a_role_wrote_is_quoted_when_it_ends_early_and_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    def part(conductor: Conductor) -> None:
        raise RuntimeError("no flights today")

    role = Role("role", part, [])
    with pytest.raises(RoleFailed, match=r"with exit code 1: RuntimeError: no flights today$"):
        hear_until(role, lambda: False)
    role.end()
    assert capsys.readouterr().err.endswith("RuntimeError: no flights today\n")


def test_a_role_that_is_killed_by_another_says_by_which_signal(start: Start) -> None:
    role = start(lambda conductor: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(RoleFailed, match="by signal 9: it wrote nothing to standard error"):
        hear_until(role, lambda: False)


def test_a_broken_pipe_of_a_role_s_own_is_no_conductor_gone(start: Start) -> None:
    def part(conductor: Conductor) -> None:
        raise BrokenPipeError("the broker hung up")

    role = start(part)
    with pytest.raises(RoleFailed, match="the broker hung up"):
        hear_until(role, lambda: False)


def test_a_role_that_is_done_may_be_told_to_stop(start: Start) -> None:
    role = start(lambda conductor: conductor.say(RoleDone(3, 0.5)))
    wait_for_end(role)
    role.tell(Stop())
    assert (role.done, role.records) == (True, 3)
    role.tell(Stop())


def test_an_order_to_a_role_that_failed_raises_the_error_of_the_role(start: Start) -> None:
    def part(conductor: Conductor) -> None:
        raise UnknownTopic("topic 't' does not exist")

    role = start(part)
    wait_for_end(role)
    with pytest.raises(UnknownTopic, match="role 0: topic 't' does not exist"):
        role.tell(Stop())


def wait_for_end(role: Role) -> None:
    os.waitid(os.P_PID, role._pid, os.WEXITED | os.WNOWAIT)


def test_roles_end_when_their_conductor_lets_go(start: Start) -> None:
    def part(conductor: Conductor) -> None:
        assert conductor.wait_for_go() is None
        conductor.say(RoleDone(0, 0.0))

    first, second = start(part), start(part)
    for role in (first, second):
        os.dup2(os.open(os.devnull, os.O_WRONLY), role._orders)  # the only writing end there is
        hear_until(role, lambda role=role: role.done)
