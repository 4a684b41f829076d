"""Every order of a publisher and two readers of one slot under store buffers: no wake-up is lost, and each rule counts.

    publisher   word := n; fence; slot not 0? slot := 0, wake all
    reader      slot := a number of its own; fence; word unchanged? sleep if the slot still has that number
    stale       sleeps on the same slot for a session that is over; may leave then: slot := 0, wake all

A store is visible to its own processor only, until its buffer drains: at any time, or at a fence or system call.
The model has no timeout: a reader that sleeps at the end with something new to read would sleep for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

PUBLISHED = 2
PUBLISHER, READER, STALE = range(3)
WORD, SLOT = range(2)
RULES = frozenset({"publisher's fence", "reader's fence", "numbers of their own", "wake all", "0 only with a wake"})


class Process(NamedTuple):
    """One processor: its next step, the number it works with, and its stores that no other has seen."""

    step: str
    number: int = 0
    buffer: tuple[tuple[int, int], ...] = ()


class State(NamedTuple):
    memory: tuple[int, int]
    processes: tuple[Process, ...]
    asleep: tuple[int, ...] = ()  # in the order of their coming


BEGIN = State((0, 0), (Process("publish", 1), Process("look"), Process("raise")))


def flag(who: int, rules: frozenset[str]) -> int:
    """What a reader stores before it sleeps."""
    return who if "numbers of their own" in rules else READER


def follow(state: State, who: int, rules: frozenset[str]) -> Iterator[State]:
    """All that one process may do next."""
    process = state.processes[who]
    if process.buffer:
        (place, value), *rest = process.buffer
        drained = tuple(value if at == place else old for at, old in enumerate(state.memory))
        yield put(state._replace(memory=drained), who, process._replace(buffer=tuple(rest)))
    if who not in state.asleep:
        steps = publisher(process, load(state, who), rules) if who == PUBLISHER else reader(process, who, state, rules)
        for step in steps:
            yield from act(state, who, flag(who, rules), *step)


def act(state: State, who: int, own: int, then: Process, call: str) -> Iterator[State]:
    """A system call, like a fence, begins when the buffer is empty."""
    if call and then.buffer:
        return
    asleep = state.asleep
    if call == "wake":
        asleep = ()
    elif call == "wake one":
        asleep = asleep[1:]
    elif call == "sleep" and state.memory[SLOT] == own:
        asleep = (*asleep, who)
    yield put(state._replace(asleep=asleep), who, then)


def publisher(process: Process, seen: tuple[int, int], rules: frozenset[str]) -> Iterator[tuple[Process, str]]:
    step, number, buffer = process
    if step == "publish":
        yield Process("fence", number, (*buffer, (WORD, number))), ""
    elif step == "fence":
        yield (process._replace(step="check"), "fence" if "publisher's fence" in rules else "")
    elif step == "check" and seen[SLOT]:
        yield Process("wake", number, (*buffer, (SLOT, 0))), ""
    elif step == "wake" or step == "check":
        after = Process("publish", number + 1, buffer) if number < PUBLISHED else Process("done", number, buffer)
        yield after, "" if step == "check" else "wake" if "wake all" in rules else "wake one"


def reader(process: Process, who: int, state: State, rules: frozenset[str]) -> Iterator[tuple[Process, str]]:
    """`number` is what it has read; a stale one reads another log, where nothing happens."""
    step, number, buffer = process
    word = load(state, who)[WORD] if who == READER else number
    if step == "look":
        yield process._replace(step="done" if word == PUBLISHED else "raise", number=word), ""
    elif step == "raise":
        yield Process("fence", number, (*buffer, (SLOT, flag(who, rules)))), ""
    elif step == "fence":
        yield (process._replace(step="again"), "fence" if "reader's fence" in rules else "")
    elif step == "again":
        yield process._replace(step="sleep" if word == number else "look"), ""
    elif step == "sleep":
        yield (process._replace(step="look" if who == READER else "leave"), "sleep")
        if who == STALE:
            yield (process._replace(step="done"), "sleep")  # stopped or killed: it never leaves
    elif step == "leave":
        yield Process("rouse", number, (*buffer, (SLOT, 0))), ""
    elif step == "rouse":
        yield (process._replace(step="done"), "wake" if "0 only with a wake" in rules else "")


def load(state: State, who: int) -> tuple[int, int]:
    """What a process sees: its own stores first."""
    own = dict(state.processes[who].buffer)
    return own.get(WORD, state.memory[WORD]), own.get(SLOT, state.memory[SLOT])


def put(state: State, who: int, process: Process) -> State:
    processes = tuple(process if at == who else old for at, old in enumerate(state.processes))
    return state._replace(processes=processes)


def lost_wakes(rules: frozenset[str]) -> tuple[int, int]:
    """How many states there are, and in how many nothing moves any more though the reader has not read all."""
    seen, todo, lost = {BEGIN}, [BEGIN], 0
    while todo:
        state = todo.pop()
        after = [found for who in range(3) for found in follow(state, who, rules)]
        lost += not after and state.processes[READER].step != "done"
        fresh = set(after) - seen
        seen |= fresh
        todo += fresh
    return len(seen), lost


def test_no_wake_up_is_lost_in_any_order() -> None:
    states, lost = lost_wakes(RULES)
    assert lost == 0
    assert states > 1000


@pytest.mark.parametrize("left_out", sorted(RULES))
def test_without_any_one_of_the_rules_some_order_loses_one(left_out: str) -> None:
    assert lost_wakes(RULES - {left_out})[1] > 0
