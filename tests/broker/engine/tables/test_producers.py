"""Producers of one partition: what is next, what is a duplicate, what is refused, who is forgotten."""

from __future__ import annotations

import random

import pytest
from penstock.broker.engine.tables.producers import RECENT, Place, ProducerTable
from penstock.broker.errors import Fenced, SequenceGap, UnknownProducer

P = 0xABC


def table(*batches: tuple[int, int], epoch: int = 0) -> ProducerTable:
    """A table in which P produced batches of (first sequence, count), stored from offset 100 on."""
    made = ProducerTable()
    for seq, (first, count) in enumerate(batches, 1):
        made.record(P, epoch, Place(first, count, 100 + first, seq, 1, 50 + seq), 50 + seq)
    return made


@pytest.mark.parametrize(
    ("known", "epoch", "first", "count", "expected"),
    [
        ([], 0, 0, 5, None),  # the first batch of a new producer
        ([], 9, 0, 5, None),  # whatever its epoch
        ([], 0, 5, 5, UnknownProducer),  # in the middle of an unknown producer
        ([(0, 5)], 0, 5, 1, None),  # the next one
        ([(0, 5)], 0, 6, 1, SequenceGap),  # something is missing
        ([(0, 5)], 0, 0, 5, 100),  # exactly the same again
        ([(0, 5)], 0, 1, 2, 100),  # a part of it: the batch that holds it
        ([(0, 5)], 0, 3, 5, SequenceGap),  # half old, half new
        ([(0, 5), (5, 5)], 0, 0, 5, 100),  # an older one
        ([(0, 5), (5, 5)], 0, 5, 5, 105),
        ([(0, 5), (5, 5)], 0, 0, 10, SequenceGap),  # two batches resent as one
        ([(0, 5)], 1, 5, 1, UnknownProducer),  # an epoch that was never opened
    ],
)
def test_a_batch_is_next_or_a_duplicate_or_refused(known, epoch, first, count, expected):
    made = table(*known)
    if isinstance(expected, type):
        with pytest.raises(expected):
            made.judge(P, epoch, first, count)
    else:
        found = made.judge(P, epoch, first, count)
        assert (found and found.offset) == expected


def test_an_older_epoch_is_fenced_and_the_newer_goes_on_in_sequence():
    made = ProducerTable()
    made.opened("name", P, 1, 0)
    made.record(P, 1, Place(0, 3, 0, 1, 1, 1), 1)
    made.opened("name", 0xDEF, 2, 5)
    with pytest.raises(Fenced, match="producer name was opened again: epoch 1 is over, 2 is current"):
        made.judge(P, 1, 3, 1)
    assert made.judge(P, 2, 3, 1) is None
    assert list(made.by_id) == [P], "the name keeps its id"


def test_only_the_last_batches_can_be_told_from_new_ones():
    made = table(*[(i, 1) for i in range(RECENT + 1)])
    assert made.judge(P, 0, 1, 1) is not None
    with pytest.raises(SequenceGap, match="resent sequence 0"):
        made.judge(P, 0, 0, 1)
    assert len(made.by_id[P].recent) == RECENT


def test_the_longest_silent_unnamed_producers_go_first():
    made = ProducerTable()
    for number, last in [(1, 30), (2, 10), (3, 20)]:
        made.record(number, 0, Place(0, 1, 0, 1, 1, last), last)
    made.opened("named", 4, 1, 5)
    assert made.surplus(4, 0) == []
    assert made.surplus(3, 0) == [2]
    assert made.surplus(1, 0) == [2, 3, 1], "a named producer stays whatever the limit"
    assert made.surplus(4, 15) == [2]
    made.expired([2])
    with pytest.raises(UnknownProducer):
        made.judge(2, 0, 1, 1)


def test_a_snapshot_brings_back_the_same_table():
    made = table((0, 5), (5, 1))
    made.opened("n", 7, 1, 3)
    again = ProducerTable.load(made.dump())
    assert again.dump() == made.dump()
    assert again.by_name["n"] is again.by_id[7]


@pytest.mark.parametrize("seed", range(20))
def test_random_resends_store_every_record_once_and_in_order(seed: int):
    """A client with a window over a table that forgets nothing recent: what it stores is what was sent."""
    chance, made, stored = random.Random(seed), ProducerTable(), []
    batches: list[tuple[int, int]] = []
    for _ in range(60):
        first = sum(count for _, count in batches)
        batches.append((first, chance.randint(1, 4)))
    acked = 0
    while acked < len(batches):
        window = batches[acked : acked + 8]
        start = chance.randrange(len(window))
        for first, count in window[start : start + chance.randint(1, 8)]:
            try:
                place = made.judge(P, 0, first, count)
            except (SequenceGap, UnknownProducer):
                continue
            if place is None:
                made.record(P, 0, Place(first, count, len(stored), len(stored) + 1, 1, 0), 0)
                stored += range(first, first + count)
            assert made.judge(P, 0, first, count).offset == stored.index(first)
        while acked < len(batches) and batches[acked][0] < len(stored):
            acked += 1
    assert stored == list(range(len(stored)))
