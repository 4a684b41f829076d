"""A child that a signal's handler forks in the middle of an append: whatever it does then, it changes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from penstock.storage.embedded import Log
from penstock.storage.files import File

ARMED, COUNT = -1, 6
MOMENTS = ("before the index row", "before the batch", "behind the batch")


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("commit", ["written", "durable"])
@pytest.mark.parametrize("moment", range(len(MOMENTS)), ids=MOMENTS)
def test_a_child_that_goes_on_with_an_append_leaves_the_log_to_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int, commit: str, leaves: bool
) -> None:
    real, (reading, writing), children = File.pwritev, os.pipe(), []
    until = ARMED

    def step() -> None:
        nonlocal until
        if until == 0:
            children.append(os.fork())
            if children == [0]:  # it comes back when its parent has appended more
                os.close(writing)
                os.read(reading, 1)
                if leaves:
                    raise SystemExit
        until -= 1

    def pwritev(file: File, buffers: Sequence[bytes], position: int) -> None:
        step()
        real(file, buffers, position)
        if until == 0 and moment == len(MOMENTS) - 1:
            step()

    monkeypatch.setattr(File, "pwritev", pwritev)
    with Log(tmp_path / "log", commit=commit) as log:
        log.append(b"0")
        until = moment
        try:
            log.append(b"1")
        finally:
            if children == [0]:
                os._exit(0)
        for number in range(2, COUNT):
            log.append(b"%d" % number)
        os.close(writing)
        os.waitpid(children[0], 0)
        os.close(reading)
        log.append(b"last")
    with Log(tmp_path / "log") as again:
        assert list(again.values()) == [*(b"%d" % number for number in range(COUNT)), b"last"]
    assert not (tmp_path / "log" / "poison").exists()
