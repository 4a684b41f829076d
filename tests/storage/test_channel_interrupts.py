"""Ctrl-C in the middle of a channel's verbs: no item is lost, and none that is done comes again."""

from __future__ import annotations

import contextlib
import queue

import pytest
from penstock import Channel
from penstock.storage import rolling_logs
from support.interrupts import interrupts


def drained(path: object) -> set[bytes]:
    """All items that come."""
    found: set[bytes] = set()
    with Channel(str(path), commit="written") as channel, contextlib.suppress(queue.Empty):
        while True:
            found.add(channel.get_nowait())
    return found


def test_ctrl_c_at_any_moment_loses_no_item_and_brings_back_none_that_is_done(tmp_path):
    for interrupt in interrupts(("storage/channel.py", "storage/rolling_logs.py"), stride=5, above=100):
        path, taken, done = tmp_path / str(interrupt.nth), list[bytes](), list[bytes]()
        consumer = Channel(path, commit="written")
        with Channel(path, commit="written") as producer:
            for item in (b"0", b"1", b"2"):
                producer.put(item)
        with consumer, interrupt:
            taken.append(consumer.get_nowait())
            consumer.task_done()
            done.append(taken[-1])
            taken.append(consumer.get_nowait())
        left = drained(path)
        assert {*taken} | left == {b"0", b"1", b"2"}, f"interrupted at moment {interrupt.nth}"
        assert not {*done} & left, f"interrupted at moment {interrupt.nth}"


def test_an_interrupted_get_leaves_its_item_to_the_next_one(tmp_path, monkeypatch):
    with Channel(tmp_path / "c") as channel:
        channel.put(b"1")
        channel.put(b"2")
        with monkeypatch.context() as patch:
            patch.setattr(rolling_logs.RollingLogs, "value", interrupted)
            with pytest.raises(KeyboardInterrupt):
                channel.get()
        assert channel.get() == b"1"
        channel.task_done()
        assert channel.qsize() == 1


def interrupted(*_: object) -> bytes:
    raise KeyboardInterrupt
