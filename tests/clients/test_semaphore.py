"""Sleeping on a named semaphore: posts end it, time ends it, and what a signal handler raises comes out."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import posix_ipc
import pytest
from penstock.clients.semaphore import Semaphore

LONG_S = 60.0


@pytest.fixture
def made() -> Iterator[posix_ipc.Semaphore]:
    semaphore = posix_ipc.Semaphore(None, posix_ipc.O_CREX)
    yield semaphore
    semaphore.unlink()
    semaphore.close()


@pytest.fixture
def semaphore(made: posix_ipc.Semaphore) -> Iterator[Semaphore]:
    opened = Semaphore(made.name)
    yield opened
    opened.close()
    opened.close()


def test_a_post_before_or_during_a_sleep_ends_it(made: posix_ipc.Semaphore, semaphore: Semaphore) -> None:
    made.release()
    semaphore.sleep(LONG_S)
    sleeper = threading.Thread(target=semaphore.sleep, args=(LONG_S,))
    sleeper.start()
    semaphore.post()
    sleeper.join(LONG_S / 2)
    assert not sleeper.is_alive()


def test_a_sleep_takes_the_time_it_was_given(semaphore: Semaphore) -> None:
    begun = time.monotonic()
    semaphore.sleep(0.05)
    assert time.monotonic() - begun >= 0.05


def test_what_a_signal_handler_raises_comes_out(semaphore: Semaphore) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(SystemExit):
            semaphore.sleep(LONG_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_one_that_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(FileNotFoundError, match="/penstock-nobody"):
        Semaphore("/penstock-nobody")
