"""Closed loops of HTTP requests, in a process of its own: each connection sends its next request when it is answered.

    python -m perf.load.http_loop PORT CONNECTIONS SECONDS PATH MEDIA_TYPE < body

Contract: prints the requests that were answered with a 2xx, a second; any other answer ends it with an error. It uses
plain sockets: a client library would take more processor time than the server.
"""

from __future__ import annotations

import re
import selectors
import socket
import subprocess
import sys
import time

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class Connection:
    """One connection with one request on its way."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self._request = request
        self._seen = b""
        self.body = b""

    def ask(self) -> None:
        """Send the request."""
        self._seen = b""
        self.socket.sendall(self._request)

    def answered(self) -> bool:
        """Take what is there; whether the answer is complete."""
        self._seen += self.socket.recv(1 << 16)
        head, separator, body = self._seen.partition(b"\r\n\r\n")
        if not separator:
            return False
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(self._seen.decode())
        length = _LENGTH.search(head + b"\r\n")
        self.body = body
        return len(body) >= (int(length[1]) if length else 0)


def request(method: str, path: str, media_type: str, body: bytes) -> bytes:
    """A request as it is sent."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n"
    )
    return f"{head}\r\n".encode() + body


def loop(port: int, connections: int, seconds: float, sent: bytes) -> float:
    """Requests a second."""
    count = 0
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            each = Connection(port, sent)
            selector.register(each.socket, selectors.EVENT_READ, each)
            each.ask()
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            for key, _ in selector.select(1.0):
                if key.data.answered():
                    count += 1
                    key.data.ask()
        return count / (time.monotonic() - began)


def rate(port: int, connections: int, seconds: float, path: str, media_type: str, body: bytes) -> float:
    """The same in a process of its own."""
    arguments = [str(port), str(connections), str(seconds), path, media_type]
    command = [sys.executable, "-m", "perf.load.http_loop", *arguments]
    return float(subprocess.run(command, input=body, capture_output=True, check=True).stdout)


if __name__ == "__main__":
    _port, _connections, _seconds, _path, _media_type = sys.argv[1:]
    _sent = request("POST", _path, _media_type, sys.stdin.buffer.read())
    print(loop(int(_port), int(_connections), float(_seconds), _sent))
