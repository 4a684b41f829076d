"""Listeners that hang up on a client without a key: those that want one, and those that are none of ours."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from penstock.transport.url import connect_url
from penstock.transport.zmq_connecting import KEY_NEEDED, ClientSocket
from penstock.transport.zmq_greeting import GreetingSocket
from penstock.transport.zmq_sockets import Context

WAIT_S = 10.0
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING_BYTES = 64


def greeting(mechanism: bytes) -> bytes:
    return (SIGNATURE + b"\x03\x01" + mechanism.ljust(20, b"\0")).ljust(GREETING_BYTES, b"\0")


def hurried(mechanism: bytes) -> Callable[[socket.socket], None]:
    """A listener that reads the whole greeting of its peer before it sends the end of its own, if that comes."""

    def serve(peer: socket.socket) -> None:
        whole = greeting(mechanism)
        peer.sendall(whole[:11])
        heard = b""
        peer.settimeout(0.2)
        with suppress(TimeoutError):
            while len(heard) < GREETING_BYTES:
                if not (some := peer.recv(GREETING_BYTES)):
                    return
                heard += some
            return
        peer.sendall(whole[11:])
        peer.settimeout(WAIT_S)
        peer.recv(1)

    return serve


def until(is_so: Callable[[], Any], client: ClientSocket) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        client.poll(WAIT_S)


def hangs_up(peer: socket.socket) -> None:
    """What takes a connection for a broker that is not there."""


class Listener:
    """Serves each connection in turn, in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.taken = 0
        self._serve = serve
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                self.taken += 1
                threading.Thread(target=self._one, args=(peer,), daemon=True).start()

    def _one(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            self._serve(peer)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S)
        self.listener.close()


@pytest.fixture
def listening() -> Iterator[Callable[[Callable[[socket.socket], None]], Listener]]:
    made: list[Listener] = []

    def make(serve: Callable[[socket.socket], None]) -> Listener:
        made.append(Listener(serve))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_broker_that_hangs_up_before_it_has_said_so_wants_a_key(context: Context, listening: Callable):
    client = context.client(listening(hurried(b"CURVE")).url)
    until(lambda: client.refusal, client)
    assert client.refusal == KEY_NEEDED
    assert context.open == {client}, "the second connection is closed"


def test_what_only_hangs_up_is_asked_again_and_again(context: Context, listening: Callable):
    """A proxy, for example, in front of a broker that starts."""
    listener = listening(hangs_up)
    client = context.client(listener.url)
    until(lambda: listener.taken >= 12, client)
    assert client.refusal == ""
    client.close()
    assert context.open == set()


def test_a_listener_that_says_more_than_a_greeting_is_not_read_to_its_end(context: Context, listening: Callable):
    asked = GreetingSocket(context, connect_url(listening(lambda peer: peer.sendall(bytes(8 << 20))).url))
    while not asked._said:
        assert asked.raw.poll(WAIT_S * 1000)
        assert not asked.wants_key()
    read = len(asked._said)
    assert asked.raw.poll(WAIT_S * 1000), "more comes"
    assert not asked.wants_key()
    assert len(asked._said) == read < 1 << 16


@pytest.mark.parametrize(("mechanism", "wants"), [(b"CURVE", True), (b"NULL", False), (b"CURVES", False)])
def test_the_greeting_names_what_is_wanted(context: Context, listening: Callable, mechanism: bytes, wants: bool):
    begun = threading.Event()

    def serve(peer: socket.socket) -> None:
        peer.sendall(greeting(mechanism)[:11])
        assert begun.wait(WAIT_S)
        peer.sendall(greeting(mechanism)[11:])
        peer.settimeout(WAIT_S)
        while peer.recv(GREETING_BYTES):
            """To close with something unread would take back what was sent."""

    asked = GreetingSocket(context, connect_url(listening(serve).url))
    assert not asked.wants_key(), "nothing has come yet that names it"
    begun.set()
    while len(asked._said) < 32:
        assert asked.raw.poll(WAIT_S * 1000)
        found = asked.wants_key()
    assert found is wants
