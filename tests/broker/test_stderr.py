"""Saying something to the operator, when nothing takes what is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import penstock.broker
import pytest

SAYS_TWICE = "from penstock.broker.stderr import say; say('one'); say('two'); print('alive', flush=True)"


def run(stderr: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-c", SAYS_TWICE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=60,
    )


def test_lines_are_written_one_by_one() -> None:
    assert run(subprocess.PIPE).stderr == b"one\ntwo\n"


def test_a_reader_that_has_left_ends_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = run(writer)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stdout) == (0, b"alive\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk is played by /dev/full, which is not there")
def test_a_full_disk_ends_nothing() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert run(full).stdout == b"alive\n"
    finally:
        os.close(full)


def test_no_process_of_the_broker_prints_to_standard_error_by_itself() -> None:
    """`__main__` does once, before anything runs."""
    broker = Path(penstock.broker.__file__).parent
    direct = {path.name for path in broker.rglob("*.py") if "file=sys.stderr" in path.read_text()}
    assert direct == {"stderr.py", "__main__.py"}
