"""Clients that put a cluster under load, each a thread with a client of its own, and note what was acknowledged.

Contract: `finish` waits until what was sent is answered, and raises what went wrong. A thread ends with its `with`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import penstock
from penstock.clients.cluster import cluster_state
from support.checker import Sent, name
from support.cluster import ClusterProcesses

PATIENCE_S = 60.0


class Loading:
    """A thread that does something over and over until it is told to finish."""

    def __init__(self, url: str) -> None:
        self.done = 0
        """How often it was done."""
        self._moved = threading.Condition()
        self._ended = threading.Event()
        self._failed: BaseException | None = None
        self._url = url
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Loading:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            with penstock.connect(self._url, timeout=PATIENCE_S) as client:
                self.prepare(client)
                while not self._ended.is_set():
                    self.once()
                    with self._moved:
                        self.done += 1
                        self._moved.notify_all()
        except BaseException as error:
            self._failed = error
            with self._moved:
                self._moved.notify_all()

    def prepare(self, client: penstock.Client) -> None:
        raise NotImplementedError

    def once(self) -> None:
        raise NotImplementedError

    def more(self, count: int = 1) -> None:
        """Wait until it was done so many times more."""
        with self._moved:
            aim = self.done + count
            assert self._moved.wait_for(lambda: self.done >= aim or self._failed, PATIENCE_S), f"stuck at {self.done}"
        self._check()

    def _check(self) -> None:
        if self._failed is not None:
            raise AssertionError(f"{type(self).__name__} failed after {self.done}") from self._failed

    def finish(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        self._check()

    def __enter__(self) -> Any:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._ended.set()
        if kind is None:
            self.finish()


class Sender(Loading):
    """Sends numbered records to one partition, `window` at a time, and notes what was acknowledged."""

    def __init__(self, url: str, topic: str, label: str, partition: int = 0, window: int = 1) -> None:
        super().__init__(url)
        self.label = label
        self.sent = Sent()
        self._topic, self._partition, self._window = topic, partition, window
        self._producer: Any = None

    def prepare(self, client: penstock.Client) -> None:
        self._producer = client.producer(self._topic)

    def once(self) -> None:
        first = self.sent.sent
        self.sent.sent += self._window
        values = [name(self.label, number) for number in range(first, self.sent.sent)]
        if self._window == 1:
            self._producer.send(values[0], partition=self._partition)
        else:
            self._producer.send_many(values, partition=self._partition)
        self.sent.acknowledged.update(range(first, self.sent.sent))


class Repeating(Loading):
    """Does what `make` gives for a client, over and over."""

    def __init__(self, url: str, make: Callable[[penstock.Client], Callable[[], None]]) -> None:
        super().__init__(url)
        self._make = make
        self._what: Callable[[], None] = lambda: None

    def prepare(self, client: penstock.Client) -> None:
        self._what = self._make(client)

    def once(self) -> None:
        self._what()


def are_whole(cluster: ClusterProcesses, numbers: Collection[int]) -> bool:
    """Whether a leader says that nodes have all that is there."""
    state = cluster_state(cluster.urls, PATIENCE_S)
    return state.leader == state.node and all(
        each.role == "leader" or (each.state == "replicating" and not each.lag)
        for each in state.members
        if each.node in numbers
    )


def stored(url: str, topic: str, partitions: int) -> list[list[bytes]]:
    """What the partitions hold, each in order."""
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    with penstock.connect(url, timeout=PATIENCE_S) as client:
        ends = client.offsets(topic, "latest")
        with client.consumer(topic) as consumer:
            while any(len(found[partition]) < end for partition, end in ends.items()):
                records = consumer.fetch(wait=PATIENCE_S)
                assert records, f"nothing comes any more after {[len(each) for each in found]} of {ends}"
                for record in records:
                    found[record.partition].append(record.value or b"")
    return found
