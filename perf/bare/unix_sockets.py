"""Bare Unix stream sockets between two processes: the limit of the path of local clients.

Plain socket calls on one connection; batches from the client's own encoder, preceded by their length. The receiver
discards them; an acknowledgement is one byte.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from penstock.storage.batch import encode

from .other_process import Peer, peer, socket_path, wait_until
from .zeromq import PACE_S, RECORDS, WINDOW, in_a_batch

LENGTH_BYTES = 4
PIECE_BYTES = 256 << 10
MESSAGE_BYTES = 100
ROOM_BYTES = 1 << 20
MEMORY_BYTES = 4 << 20
"""More than any batch here has."""


def acknowledged_records_per_s(values: Sequence[bytes], batch: int = RECORDS) -> float:
    """Send the batches and window that bare ZeroMQ gets; each batch is acknowledged on arrival."""
    with _connected("unix_acknowledge") as (_, connection):
        send(connection, b"warm")
        flying = 1 - _acknowledged(connection)
        begun = time.perf_counter()
        for first in range(0, len(values), batch):
            if flying == WINDOW:
                flying -= _acknowledged(connection)
            send(connection, encode(values[first : first + batch]))
            flying += 1
        while flying:
            flying -= _acknowledged(connection)
        return len(values) / (time.perf_counter() - begun)


def delivered_records_per_s(records: int, record_bytes: int = 100) -> float:
    """Receive ready batches from another process and discard them. The first one is not counted."""
    batch, memory = in_a_batch(record_bytes), memoryview(bytearray(MEMORY_BYTES))
    batches = max(1, records // batch)
    with _connected("unix_deliver", str(batches + 1), str(batch), str(record_bytes)) as (_, connection):
        received(connection, memory)
        begun = time.perf_counter()
        for _ in range(batches):
            if not received(connection, memory):
                raise ConnectionError("the bare socket ended before the last batch")
        return batches * batch / (time.perf_counter() - begun)


def one_way_us(rounds: int = 500) -> float:
    """The median of `one_way_ages_ns`."""
    return float(np.median(one_way_ages_ns(rounds))) / 1e3


def one_way_ages_ns(rounds: int = 500) -> np.ndarray:
    """Times from before `send` in one process to after `recv` in another, one message of 100 bytes each PACE_S."""
    with _connected("unix_one_way", str(rounds)) as (receiver, connection):
        for _ in range(rounds):
            wait_until(time.perf_counter() + PACE_S)
            connection.sendall(time.perf_counter_ns().to_bytes(8, "little") + bytes(MESSAGE_BYTES - 8))
        return receiver.ages_ns()


def ping_pong_ns(rounds: int = 5000) -> np.ndarray:
    """Round trips of 100 bytes, back to back."""
    took, message = [], bytes(MESSAGE_BYTES)
    with _connected("unix_echo") as (_, connection):
        for _ in range(rounds):
            begun = time.perf_counter_ns()
            connection.sendall(message)
            if len(connection.recv(MESSAGE_BYTES, socket.MSG_WAITALL)) < MESSAGE_BYTES:
                raise ConnectionError("the echo ended before the last round")
            took.append(time.perf_counter_ns() - begun)
    return np.array(took, dtype=np.int64)


def bulk_mb_per_s(pieces: int = 2000) -> float:
    """Pieces of 256 KiB in one direction, until all of them have arrived."""
    piece = bytes(PIECE_BYTES)
    with _connected("unix_drain", str(pieces * PIECE_BYTES)) as (_, connection):
        begun = time.perf_counter()
        for _ in range(pieces):
            connection.sendall(piece)
        _acknowledged(connection)
        return pieces * PIECE_BYTES / 1e6 / (time.perf_counter() - begun)


def ask_for_room(connection: socket.socket) -> None:
    """Ask the kernel for penstock's buffer sizes; it grants what its administrator allows."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, ROOM_BYTES)


def send(connection: socket.socket, data: bytes | bytearray | memoryview) -> None:
    """Send one batch after its length, in one call; a blocking socket takes all of it."""
    size = len(data)
    if connection.sendmsg([size.to_bytes(LENGTH_BYTES, "little"), data]) != LENGTH_BYTES + size:
        raise ConnectionError("the bare socket took a part of a batch")


def received(connection: socket.socket, memory: memoryview) -> int:
    """Receive the next batch into `memory`; returns its size, 0 at the end."""
    length = int.from_bytes(connection.recv(LENGTH_BYTES, socket.MSG_WAITALL), "little")
    if length and connection.recv_into(memory, length, socket.MSG_WAITALL) != length:
        raise ConnectionError("the bare socket ended within a batch")
    return length


@contextmanager
def _connected(role: str, *arguments: str) -> Iterator[tuple[Peer, socket.socket]]:
    """A role of peer.py, and a connection to it."""
    with (
        socket_path() as path,
        peer(role, path, *arguments) as other,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        ask_for_room(connection)
        connection.connect(path)
        yield other, connection


def _acknowledged(connection: socket.socket) -> int:
    """Wait for acknowledgements; returns how many came."""
    if not (came := len(connection.recv(WINDOW))):
        raise ConnectionError("the bare socket ended before the last acknowledgement")
    return came
