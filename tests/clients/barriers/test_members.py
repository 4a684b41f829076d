"""The batches of a group: what their records have, where they go, and under which numbers."""

from __future__ import annotations

from typing import Any

import penstock
import pytest
from penstock import Callback, GroupTask
from penstock.clients.barriers.members import BATCH_BYTES, MemberProducer, Producers, portions
from penstock.errors import UnknownProducer
from penstock.storage.batch import parse
from penstock.transport import messages as m


def topic(name: str, partitions: int) -> m.Topic:
    partition = m.Partition(0, "", bytes(16), 0, 0, 0, 0, 0, "", -1)
    return m.Topic(name, name.encode().ljust(16), {"partitioner": "xxh3"}, [partition] * partitions)


def drawn(count: int) -> bytes:
    return (5).to_bytes(count, "little")


def test_records_are_what_was_said_of_them():
    plain = parse(MemberProducer(7).batch([GroupTask("t", "g", b"v")]))
    assert (plain.producer_id, plain.first_sequence, plain.values(), plain.keys()) == (7, 0, [b"v"], None)
    assert (plain.priorities(), plain.not_before()) == (None, None)
    tasks = [GroupTask("t", "g", b"a", b"k", {"h": b"1"}, 9, 1_700_000_000_000_000), GroupTask("t", "g", b"b")]
    batch = parse(MemberProducer(7).batch(tasks))
    priorities, times = batch.priorities(), batch.not_before()
    assert priorities is not None
    assert times is not None
    assert (batch.keys(), batch.headers_of_each()) == ([b"k", None], [{"h": b"1"}, {}])
    assert (priorities.tolist(), times.tolist()) == ([9, 0], [1_700_000_000_000_000, 0])


def test_a_producer_that_is_free_goes_on_and_one_that_is_not_stays_alone():
    producers = Producers(drawn)
    first, other = producers.take(b"t", 0), producers.take(b"t", 0)
    assert first is not other
    producers.give_back(b"t", 0, first, 3)
    assert producers.take(b"t", 1) is not first
    assert producers.take(b"t", 0) is first
    assert parse(first.batch([GroupTask("t", "g", b"v")])).first_sequence == 3


def test_large_tasks_go_in_several_batches():
    half = b"x" * (BATCH_BYTES // 2)
    tasks = [GroupTask("t", "g", value) for value in (half, half, b"x", half, half + half + half, b"x")]
    found = list(portions(tasks, {"t": topic("t", 1)}, drawn))
    assert [each.numbers for each in found] == [[0, 1], [2, 3], [4], [5]]
    assert [each.numbers for each in portions(tasks[4:], {"t": topic("t", 1)}, drawn)] == [[0], [1]]


def test_keys_choose_partitions_and_the_rest_of_a_topic_goes_to_one():
    names = [b"k%d" % number for number in range(20)]
    tasks = [GroupTask("a", "g", b"v", key) for key in names] + [GroupTask("b", "g", b"v")] * 3
    tasks += [GroupTask("b", "other", b"v")]
    found = list(portions(tasks, {"a": topic("a", 4), "b": topic("b", 4)}, drawn))
    keyed = [each for each in found if each.topic.name == "a"]
    assert {each.partition for each in keyed} == {0, 1, 2, 3}
    assert sorted(number for each in keyed for number in each.numbers) == list(range(20))
    rest = [(each.partition, each.group, each.numbers) for each in found if each.topic.name == "b"]
    assert rest == [(1, "g", [20, 21, 22]), (1, "other", [23])]


@pytest.fixture
def client(penstock_client: Any) -> Any:
    penstock_client.create_topic("t")
    penstock_client.set_queue("t", "g")
    return penstock_client


def test_groups_share_a_producer_one_after_the_other(client: penstock.Client):
    for number in range(3):
        ids = client.send_group([GroupTask("t", "g", b"v")] * 2, then=Callback("t"))
        assert ids == [f"t-0-{2 * number}", f"t-0-{2 * number + 1}"]
    ((free,),) = client._barrier_verbs._producers._free.values()
    assert free.next_sequence == 6


def test_a_producer_that_the_broker_has_forgotten_is_replaced(client: penstock.Client):
    client.send_group([GroupTask("t", "g", b"v")], then=Callback("t"))
    ((free,),) = client._barrier_verbs._producers._free.values()
    forgotten = free.producer_id = 12345
    assert client.send_group([GroupTask("t", "g", b"v")], then=Callback("t")) == ["t-0-1"]
    ((free,),) = client._barrier_verbs._producers._free.values()
    assert (free.producer_id == forgotten, free.next_sequence) == (False, 1)


def test_a_broker_that_knows_no_producer_is_asked_once(client: penstock.Client, monkeypatch: pytest.MonkeyPatch):
    asked: list[MemberProducer] = []

    def batch(self: MemberProducer, tasks: list[GroupTask]) -> bytes:
        asked.append(self)
        made = MemberProducer(self.producer_id)
        made.next_sequence = 7  # which no producer begins with
        return real(made, tasks)

    real = MemberProducer.batch
    monkeypatch.setattr(MemberProducer, "batch", batch)
    with pytest.raises(UnknownProducer):
        client.send_group([GroupTask("t", "g", b"v")], then=Callback("t"))
    assert len(asked) == 1


def test_a_barrier_that_is_about_to_fire_says_so():
    from penstock.clients.barriers.descriptions import barrier_of

    stands = m.Barrier(bytes(16), "t", 0, bytes(16), 3, False, {}, 5, 0, [], [])
    assert barrier_of(stands).why == "all 3 tasks have ended, and its record is about to be appended"


@pytest.mark.parametrize(("tasks", "named"), [([], "0"), ([("", 0, -1)], "0"), ([("a-b", 3, 17)], "a-b-3-17")])
def test_a_task_that_holds_a_barrier_up_is_named_where_the_broker_names_it(
    tasks: list[tuple[str, int, int]], named: str
):
    from penstock.clients.barriers.descriptions import barrier_of

    stands = m.Barrier(bytes(16), "t", 0, bytes(16), 1, False, {}, 5, 0, [], [(0, "cancelled", "")], tasks)
    assert barrier_of(stands).holding == [(0, "cancelled", "", "" if named == "0" else named)]
    assert barrier_of(stands).why == f"task {named} is cancelled, so it never completes"
