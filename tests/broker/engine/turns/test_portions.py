"""Long work in portions: connections take turns, and nothing that was given is lost, whenever it is given."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.turns.portions import JOBS_MAX, STEPS, Portions
from penstock.broker.errors import LimitReached
from penstock.storage.errors import Error


def never(error: Error) -> None:
    raise error


def counting(done: list[Any], name: Any, steps: int) -> Any:
    """Work of so many steps, each of which is written down."""
    for _ in range(steps):
        done.append(name)
        yield


def end(portions: Portions) -> int:
    """Do all of it. Returns how many portions that took."""
    count = 1
    while portions.work():
        count += 1
    return count


@pytest.mark.parametrize("begun", [True, False])
def test_what_a_step_adds_for_its_own_connection_is_done_too(begun: bool):
    portions, done = Portions(), list[str]()

    def adding() -> Any:
        for step in range(STEPS + 2):
            portions.add("a", counting(done, f"added {step}", 1))
            yield

    if begun:
        portions.begin("a", adding(), never, changes=False)
    else:
        portions.add("a", adding())
    end(portions)
    assert done == [f"added {step}" for step in range(STEPS + 2)]
    assert not portions.jobs


def test_connections_take_turns_and_each_ones_work_is_done_in_order():
    portions, done = Portions(), list[str]()
    for peer, name in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        portions.add(peer, counting(done, name, 2))
    end(portions)
    assert done == ["a1", "b1", "a1", "b1", "a2", "a2"]


def test_a_portion_has_so_many_steps_and_what_took_more_is_made_up_for():
    portions, done = Portions(), list[str]()

    def long() -> Any:
        yield 3 * STEPS

    portions.add("a", long())
    portions.add("b", counting(done, "b", 2 * STEPS))
    found: list[int] = []
    for _ in range(5):
        assert portions.work()
        found.append(len(done))
    assert found == [0, 0, 0, STEPS - 1, 2 * STEPS - 1], "the end of the long one is a step as well"


def test_errors_go_to_the_asker_and_the_next_in_line_goes_on():
    portions, done, refused = Portions(), list[str](), list[Error]()

    def failing() -> Any:
        yield from counting(done, "before", STEPS)
        raise LimitReached("no")

    portions.begin("a", failing(), refused.append, changes=False)
    portions.begin("a", counting(done, "after", 1), never, changes=False)
    assert end(portions) == 1
    assert [str(error) for error in refused] == ["no"]
    assert done == ["before"] * STEPS + ["after"]


def test_a_connection_has_a_limit_and_what_was_begun_and_changes_something_outlives_it():
    portions, done = Portions(), list[str]()
    for number in range(JOBS_MAX):
        portions.begin("a", counting(done, number, STEPS + 1), never, changes=True)
    with pytest.raises(LimitReached, match=f"{JOBS_MAX} requests"):
        portions.begin("a", counting(done, "more", 1), never, changes=True)
    portions.drop("a")
    end(portions)
    assert done == [0] * (STEPS + 1)


@pytest.mark.parametrize("begin", [True, False])
def test_nothing_of_a_connection_that_rests_is_worked_on_until_it_is_resumed(begin: bool):
    portions, done = Portions(), list[str]()
    portions.add("a", counting(done, "a1", 2))
    portions.rest("a")
    portions.rest("a")
    if begin:
        portions.begin("a", counting(done, "a2", 1), never, changes=False)
    else:
        portions.add("a", counting(done, "a2", 1))
    portions.add("b", counting(done, "b", 1))
    end(portions)
    assert done == ["b"]
    assert not portions.jobs
    portions.resume("a")
    portions.resume("a")
    end(portions)
    assert done == ["b", "a1", "a1", "a2"]


def test_one_that_rests_has_the_same_limit_and_leaves_the_same_behind():
    portions, done = Portions(), list[Any]()
    portions.rest("a")
    for number in range(JOBS_MAX):
        portions.begin("a", counting(done, number, STEPS + 1), never, changes=True)
    with pytest.raises(LimitReached):
        portions.begin("a", counting(done, "more", 1), never, changes=True)
    portions.resume("a")
    portions.work()
    portions.rest("a")
    portions.drop("a")
    end(portions)
    assert done == [0] * (STEPS + 1)


def test_it_says_how_many_steps_the_last_portion_took_for_each():
    portions, done = Portions(), list[str]()
    portions.add("a", counting(done, "a", STEPS - 2))
    portions.add("b", counting(done, "b", 0))
    portions.work()
    assert portions.worked == {"a": STEPS - 1, "b": 1}
    portions.work()
    assert portions.worked == {}
