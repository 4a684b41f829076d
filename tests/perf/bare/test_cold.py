"""Cold files: pages are dropped, and what is still there is noticed."""

from __future__ import annotations

import mmap
import os

import pytest

from perf.bare import cold
from perf.lab import machine

SIZE = 4 << 20


@pytest.fixture
def file(real_disk):
    if machine.filesystem(real_disk) in ("tmpfs", "ramfs"):
        pytest.skip("a file system in memory has no pages to drop")
    path = real_disk / "deep" / "data"
    path.parent.mkdir()
    path.write_bytes(os.urandom(SIZE))
    return path


def test_dropped_pages_are_gone_and_come_back_by_reading(file):
    assert cold.resident_bytes(file) == SIZE
    cold.drop([file])
    assert cold.resident_bytes(file) == 0
    file.read_bytes()
    assert cold.resident_bytes(file) == SIZE


def test_pages_that_somebody_has_mapped_are_noticed(file):
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) > 0
        with pytest.raises(cold.StillCached, match=f"{SIZE:,} of {SIZE:,}"):
            cold.drop([file])


def test_only_files_that_hold_something_count(file, real_disk):
    (real_disk / "empty").touch()
    assert cold.files_of(real_disk) == [file]


def test_reading_cold_files_reads_all_of_them(file):
    assert cold.read_mb_per_s([file]) > 0
    assert cold.resident_bytes(file) == SIZE
