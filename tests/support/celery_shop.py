"""An application of Celery for tests, and the processes of its workers.

The broker's URL stands in CELERY_SHOP_URL, how long requests wait for it in CELERY_SHOP_TIMEOUT.
`celery -A support.celery_shop worker` runs the tasks.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery
from support import celery_outcomes, noted
from support.celery_kills import Kills, arm
from support.processes import spawn

TESTS = Path(__file__).resolve().parent.parent
WAIT_S = 60.0
LEASE_S = 1.0
LATE = {"acks_late": True, "reject_on_worker_lost": True}
"""Acknowledged when they are done, and not when the process that runs them dies."""


def make(url: str, timeout: float = 20.0) -> Celery:
    """The application over a broker."""
    made = Celery("shop", broker=url, backend=url, set_as_current=False)
    made.conf.update(
        broker_transport_options={"lease": LEASE_S, "timeout": timeout},
        broker_connection_retry_on_startup=True,
        task_track_started=True,
        worker_lost_wait=1.0,
        worker_prefetch_multiplier=1,
    )
    made.task(shared=False, name="add")(add)
    made.task(shared=False, name="total", **LATE)(total)
    made.task(shared=False, name="flaky", bind=True, max_retries=5, **LATE)(flaky)
    made.task(shared=False, name="broken")(broken)
    made.task(shared=False, name="hold", acks_late=True)(hold)
    made.task(shared=False, name="note", **LATE)(note)
    celery_outcomes.register(made)
    return made


def add(x: int, y: int) -> int:
    return x + y


def total(values: list[int]) -> int:
    return sum(values)


def flaky(self: Any, failures: int) -> int:
    if self.request.retries < failures:
        raise self.retry(countdown=0.05, exc=ValueError("once more"))
    return self.request.retries


def broken() -> None:
    raise KeyError("broken")


def hold(folder: str) -> int:
    """Note that it began, and wait while the test has the lock (`Held`); returns how often it was begun."""
    begun = Path(folder, "begun")
    noted.note(begun, os.getpid())
    with Path(folder, "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
    return len(noted.noted(begun))


def note(folder: str, number: int) -> int:
    """Note that it ran."""
    noted.note(Path(folder, "ran"), number)
    return number


class Held:
    """What the tasks `hold` of a folder wait for, until it is closed."""

    def __init__(self, folder: Path) -> None:
        self._lock = (folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        self._lock.close()


class CeleryWorker:
    """A worker process with its pool. Ready when it is made, unless it is to be killed."""

    def __init__(self, app: Celery, pool: str, log: Path, *options: str, kills: Kills | None = None) -> None:
        command = [sys.executable, "-m", "celery", "-A", "support.celery_shop", "worker", f"--pool={pool}",
                   "--concurrency=2", "--loglevel=INFO", f"--hostname={log.name}@test", *options]  # fmt: skip
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "CELERY_SHOP_URL": str(app.conf.broker_url),
            "CELERY_SHOP_TIMEOUT": str(app.conf.broker_transport_options["timeout"]),
            **(kills.environment() if kills else {}),
        }
        self.log = log
        with log.open("wb") as output:
            self.process = spawn(
                command, signal.SIGTERM, env=environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
            if kills is None:
                self._wait_ready(app)
        except BaseException:
            self.kill()
            raise

    def _wait_ready(self, app: Celery) -> None:
        deadline = time.monotonic() + WAIT_S
        while not app.control.ping(destination=[f"{self.log.name}@test"], timeout=1.0, limit=1):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()

    def kill(self) -> None:
        """End it and its pool at once, as the kernel would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Have it end in good order."""
        self.process.terminate()
        try:
            self.process.wait(WAIT_S)
        finally:
            self.kill()

    def __enter__(self) -> CeleryWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


if url := os.environ.get("CELERY_SHOP_URL"):
    app = make(url, float(os.environ["CELERY_SHOP_TIMEOUT"]))
    arm()
