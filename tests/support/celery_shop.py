"""An application of Celery for tests, and the processes of its workers.

The broker's URL stands in CELERY_SHOP_URL. `celery -A support.celery_shop worker` runs the tasks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery
from support.processes import spawn

TESTS = Path(__file__).resolve().parent.parent
WAIT_S = 60.0


def make(url: str) -> Celery:
    """The application over a broker."""
    made = Celery("shop", broker=url, backend=url, set_as_current=False)
    made.conf.update(
        broker_transport_options={"lease": 1.0, "timeout": 20.0},
        broker_connection_retry_on_startup=True,
        task_track_started=True,
        worker_prefetch_multiplier=1,
    )
    made.task(shared=False, name="add")(add)
    made.task(shared=False, name="total")(total)
    made.task(shared=False, name="flaky", bind=True, max_retries=5)(flaky)
    made.task(shared=False, name="broken")(broken)
    made.task(shared=False, name="hold", acks_late=True)(hold)
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
    """Note that it began, and wait until the pipe `go` is written to; returns how often it was begun."""
    begun = Path(folder, "begun")
    with begun.open("a") as file:
        file.write(f"{os.getpid()}\n")
    Path(folder, "go").read_bytes()
    return len(begun.read_text().splitlines())


class CeleryWorker:
    """A worker process with its pool. Ready when it is made."""

    def __init__(self, app: Celery, pool: str, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "celery", "-A", "support.celery_shop", "worker", f"--pool={pool}",
                   "--concurrency=2", "--loglevel=INFO", f"--hostname={log.name}@test", *options]  # fmt: skip
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "CELERY_SHOP_URL": str(app.conf.broker_url), "PYTHONPATH": paths}
        self.log = log
        with log.open("wb") as output:
            self.process = spawn(
                command, signal.SIGTERM, env=environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
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
    app = make(url)
