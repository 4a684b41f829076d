"""The durable prefix: never above what a crash could take, and not held back by what is inside entries."""

from __future__ import annotations

import random

from penstock.broker.replica.durable_prefix import DurablePrefix

A, B = b"a", b"b"


def test_an_entry_without_named_batches_needs_only_the_order_log():
    prefix = DurablePrefix(3)
    prefix.appended(4, [])
    assert prefix.advance(4, lambda log: 0) == 4
    assert prefix.waiting() == set()


def test_a_named_batch_holds_its_entry_and_all_behind_it():
    prefix = DurablePrefix(0)
    prefix.appended(1, [])
    prefix.appended(2, [(A, 5), (B, 1)])
    prefix.appended(3, [])
    assert prefix.advance(3, lambda log: {A: 5, B: 0}[log]) == 1
    assert prefix.waiting() == {A, B}
    assert prefix.advance(3, lambda log: {A: 5, B: 1}[log]) == 3


def test_the_order_log_holds_an_entry_whose_batches_are_synced():
    prefix = DurablePrefix(0)
    prefix.appended(1, [(A, 1)])
    assert prefix.advance(0, lambda log: 9) == 0
    assert prefix.advance(1, lambda log: 9) == 1


def test_a_cut_takes_the_prefix_back_and_forgets_what_was_named():
    prefix = DurablePrefix(0)
    prefix.appended(1, [(A, 1)])
    prefix.appended(2, [(A, 2)])
    assert prefix.advance(2, lambda log: 2) == 2
    prefix.appended(3, [(A, 3)])
    prefix.cut(1)
    assert (prefix.entry, prefix.waiting()) == (1, set())
    prefix.appended(2, [])
    assert prefix.advance(2, lambda log: 1) == 2


def test_random_lives_agree_with_the_definition():
    for seed in range(300):
        choose = random.Random(seed)
        prefix, named, order, durable, last, reached = DurablePrefix(0), {}, 0, {A: 0, B: 0}, 0, 0
        ends = {A: 0, B: 0}
        for _ in range(30):
            step = choose.random()
            if step < 0.5:
                last += 1
                named[last] = []
                for log in choose.sample([A, B], choose.randrange(3)):
                    ends[log] += 1
                    named[last].append((log, ends[log]))
                prefix.appended(last, named[last])
            elif step < 0.7:
                order = choose.randint(order, last)
            elif step < 0.9:
                log = choose.choice([A, B])
                durable[log] = choose.randint(durable[log], ends[log])
            reached = prefix.advance(order, durable.__getitem__)
            expected = 0
            while expected < order and all(durable[log] >= seq for log, seq in named[expected + 1]):
                expected += 1
            assert reached == expected, seed
