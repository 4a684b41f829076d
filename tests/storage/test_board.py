"""The board: words, rows, re-initialisation in place, and what a broken block says."""

from __future__ import annotations

import multiprocessing
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from penstock.storage import board as boards
from penstock.storage import shared_block
from penstock.storage.board import Board, Level, split, word
from penstock.storage.errors import BoardUnavailable, NewerFormat, StorageFull


def fresh() -> str:
    """The name of shared memory that nothing else has."""
    return f"/penstock-test-{uuid4().hex[:16]}"


@pytest.fixture(params=["file", "shared", "private"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Board]:
    if request.param == "private":
        yield Board.private(8, slots=4)
        return
    made = (
        Board.create(8, slots=4, file=tmp_path / "board")
        if request.param == "file"
        else Board.create(8, slots=4, name=fresh())
    )
    yield made
    made.retire()
    made.close()


def test_a_word_carries_generation_and_seq_and_compares_in_order() -> None:
    assert split(word(3, 5)) == (3, 5)
    assert split(word(2**20 - 1, 2**44 - 1)) == (2**20 - 1, 2**44 - 1)
    assert word(1, 2**44 - 1) < word(2, 0) < word(2, 1)


@pytest.mark.parametrize(("generation", "seq"), [(2**20, 0), (0, 2**44), (-1, 0)])
def test_a_word_that_would_spill_over_is_refused(generation: int, seq: int) -> None:
    with pytest.raises(AssertionError):
        word(generation, seq)


def test_every_word_of_every_row_is_its_own(board: Board) -> None:
    names = list(boards.ROW.names or ())
    for index in range(board.rows):
        for place, name in enumerate(names):
            setattr(board.row(index), name, 1000 * index + place + 1)
    for index in range(board.rows):
        assert [getattr(board.row(index), name) for name in names] == [1000 * index + p + 1 for p in range(len(names))]
    for place, name in enumerate(names):
        assert board.words(name).tolist() == [1000 * index + place + 1 for index in range(board.rows)]


def test_the_arrays_are_live(board: Board) -> None:
    written = board.words("written")
    board.row(3).written = word(2, 9)
    assert written[3] == word(2, 9)
    written[4] = np.uint64(word(1, 1))
    assert board.row(4).written == word(1, 1)


def test_writers_do_not_share_a_cache_line() -> None:
    offsets = {name: boards.ROW.fields[name][1] for name in boards.ROW.names}
    assert {offsets[name] // 64 for name in ("written", "durable", "first", "level")} == {0}
    assert {offsets[name] // 64 for name in ("synced", "sync_started", "poison")} == {1}
    assert offsets["quorum"] // 64 == 2


def test_committed_is_the_word_that_the_level_names(board: Board) -> None:
    row = board.row(0)
    row.assign(7, generation=2, level=Level.WRITTEN)
    row.written, row.durable, row.quorum = word(2, 30), word(2, 20), word(2, 10)
    seen = []
    for level in Level:
        row.level = level
        seen.append(row.committed())
    assert seen == [(2, 30), (2, 20), (2, 10)]


def test_a_row_that_changed_hands_says_nothing_about_the_old_log(board: Board) -> None:
    first, second = uuid.uuid4().int, uuid.uuid4().int
    row = board.row(0)
    row.assign(first, generation=1, level=Level.WRITTEN)
    row.written, row.poison = word(1, 9), word(1, 9)
    assert row.log_id == first
    assert row.committed_of(first) == (1, 9)
    row.assign(second, generation=1, level=Level.DURABLE)
    assert row.committed_of(first) is None
    assert row.committed_of(second) == (1, 0)
    assert row.poison == 0
    row.release()
    assert row.log_id == 0
    assert row.committed_of(second) is None


def test_an_attached_board_sees_the_same_words(tmp_path: Path) -> None:
    for owner in (Board.create(4, name=fresh()), Board.create(4, file=tmp_path / "board")):
        owner.row(2).assign(5, generation=1, level=Level.WRITTEN)
        reader = Board.attach(owner.name)
        owner.row(2).written = word(1, 3)
        assert (reader.rows, reader.slot_count, reader.owner_pid) == (4, boards.DEFAULT_SLOTS, os.getpid())
        assert reader.boot_id == boards.boot_id()
        assert reader.row(2).committed_of(5) == (1, 3)
        with pytest.raises(TypeError):
            reader.row(2).written = 1
        reader.close()
        owner.retire()
        owner.close()


def test_re_initialising_keeps_the_block_and_moves_the_epoch(tmp_path: Path) -> None:
    path = tmp_path / "board"
    before = Board.create(4, file=path)
    before.row(1).assign(9, generation=1, level=Level.WRITTEN)
    before.slot(2).sleep(0.0, lambda: False)
    epoch, inode = before.epoch, path.stat().st_ino
    after = Board.create(4, file=path)
    assert path.stat().st_ino == inode
    assert after.epoch == before.epoch == epoch + 2
    assert before.row(1).log_id == 0
    assert not before.slot(2).is_raised
    before.close()
    after.close()


def test_a_board_of_another_shape_is_retired_before_its_name_is_reused(tmp_path: Path) -> None:
    path = tmp_path / "board"
    small = Board.create(4, file=path)
    small.row(0).written = 5
    large = Board.create(8, file=path)
    assert (small.epoch % 2, small.owner_pid) == (1, 0)
    assert small.row(0).written == 5, "readers keep what they mapped"
    assert large.epoch % 2 == 0
    assert Board.attach(str(path)).rows == 8


def test_no_row_lies_where_a_reader_of_the_board_before_has_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "board"
    before = Board.create(100, slots=1025, file=path)
    reader, slot = Board.attach_slot(str(path), 0)
    after = Board.create(300, slots=1, file=path)
    assert path.stat().st_size == 65536 * 2 + 64, "as large as it was"
    slot.sleep(0.0, lambda: False)
    assert not any(after.words(name).any() for name in boards.ROW.names)
    for board in (before, after, reader):
        board.close()


def test_a_retired_board_cannot_be_attached(tmp_path: Path) -> None:
    board = Board.create(2, file=tmp_path / "board")
    keeper = Board.attach(board.name)
    board.retire()
    assert not (tmp_path / "board").exists()
    assert (keeper.epoch % 2, keeper.owner_pid) == (1, 0)
    with pytest.raises(BoardUnavailable, match="no board"):
        Board.attach(board.name)


def test_a_board_under_initialisation_is_not_believed(tmp_path: Path) -> None:
    board = Board.create(2, file=tmp_path / "board")
    board._words[2] = board.epoch + 1
    with pytest.raises(BoardUnavailable, match="being initialised"):
        Board.attach(board.name)


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [(0, 1, BoardUnavailable), (1, 2, NewerFormat), (6, 10**6, BoardUnavailable), (7, 10**6, BoardUnavailable)],
    ids=["foreign magic", "newer version", "more rows than bytes", "more slots than bytes"],
)
def test_a_wrong_header_is_refused(tmp_path: Path, place: int, value: int, error: type[Exception]) -> None:
    board = Board.create(2, file=tmp_path / "board")
    board._words[place] = value
    with pytest.raises(error):
        Board.attach(board.name)


@pytest.mark.parametrize("size", [0, 8, 4095])
def test_a_block_shorter_than_its_header_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "board"
    path.write_bytes(bytes(size))
    with pytest.raises(BoardUnavailable, match="no whole header"):
        Board.attach(str(path))


def test_attaching_to_nothing_says_so(tmp_path: Path) -> None:
    for name in (f"/penstock-{uuid.uuid4().hex}", str(tmp_path / "missing")):
        with pytest.raises(BoardUnavailable, match="is the broker running"):
            Board.attach(name)


@pytest.mark.parametrize("name", ["", "/", "/.", "/..", "relative", "/" + "x" * 255])
def test_what_is_no_name_of_shared_memory_is_not_opened(name: str) -> None:
    with pytest.raises(BoardUnavailable, match="no name of a board"):
        Board.attach(name)


def test_too_little_space_names_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, position: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageFull, match=f"needs {65536 + 64 * 64} bytes and /dev/shm"):
        Board.create(4, name=fresh())
    with pytest.raises(StorageFull, match=str(tmp_path)):
        Board.create(4, file=tmp_path / "board")
    assert not (tmp_path / "board").exists(), "a board without space leaves no name behind"


def test_a_machine_without_shared_memory_uses_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_block, "SHARED_MEMORY", str(tmp_path / "missing"))
    board = Board.create(2, name="/penstock-test", file=tmp_path / "board")
    assert board.name == str(tmp_path / "board")
    with pytest.raises(BoardUnavailable, match="missing cannot be used"):
        Board.create(2, name=fresh())


