"""Readers of an embedded log and a writer that comes at a bad moment."""

from __future__ import annotations

import pytest
from penstock.storage import board_row
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


def test_a_reader_sees_the_whole_log_at_each_step_of_a_writer_that_opens_and_closes(tmp_path, monkeypatch):
    """Also between the words that the writer stores on its board: neither an empty log nor what a truncation took."""
    with Log(tmp_path / "log") as log:
        log.append([b"%d" % number for number in range(10)])
        log.truncate(4)
    seen: list[tuple[int, int]] = []
    store = board_row._Word.__set__

    def watched(word: board_row._Word, row: board_row.Row, value: int) -> None:
        store(word, row, value)
        seen.append((reader.first_offset, reader.end_offset))

    with Log(tmp_path / "log", read_only=True) as reader:
        monkeypatch.setattr(board_row._Word, "__set__", watched)
        for _ in range(2):
            Log(tmp_path / "log").close()
    assert len(seen) > 4
    assert set(seen) == {(4, 10)}
