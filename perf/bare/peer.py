"""The other process of a measurement: `python -m perf.bare.peer <role> ...`, started through other_process.py.

Each role prints a line when it is ready (where it listens, if it does), what it has counted when it has, and ends when
its standard input closes or the other side is gone.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import posix_ipc
import zmq
from penstock.storage.batch import encode

from . import unix_sockets, wakeups

PATIENCE_S = 30
"""How long a role that is woken in no other way waits for the other side."""

# -- bare ZeroMQ ----------------------------------------------------------------------------------


def router(address: str, secret: str) -> None:
    """Answer every request with its first frame, until the other side is gone."""
    with _bound(zmq.ROUTER, address, secret) as socket:
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(sys.stdin, zmq.POLLIN)
        while sys.stdin.fileno() not in (events := dict(poller.poll())):
            while socket in events and int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                who, header, _ = socket.recv_multipart()
                socket.send_multipart([who, header])


def push(address: str, secret: str, batches: str, records: str, size: str) -> None:
    """Send one encoded batch many times."""
    batch = encode([b"x" * int(size)] * int(records))
    with _bound(zmq.PUSH, address, secret) as socket:
        for _ in range(int(batches)):
            socket.send_multipart([b"deliver", batch])
        until_closed()


def one_way(address: str, rounds: str) -> None:
    """Receive time stamps; print how old they were."""
    with _bound(zmq.PULL, address, "") as socket:
        tell_ages([age_of(socket.recv()) for _ in range(int(rounds))])
        until_closed()


@contextmanager
def _bound(kind: int, address: str, secret: str) -> Iterator[zmq.Socket[bytes]]:
    """A socket that listens and has said where; with CURVE if it has a secret key."""
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.linger = 0
        socket.sndhwm = 64
        if secret:
            socket.curve_server = True
            socket.curve_secretkey = secret.encode()
        socket.bind(address)
        ready(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        yield socket


# -- bare Unix sockets ----------------------------------------------------------------------------


def unix_acknowledge(path: str) -> None:
    """Answer every batch with one byte, as soon as all of it is here."""
    memory = memoryview(bytearray(unix_sockets.MEMORY_BYTES))
    with _accepted(path) as connection:
        while unix_sockets.received(connection, memory):
            connection.sendall(b"a")


def unix_deliver(path: str, batches: str, records: str, size: str) -> None:
    """Send one encoded batch many times."""
    batch = encode([b"x" * int(size)] * int(records))
    with _accepted(path) as connection:
        for _ in range(int(batches)):
            unix_sockets.send(connection, batch)
        until_closed()


def unix_one_way(path: str, rounds: str) -> None:
    """Receive time stamps; print how old they were."""
    with _accepted(path) as connection:
        size = unix_sockets.MESSAGE_BYTES
        tell_ages([age_of(connection.recv(size, socket.MSG_WAITALL)) for _ in range(int(rounds))])
        until_closed()


def unix_echo(path: str) -> None:
    """Echo everything."""
    with _accepted(path) as connection:
        while message := connection.recv(unix_sockets.MESSAGE_BYTES):
            connection.sendall(message)


def unix_drain(path: str, total: str) -> None:
    """Read `total` bytes, then answer with one."""
    memory, left = memoryview(bytearray(unix_sockets.MEMORY_BYTES)), int(total)
    with _accepted(path) as connection:
        while left > 0 and (size := connection.recv_into(memory)):
            left -= size
        connection.sendall(b"a")
        until_closed()


@contextmanager
def _accepted(path: str) -> Iterator[socket.socket]:
    """The one connection to a socket that listens at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1)
        ready(path)
        connection, _ = listener.accept()
        with connection:
            unix_sockets.ask_for_room(connection)
            yield connection


# -- waking up ------------------------------------------------------------------------------------


def semaphore(name: str, shared: str, rounds: str) -> None:
    """Wait for a semaphore; print how old the stamp in shared memory was each time."""
    waited = posix_ipc.Semaphore(name)
    with mmap.mmap(int(shared), mmap.PAGESIZE) as memory, memoryview(memory).cast("q") as stamp:
        ready()
        ages = []
        for _ in range(int(rounds)):
            waited.acquire(timeout=PATIENCE_S)
            ages.append(time.perf_counter_ns() - stamp[0])
        tell_ages(ages)
        until_closed()


def futex(shared: str, rounds: str) -> None:
    """Sleep on the word behind the stamp, as mapped readers do; print how old the stamp was each time."""
    with mmap.mmap(int(shared), mmap.PAGESIZE) as memory, memoryview(memory).cast("q") as stamp:
        slot = wakeups.slot_behind(memory)
        ready()
        ages, last = [], 0
        for _ in range(int(rounds)):
            while stamp[0] == last:
                slot.sleep(PATIENCE_S, lambda seen=last: stamp[0] == seen)
            last = stamp[0]
            ages.append(time.perf_counter_ns() - last)
            stamp[1] = last
        tell_ages(ages)
        until_closed()
        del slot


def eventfd(there: str, back: str, rounds: str) -> None:
    """Answer each event with one; the alarm ends a wait for a process that is gone."""
    signal.alarm(PATIENCE_S)
    ready()
    for _ in range(int(rounds)):
        os.eventfd_read(int(there))
        os.eventfd_write(int(back), 1)
    signal.alarm(0)
    until_closed()


# -- a consumer, a follower -----------------------------------------------------------------------------------


def reader(url: str, topic: str, delivery: str, rounds: str) -> None:
    """A consumer of time stamps; print how old they were."""
    import penstock

    with penstock.connect(url) as client, client.consumer(topic, start="latest", delivery=delivery) as consumer:
        consumer.fetch(max_records=1, wait=0.2)
        ready()
        ages: list[int] = []
        while len(ages) < int(rounds):
            ages += [age_of(record.value) for record in consumer.fetch(max_records=100, wait=5.0)]
        tell_ages(ages)
        until_closed()


def follower(path: str, rounds: str) -> None:
    """Follows a log of time stamps; print how old they were."""
    import penstock

    with penstock.Log(path, read_only=True) as log:
        log.seek("latest")
        ready()
        ages = [age_of(record.value) for record in islice(log.follow(wait=5.0), int(rounds))]
        tell_ages(ages)
        until_closed()


def age_of(stamped: bytes) -> int:
    """Nanoseconds since the time at the start of a message."""
    return time.perf_counter_ns() - int.from_bytes(stamped[:8], "little")


def ready(address: str = "") -> None:
    print(address or "ready", flush=True)


def tell_ages(ages_ns: list[int]) -> None:
    print(json.dumps(ages_ns), flush=True)


def until_closed() -> None:
    sys.stdin.read()


ROLES = {
    role.__name__: role
    for role in (
        router, push, one_way,
        unix_acknowledge, unix_deliver, unix_one_way, unix_echo, unix_drain,
        semaphore, futex, eventfd, reader, follower,
    )
}  # fmt: skip

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
