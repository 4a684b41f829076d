"""Task functions for tests, at the top of a module where processes find them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

from penstock import Again, Reject, Retry, Tasks, current_task

app = Tasks("mem://tests-of-tasks")

gate = threading.Event()
"""Opened when those that wait for it may end."""

started = threading.Semaphore(0)
"""Released by each call of `until_gate`."""


@app.task(queue="math", retry=Retry(max_attempts=3, backoff=0.5), name="add")
def add(left: int, right: int = 0) -> int:
    return left + right


@app.task(queue="math", name="add_async")
async def add_async(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


@app.task(queue="math", name="divide")
def divide(left: int, right: int) -> float:
    current_task().progress(0.5)
    return left / right


@app.task(queue="math", name="no_result")
def no_result() -> None:
    pass


@app.task(queue="math", name="forge")
def forge() -> None:
    raise ValueError("bad\n2026-01-01 00:00:00 ERROR forged\x1b[2J")


@app.task(queue="math", name="odd_result")
def odd_result() -> Any:
    return object()


@app.task(queue="math", name="large_result")
def large_result() -> str:
    return "x" * 300_000


@app.task(queue="slow", timeout=0.05, name="wait_for_gate")
def wait_for_gate() -> str:
    gate.wait(30)
    return "late"


@app.task(queue="slow", name="until_gate")
def until_gate() -> bool:
    started.release()
    return gate.wait(30)


@app.task(queue="slow", name="wait_long")
async def wait_long() -> None:
    started.release()
    await asyncio.Event().wait()


@app.task(queue="slow", timeout=0.05, name="wait_async")
async def wait_async() -> None:
    await asyncio.Event().wait()


@app.task(queue="slow", name="ask")
def ask() -> dict[str, Any]:
    task = current_task()
    return {"id": task.id, "attempt": task.attempt, "cancelled": task.cancelled, "thread": threading.get_ident()}


@app.task(queue="heavy", process=True, name="square")
def square(number: int) -> tuple[int, int]:
    current_task().progress(number)
    return number * number, os.getpid()


@app.task(queue="heavy", process=True, name="die")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="heavy", process=True, name="leave")
def leave() -> None:
    os._exit(3)


@app.task(queue="heavy", process=True, timeout=0.1, name="hang")
def hang() -> None:
    threading.Event().wait(60)


@app.task(queue="heavy", process=True, name="until_cancelled")
def until_cancelled() -> str:
    while not current_task().cancelled:
        threading.Event().wait(0.01)
    return "stopped"


@app.task(queue="heavy", process=True, name="where")
def where() -> str:
    """Where this process sends to."""
    return app.url


@app.task(queue="rules", retry=Retry(max_attempts=9, backoff=4, jitter=0, never=(LookupError,)), name="raises")
def raises(kind: str) -> None:
    raise {"again": Again("busy", delay=600), "reject": Reject("no seat"), "key": KeyError(), "os": OSError()}[kind]


@app.task(queue="rules", process=True, name="raises_elsewhere", retry=Retry(only=(OSError,), backoff=4, jitter=0))
def raises_elsewhere(kind: str) -> None:
    raises(kind)
