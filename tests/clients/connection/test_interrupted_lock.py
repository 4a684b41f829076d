"""Ctrl-C while a thread waits for the lock of its client again: the verb ends with the lock, as it began."""

from __future__ import annotations

import signal
import sys
import threading

import pytest
from penstock.clients import connect
from penstock.clients.memory_broker import MemoryBroker
from support.locks import is_free


def test_an_interrupt_while_the_lock_is_waited_for(main_thread_signals: None) -> None:
    with MemoryBroker() as broker, connect(broker.url) as client:
        driver, main = client._driver, threading.get_ident()
        taken = threading.Event()

        def hold() -> None:
            with driver.lock:
                taken.set()
                while sys._current_frames()[main].f_code is not driver._unlocked.__func__.__code__:
                    pass  # until it is back from `wait`, at the lock
                signal.pthread_kill(main, signal.SIGINT)

        holder = threading.Thread(target=hold)

        def wait() -> None:
            holder.start()
            taken.wait()

        with pytest.raises(KeyboardInterrupt), driver.lock:
            driver._unlocked(wait)
        holder.join()
        assert is_free(driver.lock)
        client.create_topic("t")


@pytest.fixture
def main_thread_signals():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
