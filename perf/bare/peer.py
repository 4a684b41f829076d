"""The other process of a measurement: `python -m perf.bare.peer <role> ...`, started by limits.py and the benches.

Each role prints a line when it is ready, its figure when it has one, and ends when its standard input closes.
"""

from __future__ import annotations

import statistics
import sys
import time

import zmq
from penstock.storage.batch import encode


def router(address: str) -> None:
    """Answer every request with its first frame, until the other side is gone."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(address)
        ready()
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(sys.stdin, zmq.POLLIN)
        while sys.stdin.fileno() not in (events := dict(poller.poll())):
            while socket in events and socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                who, header, _ = socket.recv_multipart()
                socket.send_multipart([who, header])


def push(address: str, batches: str, records: str) -> None:
    """Send one encoded batch many times."""
    batch = encode([b"x" * 100] * int(records))
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.linger = 0
        socket.sndhwm = 64
        socket.bind(address)
        ready()
        for _ in range(int(batches)):
            socket.send_multipart([b"deliver", batch])
        until_closed()


def one_way(address: str, rounds: str) -> None:
    """Receive time stamps; print the median of how old they were, in microseconds."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.bind(address)
        ready()
        ages = []
        for _ in range(int(rounds)):
            message = socket.recv()
            ages.append(time.perf_counter_ns() - int.from_bytes(message[:8], "little"))
        tell(statistics.median(ages) / 1e3)
        until_closed()


def reader(url: str, topic: str, delivery: str, rounds: str) -> None:
    """A consumer of time stamps; print the median of how old they were, in microseconds."""
    import penstock

    with penstock.connect(url) as client, client.consumer(topic, start="latest", delivery=delivery) as consumer:
        consumer.fetch(max_records=1, wait=0.2)
        ready()
        ages: list[int] = []
        while len(ages) < int(rounds):
            for record in consumer.fetch(max_records=100, wait=5.0):
                ages.append(time.perf_counter_ns() - int.from_bytes(record.value[:8], "little"))
        tell(statistics.median(ages) / 1e3)
        until_closed()


def ready() -> None:
    print("ready", flush=True)


def tell(figure: float) -> None:
    print(figure, flush=True)


def until_closed() -> None:
    sys.stdin.read()


ROLES = {"router": router, "push": push, "one_way": one_way, "reader": reader}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
