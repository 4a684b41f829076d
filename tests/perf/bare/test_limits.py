"""What processor, memory and disk can do is measured with the bytes it says, and leaves no file."""

from __future__ import annotations

from functools import partial

import pytest

from perf.bare import limits


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(limits, "COPIED_BYTES", 1 << 20)


@pytest.mark.parametrize(
    "measure", [limits.memcpy_mapped_ns_per_record, limits.write_ns_per_record, limits.pwrite_ns_per_record]
)
def test_a_larger_record_costs_more_and_no_file_is_left(measure, small, tmp_path):
    costs = [min(measure(tmp_path, record_bytes=size) for _ in range(3)) for size in (1, 1000)]
    assert 0 < costs[0] < costs[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", ["write_ns_per_record", "pwrite_ns_per_record"])
def test_writing_goes_through_the_whole_file(write, tmp_path, monkeypatch):
    ends: list[int] = []
    call = write.partition("_")[0]
    original = getattr(limits.os, call)
    monkeypatch.setattr(limits.os, call, lambda file, *rest: _noted(ends, original(file, *rest)))
    getattr(limits, write)(tmp_path)
    assert sum(ends) == 256 * (256 << 10)


def _noted(ends: list[int], size: int) -> int:
    ends.append(size)
    return size


def test_every_sync_is_counted(tmp_path):
    assert len(limits.fdatasync_ns(tmp_path, rounds=5)) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_pause_lies_between_syncs(tmp_path, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr(limits, "wait_until", waited.append)
    partial(limits.fdatasync_us, tmp_path, 0.5, 3)()
    assert len(waited) == 3
    assert waited == sorted(waited)
