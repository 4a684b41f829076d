"""Whose door a port is, where a broker was looked for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from penstock.transport import other_doors
from penstock.transport.other_doors import door_at
from penstock.transport.url import Url


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def answered(listener: socket.socket, answer: bytes) -> str:
    """What is thought of a listener that reads two lines, and says this."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(64)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        return door_at(Url("tcp", host="127.0.0.1", port=listener.getsockname()[1]))
    finally:
        thread.join()


@pytest.mark.parametrize(
    ("answer", "whose"),
    [
        (b"-NOAUTH Authentication required.\r\n", "--resp"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "--http"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
    ],
)  # fmt: skip
def test_a_door_of_the_gateway_is_recognised(listener: socket.socket, answer: bytes, whose: str) -> None:
    assert whose in answered(listener, answer)


@pytest.mark.parametrize("answer", [b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f", b"", b"SSH-2.0-x\r\n"])
def test_anything_else_is_nothing(listener: socket.socket, answer: bytes) -> None:
    assert answered(listener, answer) == ""


def test_silence_and_a_closed_port_are_nothing(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_doors, "PATIENCE_S", 0.01)
    url = Url("tcp", host="127.0.0.1", port=listener.getsockname()[1])
    assert door_at(url) == ""
    listener.close()
    assert door_at(url) == ""
