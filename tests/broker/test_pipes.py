"""Lines for readers that may not read: nothing waits for one, and it can tell what it missed."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest
from penstock.broker import pipes as module
from penstock.broker.pipes import PIECE_BYTES, PipeLines

LINE = b"x" * 99 + b"\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The end to read and the end to write."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def filled(lines: PipeLines, writer: int) -> int:
    """Write until there is no room. Returns how many lines there was room for."""
    count = 0
    while lines.write(writer, LINE):
        count += 1
    return count


def test_what_there_is_no_room_for_is_left_out_and_counted(pipe):
    reader, writer = pipe
    lines = PipeLines()
    count = filled(lines, writer)
    assert not lines.write(writer, LINE)
    assert lines.left_out == 2
    assert os.read(reader, 1 << 20) == LINE * count
    assert lines.write(writer, b"again\n")
    assert (lines.left_out, os.read(reader, 1 << 20)) == (0, b"again\n")


def test_a_line_that_is_cut_has_an_end_before_the_next_one(pipe):
    reader, writer = pipe
    lines = PipeLines()
    assert not lines.write(writer, b"y" * (1 << 20) + b"\n")
    cut = os.read(reader, 1 << 20)
    assert cut == b"y" * len(cut)
    assert len(cut) % PIECE_BYTES == 0
    assert lines.write(writer, b"again\n")
    assert lines.write(writer, b"and again\n")
    assert os.read(reader, 1 << 20) == b"\nagain\nand again\n"


def test_another_process_that_fills_the_pipe_meanwhile_holds_nothing_up(pipe, monkeypatch):
    """It does between the look and the write."""
    _, writer = pipe
    lines = PipeLines()
    monkeypatch.setattr(module, "has_room", lambda place, wait_s: True)
    filled(lines, writer)
    assert not lines.write(writer, LINE)
    assert os.get_blocking(writer), "others have it, too"


def test_a_slow_reader_is_waited_for_until_it_did_not_read_once(pipe, monkeypatch):
    reader, writer = pipe
    lines, waits = PipeLines(), list[float]()
    look = module.has_room

    def asked(place: int, wait_s: float) -> bool:
        waits.append(wait_s)
        return look(place, 0.0)

    monkeypatch.setattr(module, "has_room", asked)
    filled(lines, writer)
    assert set(waits) == {module.PATIENCE_S}
    waits.clear()
    assert not lines.write(writer, LINE)
    os.read(reader, 1 << 20)
    assert lines.write(writer, LINE)
    assert lines.write(writer, LINE)
    assert waits == [0.0, 0.0, module.PATIENCE_S]


def test_a_reader_that_has_left_is_an_error_and_a_file_has_room(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with pytest.raises(BrokenPipeError):
            PipeLines().write(writer, LINE)
    finally:
        os.close(writer)
    with open(tmp_path / "log", "wb") as file:
        assert PipeLines().write(file.fileno(), LINE * 2000)
    assert (tmp_path / "log").read_bytes() == LINE * 2000


def test_no_reader_is_waited_for_over_any_descriptor_as_one_that_came_while_many_files_were_open(pipe):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    high = fcntl.fcntl(pipe[1], fcntl.F_DUPFD_CLOEXEC, 1024)  # select() takes those below
    try:
        assert module.has_room(high, 0.0)
        filled(PipeLines(), pipe[1])
        assert not module.has_room(high, 0.0)
    finally:
        os.close(high)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_look_waits_as_long_as_it_is_told_in_milliseconds(pipe, monkeypatch):
    waits = list[float]()

    class Poll:
        def register(self, place: int, events: int) -> None: ...

        def poll(self, wait_ms: float) -> list[tuple[int, int]]:
            waits.append(wait_ms)
            return []

    monkeypatch.setattr(module.select, "poll", Poll)
    assert not PipeLines().write(pipe[1], LINE)
    assert waits == [1000 * module.PATIENCE_S]
