"""What a Log tells of itself once segments that it has read are gone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from penstock.storage.embedded import Log
from penstock.storage.files import Files
from penstock.storage.memory_files import MemoryFiles


@pytest.mark.parametrize("in_memory", [False, True], ids=["disk", "memory"])
@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda log: log.first_offset, 12),
        (lambda log: log.seek("earliest"), 12),
        (lambda log: log.seek(datetime(2020, 1, 1, tzinfo=UTC)), 12),
        (lambda log: log.segments()[0].base_offset, 12),
        (lambda log: log.end_offset, 13),
    ],
    ids=["first_offset", "earliest", "time", "segments", "end_offset"],
)
def test_a_log_that_has_read_many_segments_knows_those_that_are_left(tmp_path, in_memory, ask, told) -> None:
    """More than stay open: it has to open the first again, and finds it gone."""
    place: dict[str, Any] = {"path": tmp_path / "log", "files": MemoryFiles() if in_memory else Files()}
    with Log(segment_bytes=4096, commit="written", **place) as log:
        for _ in range(12):
            log.append(b"x" * 3500)
        assert len(list(log)) == 12
        log.append(b"y" * 3500)
        beside = Log(**place, read_only=True)
        assert len(list(beside)) == 13
        assert log.truncate(12) == 12
        assert ask(log) == told
        assert ask(beside) == told
        beside.close()
