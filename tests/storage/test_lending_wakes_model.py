"""Every order of two appenders to lent logs and a broker that goes to sleep: none of their batches waits for ever.

    appender    word := n; fence; `asleep` not 0 and not told that number yet? tell the broker (a message)
    broker      nothing moved for a while: `asleep` := a number of its own; fence; words unchanged? wait for messages
                woken: `asleep` := 0; take over what the words say

Store buffers as in test_lending_model.py. The broker wakes mapped readers for what it takes over, so an appender that
wakes fewer of them (killed, or by an older list of slots) delays those until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

RULES = frozenset({"appender's fence", "broker's fence", "the broker looks again", "a number for each sleep"})
APPENDS = 2


class State(NamedTuple):
    words: tuple[int, int] = (0, 0)
    asleep: int = 0
    messages: int = 0
    steps: tuple[str, str] = ("append", "append")
    counts: tuple[int, int] = (0, 0)
    told: tuple[int, int] = (0, 0)
    buffers: tuple[bool, bool] = (False, False)  # whether the word that an appender stored is its own still
    step: str = "look"
    taken: tuple[int, int] = (0, 0)
    buffer: tuple[int, ...] = ()  # of `asleep`
    sleeps: int = 0


def at(values: tuple, who: int, value: object) -> tuple:
    return (*values[:who], value, *values[who + 1 :])


def drained(state: State, who: int) -> State:
    return state._replace(words=at(state.words, who, state.counts[who]), buffers=at(state.buffers, who, False))


def appender(state: State, who: int, rules: frozenset[str]) -> Iterator[State]:
    step, count = state.steps[who], state.counts[who]
    if state.buffers[who]:
        yield drained(state, who)
    if step == "append" and count < APPENDS:
        yield state._replace(
            counts=at(state.counts, who, count + 1), buffers=at(state.buffers, who, True),
            steps=at(state.steps, who, "fence"),
        )  # fmt: skip
    elif step == "fence":
        found = drained(state, who) if "appender's fence" in rules else state
        yield found._replace(steps=at(state.steps, who, "look"))
    elif step == "look":
        tells = state.asleep not in (0, state.told[who])
        yield state._replace(
            steps=at(state.steps, who, "tell" if tells else "append"),
            told=at(state.told, who, state.asleep) if tells else state.told,
        )
    elif step == "tell":
        yield drained(state, who)._replace(messages=1, steps=at(state.steps, who, "append"))


def broker(state: State, rules: frozenset[str]) -> Iterator[State]:
    step, buffer = state.step, state.buffer
    if buffer:
        yield state._replace(asleep=buffer[0], buffer=buffer[1:])
    empty = state._replace(asleep=buffer[-1] if buffer else state.asleep, buffer=())
    if step == "look":
        if state.words != state.taken:
            yield state._replace(taken=state.words)
        else:
            number = state.sleeps + 1 if "a number for each sleep" in rules else 1
            yield state._replace(buffer=(*buffer, number), sleeps=number, step="fence")
    elif step == "fence":
        found = empty if "broker's fence" in rules else state
        yield found._replace(step="again" if "the broker looks again" in rules else "wait")
    elif step == "again":
        yield state._replace(step="wait" if state.words == state.taken else "wake")
    elif step == "wait" and state.messages:
        yield empty._replace(messages=0, step="wake")
    elif step == "wait" and buffer:
        yield empty  # a system call
    elif step == "wake":
        yield state._replace(buffer=(*buffer, 0), step="look")


def walk(rules: frozenset[str]) -> tuple[int, int]:
    """How many states there are, and in how many nothing moves though the broker has not taken over all."""
    seen, todo, lost = {State()}, [State()], 0
    while todo:
        state = todo.pop()
        after = [*appender(state, 0, rules), *appender(state, 1, rules), *broker(state, rules)]
        lost += not after and state.taken != (APPENDS, APPENDS)
        fresh = set(after) - seen
        seen |= fresh
        todo += fresh
    return len(seen), lost


def test_no_batch_waits_for_ever_in_any_order() -> None:
    states, lost = walk(RULES)
    assert lost == 0
    assert states > 1000


@pytest.mark.parametrize("left_out", sorted(RULES))
def test_without_any_one_of_the_rules_one_may(left_out: str) -> None:
    assert walk(RULES - {left_out})[1] > 0
