"""Peers of bare measurements end with them, however they end."""

from __future__ import annotations

import os

import pytest
from support.servers import descendants

from perf.bare.other_process import peer, socket_path


def test_a_peer_says_where_it_listens_and_ends_with_the_block():
    with socket_path() as path, peer("unix_drain", path, "0") as other:
        assert other.said == path
        assert other.process.poll() is None
        other.process.kill()  # it never connects
    assert other.process.returncode is not None


def test_a_peer_that_waits_is_killed_when_the_measurement_fails():
    with pytest.raises(ValueError, match="measured"), socket_path() as path, peer("unix_echo", path) as other:
        raise ValueError("what was measured")
    assert other.process.returncode is not None
    assert other.process.pid not in descendants(os.getpid())


def test_a_peer_that_cannot_begin_is_an_error(capfd):
    with pytest.raises(RuntimeError, match="before it was ready"), peer("unix_echo", "/nowhere/at/all"):
        pass
    assert "FileNotFoundError" in capfd.readouterr().err


def test_a_peer_that_counts_nothing_is_an_error():
    with socket_path() as path, peer("unix_one_way", path, "1") as other:
        other.process.kill()
        with pytest.raises(RuntimeError, match="had counted all"):
            other.ages_ns()
