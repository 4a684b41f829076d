"""Threads run calls, a bounded number at once, and do not delay the end of the process."""

from __future__ import annotations

import threading

import pytest
from penstock.clients.tasks.outcome import Returned
from penstock.clients.tasks.threads import Threads


def test_at_most_so_many_run_at_once():
    threads, running, most = Threads(2), threading.Semaphore(0), threading.Event()
    seen: set[int] = set()

    def call() -> Returned:
        seen.add(threading.get_ident())
        running.release()
        most.wait(10)
        return Returned(b"x")

    futures = [threads.submit(call) for _ in range(4)]
    assert running.acquire(timeout=10)
    assert running.acquire(timeout=10)
    assert not running.acquire(blocking=False)
    most.set()
    assert [future.result(10) for future in futures] == [Returned(b"x")] * 4
    assert len(seen) == 2
    threads.close()


def test_an_error_of_the_call_itself_reaches_the_waiter_and_the_thread_goes_on():
    threads = Threads(1)

    def broken() -> Returned:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        threads.submit(broken).result(10)
    assert threads.submit(lambda: Returned(b"")).result(10) == Returned(b"")
    threads.close()


def test_threads_end_with_the_pool_and_are_no_reason_to_stay():
    threads = Threads(1)
    idents: list[threading.Thread] = []

    def call() -> Returned:
        idents.append(threading.current_thread())
        return Returned(b"")

    threads.submit(call).result(10)
    threads.close()
    idents[0].join(10)
    assert not idents[0].is_alive()
    assert idents[0].daemon
