"""Publishing: in order, in portions, each record once, and what becomes of it when a partition cannot go on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from penstock.broker.engine.transactions import publishing
from penstock.storage.batch import batches, encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import stage, staged
from support.transactions import (
    answer_to,
    code,
    commit,
    home,
    open_stages,
    partition,
    put,
    send_commit,
    state,
    transactions,
)


def values(count: int, of: str = "v") -> list[bytes]:
    return [b"%s-%d" % (of.encode(), number) for number in range(count)]


def fill(rig: Rig, topic: bytes, number: int = 0, *, records_only: bool = False) -> Any:
    """Let a partition have no room. Returns what gives it some."""
    log = partition(rig, topic, number).log
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        if records_only and all(len(batch) < 300 for batch in batches):
            return append(batches, now_us)
        raise StorageFull("no space left for 1 batch")

    log.append = full

    def empty() -> None:
        log.append = append

    return empty


@pytest.fixture
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch at a time."""
    monkeypatch.setattr(publishing, "PORTION_BYTES", 1)


@pytest.mark.usefixtures("_small_portions")
def test_a_large_stage_is_published_in_portions_and_in_its_order():
    rig = Rig()
    topic = rig.topic()
    wanted = values(20)
    only = put(rig, topic, 1, *wanted)
    commit(rig, "first", 1)
    request = send_commit(rig, "etl", 1, only)
    seen: list[int] = []
    while answer_to(rig, request) is None:
        assert len(seen) < 50
        rig.turn(1)
        seen.append(partition(rig, topic).end)
    assert seen == sorted(seen)
    assert {0, 2, 4, 18, 20} <= set(seen), "readers see it grow"
    assert rig.read(topic) == wanted


@pytest.mark.usefixtures("_small_portions")
def test_stages_of_one_partition_follow_each_other_and_ordinary_records_stand_between():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    stages = [put(rig, topic, number, *values(6, f"s{number}")) for number in (1, 2, 3)]
    requests = [send_commit(rig, "etl", each.stage, each) for each in stages]
    for number in range(5):
        rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"plain-%d" % number])))
        rig.turn(1)
    rig.turn(20)
    assert all(isinstance(answer_to(rig, request), m.TransactionCommitted) for request in requests)
    found = rig.read(topic)
    assert [each for each in found if each.startswith(b"s")] == [
        value for number in (1, 2, 3) for value in values(6, f"s{number}")
    ]
    assert [each for each in found if each.startswith(b"plain")] == values(5, "plain")


def test_many_small_stages_share_an_append():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    stages = [put(rig, topic, number, b"%d" % number) for number in range(1, 101)]
    request = send_commit(rig, "etl", 1, *stages)
    seq = partition(rig, topic).seq
    rig.turn(1)  # decided
    rig.turn(1)
    assert partition(rig, topic).seq == seq + publishing.STAGES_MAX
    rig.turn(1)
    assert answer_to(rig, request).repeated is False
    assert rig.read(topic) == [b"%d" % number for number in range(1, 101)]


def test_only_a_few_partitions_are_at_work_at_once_and_all_have_their_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(publishing, "PORTION_BYTES", 1)
    rig = Rig()
    count = publishing.AT_ONCE * 3
    topic = rig.topic(partitions=count)
    commit(rig, "first", 1)
    stages = [put(rig, topic, number + 1, *values(6), partition=number) for number in range(count)]
    request = send_commit(rig, "etl", 1, *stages)
    rig.turn(1)
    most, before = 0, [0] * count
    while answer_to(rig, request) is None:
        rig.turn(1)
        ends = [partition(rig, topic, number).end for number in range(count)]
        most = max(most, sum(end > was for end, was in zip(ends, before, strict=True)))
        assert max(ends) - min(ends) <= 4, "no partition is left behind"
        before = ends
    assert most <= publishing.AT_ONCE
    assert all(rig.read(topic, number) == values(6) for number in range(count))


