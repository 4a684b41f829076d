"""Tasks of Celery that end in every way: what becomes of them is compared between brokers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from support.noted import note


class Refused(Exception):
    """An exception of the application, with arguments of its own."""

    def __init__(self, order: str, amount: int) -> None:
        super().__init__(order, amount)
        self.order, self.amount = order, amount


def register(app: Celery) -> None:
    """Add the tasks to an application."""
    late: dict[str, Any] = {"shared": False, "acks_late": True}
    app.task(name="refuse", **late)(refuse)
    app.task(name="give_up", bind=True, max_retries=2, default_retry_delay=0.01, **late)(give_up)
    app.task(name="by_itself", autoretry_for=(Refused,), max_retries=2, default_retry_delay=0.01, **late)(by_itself)
    app.task(name="reject", bind=True, **late)(reject)
    app.task(name="ignore", **late)(ignore)
    app.task(name="progress", bind=True, **late)(progress)
    app.task(name="instead", bind=True, **late)(instead)
    app.task(name="wait", **late)(wait)
    app.task(name="wait_patiently", **late)(wait_patiently)
    app.task(name="die", reject_on_worker_lost=True, **late)(die)
    app.task(name="die_early", shared=False)(die)
    app.task(name="text", **late)(text)
    app.task(name="told", **late)(told)
    app.task(name="same", **late)(same)


def refuse(order: str, amount: int) -> None:
    raise Refused(order, amount)


def give_up(self: Any, folder: str, with_reason: bool) -> None:
    note(Path(folder, "ran"), self.request.retries)
    raise self.retry(exc=Refused("late", 3) if with_reason else None)


def by_itself(folder: str, failures: int) -> int:
    """Fail so often."""
    if note(Path(folder, "ran")) <= failures:
        raise Refused("late", failures)
    return failures


def reject(self: Any, folder: str, requeue: bool) -> bool:
    """Reject its message at first; whether it is redelivered then."""
    if note(Path(folder, "ran")) == 1:
        raise Reject("not now", requeue=requeue)
    return bool(self.request.delivery_info["redelivered"])


def ignore() -> None:
    raise Ignore


def progress(self: Any, folder: str) -> None:
    """Tell a state of its own, and leave it."""
    self.update_state(state="HALF", meta={"done": 1, "of": 2})
    raise Ignore


def instead(self: Any, x: int, y: int) -> Any:
    """Replaced by another task."""
    return self.replace(self.app.tasks["add"].s(x, y))


def wait() -> None:
    signal.pause()


def wait_patiently() -> str:
    try:
        signal.pause()
    except SoftTimeLimitExceeded:
        return "told in time"
    return "never told"


def die(folder: str) -> int:
    """Take the process with it the first time; how often it ran."""
    times = note(Path(folder, "ran"))
    if times == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return times


def text(length: int) -> str:
    return "é" * length


def told(*arguments: Any, folder: str) -> Any:
    """Note what it was given: by a link, or as an error's callback."""
    note(Path(folder, "told"), arguments[-1])
    return arguments[-1]


def same(given: Any) -> Any:
    return given
