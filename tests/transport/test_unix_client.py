"""A Unix client connects again by itself, at a pace, and says when it has to be called."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from penstock.transport.errors import CannotListen, InvalidUrl
from penstock.transport.sent import Sent
from penstock.transport.unix_client import RETRY_MAX_S, RETRY_MIN_S, UNSENT_BYTES_MAX, UnixClient
from penstock.transport.unix_server import UnixServer

WAIT_S = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/a.sock"


@pytest.fixture
def client(url: str, clock: Clock) -> Iterator[UnixClient]:
    made = UnixClient(url, clock=clock)
    yield made
    made.close()


def greeted(server: UnixServer, client: UnixClient) -> int:
    """The peer, after a message each way."""
    assert client.send([b"hello"])
    while (found := server.receive()) is None:
        assert select.select([server.fd], [], [], WAIT_S)[0]
        server.refresh()
    assert server.send(found[0], [b"welcome"])
    server.flush()
    while client.receive() is None:
        assert select.select([client.fd], [], [], WAIT_S)[0]
    return found[0]


def test_without_a_listener_it_retries_with_pauses_that_double_up_to_a_bound(client, clock):
    pauses = []
    for _ in range(8):
        pauses.append(client.due() - clock.now)
        clock.now = client.due()
        client.refresh()
    assert pauses == pytest.approx([RETRY_MIN_S * 2**n for n in range(2)] + [RETRY_MAX_S] * 6)
    assert not client.connected


def test_nothing_is_tried_before_it_is_due(client, clock, url):
    server = UnixServer(url)
    client.refresh()
    assert not client.connected
    clock.now = client.due()
    client.refresh()
    assert (client.connected, client.connections, client.due()) == (True, 1, float("inf"))
    server.close()


def test_a_server_that_cuts_off_a_client_it_greeted_is_not_asked_without_a_pause(url, clock):
    server = UnixServer(url)
    client = UnixClient(url, clock=clock)
    greeted(server, client)
    server.cut_off()
    assert select.select([client.fd], [], [], WAIT_S)[0]
    client.refresh()
    assert (client.connected, client.due()) == (False, pytest.approx(clock.now + RETRY_MIN_S))
    client.close()
    server.close()


def test_a_connection_that_worked_is_made_anew_at_once_and_one_that_did_not_after_a_pause(url, clock):
    server = UnixServer(url)
    client = UnixClient(url, clock=clock)
    peer = greeted(server, client)
    server.cut_off()
    clock.now += RETRY_MAX_S
    assert select.select([client.fd], [], [], WAIT_S)[0]
    client.refresh()
    assert (client.connected, client.connections) == (True, 2)
    server.refresh()
    assert client.send([b"junk"])
    while server.receive() is None:
        server.refresh()
    server.cut_off()
    assert select.select([client.fd], [], [], WAIT_S)[0]
    client.refresh()
    assert not client.connected
    assert client.due() == pytest.approx(clock.now + RETRY_MIN_S)
    assert server.lost()[0] == peer
    client.close()
    server.close()


def test_a_server_that_reads_slowly_is_sent_no_more_until_it_has_read(url):
    server = UnixServer(url)
    client = UnixClient(url)
    taken = 0
    while client.send([b"x", bytes(1 << 20)]) is Sent.TAKEN:
        taken += 1
        assert taken < 200
    assert taken > UNSENT_BYTES_MAX >> 20
    got = 0
    while got < taken:
        server.refresh()
        while server.receive() is not None:
            got += 1
        client.refresh()
    assert client.send([b"x"]) is Sent.TAKEN
    server.close()
    client.close()


def test_what_arrived_before_the_server_ended_is_received(url):
    server = UnixServer(url)
    client = UnixClient(url)
    peer = greeted(server, client)
    assert server.send(peer, [b"last words"])
    server.flush()
    server.close()
    assert client.poll(WAIT_S)
    assert client.receive() == [b"last words"]
    client.refresh()
    assert not client.connected


def test_any_thread_may_wake_the_waiter(client):
    threading.Timer(0.01, client.wake).start()
    assert select.select([client.fd], [], [], WAIT_S)[0]
    client.refresh()
    assert not select.select([client.fd], [], [], 0)[0]
    client.close()
    client.wake()
    client.close()


def test_a_wake_is_over_after_a_look_also_when_a_message_came_with_it(url):
    server = UnixServer(url)
    client = UnixClient(url)
    peer = greeted(server, client)
    assert client.receive() is None
    server.send(peer, [b"more"])
    server.flush()
    client.wake()
    assert client.receive() == [b"more"]
    assert not select.select([client.fd], [], [], 0)[0]
    client.close()
    server.close()


class CountingEpoll:
    """An epoll that counts how often it is asked."""

    def __init__(self, epoll: select.epoll) -> None:
        self.asked = 0
        self._epoll = epoll

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        self.asked += 1
        return self._epoll.poll(timeout)

    def __getattr__(self, name: str) -> object:
        return getattr(self._epoll, name)


def test_what_came_is_read_without_being_asked_for_before(url, monkeypatch):
    server = UnixServer(url)
    client = UnixClient(url)
    peer = greeted(server, client)
    assert client.receive() is None
    counting = CountingEpoll(client._epoll)
    monkeypatch.setattr(client, "_epoll", counting)
    server.send(peer, [b"more"])
    server.flush()
    assert client.receive() == [b"more"]
    assert client.receive() is None
    assert counting.asked == 0
    client.wake()
    client.refresh()
    assert counting.asked == 1
    client.close()
    server.close()


def test_waiting_ends_in_time_and_with_a_connection(url):
    client = UnixClient(url)
    assert not client.poll(0.01)
    server = UnixServer(url)
    assert client.poll(WAIT_S)
    assert client.connected
    server.close()
    client.close()


@pytest.fixture
def exhausted(monkeypatch):
    """`exhausted(call)`: that way to a descriptor is closed until the patch is undone."""

    def refuse(*how, **more):
        raise OSError(errno.EMFILE, "Too many open files")

    return lambda module, name: monkeypatch.setattr(module, name, refuse)


def test_without_descriptors_a_connection_is_tried_again_when_it_is_due(url, clock, exhausted, monkeypatch):
    server = UnixServer(url)
    client = UnixClient(url, clock=clock)
    greeted(server, client)
    exhausted(socket, "socket")
    server.cut_off()
    assert select.select([client.fd], [], [], WAIT_S)[0]
    client.refresh()
    assert not client.connected
    assert client.due() == pytest.approx(clock.now + RETRY_MIN_S)
    monkeypatch.undo()
    clock.now = client.due()
    client.refresh()
    assert client.connected
    client.close()
    server.close()


@pytest.mark.parametrize(("module", "name"), [(select, "epoll"), (os, "eventfd")])
def test_a_client_that_gets_no_descriptors_says_so(url, exhausted, module, name):
    exhausted(module, name)
    with pytest.raises(CannotListen, match="ulimit -n"):
        UnixClient(url)


class Interrupted:
    """A socket; Ctrl-C comes right after a call of it did its work."""

    def __init__(self, real, name):
        self._real, self._name = real, name

    def __getattr__(self, name):
        found = getattr(self._real, name)
        if name != self._name:
            return found

        def interrupted(*how):
            found(*how)
            raise KeyboardInterrupt

        return interrupted


@pytest.mark.parametrize("call", ["send", "recv_into"])
def test_an_interrupt_with_bytes_half_accounted_for_ends_the_connection(url, clock, call):
    server = UnixServer(url)
    client = UnixClient(url, clock=clock)
    peer = greeted(server, client)
    clock.now += RETRY_MAX_S
    connection = client._connection
    connection._socket = Interrupted(connection._socket, call)
    assert server.send(peer, [b"answer"])
    server.flush()
    with pytest.raises(KeyboardInterrupt):
        client.send([b"once"]) if call == "send" else client.refresh()
    client.break_off()
    connection._socket = connection._socket._real
    for _ in range(2):  # what came before is read first
        assert client.connections == 2 or select.select([client.fd], [], [], WAIT_S)[0]
        client.refresh()
    assert (client.connected, client.connections) == (True, 2)
    client.close()
    server.close()


def test_an_address_that_cannot_be_is_refused():
    with pytest.raises(InvalidUrl):
        UnixClient("unix://relative")


def test_a_message_that_leaves_with_those_that_waited_ends_the_wait_for_room(url: str, clock: Clock):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(url.removeprefix("unix://"))
        listener.listen()
        client = UnixClient(url, clock=clock)
        server, _ = listener.accept()
        with server:
            assert client._connection is not None
            while not client._connection.stalled:
                assert client.send([bytes(1 << 16)])
            while client._connection.stalled:
                server.recv(1 << 20)
                assert client.send([b"one more"])
            while select.select([server], [], [], 0)[0]:
                server.recv(1 << 20)
            assert not select.select([client.fd], [], [], 0)[0], "it would be looked at for ever"
            client.close()


# -- several messages at once ------------------------------------------------------------------------------


def heard(server: UnixServer) -> list[bytes]:
    """What is there now."""
    server.refresh()
    found = []
    while (received := server.receive()) is not None:
        found.append(b"".join(bytes(frame) for frame in received[1]))
    return found


def test_what_is_sent_together_leaves_at_the_end_of_the_block(url):
    server = UnixServer(url)
    client = UnixClient(url)
    greeted(server, client)
    with client.together():
        assert client.send([b"one"]) is Sent.TAKEN
        assert client.send([b"two"]) is Sent.TAKEN
        assert heard(server) == []
    assert heard(server) == [b"one", b"two"]
    assert client.send([b"three"]) is Sent.TAKEN
    assert heard(server) == [b"three"]
    client.close()
    server.close()


def test_an_error_in_the_block_keeps_nothing_from_leaving(url):
    server = UnixServer(url)
    client = UnixClient(url)
    greeted(server, client)
    with suppress(KeyboardInterrupt), client.together():
        client.send([b"one"])
        raise KeyboardInterrupt
    assert heard(server) == [b"one"]
    client.close()
    server.close()


def test_a_block_that_was_kept_from_its_end_ends_with_the_next_look(url):
    server = UnixServer(url)
    client = UnixClient(url)
    greeted(server, client)
    interrupted = client.together()
    interrupted.__enter__()
    client.send([b"one"])
    assert heard(server) == []
    client.refresh()
    assert heard(server) == [b"one"]
    client.send([b"two"])
    assert heard(server) == [b"two"]
    client.close()
    server.close()


def test_a_block_without_a_connection_or_a_message_does_nothing(url):
    client = UnixClient(url)
    with client.together():
        assert client.send([b"one"]) is Sent.FULL
    server = UnixServer(url)
    client.close()
    client = UnixClient(url)
    greeted(server, client)
    with client.together():
        pass
    assert heard(server) == []
    client.close()
    server.close()
