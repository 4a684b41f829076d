"""Choosing where keys matter, alone: records in a list, leases in a dict, time in a variable."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from penstock.broker.engine.queues.choosing.keyed import Candidate, Chooser, KeyedChoice, is_keyed, looks_at_keys
from penstock.broker.engine.tables.queues.keys import OWN
from penstock.broker.engine.tables.queues.queue import Queue
from penstock.broker.engine.tables.queues.settings import parse
from penstock.transport.queue_messages import FOREVER_US

A, B, C = 1001, 1002, 1003


class Line:
    """A group on one partition without anything else. `keys[offset]` is the key of a record."""

    def __init__(self, keys: list[int], **settings: object) -> None:
        self.keys = keys
        self.settings = parse(settings)
        self.chooser = Chooser()
        self.now_us = 0
        self.frontier = 0
        self.leased: dict[int, int] = {}  # attempt by offset
        self.held: set[int] = set()
        self.waiting: dict[int, tuple[int, int]] = {}  # attempt and when it is ready
        self.levels: dict[int, int] = {}
        self.looked = 0

    def _fresh(self):
        for offset in range(self.frontier, len(self.keys)):
            self.looked += 1
            yield Candidate(offset, self.keys[offset])

    def choose(self, most: int = 1) -> KeyedChoice:
        known = [Candidate(offset, self.keys[offset], 0, 0, self.levels.get(offset, 0)) for offset in self.held]
        known += [Candidate(offset, self.keys[offset], *waits) for offset, waits in self.waiting.items()]
        busy = Counter(self.keys[offset] for offset in self.leased)
        room = self.settings.look_ahead - len(self.held)
        return self.chooser.choose(self.settings, busy, known, self._fresh(), room, most, self.now_us)

    def lease(self, most: int = 1) -> list[int]:
        """Choose and do what was chosen. Returns the offsets."""
        choice = self.choose(most)
        for candidate in choice.taken:
            assert candidate.offset not in self.leased
            self.held.discard(candidate.offset)
            self.waiting.pop(candidate.offset, None)
            self.leased[candidate.offset] = candidate.attempt + 1
        self.held |= {offset for offset, _ in choice.held}
        self.frontier = max(self.frontier, choice.frontier)
        assert len(self.held) <= self.settings.look_ahead
        return [candidate.offset for candidate in choice.taken]

    def ack(self, *offsets: int) -> None:
        for offset in offsets:
            del self.leased[offset]

    def nack(self, offset: int, ready_us: int) -> None:
        self.waiting[offset] = (self.leased.pop(offset), ready_us)


# -- order by key ----------------------------------------------------------------------------------


def test_one_record_of_a_key_is_out_at_a_time_and_other_keys_go_on():
    line = Line([A, A, B, A, B], order="key")
    assert line.lease(10) == [0, 2]
    assert line.lease(10) == []
    line.ack(2)
    assert line.lease(10) == [4]
    line.ack(0)
    assert line.lease(10) == [1]


def test_what_is_passed_over_is_held_only_as_far_as_something_behind_it_is_taken():
    line = Line([A, A, A, B, A, A], order="key")
    choice = line.choose(10)
    assert (choice.runs, choice.keys) == ([(0, 1, 1), (3, 1, 1)], [A, B])
    assert (choice.held, choice.frontier) == ([(1, A), (2, A)], 4)


def test_a_record_that_waits_for_a_retry_holds_its_key_and_no_other():
    line = Line([A, A, B], order="key")
    assert line.lease(10) == [0, 2]
    line.nack(0, 500)
    assert line.lease(10) == []
    assert line.choose().next_us == 500
    line.now_us = 500
    choice = line.choose(10)
    assert choice.runs == [(0, 1, 2)]
    assert line.lease(10) == [0]
    line.ack(0)
    assert line.lease(10) == [1]


def test_a_dead_record_frees_its_key_and_comes_back_before_later_ones_when_it_is_redriven():
    line = Line([A, A, A], order="key")
    assert line.lease() == [0]
    line.ack(0)  # dead or done is the same to the chooser: it is in no table that it sees
    assert line.lease() == [1]
    line.waiting[0] = (0, 0)  # redriven while a later one of its key is leased
    assert line.lease() == []
    line.ack(1)
    assert line.lease(10) == [0]


def test_records_without_a_key_wait_for_no_other():
    line = Line([OWN, A, OWN, A, OWN], order="key", key_concurrency=1, key_rate_per_s=1.0)
    assert line.lease(10) == [0, 1, 2, 4]


def test_without_an_order_a_retry_holds_no_key():
    line = Line([A, A], key_concurrency=1)
    assert line.lease(10) == [0]
    line.nack(0, 500)
    assert line.lease(10) == [1]


@pytest.mark.parametrize("seed", range(20))
def test_every_key_is_worked_off_in_order_whatever_fails(seed: int):
    dice = random.Random(seed)
    keys = [dice.choice([A, B, C, OWN]) for _ in range(200)]
    line = Line(keys, order="key", fair=seed % 2 == 1, look_ahead=dice.choice([5, 30, 1000]))
    finished: list[int] = []
    for _ in range(4000):
        line.lease(dice.randint(1, 4))
        out = Counter(keys[offset] for offset in line.leased if keys[offset] != OWN)
        assert all(count == 1 for count in out.values())
        for offset in list(line.leased):
            if dice.random() < 0.3:
                line.nack(offset, line.now_us + dice.randint(0, 50))
            elif dice.random() < 0.7:
                line.ack(offset)
                finished.append(offset)
        line.now_us += dice.randint(0, 20)
    assert sorted(finished) == list(range(200))
    for key in (A, B, C):
        of_key = [offset for offset in finished if keys[offset] == key]
        assert of_key == sorted(of_key)


# -- the window ------------------------------------------------------------------------------------


def test_a_full_window_looks_no_further():
    line = Line([A] * 5 + [B] + [A] * 100 + [C], order="key", look_ahead=4)
    assert line.lease(10) == [0]
    assert line.looked == 5, "the first, and as many as may be passed over"
    line = Line([A] * 5 + [B] + [A] * 100 + [C], order="key", look_ahead=5)
    assert line.lease(10) == [0, 5]
    assert line.held == {1, 2, 3, 4}
    line.ack(5)
    line.looked = 0
    assert line.lease(10) == []
    assert line.looked == 1, "room for one more"


def test_no_more_is_looked_at_than_is_asked_for():
    line = Line(list(range(2, 1000)), order="key")
    assert line.lease(3) == [0, 1, 2]
    assert line.looked == 3
    assert line.lease(0) == []


def test_held_ones_go_first_when_their_key_is_free():
    line = Line([A, A, B, C], order="key")
    assert line.lease(2) == [0, 2]
    line.ack(0)
    assert line.lease(1) == [1]
    assert line.lease(1) == [3]


def test_a_higher_priority_goes_before_a_lower_offset():
    line = Line([A, B, C], fair=True)
    line.held, line.frontier, line.levels = {0, 1, 2}, 3, {2: 9, 1: 9}
    assert line.lease(10) == [1, 2, 0]


# -- limits ----------------------------------------------------------------------------------------


def test_so_many_of_a_key_are_out_at_once_and_not_one_more():
    line = Line([A] * 6 + [B] * 2, key_concurrency=3)
    assert line.lease(100) == [0, 1, 2, 6, 7]
    line.ack(1)
    assert line.lease(100) == [3]
    assert line.lease(100) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_limit_holds_at_every_moment_and_nothing_is_left_out(seed: int):
    dice = random.Random(seed)
    keys = [dice.choice([A, B]) for _ in range(150)]
    line, done = Line(keys, key_concurrency=4, fair=seed % 2 == 0), 0
    for _ in range(2000):
        line.lease(dice.randint(1, 5))
        out = Counter(keys[offset] for offset in line.leased)
        assert max(out.values(), default=0) <= 4
        if line.leased:
            line.ack(dice.choice(sorted(line.leased)))
            done += 1
    assert done == 150


def test_a_rate_is_kept_for_each_key_to_the_microsecond():
    line = Line([A] * 4 + [B], key_rate_per_s=4.0)
    assert line.lease(10) == [0, 4]
    assert line.choose(10).next_us == 250_000
    line.now_us = 249_999
    assert line.lease(10) == []
    line.now_us = 250_000
    assert line.lease(10) == [1]
    assert line.choose(10).next_us == 500_000


def test_who_asks_when_told_gets_the_whole_rate():
    line = Line([A] * 100, key_rate_per_s=20.0)
    while len(line.leased) < 100:
        if not line.lease(7):
            line.now_us = line.choose(1).next_us
    assert line.now_us == (100 - 2) * 1_000_000 // 20


# -- turns -----------------------------------------------------------------------------------------


def test_keys_take_turns_one_record_each():
    line = Line([A] * 4 + [B] * 2 + [C] * 3, fair=True)
    assert [line.keys[line.lease()[0]] for _ in range(9)] == [A, B, C, A, B, C, A, C, A]


def test_turns_go_on_where_the_lease_before_ended():
    line = Line([A] * 4 + [B] * 4 + [C] * 4, fair=True)
    assert [line.keys[offset] for offset in line.lease(4)] == [A, B, C, A]
    assert [line.keys[offset] for offset in line.lease(4)] == [B, C, A, B]


def test_ten_thousand_records_of_one_tenant_keep_another_waiting_for_one_lease():
    line = Line([A] * 10_000 + [B, B], fair=True, look_ahead=20_000)
    line.chooser._turn = A - 1
    assert [line.lease()[0] for _ in range(4)] == [0, 10_000, 1, 10_001]


def test_a_key_that_comes_back_after_a_rest_waits_for_one_round_of_the_others():
    crowd = [key for _ in range(50) for key in (A, B, C)]
    line = Line(crowd, fair=True)
    for _ in range(10):
        line.ack(*line.lease())
    line.keys.append(7)
    turns = 0
    while not any(line.keys[offset] == 7 for offset in line.lease()):
        turns += 1
    assert turns <= 3


def test_without_turns_the_first_record_is_served_first():
    line = Line([A] * 3 + [B], key_concurrency=10)
    assert line.lease(10) == [0, 1, 2, 3]


def test_turns_and_order_by_key_go_together():
    line = Line([A, A, A, B, B, C], fair=True, order="key")
    assert line.lease(10) == [0, 3, 5]
    line.ack(3)
    assert line.lease(10) == [4]


# -- the rest --------------------------------------------------------------------------------------


def test_neighbours_under_one_attempt_are_one_run():
    candidates = [Candidate(4, A), Candidate(5, B), Candidate(6, A, 1), Candidate(8, A, 1), Candidate(9, A, 1)]
    assert KeyedChoice(candidates, [], -1, FOREVER_US).runs == [(4, 2, 1), (6, 1, 2), (8, 2, 2)]


def test_nothing_chosen_moves_nothing():
    choice = Line([A, A], order="key").choose(0)
    assert (choice.taken, choice.held, choice.frontier, choice.next_us) == ([], [], -1, FOREVER_US)


@pytest.mark.parametrize("setting", [{"order": "key"}, {"fair": True}, {"key_concurrency": 1}, {"key_rate_per_s": 1.0}])
def test_each_of_the_settings_makes_a_group_look_at_keys(setting: dict[str, object]):
    assert looks_at_keys(parse(setting))
    assert not looks_at_keys(parse({"look_ahead": 5}))


def test_a_group_that_no_longer_looks_at_keys_still_hands_out_what_it_holds():
    queue = Queue("g", parse({}), 0)
    assert not is_keyed(queue)
    queue.held[3] = A
    assert is_keyed(queue)
