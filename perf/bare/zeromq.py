"""Bare ZeroMQ between two processes: the same batches, from the client's own encoder, and no work on them.

Each function returns one sample in the unit of the rows it stands beside. Over tcp it is loopback; CURVE is ZeroMQ's
own encryption, with keys made for the sample.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import zmq
from penstock.storage.batch import encode

from .other_process import peer, socket_path, wait_until

WINDOW = 8  # batches in flight, for penstock and for what is bare alike
RECORDS = 2400  # 100-byte records in a batch of about 256 KiB
BATCH_BYTES = 256 << 10
PACE_S = 0.001

Wire = Literal["ipc", "tcp", "tcp with CURVE"]


def in_a_batch(record_bytes: int) -> int:
    """How many records make a batch of about 256 KiB."""
    return RECORDS if record_bytes == 100 else max(1, BATCH_BYTES // record_bytes)


def dealer_router_records_per_s(values: Sequence[bytes], batch: int = RECORDS, wire: Wire = "ipc") -> float:
    """Send the same batches, by the same encoder, to a ROUTER that only acknowledges each."""
    with _connected(zmq.DEALER, wire, "router") as socket:
        socket.send_multipart([b"warm", b""])
        socket.recv_multipart()
        begun = time.perf_counter()
        flying = 0
        for first in range(0, len(values), batch):
            if flying == WINDOW:
                socket.recv_multipart()
                flying -= 1
            socket.send_multipart([b"produce", encode(values[first : first + batch])])
            flying += 1
        for _ in range(flying):
            socket.recv_multipart()
        return len(values) / (time.perf_counter() - begun)


def push_pull_records_per_s(records: int, record_bytes: int = 100, wire: Wire = "ipc") -> float:
    """Receive ready batches from a PUSH in another process and discard them. The first is not counted."""
    batch = in_a_batch(record_bytes)
    batches = max(1, records // batch)
    with _connected(zmq.PULL, wire, "push", str(batches + 1), str(batch), str(record_bytes)) as socket:
        socket.recv_multipart()
        begun = time.perf_counter()
        for _ in range(batches):
            socket.recv_multipart()
        return batches * batch / (time.perf_counter() - begun)


def one_way_us(rounds: int = 500) -> float:
    """The median of `one_way_ages_ns`."""
    return float(np.median(one_way_ages_ns(rounds))) / 1e3


def one_way_ages_ns(rounds: int = 500) -> np.ndarray:
    """Times from before `send` in one process to after `recv` in another, one message of 100 bytes each PACE_S."""
    with (
        _endpoint("ipc") as address,
        peer("one_way", address, str(rounds)) as receiver,
        zmq.Context() as context,
        context.socket(zmq.PUSH) as socket,
    ):
        socket.connect(receiver.said)
        for _ in range(rounds):
            wait_until(time.perf_counter() + PACE_S)
            socket.send(time.perf_counter_ns().to_bytes(8, "little") + bytes(92))
        return receiver.ages_ns()


@contextmanager
def _connected(kind: int, wire: Wire, role: str, *arguments: str) -> Iterator[zmq.Socket[bytes]]:
    """A socket that is connected to a role of peer.py."""
    public, secret = zmq.curve_keypair() if "CURVE" in wire else (b"", b"")
    with (
        _endpoint(wire) as address,
        peer(role, address, secret.decode(), *arguments) as other,
        zmq.Context() as context,
        context.socket(kind) as socket,
    ):
        socket.linger = 0
        if public:
            socket.curve_serverkey = public
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.connect(other.said)
        yield socket


@contextmanager
def _endpoint(wire: Wire) -> Iterator[str]:
    """The address the peer binds; over tcp, with a free port."""
    with socket_path() as path:
        yield f"ipc://{path}" if wire == "ipc" else "tcp://127.0.0.1:*"
