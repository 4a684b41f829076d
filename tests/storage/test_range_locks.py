"""Locks on numbers: held by one opening, free when it ends."""

from __future__ import annotations

import os

from penstock.storage.range_locks import RangeLocks


def test_closing_lets_go_of_locks_though_a_copy_of_the_descriptor_lives(tmp_path):
    """As in a child that was forked just now, and has yet to close its own."""
    one, other = RangeLocks(str(tmp_path / "l")), RangeLocks(str(tmp_path / "l"))
    assert one.take(7)
    assert one.take(1 << 40)
    copy = os.dup(one._descriptor)
    one.close()
    assert other.take(7)
    assert other.take(1 << 40)
    other.close()
    other.close()
    os.close(copy)


def test_locks_are_held_by_one_opening_and_counted_by_others(tmp_path):
    one, other = RangeLocks(f"{tmp_path}/l"), RangeLocks(f"{tmp_path}/l")
    for number in (0, 1, 2, 7, 1 << 62):
        assert one.take(number)
        assert one.take(number)
        assert not other.take(number)
    assert (one.others(), other.others()) == (0, 5)
    one.give_back(1)
    assert other.take(1)
    assert (one.others(), other.others()) == (1, 4)
    one.close()
    one.close()
    assert other.others() == 0
    other.close()


def test_locks_end_with_an_opening_that_is_dropped(tmp_path):
    path = f"{tmp_path}/l"
    before = len(os.listdir("/proc/self/fd"))
    assert RangeLocks(path).take(3)
    assert RangeLocks(path).take(3)
    assert len(os.listdir("/proc/self/fd")) == before
