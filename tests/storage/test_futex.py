"""Sleeping on a word: wakes end it in another process too, time ends it, and what a signal handler raises comes out."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from penstock.storage import futex
from penstock.storage.errors import BoardUnavailable
from penstock.storage.futex import WORD_BYTES, Futex

LONG_S = 20.0

SLEEPER = """
import mmap, sys
from penstock.storage.futex import Futex
memory = mmap.mmap(int(sys.argv[1]), mmap.PAGESIZE)
Futex(memoryview(memory)[:4]).sleep(60.0, lambda: print("raised", flush=True) is None)
"""


@pytest.fixture
def word() -> memoryview:
    return memoryview(mmap.mmap(-1, mmap.PAGESIZE))[:WORD_BYTES]


def test_another_process_is_woken_and_the_word_lowered():
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        slot = Futex(memoryview(mmap.mmap(file.fileno(), mmap.PAGESIZE))[:WORD_BYTES])
        command = [sys.executable, "-c", SLEEPER, str(file.fileno())]
        with subprocess.Popen(command, pass_fds=[file.fileno()], stdout=subprocess.PIPE) as sleeper:
            assert sleeper.stdout is not None
            assert sleeper.stdout.readline() == b"raised\n"
            assert slot.is_raised
            slot.wake()
            assert sleeper.wait(LONG_S / 2) == 0
    assert not slot.is_raised


@contextmanager
def soon() -> Iterator[None]:
    """What is inside does not sleep until its time is over."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < LONG_S / 2


def test_a_wake_after_the_last_look_prevents_the_sleep(word: memoryview):
    slot = Futex(word)
    with soon():
        slot.sleep(LONG_S, lambda: slot.wake() is None)
    assert not slot.is_raised


def test_news_at_the_last_look_prevent_the_sleep(word: memoryview):
    with soon():
        Futex(word).sleep(LONG_S, lambda: False)


def test_a_sleeper_that_finds_the_number_of_another_looks_again(word: memoryview):
    """Such as that of a reader whose session is over: a wake may have come in between."""
    slot, stale = Futex(word), Futex(word)

    def both() -> bool:
        slot.wake()
        stale.sleep(0.0, lambda: True)
        return True

    with soon():
        slot.sleep(LONG_S, both)


def test_all_that_sleep_on_a_word_are_woken(word: memoryview):
    begun = [threading.Event() for _ in range(3)]
    sleepers = [
        threading.Thread(target=Futex(word).sleep, args=(LONG_S, lambda event=event: event.set() is None))
        for event in begun
    ]
    for sleeper, event in zip(sleepers, begun, strict=True):
        sleeper.start()
        assert event.wait(LONG_S)
    Futex(word).wake()
    for sleeper in sleepers:
        sleeper.join(LONG_S / 2)
        assert not sleeper.is_alive()


def test_a_sleep_takes_the_time_it_was_given(word: memoryview):
    begun = time.monotonic()
    Futex(word).sleep(0.05, lambda: True)
    assert time.monotonic() - begun >= 0.05


def test_what_a_signal_handler_raises_comes_out(word: memoryview):
    def leave(*_: object) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(SystemExit):
            Futex(word).sleep(LONG_S, lambda: True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_forked_child_has_other_numbers_than_its_parent():
    memory = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
    ours, childs = (memory[place : place + WORD_BYTES] for place in (0, WORD_BYTES))
    child = os.fork()
    if not child:
        try:
            Futex(childs).sleep(0.0, lambda: False)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    Futex(ours).sleep(0.0, lambda: False)
    assert bytes(childs) not in (bytes(ours), bytes(WORD_BYTES))


def test_a_machine_whose_futexes_are_not_known_is_named(word: memoryview, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(futex, "MISSING", "mapped readers cannot be woken on linux s390x: use delivery='auto'")
    with pytest.raises(BoardUnavailable, match="s390x"):
        Futex(word)


def test_the_fence_of_other_machines_is_a_call_that_wakes_no_sleeper():
    futex._fence_by_call()
    assert futex._own.value == 0
