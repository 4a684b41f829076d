"""A path to listen at is claimed by one process at a time, and waits for its lock are bounded."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from penstock.transport import ipc_paths
from penstock.transport.errors import CannotListen


def test_a_foreign_lock_on_the_directory_is_an_error_and_no_wait_for_ever(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ipc_paths, "CLAIM_PATIENCE_S", 0.05)
    foreign = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(foreign, fcntl.LOCK_SH)
    with pytest.raises(CannotListen, match=f"locked {tmp_path}.*another directory"), ipc_paths.claimed(f"{tmp_path}/s"):
        pytest.fail("the directory is another process's")
    os.close(foreign)
    with ipc_paths.claimed(f"{tmp_path}/s"):
        assert not Path(f"{tmp_path}/s").exists()
