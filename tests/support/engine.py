"""A node to play with: the real engine over the real log writer and files in memory, driven by hand.

`Rig.ask` sends one request and turns the loop until it is answered. Nothing happens by itself: time moves by
`pass_time`, syncs happen in `turn` unless `rig.store.hold` is set. `Rig.restart` opens the same files anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from penstock.broker.engine import COLD, Node, NodeConfig, Now
from penstock.broker.rights import Principal
from penstock.storage.batch import Batch, batches, encode
from penstock.storage.errors import Poisoned, StorageFull
from penstock.storage.jobs import InlineJobs
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.log_ids import own_id
from penstock.storage.log_store import LogSettings, LogStore
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.promises import Promises
from penstock.storage.segment_reader import SegmentCache
from penstock.transport import messages as m
from xxhash import xxh3_128_digest

START_US = 1_700_000_000_000_000


class MemoryStore(LogStore):
    """Logs in memory. `hold` keeps the driver from syncing, `lazy` from syncing what is only to be written.

    `failing` makes creating a log fail.
    """

    def __init__(self, files: MemoryFiles | None = None) -> None:
        files = files or MemoryFiles()
        files.mkdir("data/topics")
        super().__init__(
            "data", files, promises=Promises("data/promises", files), cache=SegmentCache(files), jobs=InlineJobs(files),
            max_batch_bytes=LogOptions().max_batch_bytes,
        )  # fmt: skip
        self.hold = self.lazy = False
        self.boot_id = b"boot" * 4  # another one: the machine was started again
        self.failing: Exception | None = None
        self.deleted: list[bytes] = []
        self.snapshots: list[tuple[str, int]] = []

    def create(self, topic: bytes, partition: int, settings: LogSettings) -> LogWriter:
        if self.failing is not None:
            raise self.failing
        return super().create(topic, partition, settings)

    def _new_log_id(self, path: str) -> bytes:
        return own_id(path) or xxh3_128_digest(path.encode())

    def delete(self, topic: bytes) -> None:
        self.deleted.append(topic)
        super().delete(topic)

    def leaves(self, log: LogWriter) -> bool:
        """Whether syncs of this log are left for later, until `hurry`."""
        return self.lazy and log.options.commit == "written"

    def hurry(self, log: LogWriter) -> None:
        if not self.hold and log.poisoned is None:
            with suppress(Poisoned):
                log.sync()

    def save_snapshot(self, log: LogWriter, seq: int, term: int, body: bytes) -> None:
        self.snapshots.append((log.path, seq))
        super().save_snapshot(log, seq, term, body)


class MemoryPort:
    """Keeps what the node sends. `gone` are peers that cannot be reached, `closed` sessions without a connection."""

    def __init__(self) -> None:
        self.sent: list[tuple[Hashable, Any, bytes]] = []
        self.delivered: list[tuple[int, m.Deliver, bytes]] = []
        self.wakes: list[int] = []
        self.awake: set[int] = set()  # mapped readers
        self.open: set[int] = set()
        self.readers: set[tuple[int, str]] = set()
        self.closed: set[int] = set()
        self.gone: set[Hashable] = set()
        self.behind: set[Hashable] = set()
        self.cold: list[Hashable] | None = None  # a list: every read is cold and its token is put here
        self.reads = 0

    def reply(self, peer: Hashable, message: Any, payload: Any = b"") -> bool:
        if peer in self.gone:
            return False
        self.sent.append((peer, message, bytes(payload)))
        return True

    def is_behind(self, peer: Hashable) -> bool:
        return peer in self.behind

    def open_delivery(self, session: int, peer: Any, owner: str = "") -> str:
        self.open.add(session)
        return f"inproc://{session}"

    def deliver(self, session: int, message: m.Deliver, payload: Any) -> bool:
        if session in self.closed:
            return False
        self.delivered.append((session, message, bytes(payload)))
        return True

    def close_delivery(self, session: int) -> None:
        self.open.remove(session)

    def open_wake(self, session: int) -> int:
        self.open.add(session)
        return len(self.open)

    def begin_reading(self, session: int, log: Any) -> None:
        self.readers.add((session, log.path))

    def end_reading(self, session: int, log: Any) -> None:
        assert session in self.open
        self.readers.remove((session, log.path))

    def wake(self, session: int) -> None:
        self.wakes.append(session)

    def asleep(self) -> set[int]:
        return self.open - self.awake

    def close_wake(self, session: int) -> None:
        assert session not in {reader for reader, _ in self.readers}, "its slot would be another's while logs know it"
        self.open.remove(session)

    def stats(self) -> dict[str, Any]:
        return {}

    def read(self, cursor: Any, max_bytes: int, limit_seq: int, token: Hashable) -> Any:
        if self.cold is not None:
            self.cold.append(token)
            return COLD
        self.reads += 1
        return cursor.next(max_bytes, limit_seq)


class Rig:
    """A node, its store and its port."""

    def __init__(self, store: MemoryStore | None = None, *, seed: int = 1, **config: Any) -> None:
        self.store = store or MemoryStore()
        self.port = MemoryPort()
        self.now = Now(START_US, 1000.0)
        self.config = NodeConfig(**config)
        self.random = random.Random(seed)
        self.principal: Principal | None = None  # of what is sent
        self.answers_ahead = False  # of what is applied, as an idle broker does
        self.node = self._open()
        self._request = 0

    def _open(self) -> Node:
        return Node(self.store, self.port, randomness=self.random.randbytes, config=self.config, now=self.now)

    # -- driving ------------------------------------------------------------------------------------

    def turn(self, times: int = 4) -> None:
        """Flush, sync unless held, advance; several times, for what follows from what."""
        for _ in range(times):
            for log in self.node.flush(self.now):
                if not (self.store.hold or self.store.leaves(log)) and log.poisoned is None:
                    with suppress(Poisoned):  # the log says so itself
                        log.sync()
            if self.answers_ahead:
                self.node.answer_ahead()
            self.node.advance(self.now)
            self.node.tick(self.now)

    def refuse_one_append(self, topic: bytes, partition: int = 0) -> None:
        """Let the next append to a partition find the disk full."""
        log = self.node._registry.topics.get(topic).partition(partition).log
        append = log.append

        def full(batches: Any, now_us: int) -> Any:
            log.append = append
            raise StorageFull("no space left")

        log.append = full

    def sync(self) -> None:
        """What a keeper does: make everything durable, then let the node know."""
        for log in self.node.logs:
            log.sync()
        self.turn()

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        """Let time pass in steps, as a driver with a busy loop sees it."""
        end = self.now.monotonic_s + seconds
        while self.now.monotonic_s < end:
            more = min(step, end - self.now.monotonic_s)
            self.now = Now(self.now.wall_us + round(more * 1e6), self.now.monotonic_s + more)
            self.turn(2)

    def restart(self, *, clean: bool = True) -> None:
        """Close (or forget) the node and open the same files again."""
        if clean:
            self.node.close(self.now)
        self.port = MemoryPort()
        self.node = self._open()
        self.turn()

    def resign(self) -> None:
        """Drop the office, and every connection; `advance` opens another once nothing of the old one is in flight."""
        peers = {peer for peer, _, _ in self.port.sent} | {"c"}
        self.node.resign()
        for peer in peers:
            self.node.disconnect(peer)
        assert not self.port.open, f"sessions left {self.port.open} open at the port"
        self.node.advance(self.now)

    def send(self, message: Any, payload: bytes = b"", *, peer: Hashable = "c") -> None:
        """Only receive."""
        self.node.receive(peer, message, payload, self.now, self.principal)

    def next_request(self) -> int:
        self._request += 1
        return self._request

    def answers(self, request: int) -> list[Any]:
        """Everything that answers a request."""
        return [message for _, message, _ in self.port.sent if getattr(message, "request", None) == request]

    def ask(self, type_: Callable[..., Any], *fields: Any, payload: bytes = b"", peer: Hashable = "c") -> Any:
        """Send a request and return its answer; None when it has not come after some turns."""
        request = self.next_request()
        self.send(type_(request, *fields), payload, peer=peer)
        self.turn()
        while not self.answers(request) and self.node.tick(self.now) == 0.0:  # more than some turns take
            self.turn()
        found = self.answers(request)
        assert len(found) <= 1, f"{len(found)} answers to one request: {found}"
        return found[0] if found else None

    # -- the usual ----------------------------------------------------------------------------------

    def topic(self, name: str = "t", partitions: int = 1, **settings: Any) -> bytes:
        """Create a topic and return its id."""
        answer = self.ask(m.CreateTopic, name, partitions, settings)
        assert isinstance(answer, m.Topics), answer
        return answer.topics[0].topic

    def produce(self, topic: bytes, values: list[bytes], partition: int = 0, **how: Any) -> Any:
        """Produce one batch and return the answer."""
        return self.ask(m.Produce, topic, partition, payload=bytes(encode(values, **how)))

    def fetch(self, topic: bytes, offset: int, partition: int = 0, *, term: int = -1, wait_ms: int = 0) -> Any:
        """Fetch and return the answer."""
        return self.ask(m.Fetch, topic, partition, offset, term, 1 << 20, wait_ms)

    def read(self, topic: bytes, partition: int = 0) -> list[bytes]:
        """All values of a partition, as fetches give them."""
        values: list[bytes] = []
        offset = self.partition(topic, partition).first
        while True:
            request = self.next_request()
            self.send(m.Fetch(request, topic, partition, offset, -1, 1 << 16, 0))
            (answer,) = self.answers(request)
            assert isinstance(answer, m.Fetched), answer
            if answer.next_offset == offset:
                return values
            payload = self.port.sent[-1][2]
            values += records(payload, offset)
            offset = answer.next_offset

    def lease(self, topic: bytes, group: str = "g", most: int = 1, **how: Any) -> Any:
        """Lease and return the answer; None when it waits."""
        return self.ask(lambda request: m.Lease(request, topic, group, how.pop("worker", "w"), most, **how))

    def ask_lease(self, topic: bytes, group: str = "g", most: int = 1, *, wait_ms: int = 5000, **how: Any) -> int:
        """Send a Lease that may wait, and return the number of the request."""
        request = self.next_request()
        self.send(m.Lease(request, topic, group, how.pop("worker", "w"), most, wait_ms=wait_ms, **how))
        self.turn()
        return request

    def queue(self, topic: bytes, group: str = "g", partition: int = 0) -> m.QueuePartition:
        """How a queue group stands on a partition."""
        (found,) = self.ask(m.ListQueues, topic, group).queues
        return found.partitions[partition]

    def settle(self, topic: bytes, *settles: m.Settle, group: str = "g") -> list[m.Refusal]:
        """Settle and return what was refused."""
        answer = self.ask(m.SettleTasks, topic, group, list(settles))
        assert isinstance(answer, m.Settled), answer
        return answer.refused

    def partition(self, topic: bytes, partition: int = 0) -> m.Partition:
        """How a partition stands."""
        answer = self.ask(m.ListTopics, [])
        return next(t for t in answer.topics if t.topic == topic).partitions[partition]

    def join(
        self, topic: bytes, group: str = "", member: str = "", *, delivery: str = "push", start: int = m.EARLIEST,
        positions: list[tuple[int, int]] | None = None, credit: tuple[int, int] = (1 << 20, 1 << 20),
        timeout_ms: int = 10_000, peer: Hashable = "c",
    ) -> Any:  # fmt: skip
        """Join and return the answer."""
        return self.ask(m.Join, topic, group, member, delivery, start, positions or [], timeout_ms, *credit, peer=peer)

    def told(self, session: int) -> list[Any]:
        """Everything unasked that a session was told."""
        return [message for _, message, _ in self.port.sent if getattr(message, "session", None) == session]

    def assigned(self, joined: m.Joined) -> dict[int, tuple[int, int]]:
        """Epoch and offset by partition, as the session was told so far."""
        found = {a.partition: (a.epoch, a.offset) for a in joined.assignments}
        for message in self.told(joined.session):
            if isinstance(message, m.Assigned):
                found.update({a.partition: (a.epoch, a.offset) for a in message.assignments})
                for partition in message.revoked:
                    found.pop(partition, None)
        return found

    def deliveries(self, joined: m.Joined) -> list[tuple[m.Deliver, list[bytes]]]:
        """What was delivered to a session: messages and the values meant for it."""
        return [
            (message, records(payload, message.offset, message.next_offset))
            for session, message, payload in self.port.delivered
            if session == joined.session
        ]

    def received(self, joined: m.Joined) -> list[bytes]:
        """All values delivered to a session."""
        return [value for _, values in self.deliveries(joined) for value in values]


def records(payload: bytes, offset: int, limit: int | None = None) -> list[bytes]:
    """Values of the records from `offset` on."""
    found: list[bytes] = []
    for batch in batches(payload):
        found += [value for at, value in placed(batch) if at >= offset and (limit is None or at < limit)]
    return found


def placed(batch: Batch) -> list[tuple[int, bytes]]:
    """Offset and value of a batch's records."""
    return list(enumerate(batch.values(), batch.base_offset))
