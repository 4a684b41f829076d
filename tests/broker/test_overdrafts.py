"""Who sits out and for how long: the rule alone, with a clock that is told."""

from __future__ import annotations

import os
from random import Random

import pytest
from penstock.broker.overdrafts import ACTIVE_S, CHARGE_S, MULTIPLE, SIT_OUT_S, Overdrafts

HEAVY_S = 0.002
PAUSE_S = MULTIPLE * HEAVY_S
TURN_S = 0.0001
LIVES = 25 * int(os.environ.get("PENSTOCK_SOAK", "1"))


class Turns:
    """Turns of a broker, one after the other."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.rule = Overdrafts[str]()
        self.held: set[str] = set()

    def turn(self, took_s: float = TURN_S, **over_s: float) -> None:
        """What each connection used beyond its share; the turn takes as long."""
        begun_s = self.now_s
        self.now_s += took_s + sum(over_s.values())
        held, resumed = self.rule.settle(over_s, begun_s, self.now_s)
        assert set(resumed) <= self.held, "each is heard again once"
        self.held = (self.held | set(held)) - set(resumed)

    def wait(self) -> None:
        """Sleep as long as nothing happens, as the broker does."""
        next_s = self.rule.next_s()
        assert next_s is not None
        self.now_s = max(self.now_s, next_s)
        self.turn(0.0)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_a_connection_that_is_alone_never_sits_out(turns: Turns):
    for over_s in (0.0, HEAVY_S, 0.0, HEAVY_S, HEAVY_S):
        turns.turn(a=over_s)
        assert not turns.held
        assert turns.rule.next_s() is None


def test_beside_an_active_one_it_sits_out_for_a_multiple_of_what_it_used_too_much(turns: Turns):
    turns.turn(light=0.0, heavy=HEAVY_S)
    begun_s = turns.now_s
    assert turns.held == {"heavy"}
    while turns.held:
        turns.turn(light=0.0)
    assert turns.now_s - begun_s == pytest.approx(PAUSE_S, abs=2 * TURN_S)


def test_it_is_heard_again_once_no_other_one_is_active(turns: Turns):
    turns.turn(light=0.0, heavy=CHARGE_S)
    begun_s = turns.now_s
    assert turns.rule.next_s() == begun_s + ACTIVE_S
    turns.wait()
    assert turns.held == set()
    assert turns.now_s == begun_s + ACTIVE_S < begun_s + MULTIPLE * CHARGE_S


def test_a_turn_in_which_no_connection_could_be_heard_is_no_silence(turns: Turns):
    turns.turn(light=0.0)
    turns.turn(heavy=10 * ACTIVE_S)
    assert turns.held == {"heavy"}
    turns.turn(light=0.0)
    assert turns.held == {"heavy"}


def test_two_that_use_too_much_do_not_wait_for_each_other(turns: Turns):
    for _ in range(10):
        turns.turn(a=HEAVY_S)
        turns.turn(b=HEAVY_S)
        assert not turns.held


def test_small_requests_of_one_that_is_overdrawn_hold_no_other_back(turns: Turns):
    turns.turn(a=HEAVY_S)
    turns.turn(a=0.0, b=HEAVY_S)
    assert not turns.held
    turns.now_s += PAUSE_S
    turns.turn(a=0.0)
    turns.turn(b=HEAVY_S)
    assert turns.held == {"b"}, "a has kept to its share for long enough"


def test_those_that_sit_out_stand_in_one_line(turns: Turns):
    turns.turn(light=0.0, a=HEAVY_S, b=HEAVY_S, c=HEAVY_S)
    begun_s, left = turns.now_s, dict[str, float]()
    while turns.held:
        before = set(turns.held)
        turns.turn(light=0.0)
        left.update(dict.fromkeys(before - turns.held, turns.now_s - begun_s))
    assert list(left) == ["a", "b", "c"]
    assert list(left.values()) == pytest.approx([PAUSE_S, 2 * PAUSE_S, 3 * PAUSE_S], abs=2 * TURN_S)


def test_the_line_has_an_end(turns: Turns):
    turns.turn(light=0.0, **dict.fromkeys(map(str, range(100)), CHARGE_S))
    begun_s = turns.now_s
    while turns.held:
        turns.turn(light=0.0)
    assert turns.now_s - begun_s == pytest.approx(SIT_OUT_S, abs=2 * TURN_S)


def test_a_broker_that_was_stopped_charges_no_connection_for_all_of_it(turns: Turns):
    turns.turn(light=0.0, heavy=3600.0)
    begun_s = turns.now_s
    while turns.held:
        turns.turn(light=0.0)
    assert turns.now_s - begun_s == pytest.approx(MULTIPLE * CHARGE_S, abs=2 * TURN_S)


def test_one_that_is_gone_is_neither_active_nor_held(turns: Turns):
    turns.turn(light=0.0, heavy=HEAVY_S)
    turns.rule.forget("heavy")
    assert turns.rule.next_s() is None
    turns.rule.forget("light")
    turns.turn(other=HEAVY_S)
    assert "other" not in turns.held


def test_it_remembers_no_longer_than_it_has_to(turns: Turns):
    for number in range(3000):
        turns.turn(**{str(number): HEAVY_S * (number % 3)})
    turns.now_s += SIT_OUT_S + ACTIVE_S
    turns.turn(last=HEAVY_S)
    assert len(turns.rule) == 1


def test_connections_that_cannot_be_compared_may_sit_out_until_the_same_time():
    rule, crowd = Overdrafts[object](), [object() for _ in range(50)]
    held, _ = rule.settle({"light": 0.0, **dict.fromkeys(crowd, CHARGE_S)}, 100.0, 100.0)
    assert held == crowd
    _, resumed = rule.settle({"light": 0.0}, 100.0 + SIT_OUT_S, 100.0 + SIT_OUT_S)
    assert resumed == crowd


def test_one_is_heard_again_at_the_time_that_was_said(turns: Turns):
    turns.turn(light=0.0, heavy=ACTIVE_S / MULTIPLE / 2)
    turns.wait()
    assert not turns.held


def test_the_one_that_was_heard_last_says_when_none_is_active(turns: Turns):
    for name in ("a", "b", "a"):
        turns.turn(**{name: 0.0})
    heard_s = turns.now_s
    turns.turn(heavy=HEAVY_S)
    assert turns.rule.next_s() == heard_s + ACTIVE_S


def test_of_a_pause_that_ended_early_nothing_is_left(turns: Turns):
    turns.turn(light=0.0, heavy=HEAVY_S)
    until_s = turns.now_s + PAUSE_S
    turns.wait()
    turns.turn()
    assert turns.rule.next_s() is None
    turns.turn(light=0.0, heavy=TURN_S)
    next_s = turns.rule.next_s()
    assert next_s is not None
    assert next_s > until_s > turns.now_s


def test_one_that_is_silent_does_not_make_the_others_silent(turns: Turns):
    turns.turn(silent=0.0)
    turns.now_s += ACTIVE_S
    turns.turn(light=0.0)
    turns.turn(heavy=HEAVY_S)
    assert turns.held == {"heavy"}


def test_of_two_that_are_overdrawn_the_one_that_has_paid_is_forgotten(turns: Turns):
    turns.turn(a=4 * HEAVY_S)
    turns.turn(b=HEAVY_S)
    turns.turn(a=2 * HEAVY_S)
    turns.now_s += HEAVY_S
    turns.turn()
    assert len(turns.rule) == 1
    turns.turn(a=0.0, c=HEAVY_S)
    assert not turns.held, "a has not paid"
    turns.rule.forget("a")
    turns.rule.forget("c")
    assert len(turns.rule) == 0


def test_one_that_paid_before_the_others_counts_once(turns: Turns):
    turns.turn(a=CHARGE_S)
    turns.turn(b=TURN_S)
    turns.now_s += MULTIPLE * TURN_S
    turns.turn(b=0.0)
    assert len(turns.rule) == 2


@pytest.mark.parametrize("seed", range(LIVES))
def test_in_random_lives_no_connection_starves_and_those_that_keep_to_their_shares_have_most_of_the_time(seed: int):
    """Each connection always has something to say; the broker hears all that are not held, one after the other."""
    random, turns = Random(seed), Turns()
    heavy = {f"h{number}": random.choice([0.0005, 0.002, 0.03]) for number in range(random.randint(1, 6))}
    light = [f"l{number}" for number in range(random.randint(0, 3))]
    heard, used_s, begun_s = dict.fromkeys([*heavy, *light], turns.now_s), 0.0, turns.now_s
    while turns.now_s < begun_s + 1.5:
        asking = [name for name in heavy if name not in turns.held][:1]
        asking += [name for name in light if random.random() < 0.9]
        random.shuffle(asking)
        before_s = turns.now_s
        turns.turn(**{name: heavy.get(name, 0.0) for name in asking})
        used_s += sum(heavy.get(name, 0.0) for name in asking)
        for name in asking:
            heard[name] = turns.now_s
        assert turns.held <= set(heavy)
        assert light or not turns.held
        longest_s = SIT_OUT_S + len(heavy) * max(heavy.values()) + ACTIVE_S
        assert min(heard[name] for name in heavy) > before_s - longest_s
        for name in asking:
            if name in heavy and name not in turns.held:  # to the end of those that are heard
                heavy[name] = heavy.pop(name)
    if light and max(heavy.values()) <= CHARGE_S and len(heavy) * MULTIPLE * max(heavy.values()) < SIT_OUT_S:
        assert used_s < 1.2 * (turns.now_s - begun_s) / MULTIPLE
    if not light:
        assert used_s > 0.9 * (turns.now_s - begun_s) * min(heavy.values()) / (min(heavy.values()) + TURN_S)
