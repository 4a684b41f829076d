"""A poller tells of sockets and descriptors, and of what a socket holds without its descriptor telling."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from penstock.broker.poller import Poller
from penstock.transport.sockets import Sockets

WAIT_S = 10.0


class Fake:
    """A socket over an eventfd, with what the poller asks set by the test."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.readable = False
        self.patience = float("inf")
        self.refreshed = 0

    def patience_s(self) -> float:
        return self.patience

    def refresh(self) -> None:
        self.refreshed += 1


@pytest.fixture
def poller() -> Iterator[Poller]:
    with closing(Poller()) as made:
        yield made


@pytest.fixture
def fake() -> Iterator[Fake]:
    made = Fake()
    yield made
    os.close(made.fd)


def test_a_plain_descriptor_is_told_by_its_number_until_it_is_removed(poller):
    reader, writer = os.pipe()
    poller.add(reader)
    assert poller.poll(0) == []
    os.write(writer, b"x")
    assert poller.poll(WAIT_S) == [reader]
    assert poller.poll(WAIT_S) == [reader]  # not drained yet
    poller.remove(reader)
    assert poller.poll(0) == []
    os.close(reader)
    os.close(writer)


def test_a_socket_whose_descriptor_tells_is_looked_at(poller, fake):
    poller.add(fake)
    os.eventfd_write(fake.fd, 1)
    assert poller.poll(WAIT_S) == [fake]
    assert fake.refreshed == 1


def test_a_socket_that_holds_something_is_told_at_once_and_so_are_the_others(poller, fake):
    other = Fake()
    poller.add(fake)
    poller.add(other)
    fake.readable = True
    os.eventfd_write(other.fd, 1)
    assert poller.poll(None) == [fake, other]
    os.close(other.fd)


def test_a_socket_without_patience_is_looked_at_though_its_descriptor_is_silent(poller, fake):
    poller.add(fake)
    fake.patience = 0.001
    started = time.monotonic()
    assert poller.poll(WAIT_S) == []
    assert time.monotonic() - started < WAIT_S
    fake.patience = 0.0
    assert poller.poll(WAIT_S) == []
    assert fake.refreshed == 1


@pytest.mark.parametrize("scheme", ["unix", "ipc", "tcp"])
def test_no_message_is_slept_through(poller, tmp_path, scheme):
    """A send takes note of what has come in: the descriptor of a ZeroMQ socket may never tell of that."""
    with Sockets() as sockets:
        server = sockets.server("tcp://127.0.0.1:0" if scheme == "tcp" else f"{scheme}://{tmp_path}/a.sock")
        client = sockets.client(server.endpoints[0])
        poller.add(server)
        while not client.connected:
            poller.poll(0.001)
            client.refresh()
        for number in range(200):
            for _ in range(number % 3 + 1):
                assert client.send([b"%d" % number])
            for _ in range(number % 3 + 1):
                while (found := server.receive()) is None:
                    assert poller.poll(WAIT_S) == [server]
                assert server.send(*found)
                server.flush()
        assert server.receive() is None
