"""A hostile connection: sends the same requests over and over, as fast as the broker takes them.

`python -m perf.load.hostile SOCKET` obeys each line `FILE reads` or `FILE mute` on its standard input until the next
one: it connects, sends FILE again and again, and reads and drops the answers, or never reads one. It prints a line
when a connection was greeted, and one with the bytes sent when it is closed.

Contract: knows bytes and no messages; FILE begins with the part that is sent once, preceded by a line with its length.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..lab.children import child

READ_BYTES = 1 << 20


class Hostile:
    """Controls a hostile process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @contextmanager
    def firing(self, shots: Path, *, reads: bool) -> Iterator[None]:
        """Fire during the block."""
        self._say(f"{shots} {'reads' if reads else 'mute'}")
        try:
            yield
        finally:
            self._say("cease")

    def _say(self, line: str) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError("the hostile process has ended; its reason is above")


@contextmanager
def hostile(path: str) -> Iterator[Hostile]:
    """Start a process that fires at the socket `path` when told to."""
    with child("perf.load.hostile", path) as process:
        yield Hostile(process)


def write(shots: Path, greeting: bytes, again: bytes) -> None:
    """Write the bytes to be sent once and those to be repeated."""
    shots.write_bytes(b"%d\n" % len(greeting) + greeting + again)


def main(path: str) -> None:
    for line in sys.stdin:
        shots, manner = line.rsplit(maxsplit=1)
        length, _, content = Path(shots).read_bytes().partition(b"\n")
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(path)
            raw.sendall(content[: int(length)])
            raw.recv(READ_BYTES)
            print("greeted", flush=True)
            raw.setblocking(False)
            print(_fire(raw, content[int(length) :], reads=manner == "reads"), flush=True)


def _fire(raw: socket.socket, shots: bytes, *, reads: bool) -> int:
    """Fire until a line comes. Returns how many bytes were sent."""
    sent, left, view, waste = 0, 0, memoryview(shots), bytearray(READ_BYTES)
    while True:
        readable, writable, _ = select.select([sys.stdin, *([raw] if reads else [])], [raw], [])
        if sys.stdin in readable:
            sys.stdin.readline()
            return sent
        try:
            if raw in readable and not raw.recv_into(waste):
                raise RuntimeError("the broker has closed the connection")
            if writable:
                count = raw.send(view[left:])
                sent, left = sent + count, (left + count) % len(shots)
        except BlockingIOError:
            continue


if __name__ == "__main__":
    main(sys.argv[1])
