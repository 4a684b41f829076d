"""Logs that are written in turn, while another process removes those that are not needed."""

from __future__ import annotations

import pytest
from penstock.storage.errors import StorageError
from penstock.storage.files import Files
from penstock.storage.rolling_logs import OFFSET_BITS, RollingLogs


@pytest.fixture
def two(tmp_path):
    """The same logs twice; the first has written a log of two records, and one of one."""
    logs = [RollingLogs(str(tmp_path / "logs"), Files(), "written") for _ in range(2)]
    for value in (b"one", b"two"):
        logs[0].writer().append(value)
    logs[0].let_go()
    logs[0].writer().append(b"three")
    for each in logs:
        each.look()
    yield logs
    for each in logs:
        each.close()


def test_a_log_that_another_process_removed_has_no_more_records(two):
    writing, removing = two
    assert (writing.count_behind(0), writing.count_within(1, 1 << OFFSET_BITS | 1)) == (3, 1)
    assert removing.remove(1, lambda: True)
    assert (writing.count_behind(0), writing.count_within(1, 1 << OFFSET_BITS | 1)) == (1, 0)
    assert writing.time_behind(0) == writing.time_behind(2 << OFFSET_BITS)


def test_a_log_that_is_damaged_is_not_taken_for_a_removed_one(two, tmp_path):
    for segment in (tmp_path / "logs" / f"{1:010d}").glob("*.segment"):
        segment.unlink()
    with pytest.raises(StorageError):
        two[0].count_behind(0)