def test_the_permissions_are_what_was_asked_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        Board.create(2, file=tmp_path / "mine")
        Board.create(2, file=tmp_path / "ours", mode=0o660)
    finally:
        os.umask(old)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o660


def test_a_reader_may_write_its_slot_and_nothing_else(tmp_path: Path) -> None:
    for owner in (Board.create(700, slots=100, name=fresh()), Board.create(700, slots=100, file=tmp_path / "board")):
        for index in (0, 63, 64, 99):
            reader, slot = Board.attach_slot(owner.name, index)
            with pytest.raises(TypeError):
                reader.row(2).written = 1
            slot.sleep(0.0, lambda: False)
            assert [place for place in range(100) if owner.slot(place).is_raised] == [index]
            owner.slot(index).wake()
            assert not slot.is_raised
            reader.close()
        assert not any(owner.words(name).any() for name in boards.ROW.names)
        for index in (-1, 100):
            with pytest.raises(BoardUnavailable, match=f"100 slots, and none with number {index}"):
                Board.attach_slot(owner.name, index)
        owner.retire()
        owner.close()


def _count_up(name: str, limit: int) -> None:
    row = Board.attach(name, write=True).row(0)
    for seq in range(limit):
        row.written = seq << 32 | seq


def test_sleepers_are_looked_for_behind_a_fence(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was raised on another processor is seen by then, or that reader has seen what was published."""
    monkeypatch.setattr("penstock.storage.board.fence", lambda: board.slot(1).sleep(0.0, lambda: False))
    assert board.raised() == [1]


def test_another_process_never_shows_half_a_word() -> None:
    """The halves of each stored word are equal; a torn store would show two different ones."""
    board = Board.create(1, name=fresh())
    limit = 200_000
    writer = multiprocessing.get_context("spawn").Process(target=_count_up, args=(board.name, limit))
    writer.start()
    row, last = board.row(0), 0
    while last < limit - 1 and writer.is_alive():
        value = row.written
        assert value >> 32 == value & 0xFFFFFFFF
        assert value & 0xFFFFFFFF >= last
        last = value & 0xFFFFFFFF
    writer.join()
    assert row.written & 0xFFFFFFFF == limit - 1
    board.retire()


def test_closing_twice_or_with_views_in_use_is_harmless(board: Board) -> None:
    other = Board.private(2)
    row, array = other.row(0), other.words("written")
    other.close()
    row.written = 3
    assert array[0] == 3