def test_of_what_is_large_one_portion_is_appended_in_a_turn(monkeypatch: pytest.MonkeyPatch):
    """So that others wait for one portion at most, and the disk has one while the next is read."""
    monkeypatch.setattr(publishing, "PORTION_BYTES", 1)
    rig = Rig()
    topic = rig.topic(partitions=publishing.AT_ONCE)
    commit(rig, "first", 1)
    numbers = range(publishing.AT_ONCE)
    stages = [put(rig, topic, number + 1, *values(6), partition=number) for number in numbers]
    request = send_commit(rig, "etl", 1, *stages)
    grown: list[int] = []
    before = [0] * len(numbers)
    while answer_to(rig, request) is None:
        assert len(grown) < 50
        rig.turn(1)
        ends = [partition(rig, topic, number).end for number in numbers]
        grown.append(sum(end > was for end, was in zip(ends, before, strict=True)))
        before = ends
    first = next(turn for turn, count in enumerate(grown) if count)
    assert grown[first] <= 2, "one was begun when it was decided, before the turn"
    assert max(grown[first + 1 :]) == 1
    assert sum(grown) == 3 * publishing.AT_ONCE
    assert all(rig.read(topic, number) == values(6) for number in numbers)


def test_of_small_batches_a_portion_has_so_many_and_one_portion_is_appended_in_a_turn(monkeypatch: pytest.MonkeyPatch):
    """Each batch takes steps of its own: a transaction of ten thousand single sends is not published in one turn."""
    monkeypatch.setattr(publishing, "PORTION_BATCHES", 10)
    rig = Rig()
    topic = rig.topic(partitions=2)
    commit(rig, "first", 1)
    wanted = {1: values(25, "s1"), 2: values(25, "s2"), 3: values(20, "s3")}
    stages = [put(rig, topic, number, *wanted[number], partition=number // 3, batch=1) for number in wanted]
    request = send_commit(rig, "etl", 1, *stages)
    grown: list[tuple[int, int]] = []
    before = (0, 0)
    while answer_to(rig, request) is None:
        assert len(grown) < 50
        rig.turn(1)
        ends = (partition(rig, topic, 0).end, partition(rig, topic, 1).end)
        grown.append((ends[0] - before[0], ends[1] - before[1]))
        before = ends
    moved = [each for each in grown if any(each)]
    assert sum(map(all, moved)) <= 1, "one was begun when it was decided, before the turn"
    assert [one for one, _ in moved if one] == [10] * 5, "one has the end of a stage and the beginning of the next"
    assert [other for _, other in moved if other] == [10] * 2
    assert (rig.read(topic, 0), rig.read(topic, 1)) == (wanted[1] + wanted[2], wanted[3])


def test_small_stages_of_several_partitions_are_appended_in_one_turn():
    rig = Rig()
    topic = rig.topic(partitions=publishing.AT_ONCE)
    commit(rig, "first", 1)
    numbers = range(publishing.AT_ONCE)
    send_commit(rig, "etl", 1, *[put(rig, topic, number + 1, b"v", partition=number) for number in numbers])
    rig.turn(1)  # decided
    assert not any(partition(rig, topic, number).end for number in numbers)
    rig.turn(1)
    assert all(partition(rig, topic, number).end == 1 for number in numbers)


def test_what_was_staged_is_published_as_it_was():
    rig = Rig()
    topic = rig.topic()
    how: dict[str, Any] = {
        "keys": [b"k", None], "headers": [{"h": b"v"}, None], "event_times": [5, 6], "priorities": [1, 0]
    }  # fmt: skip
    stage(rig, topic, [b"1", b"2"], 1, **how)
    commit(rig, "etl", 1, m.Stage(topic, 0, 1, 2))
    assert isinstance(rig.fetch(topic, 0), m.Fetched)
    (batch,) = list(batches(rig.port.sent[-1][2]))
    assert (batch.values(), batch.keys(), batch.headers()) == ([b"1", b"2"], [b"k", None], [{"h": b"v"}, {}])
    assert (batch.event_times().tolist(), batch.priorities().tolist()) == ([5, 6], [1, 0])
    assert rig.ask(m.SetQueue, topic, "g", {}, -1).request
    assert rig.lease(topic, most=1).runs == [(0, 1, 1)], "its priority counts in queue groups"


# -- full disks ----------------------------------------------------------------------------------------


def test_on_a_full_disk_waiters_are_told_that_it_is_decided_and_it_goes_on_when_there_is_room():
    rig = Rig()
    a, b = rig.topic("a"), rig.topic("b")
    commit(rig, "first", 1)
    stages = [put(rig, a, 1, b"1"), put(rig, b, 2, b"2")]
    empty = fill(rig, b)
    answer = commit(rig, "etl", 1, *stages)
    assert (code(answer), answer.retry, "is decided" in answer.message) == ("storage_full", True, True)
    assert (rig.read(a), rig.read(b), state(rig, "etl")) == ([b"1"], [], (1, False))
    stats = rig.node.stats()
    assert (stats["stages.stuck"], stats["transactions.unfinished"]) == (1, 1)
    assert "no space left" in stats["stages.stuck_because"]
    again = send_commit(rig, "etl", 1, *stages)
    rig.turn()
    assert answer_to(rig, again) is None, "it waits for the next try"
    rig.pass_time(2)
    assert code(answer_to(rig, again)) == "storage_full"
    last = send_commit(rig, "etl", 1, *stages)
    empty()
    rig.pass_time(publishing.RETRY_MOST_S)
    assert answer_to(rig, last) == m.TransactionCommitted(last, 1, False)
    assert (rig.read(a), rig.read(b), state(rig, "etl")) == ([b"1"], [b"2"], (1, True))
    stats = rig.node.stats()
    assert (stats["stages.stuck"], stats["stages.stuck_because"], stats["transactions.unfinished"]) == (0, "", 0)


@pytest.mark.usefixtures("_small_portions")
def test_a_disk_that_is_full_in_the_middle_of_a_stage_leaves_it_to_go_on_there():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    only, behind = put(rig, topic, 1, *values(10)), put(rig, topic, 2, b"behind")
    request, after = send_commit(rig, "etl", 1, only), send_commit(rig, "etl", 2, behind)
    rig.turn(3)
    empty = fill(rig, topic)
    rig.turn()
    assert 0 < partition(rig, topic).end < 10
    assert [code(answer_to(rig, each)) for each in (request, after)] == ["storage_full"] * 2
    rig.restart(clean=False)
    assert rig.partition(topic).end in (2, 4, 6, 8, 10)
    rig.turn(30)
    empty()
    assert rig.read(topic) == [*values(10), b"behind"]


def test_a_finish_that_could_not_be_logged_is_logged_by_a_later_pass():
    rig = Rig(housekeeping_s=1.0)
    topic = rig.topic()
    commit(rig, "etl", 1)
    only = put(rig, topic, 1, b"1")
    log = home(rig, "etl").log
    append, calls = log.append, []

    def full(batches: Any, now_us: int) -> Any:
        calls.append(now_us)
        if len(calls) == 2:
            raise StorageFull("no space left")
        return append(batches, now_us)

    log.append = full
    assert commit(rig, "etl", 2, only).repeated is False
    assert len(home(rig, "etl").committed.transactions.unfinished()) == 1
    rig.pass_time(3)
    assert len(home(rig, "etl").committed.transactions.unfinished()) == 0


# -- failed syncs and damage ---------------------------------------------------------------------------


def test_on_a_poisoned_partition_it_is_published_at_the_next_start():
    rig = Rig()
    a, b = rig.topic("a"), rig.topic("b")
    commit(rig, "first", 1)
    stages = [put(rig, a, 1, b"1"), put(rig, b, 2, b"2")]
    rig.store.hold = True
    request = send_commit(rig, "etl", 1, *stages)
    rig.turn(1)
    home(rig, "etl").log.sync()
    rig.node.advance(rig.now)
    rig.turn(1)
    partition(rig, b).log.poison("fdatasync: I/O error")
    rig.store.hold = False
    rig.turn()
    answer = answer_to(rig, request)
    assert (code(answer), "is decided" in answer.message) == ("poisoned", True)
    assert code(commit(rig, "etl", 1, *stages)) == "poisoned", "no waiter is left"
    assert (state(rig, "etl"), "I/O error" in rig.node.stats()["stages.stuck_because"]) == ((1, False), True)
    partition(rig, a).log.sync()
    rig.turn()
    assert (rig.read(a), rig.read(b)) == ([b"1"], [])
    rig.restart(clean=False)
    assert (rig.read(a), rig.read(b), state(rig, "etl")) == ([b"1"], [b"2"], (1, True))
    assert commit(rig, "etl", 1, *stages).repeated is False


def test_nothing_is_decided_about_a_poisoned_partition():
    rig = Rig()
    a, b = rig.topic("a"), rig.topic("b")
    stages = [put(rig, a, 1, b"1"), put(rig, b, 2, b"2")]
    partition(rig, b).log.poison("fdatasync: I/O error")
    assert code(commit(rig, "etl", 1, *stages)) == "poisoned"
    assert code(rig.ask(m.DropStages, stages)) == "poisoned"
    assert (state(rig, "etl"), rig.read(a), open_stages(rig)) == ((-1, True), [], 2)


def damage(rig: Rig, topic: bytes, needle: bytes, *, back: int = 0) -> None:
    """Flip a byte of what is stored, or of the header before it."""
    path = rig.store.directory(topic, 0)
    (name,) = [name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")]
    data = rig.store.files.contents[name].data
    data[data.index(needle) - back] ^= 0xFF


def test_staged_records_that_are_damaged_hold_up_what_stands_behind_and_are_named():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    stages = [put(rig, topic, 1, b"first", b"second", b"spoiled", b"x"), put(rig, topic, 2, b"behind")]
    damage(rig, topic, b"spoiled")
    requests = [send_commit(rig, "etl", number, each) for number, each in enumerate(stages)]
    rig.pass_time(5)
    assert [code(answer_to(rig, request)) for request in requests] == ["unavailable", "unavailable"]
    assert rig.read(topic) == [b"first", b"second"]
    assert (rig.node.stats()["stages.stuck"], state(rig, "etl")) == (2, (1, False))


def test_where_damage_hides_what_is_staged_nothing_counts_as_published():
    rig = Rig(snapshot_batches=1000)
    topic = rig.topic()
    commit(rig, "first", 1)
    only = put(rig, topic, 1, b"value")
    send_commit(rig, "etl", 1, only)
    for log in rig.node.flush(rig.now):
        log.sync()
    damage(rig, topic, b"value", back=100)
    rig.restart(clean=False)
    rig.pass_time(5)
    assert (state(rig, "etl"), rig.read(topic), rig.node.stats()["stages.stuck"]) == ((1, False), [], 1)


# -- topics that go ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_small_portions")
def test_what_was_decided_for_a_topic_that_is_deleted_holds_nothing_up():
    rig = Rig()
    a, b = rig.topic("a"), rig.topic("b")
    commit(rig, "first", 1)
    stages = [put(rig, a, 1, *values(20)), put(rig, b, 2, *values(4))]
    request = send_commit(rig, "etl", 1, *stages)
    rig.turn(3)
    rig.ask(m.DeleteTopic, a)
    rig.turn(8)
    assert answer_to(rig, request) == m.TransactionCommitted(request, 1, False)
    assert (rig.read(b), state(rig, "etl")) == (values(4), (1, True))
    assert transactions(rig)._publisher._at_work == 0
    other = put(rig, b, 3, b"more")
    assert commit(rig, "etl", 2, other).epoch == 2


def test_a_topic_that_is_deleted_while_a_disk_is_full_lets_the_commit_end():
    rig = Rig()
    a, b = rig.topic("a"), rig.topic("b")
    commit(rig, "first", 1)
    stages = [put(rig, a, 1, b"1"), put(rig, b, 2, b"2")]
    fill(rig, a)
    commit(rig, "etl", 1, *stages)
    request = send_commit(rig, "etl", 1, *stages)
    rig.ask(m.DeleteTopic, a)
    assert answer_to(rig, request).repeated is False
    rig.pass_time(20)
    assert (rig.read(b), state(rig, "etl")) == ([b"2"], (1, True))


def test_what_is_published_while_its_topic_is_being_deleted_goes_with_it():
    """Both are synced in one turn, the deletion first."""
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    only = put(rig, topic, 1, b"1")
    rig.store.hold = True
    request = send_commit(rig, "etl", 1, only)
    rig.send(m.DeleteTopic(rig.next_request(), topic))
    rig.turn(1)
    home(rig, "etl").log.sync()
    rig.turn(2)
    assert not partition(rig, topic).idle, "published, not durable"
    rig.sync()
    assert (answer_to(rig, request), state(rig, "etl")) == (m.TransactionCommitted(request, 1, False), (1, True))


def test_a_topic_that_was_deleted_before_the_decision_stood_is_none_of_its_business():
    rig = Rig()
    a, b = rig.topic("a"), rig.topic("b")
    commit(rig, "first", 1)
    stages = [put(rig, a, 1, b"1"), put(rig, b, 2, b"2")]
    drop, request = rig.next_request(), rig.next_request()
    rig.send(m.DeleteTopic(drop, a))
    rig.send(m.CommitTransaction(request, "etl", 1, stages))
    rig.turn()
    assert answer_to(rig, request).repeated is False
    assert rig.read(b) == [b"2"]
    rig.restart(clean=False)
    assert state(rig, "etl") == (1, True)


@pytest.mark.usefixtures("_small_portions")
@pytest.mark.parametrize("turns", range(5))
def test_a_node_that_is_closed_in_the_middle_goes_on_at_its_next_start(turns: int):
    rig = Rig()
    count = 3 * publishing.AT_ONCE
    topic = rig.topic(partitions=count)
    commit(rig, "first", 1)
    stages = [put(rig, topic, number + 1, *values(6), partition=number) for number in range(count)]
    request = send_commit(rig, "etl", 1, *stages)
    rig.turn(turns)
    read = rig.port.read

    def reads_what_is_open(cursor: Any, max_bytes: int, limit_seq: int, token: Any) -> Any:
        assert cursor.path in [history.log.path for history in rig.node._registry.partitions]
        return read(cursor, max_bytes, limit_seq, token)

    rig.port.read = reads_what_is_open
    rig.node.close(rig.now)
    answer = answer_to(rig, request)
    assert isinstance(answer, m.Failure), answer
    assert "is decided" in answer.message
    rig.restart(clean=False)
    rig.turn(50)
    assert state(rig, "etl") == (1, True)
    assert all(rig.read(topic, number) == values(6) for number in range(count))


# -- cold pages ----------------------------------------------------------------------------------------


def test_pages_that_are_not_in_memory_are_waited_for():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    stages = [put(rig, topic, number, *values(4, f"s{number}")) for number in (1, 2)]
    rig.port.cold = []
    request = send_commit(rig, "etl", 1, *stages)
    rig.turn()
    tokens, rig.port.cold = rig.port.cold, None
    assert (len(tokens), answer_to(rig, request)) == (1, None)
    rig.node.warmed(tokens[0])
    rig.turn()
    assert answer_to(rig, request).repeated is False
    assert rig.read(topic) == [*values(4, "s1"), *values(4, "s2")]
    rig.node.warmed(tokens[0])  # told twice


def test_pages_that_come_when_their_topic_is_gone_are_let_go():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    rig.port.cold = []
    request = send_commit(rig, "etl", 1, put(rig, topic, 1, b"1"))
    rig.turn()
    tokens, rig.port.cold = rig.port.cold, None
    rig.ask(m.DeleteTopic, topic)
    rig.node.warmed(tokens[0])
    rig.turn()
    assert answer_to(rig, request).repeated is False


def test_a_batch_that_does_not_fit_the_log_any_more_stops_nothing_but_its_line():
    rig = Rig()
    topic = rig.topic(partitions=2)
    commit(rig, "first", 1)
    big, small = put(rig, topic, 1, b"x" * 3000), put(rig, topic, 2, b"2", partition=1)
    log = partition(rig, topic).log
    log.options = structs.replace(log.options, max_batch_bytes=2000)
    answer = commit(rig, "etl", 1, big, small)
    assert (code(answer), "2000" in answer.message) == ("unavailable", True)
    assert (rig.read(topic, 0), rig.read(topic, 1)) == ([], [b"2"])
    assert isinstance(rig.produce(topic, [b"plain"]), m.Produced)
    assert isinstance(rig.ask(m.Produce, topic, 0, payload=staged([b"y"], 9)), m.Produced)
