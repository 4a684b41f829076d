"""Another process is woken as often as asked, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.servers import descendants

from perf.bare import wakeups


@pytest.mark.parametrize("measure", [wakeups.semaphore_ages_ns, wakeups.futex_ages_ns, wakeups.eventfd_ns])
def test_every_wake_up_is_counted_and_nothing_is_left(measure):
    before, files, named = descendants(os.getpid()), len(os.listdir("/proc/self/fd")), semaphores()
    took = measure(20)
    assert len(took) == 20
    assert took.min() > 0
    assert descendants(os.getpid()) <= before
    assert len(os.listdir("/proc/self/fd")) == files
    assert semaphores() <= named


def semaphores() -> set[Path]:
    return set(Path("/dev/shm").glob("sem.penstock-perf-*"))
