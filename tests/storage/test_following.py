"""Readers of an embedded log and a writer that comes at a bad moment."""

from __future__ import annotations

import pytest
from penstock.storage.embedded import Log
from penstock.storage.following import Follower
from penstock.storage.group_commit import GroupCommit


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_reader_keeps_to_the_board_of_a_writer_that_comes_while_it_verifies(nth, tmp_path, monkeypatch):
    """It asked for a board, found none, and verified the log itself, in which by then something is not synced."""
    with Log(tmp_path / "log") as log:
        log.append(b"made")
    writers: list[Log] = []
    asks: list[int | None] = []
    ask = Follower.limit

    def asked(follower: Follower) -> int | None:
        found = ask(follower)
        asks.append(found)
        if len(asks) == nth:
            writers.append(Log(tmp_path / "log"))
            writers[0].append(b"durable")
            with monkeypatch.context() as patch:
                patch.setattr(GroupCommit, "through", lambda self, seq: None)
                writers[0].append(b"not synced yet")
        return found

    monkeypatch.setattr(Follower, "limit", asked)
    with Log(tmp_path / "log", read_only=True) as reader:
        asks.clear()
        found = [record.value for _ in range(3) for record in reader]
        assert found == [b"made", b"durable"]
        writers[0].sync()
        assert [record.value for record in reader] == [b"not synced yet"]
        writers[0].close()
        assert [record.value for record in reader] == []
