"""Dedup keys: tables against a naive model, and a node with resends, restarts, full disks and odd clocks."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.tables import dedup
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.dedup import KeyTable, judge
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.dedup import SECOND, assert_replays, failure, keyed, opened, produce, repeats, void
from support.engine import Rig

# -- at a node ------------------------------------------------------------------------------------


def test_a_second_record_of_a_key_repeats_the_first_and_streams_see_both():
    rig = Rig()
    topic = rig.topic()
    assert repeats(rig, topic, b"a", b"b", b"a", b"") == [(2, 0)]
    assert repeats(rig, topic, b"", b"b", b"c") == [(1, 1)]
    assert void(rig) == [2, 5]
    assert rig.read(topic) == [b"a", b"b", b"a", b"", b"", b"b", b"c"]


def test_a_key_is_free_again_when_its_window_is_over_and_not_before():
    rig = Rig()
    topic = rig.topic(dedup_window_s=10)
    repeats(rig, topic, b"a")
    rig.now = Now(rig.now.wall_us + 10 * SECOND - 1, rig.now.monotonic_s + 10 - 1e-6)
    assert repeats(rig, topic, b"a") == [(0, 0)]
    rig.now = Now(rig.now.wall_us + 1, rig.now.monotonic_s + 1e-6)
    assert repeats(rig, topic, b"a") == [], "the repetition did not make the window longer"


def test_extend_starts_the_window_anew_with_each_repetition():
    rig = Rig()
    topic = rig.topic(dedup="extend", dedup_window_s=10)
    repeats(rig, topic, b"a")
    for _ in range(5):
        rig.pass_time(6)
        assert repeats(rig, topic, b"a") == [(0, 0)]
    rig.pass_time(10)
    assert repeats(rig, topic, b"a") == []


def test_replace_makes_the_earlier_record_void_while_no_group_has_it():
    rig = Rig()
    topic = rig.topic(dedup="replace")
    assert repeats(rig, topic, b"a", b"b") == []
    assert repeats(rig, topic, b"a", b"a") == [], "a record that replaces another is a task of its own"
    assert void(rig) == [0, 2]
    assert opened(rig).committed.voids.task_of(0) == 2
    assert opened(rig).committed.voids.task_of(2) == 3


def test_a_resend_is_told_the_same_also_after_a_restart_and_when_the_window_is_over():
    rig = Rig()
    topic = rig.topic(dedup_window_s=5)
    repeats(rig, topic, b"a")
    told = produce(rig, topic, b"x", b"a", b"x", producer_id=7)
    assert told.repeats == [(1, 0), (2, 1)]
    for _ in range(2):
        again = produce(rig, topic, b"x", b"a", b"x", producer_id=7)
        assert (again.offset, again.repeats) == (told.offset, told.repeats)
        inner = produce(rig, topic, b"a", b"x", producer_id=7, first_sequence=1)
        assert (inner.offset, inner.repeats) == (2, [(0, 0), (1, 1)])
        rig.pass_time(6)
        rig.restart(clean=False)


def test_keys_of_records_that_are_not_committed_yet_count_and_a_resend_waits_for_the_answer():
    rig = Rig()
    topic = rig.topic()
    rig.store.hold = True
    requests = [rig.next_request() for _ in range(4)]
    rig.send(m.Produce(requests[0], topic, 0), keyed([b"a", b"b"]))
    rig.send(m.Produce(requests[1], topic, 0), keyed([b"b", b"c"], producer_id=3))
    rig.turn()
    rig.send(m.Produce(requests[2], topic, 0), keyed([b"b", b"c"], producer_id=3))
    rig.send(m.Produce(requests[3], topic, 0), keyed([b"c"]))
    rig.turn()
    assert not any(rig.answers(request) for request in requests)
    rig.sync()
    answers = [rig.answers(request)[0] for request in requests]
    assert [(each.offset, each.repeats) for each in answers] == [(0, []), (2, [(0, 1)]), (2, [(0, 1)]), (4, [(0, 3)])]


def test_a_full_disk_takes_the_keys_along_with_their_records():
    rig = Rig()
    topic = rig.topic()
    repeats(rig, topic, b"x")
    log = opened(rig).log
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        if any(len(batch) > 300 for batch in batches):
            raise StorageFull("no space left")
        return append(batches, now_us)

    log.append = full
    requests = [rig.next_request() for _ in range(3)]
    for request, key in zip(requests, (b"a" * 300, b"b" * 300, b"a" * 300), strict=True):
        rig.send(m.Produce(request, topic, 0), keyed([key]))
    opened(rig).propose(fx.CursorMoved("g", 1))  # still fits, and takes what could have been the place of a record
    rig.turn()
    assert [failure(rig.answers(request)[0]) for request in requests] == ["storage_full"] * 3
    assert opened(rig).proposed.keys.by_digest.keys() == opened(rig).committed.keys.by_digest.keys()
    log.append = append
    assert repeats(rig, topic, b"b" * 300, b"a" * 300, b"x") == [(2, 0)]
    assert rig.read(topic) == [b"x", b"b" * 300, b"a" * 300, b"x"]
    assert repeats(rig, topic, b"a" * 300) == [(0, 2)]


def test_a_key_over_1_kib_is_refused_and_nothing_changes():
    rig = Rig()
    topic = rig.topic()
    answer = produce(rig, topic, b"ok", b"k" * 1025, producer_id=4)
    assert failure(answer) == "invalid_batch"
    assert "1025 bytes" in answer.message
    assert "1024" in answer.message
    assert repeats(rig, topic, b"ok", b"k" * 1024, producer_id=4) == []
    assert repeats(rig, topic, b"k" * 1024) == [(0, 1)]


def test_more_keys_than_the_limit_are_refused_until_some_expire():
    rig = Rig(max_dedup_keys=3)
    topic = rig.topic(dedup_window_s=5)
    repeats(rig, topic, b"a", b"b")
    rig.pass_time(1)
    answer = produce(rig, topic, b"c", b"d")
    assert failure(answer) == "limit_reached"
    assert "max_dedup_keys" in answer.message
    assert repeats(rig, topic, b"c", b"a", b"") == [(1, 0)]
    assert rig.produce(topic, [b"plain"]).offset == 5
    rig.pass_time(4)
    assert repeats(rig, topic, b"d", b"e") == [], "two of the three are over, though nothing removed them"
    assert failure(produce(rig, topic, b"f")) == "limit_reached"


def test_a_batch_is_refused_that_its_keys_make_too_large():
    rig = Rig()
    topic = rig.topic()
    log = opened(rig).log
    payload = keyed([b"%d" % n for n in range(1000)])
    log.options = type(log.options)(max_batch_bytes=len(payload))
    assert failure(rig.ask(m.Produce, topic, 0, payload=payload)) == "batch_too_large"
    assert opened(rig).proposed.keys.by_digest == {}


def test_a_clock_that_goes_back_frees_no_key_and_holds_none_for_longer():
    rig = Rig()
    topic = rig.topic(dedup_window_s=60)
    repeats(rig, topic, b"a")
    rig.now = Now(rig.now.wall_us - 3600 * SECOND, rig.now.monotonic_s)
    assert repeats(rig, topic, b"a") == [(0, 0)]
    rig.restart()
    assert repeats(rig, topic, b"a", b"b") == [(0, 0)], "the log's own time does not go back either"
    rig.now = Now(rig.now.wall_us + 3600 * SECOND + 61 * SECOND, rig.now.monotonic_s + 61)
    rig.restart()
    assert repeats(rig, topic, b"a") == []


def test_expired_keys_leave_the_state_with_whatever_batch_comes_next():
    rig = Rig()
    topic = rig.topic(dedup_window_s=1)
    repeats(rig, topic, *[b"%d" % n for n in range(100)])
    assert len(opened(rig).committed.keys.by_digest) == 100
    rig.pass_time(2)
    rig.produce(topic, [b"plain"])
    assert opened(rig).committed.keys.by_digest == {}
    assert opened(rig).committed.keys.due_us == dedup.NEVER


def test_what_retention_removes_is_void_no_more():
    state = PartitionState()
    state.effect(fx.KeysSeen([0], [b"k" * 16], 10, [(3, 0), (5, 0)]), 1)
    state.effect(fx.FirstOffset(4), 1)
    assert state.voids.between(0, 100) == [5]


def test_a_damaged_partition_takes_no_keys_because_it_may_have_lost_some():
    rig = Rig()
    topic = rig.topic()
    opened(rig).history.damaged = True
    assert failure(produce(rig, topic, b"a")) == "unavailable"
    assert rig.produce(topic, [b"plain"]).offset == 0


# -- lives ----------------------------------------------------------------------------------------


class Life:
    """Random batches against a dict: key -> (task, until)."""

    def __init__(self, seed: int, rule: str) -> None:
        self.random = random.Random(seed)
        self.rig = Rig(seed=seed, snapshot_batches=10)
        self.window_s = 8
        self.topic = self.rig.topic(dedup=rule, dedup_window_s=self.window_s)
        self.rule = rule
        self.keys: dict[bytes, tuple[int, int]] = {}
        self.void: set[int] = set()
        self.end = 0
        self.sent: list[tuple[bytes, Any]] = []
        self.sequences = {1: 0, 2: 0, 3: 0}

    def step(self) -> None:
        match self.random.choice(["produce"] * 6 + ["resend", "time", "time", "plain", "restart", "kill", "window"]):
            case "produce":
                self.produce()
            case "resend" if self.sent:
                payload, before = self.random.choice(self.sent[-20:])
                again = self.rig.ask(m.Produce, self.topic, 0, payload=payload)
                assert (again.offset, again.repeats) == (before.offset, before.repeats)
            case "time":
                self.rig.pass_time(self.random.choice([0.001, 1, 3, 7]), step=1)
            case "plain":
                assert self.rig.produce(self.topic, [b"p"]).offset == self.end
                self.end += 1
            case "restart" | "kill" as how:
                self.rig.restart(clean=how == "restart")
            case "window":
                self.window_s = self.random.choice([1, 4, 8, 20])
                self.rig.ask(m.AlterTopic, self.topic, {"dedup_window_s": self.window_s}, 0)
        assert void(self.rig) == sorted(self.void)

    def produce(self) -> None:
        keys = [self.random.choice([b"", *(b"%d" % n for n in range(12))]) for _ in range(self.random.randint(1, 6))]
        producer, now_us = self.random.randint(1, 3), self.rig.now.wall_us
        payload = keyed(keys, producer_id=producer, first_sequence=self.sequences[producer])
        answer = self.rig.ask(m.Produce, self.topic, 0, payload=payload)
        assert (answer.offset, answer.repeats) == (self.end, self.expect(keys, now_us)), keys
        self.sequences[producer] += len(keys)
        self.sent.append((payload, answer))
        self.end += len(keys)

    def expect(self, keys: list[bytes], now_us: int) -> list[tuple[int, int]]:
        repeated = []
        until = now_us + self.window_s * SECOND
        for number, key in enumerate(keys):
            offset = self.end + number
            task, over = self.keys.get(key, (-1, 0))
            if not key:
                continue
            if over <= now_us:
                self.keys[key] = (offset, until)
            elif self.rule == "replace":
                self.void.add(task)
                self.keys[key] = (offset, until)
            else:
                self.void.add(offset)
                repeated.append((number, task))
                if self.rule == "extend":
                    self.keys[key] = (task, until)
        return repeated


@pytest.mark.parametrize("rule", ["drop", "replace", "extend"])
@pytest.mark.parametrize("seed", range(8))
def test_random_lives_agree_with_a_dict_and_replay_to_the_same_state(seed: int, rule: str):
    life = Life(seed, rule)
    for _ in range(60):
        life.step()
    assert len(life.sent) > 10
    assert life.void
    assert_replays(life.rig)


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_table_keeps_what_a_dict_keeps_and_its_order_of_expiry_stays_small(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dedup, "SLACK", 20)
    chance, table, model = random.Random(seed), KeyTable(), dict[bytes, tuple[int, int]]()
    time_us = 0
    for step in range(400):
        time_us += chance.choice([0, 1, 5])
        found = [b"%016d" % chance.randint(0, 40) for _ in range(chance.randint(1, 5))]
        effect = judge(table, found, step * 10, time_us, chance.choice([3, 30]), "extend", lambda _: False)
        table.seen(effect)
        model.update(zip(effect.digests, ((o, effect.until_us) for o in effect.offsets), strict=True))
        if chance.random() < 0.5:
            table.expire(time_us)
        model = {digest: each for digest, each in model.items() if each[1] > time_us}
        assert table.live(time_us) == len(model)
        assert {d: o for d in model if (o := table.offset_of(d, time_us)) >= 0} == {d: o for d, (o, _) in model.items()}
        assert table._ordered <= 2 * len(table.by_digest) + 20 + 5
        if step % 50 == 0:
            again = KeyTable.load(table.dump())
            assert (again.by_digest, again.dump()) == (table.by_digest, table.dump())
            table = again
    table.expire(time_us + 31)
    assert (table.by_digest, table._order, table._ordered) == ({}, [], 0)


def test_an_empty_key_is_no_key():
    rig = Rig()
    topic = rig.topic()
    assert repeats(rig, topic, b"", b"") == []
    answer = rig.ask(m.Produce, topic, 0, payload=bytes(encode([b"plain"])))
    assert (answer.offset, answer.repeats) == (2, [])
    assert opened(rig).committed.keys.by_digest == {}


def test_a_copy_of_the_keys_goes_its_own_way():
    table = KeyTable()
    table.seen(fx.KeysSeen([1, 2], [b"a" * 16, b"b" * 16], 10, []))
    copy = table.copy()
    assert (copy.dump(), copy.due_us) == (table.dump(), 10)
    copy.seen(fx.KeysSeen([3], [b"c" * 16], 5, []))
    assert (list(table.by_digest.values()), table.due_us) == ([(1, 10), (2, 10)], 10)
    table.expire(10)
    assert (copy.live(4), table.live(4), copy.due_us) == (3, 0, 5)
    copy.expire(5)
    assert (copy.live(4), copy.due_us) == (2, 10)
