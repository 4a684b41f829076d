"""Tasks that do nothing, through a Celery worker on a Redis of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perf.systems import celery_redis

TASKS = 40


def test_every_task_is_submitted_and_finished_and_no_process_is_left(tmp_path):
    if reason := celery_redis.absent():
        pytest.skip(reason)
    before = _children()
    rates = celery_redis.rates(tmp_path, "written", TASKS)
    assert rates.submitted > 0
    assert rates.finished > 0
    assert _children() == before
    assert "ERROR" not in (tmp_path / "celery.log").read_text()


def _children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()
