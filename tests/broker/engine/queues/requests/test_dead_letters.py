"""Dead records are listed with their records, redriven, and discarded."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.requests import dead_letter_list
from penstock.broker.engine.queues.requests import dead_letters as module
from penstock.storage.batch import batches
from penstock.transport import messages as m
from penstock.transport import queue_messages as q
from support.dead import die, held_by, opened, queue, set_queue
from support.engine import Rig

VALUES = [b"value %d" % number for number in range(20)]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def grave(rig: Rig, dead: list[int], **settings: Any) -> bytes:
    """A topic of 20 records in batches of 5, of which some are dead in group g."""
    topic = rig.topic()
    for first in range(0, 20, 5):
        values = VALUES[first : first + 5]
        rig.produce(topic, values, keys=[b"key of " + value for value in values])
    set_queue(rig, topic, **settings)
    die(rig, topic, dead)
    return topic


def listed(rig: Rig, topic: bytes, offset: int = 0, most: int = 100, reason: str = "") -> tuple[Any, dict[int, bytes]]:
    """The answer and what its second frame holds."""
    answer = rig.ask(q.ListDead, topic, "g", 0, offset, most, reason)
    return answer, held_by(rig.port.sent[-1][2])


# -- listing --------------------------------------------------------------------------------------


def test_they_are_listed_with_their_records_and_what_became_of_them(rig: Rig):
    topic = grave(rig, [1, 6, 7, 19])
    answer, held = listed(rig, topic)
    assert isinstance(answer, q.DeadTasks)
    assert [(task.offset, task.attempt, task.reason) for task in answer.tasks] == [
        (o, 1, "broken") for o in (1, 6, 7, 19)
    ]
    assert answer.tasks[0].time_us == rig.now.wall_us
    assert [(worker, why) for _, worker, why in answer.tasks[0].history] == [("w", "broken")]
    assert held == {offset: VALUES[offset] for offset in (1, 6, 7, 19)}
    assert answer.next_offset == -1
    (first, *_) = batches(rig.port.sent[-1][2])
    assert first.keys() == [b"key of value 1"]


def test_they_are_listed_page_by_page(rig: Rig):
    topic = grave(rig, [1, 6, 7, 19])
    answer, held = listed(rig, topic, most=3)
    assert (list(held), answer.next_offset) == ([1, 6, 7], 19)
    answer, held = listed(rig, topic, answer.next_offset, most=3)
    assert (list(held), answer.next_offset) == ([19], -1)


def test_a_page_ends_where_it_grows_too_large_but_has_one_record_at_least(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    topic = grave(rig, [1, 6, 7, 19])
    monkeypatch.setattr(dead_letter_list, "LIST_BYTES", 1)
    answer, held = listed(rig, topic)
    assert (list(held), [task.offset for task in answer.tasks], answer.next_offset) == ([1], [1], 6)


def test_some_are_found_by_their_reason(rig: Rig):
    topic = grave(rig, [1])
    die(rig, topic, [3, 4], reason="no such mailbox")
    answer, held = listed(rig, topic, reason="mailbox")
    assert (list(held), len(answer.tasks)) == ([3, 4], 2)
    answer, held = listed(rig, topic, reason="unheard of")
    assert (held, answer.tasks, answer.next_offset) == ({}, [], -1)


def test_a_list_waits_for_pages_that_are_not_in_memory(rig: Rig):
    topic = grave(rig, [1, 19])
    rig.port.cold = []
    assert rig.ask(q.ListDead, topic, "g", 0, 0, 10) is None
    cold, rig.port.cold = rig.port.cold, None
    (token,) = cold
    rig.node.warmed(token)
    assert list(held_by(rig.port.sent[-1][2])) == [1, 19]


def test_a_record_that_cannot_be_read_is_listed_without_it(rig: Rig):
    topic = grave(rig, [1, 6])
    path = f"{rig.store.directory(topic, 0)}/"
    (name,) = [each for each in rig.store.files.contents if each.startswith(path) and each.endswith(".segment")]
    data = rig.store.files.contents[name].data
    at = bytes(data).index(b"value 5")
    data[at : at + 7] = b"VALUE 5"
    answer, held = listed(rig, topic)
    assert ([task.offset for task in answer.tasks], list(held)) == ([1, 6], [1])


# -- trying again ---------------------------------------------------------------------------------


def test_all_are_tried_again(rig: Rig):
    topic = grave(rig, [1, 6, 7, 19])
    assert rig.ask(q.RedriveDead, topic, "g") == q.Counted(rig.next_request() - 1, 4)
    found = queue(rig, topic)
    assert not found.dead_letters
    assert {offset: (each.attempt, each.ready_us) for offset, each in found.retrying.items()} == dict.fromkeys(
        [1, 6, 7, 19], (0, rig.now.wall_us)
    )
    assert [why for _, _, why in found.retrying[1].history] == ["broken"]


def test_some_are_tried_again_by_number_and_by_reason(rig: Rig):
    topic = grave(rig, [1, 6])
    die(rig, topic, [8, 9], reason="no such mailbox")
    assert rig.ask(q.RedriveDead, topic, "g", [(0, 6), (0, 6), (0, 3), (0, 999)]).count == 1
    assert rig.ask(q.RedriveDead, topic, "g", [(0, 1), (0, 8)], "mailbox").count == 1
    assert rig.ask(q.RedriveDead, topic, "g", [], "mailbox").count == 1
    assert list(queue(rig, topic).dead_letters) == [1]
    assert sorted(queue(rig, topic).retrying) == [6, 8, 9]


def test_a_rate_spreads_them_over_time(rig: Rig):
    topic = grave(rig, [1, 6, 7, 19])
    rig.ask(q.RedriveDead, topic, "g", [], "", 4.0)
    waiting = queue(rig, topic).retrying
    assert [waiting[o].ready_us - rig.now.wall_us for o in (1, 6, 7, 19)] == [0, 250_000, 500_000, 750_000]


def test_a_rate_goes_on_over_portions_and_partitions(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PORTION", 2)
    topic = rig.topic(partitions=2)
    for number in (0, 1):
        rig.produce(topic, VALUES, number)
        set_queue(rig, topic, partition=number)
        die(rig, topic, [2, 4, 6], partition=number)
    assert rig.ask(q.RedriveDead, topic, "g", [], "", 1.0).count == 6
    times = [w.ready_us for n in (0, 1) for _, w in sorted(queue(rig, topic, partition=n).retrying.items())]
    assert [each - times[0] for each in times] == [second * 1_000_000 for second in range(6)]


def test_many_go_in_portions_so_that_each_batch_stays_small(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PORTION", 2)
    topic = grave(rig, [1, 6, 7, 19, 18])
    request, before = rig.next_request(), opened(rig, topic).committed.seq
    rig.send(q.RedriveDead(request, topic, "g"))
    left = [5]
    while len(left) < 10 and not rig.answers(request):
        rig.turn(1)
        left.append(len(queue(rig, topic).dead_letters))
    assert left == [5, 3, 1, 0]
    assert rig.answers(request) == [q.Counted(request, 5)]
    assert opened(rig, topic).committed.seq == before + 3


def test_what_is_redriven_meanwhile_is_counted_once(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PORTION", 2)
    topic = grave(rig, [1, 6, 7, 19])
    one, other = rig.next_request(), rig.next_request()
    rig.send(q.RedriveDead(one, topic, "g"))
    rig.send(q.DiscardDead(other, topic, "g"))
    rig.turn(6)
    counted = [rig.answers(request)[0].count for request in (one, other)]
    found = queue(rig, topic)
    assert sum(counted) == 4
    assert len(found.retrying) == counted[0]
    assert not found.dead_letters


# -- giving up ------------------------------------------------------------------------------------


def test_they_are_given_up_and_stay_so_after_a_restart(rig: Rig):
    topic = grave(rig, [1, 6, 7, 19])
    assert rig.ask(q.DiscardDead, topic, "g", [(0, 6), (0, 7)]).count == 2
    for clean in (True, False):
        rig.restart(clean=clean)
        assert list(queue(rig, topic).dead_letters) == [1, 19]
        assert not queue(rig, topic).retrying
    assert rig.ask(q.DiscardDead, topic, "g").count == 2
    assert rig.ask(q.DiscardDead, topic, "g").count == 0


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        (lambda t: q.ListDead(9, t, "h", 0, 0, 10), "unknown_group", "queue group 'h'"),
        (lambda t: q.ListDead(9, t, "g", 4, 0, 10), "unknown_partition", "partition 4"),
        (lambda t: q.ListDead(9, t, "g", 0, 0, 0), "invalid_request", "max_records=0"),
        (lambda t: q.RedriveDead(9, t, "h"), "unknown_group", "queue group 'h'"),
        (lambda t: q.RedriveDead(9, t, "g", [(4, 1)]), "unknown_partition", "partition 4"),
        (lambda t: q.RedriveDead(9, t, "g", [], "", -1.0), "invalid_request", "per_s=-1.0"),
        (lambda t: q.RedriveDead(9, t, "g", [], "", float("nan")), "invalid_request", "per_s=nan"),
        (lambda t: q.RedriveDead(9, t, "g", [], "", 5e-324), "invalid_request", "per_s=5e-324"),
        (lambda t: q.DiscardDead(9, b"?" * 16, "g"), "unknown_topic", "unknown"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(rig: Rig, message: Any, code: str, said: str):
    topic = grave(rig, [1, 6])
    rig.send(message(topic))
    rig.turn()
    answer = rig.port.sent[-1][1]
    assert isinstance(answer, m.Failure)
    assert answer.code == code
    assert said in answer.message
    assert list(queue(rig, topic).dead_letters) == [1, 6]


def test_a_poisoned_partition_lists_but_changes_nothing(rig: Rig):
    topic = grave(rig, [1])
    opened(rig, topic).log.poison("test")
    assert len(listed(rig, topic)[0].tasks) == 1
    assert rig.ask(q.RedriveDead, topic, "g").code == "poisoned"


def test_a_damaged_partition_lists_but_changes_nothing(rig: Rig):
    topic = grave(rig, [1])
    opened(rig, topic).history.damaged = True
    assert len(listed(rig, topic)[0].tasks) == 1
    answer = rig.ask(q.DiscardDead, topic, "g")
    assert (answer.code, "repair" in answer.message) == ("unavailable", True)
