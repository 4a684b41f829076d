"""Clients over tcp:// and mem:// on systems that are not Linux."""

from __future__ import annotations

import subprocess
import sys

import pytest
from penstock.clients.connection.readiness import EpollFront, SelectFront, waiting
from penstock.transport.bell import EventBell, SocketBell
from support.processes import TESTS


@pytest.mark.parametrize("scheme", ["tcp", "mem"])
def test_a_client_needs_nothing_of_linux(serving, topic, scheme) -> None:
    """What it must not need is hidden from a real process, which talks to a real broker."""
    listening: list[str] = serving.ready["listen"]
    url = next((address for address in listening if address.startswith(scheme)), "mem://here")
    command = [sys.executable, "-m", "support.elsewhere", url, topic]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) == 5
    assert all("needs Linux" in sentence and "tcp://" in sentence for sentence in said)


@pytest.mark.parametrize("kind", [EventBell, SocketBell])
def test_a_bell_is_heard_until_it_is_hushed(kind) -> None:
    bell = kind()
    heard = waiting(bell.fileno())
    assert not heard(0)
    for _ in range(3):
        bell.ring()
    assert heard(None)
    bell.hush()
    assert not heard(0)
    bell.hush()
    bell.close()


@pytest.mark.parametrize("kind", [EpollFront, SelectFront])
def test_a_front_tells_of_each_that_is_readable_until_it_is_not(kind) -> None:
    front, bells = kind(), [SocketBell() for _ in range(3)]
    heard = waiting(front.fileno())
    for bell in bells:
        front.add(bell.fileno())
    assert front.ready() == []
    for bell in bells[:2]:
        bell.ring()
    assert heard(10_000)
    assert sorted(front.ready()) == sorted(bell.fileno() for bell in bells[:2])
    assert heard(10_000), "they still are"
    bells[0].hush()
    front.remove(bells[1].fileno())
    bells[1].close()
    assert front.ready() == []
    bells[2].ring()
    assert heard(10_000)
    assert front.ready() == [bells[2].fileno()]
    front.close()
    bells[0].close()
    bells[2].close()
