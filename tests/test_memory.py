"""Tests have their files in memory where there is enough of it, and leave none there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from types import SimpleNamespace

from support import memory
from support.processes import TESTS

KILLED = """
import os, signal, sys
from pathlib import Path
from support.memory import directory_of_run

(directory_of_run(Path(sys.argv[1]), needed=0) / "data").write_bytes(b"much")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_leaves_the_directory_of_another_and_removes_that_of_a_killed_one(tmp_path):
    (tmp_path / "another's").mkdir()
    running = memory.directory_of_run(tmp_path, needed=0)
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=TESTS, check=False)
    assert len(list(tmp_path.glob("*/data"))) == 1
    own = memory.directory_of_run(tmp_path, needed=0)
    assert set(tmp_path.iterdir()) == {tmp_path / "another's", running, own}
    assert own != running


def test_a_run_is_on_the_disk_where_memory_is_small(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3))
    assert memory.directory_of_run(tmp_path, needed=4) is None
    assert memory.directory_of_run(tmp_path, needed=3) is not None
    assert memory.directory_of_run(tmp_path / "missing", needed=0) is None


def test_what_only_looks_like_the_directory_of_a_run_is_left(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{memory.PREFIX}link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{memory.PREFIX}file").touch()
    assert memory.directory_of_run(tmp_path, needed=1 << 60) is None
    assert len(list(tmp_path.iterdir())) == 3
