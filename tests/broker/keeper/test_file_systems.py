"""Logs of a data directory that lie on several file systems, of which one syncfs syncs one."""

from __future__ import annotations

import pytest
from penstock.broker.config import KeeperOptions
from penstock.storage.memory_files import MemoryFile
from support.pair import Pair
from support.writeback import WritebackFiles


@pytest.mark.parametrize("apart", ["/f/", "/a/", "/"])
def test_a_file_that_one_syncfs_does_not_reach_is_synced_by_itself(monkeypatch: pytest.MonkeyPatch, apart: str):
    """The directory of a log may be a link to another disk."""
    monkeypatch.setattr(MemoryFile, "identity", lambda file: (int(file.path.startswith(apart)), 0))
    files = WritebackFiles()
    pair = Pair(files, options=KeeperOptions(single_files=3))
    logs = [pair.open(f"/{name}") for name in "abcdef"]
    for log in logs:
        pair.append(log, 1)
    monkeypatch.setattr(pair.keeper, "_sync_all", lambda: None)  # of a disk on which nothing is dirty
    pair.publish(*logs)
    pair.round()
    assert [log.durable for log in logs] == [1] * 6
    after = Pair(files.power_cut())
    assert [after.open(log.path).written for log in logs] == [1] * 6
