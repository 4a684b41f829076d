"""Programs that put a broker under load and write down what they saw: `python -m support.load ROLE ...`.

    producer URL TOPIC PARTITION NAME JOURNAL     sends until SIGTERM, then waits for the last answers
    consumer URL TOPIC GROUP MEMBER JOURNAL       reads as a member of a group until SIGTERM

Idea: each is a separate process so that it may be killed or stopped at any instant; its journal is written before
it acts on what it notes (an intention before sending, a delivery before its commit), one write per entry.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from typing import Any

from penstock.storage.batch import batches, encode
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.consumer_session import ConsumerSession, Delivery
from penstock.transport.errors import DeliveryGap
from penstock.transport.producer_session import ProducerSession
from penstock.transport.sockets import Sockets
from penstock.transport.zmq_connecting import PullSocket
from support.checker import name

RECORDS = 10
"""Per batch."""

CREDIT_RECORDS = 200
CREDIT_BYTES = 64 << 10
RETRY_S = 0.05
PULL_S = 0.02
"""How long a consumer waits for its socket before it looks at what was pushed."""

SIGN_OF_LIFE_S = 0.5


class Journal:
    """Append only; an entry that was written survives the process."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, *lines: str) -> None:
        os.write(self._descriptor, "".join(f"{line}\n" for line in lines).encode())


class Ending:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True


class Producer:
    """Sends numbered records to one partition through a window, again after every new connection."""

    def __init__(self, url: str, topic: bytes, partition: int, label: str, journal: Journal) -> None:
        self._sockets = Sockets()
        self._socket = self._sockets.client(url)
        self._session = ProducerSession(secrets.randbits(63) | 1, window_batches=16)
        self._topic, self._partition, self._label = topic, partition, label
        self._journal = journal
        self._connections = self._request = 0
        self._not_before = 0.0

    def run(self, ending: Ending) -> None:
        while not ending.asked or len(self._session):
            if not ending.asked and self._session.has_room(4096):
                self._add()
            self._send()
            self._socket.poll(0.0 if self._session.has_room(4096) and not ending.asked else 0.05)
            if self._socket.connections != self._connections:
                self._connections = self._socket.connections
                self._session.lost()
            self._receive()

    def _add(self) -> None:
        session, first = self._session, self._session.next_sequence
        self._journal.note(f"sent {first + RECORDS}")
        values = [name(self._label, number) for number in range(first, first + RECORDS)]
        session.add(encode(values, producer_id=session.producer_id, first_sequence=first), RECORDS)

    def _send(self) -> None:
        if not self._socket.connected or time.monotonic() < self._not_before:
            return
        while (batch := self._session.to_send()) is not None:
            message = m.Produce(self._request + 1, self._topic, self._partition)
            if not self._socket.send(codec.frames(message, batch.batch)):
                return
            self._request += 1
            self._session.sent(batch, self._request)

    def _receive(self) -> None:
        while (received := self._socket.receive()) is not None:
            answer, _ = codec.decode_answer(received)
            if isinstance(answer, m.Failure):
                self._not_before = time.monotonic() + RETRY_S
                self._session.failed(answer)
            else:
                self._session.produced(answer)
            while self._session.settled:
                done = self._session.settled.popleft()
                assert done.produced is not None, f"{self._label}: {answer}"
                self._journal.note(f"acknowledged {done.first_sequence} {done.count}")


class Consumer:
    """Reads as one member, writes down what it was given, commits."""

    def __init__(self, url: str, topic: bytes, group: str, member: str, journal: Journal, delivery: str) -> None:
        self._sockets = Sockets()
        self._socket = self._sockets.client(url)
        self._topic, self._group, self._member, self._delivery = topic, group, member, delivery
        self._journal = journal
        self._session: ConsumerSession | None = None
        self._pull: PullSocket | None = None
        self._connections = self._request = self._joining = 0
        self._commits: dict[int, list[m.Position]] = {}
        self._join_at = self._alive_at = 0.0

    def run(self, ending: Ending) -> None:
        while not ending.asked:
            now = time.monotonic()
            if self._socket.connections != self._connections:
                self._connections = self._socket.connections
                self._forget()
            if self._socket.connected and self._session is None and now >= self._join_at:
                self._join(now)
            if self._session is not None and now >= self._alive_at:
                self._alive_at = now + SIGN_OF_LIFE_S
                self._send(self._session.sign_of_life())
            self._socket.poll(PULL_S)
            for socket in (self._socket, self._pull):
                self._drain(socket)

    def _join(self, now: float) -> None:
        self._join_at = now + 1.0
        self._joining = self._request = self._request + 1
        self._send(
            m.Join(
                self._joining, self._topic, self._group, self._member, self._delivery, m.EARLIEST, [], 3000,
                CREDIT_BYTES, CREDIT_RECORDS,
            )
        )  # fmt: skip

    def _forget(self) -> None:
        """The session is over: join again."""
        self._session, self._join_at = None, 0.0
        self._commits.clear()
        if self._pull is not None:
            self._pull.close()
            self._pull = None

    def _send(self, message: Any) -> None:
        self._socket.send(codec.frames(message))

    def _drain(self, socket: Any) -> None:
        while (
            socket is not None and socket in (self._socket, self._pull) and (received := socket.receive()) is not None
        ):
            self._take(*codec.decode_answer(received))

    def _take(self, answer: Any, payload: Any) -> None:
        if isinstance(answer, m.Joined) and answer.request == self._joining:
            self._forget()
            self._session = ConsumerSession(answer, window_bytes=CREDIT_BYTES, window_records=CREDIT_RECORDS)
            if answer.endpoint:
                self._pull = self._sockets.zmq.pull(answer.endpoint)
            return
        session = self._session
        if isinstance(answer, m.Failure):
            self._failed(answer)
        elif session is None:
            return
        elif isinstance(answer, m.Deliver):
            try:
                self._handle(session, session.receive(answer, payload))
            except DeliveryGap:
                self._forget()
        elif isinstance(answer, m.Assigned):
            self._handle(session, session.assigned(answer))
            if session.revoked:
                self._send(session.release(session.revoked))
        elif isinstance(answer, m.Evicted) and answer.session == session.session:
            self._forget()
        elif isinstance(answer, m.Done):
            session.committed(self._commits.pop(answer.request, []))

    def _failed(self, failure: m.Failure) -> None:
        if failure.request == self._joining:
            self._join_at = time.monotonic() + RETRY_S
        elif self._commits.pop(failure.request, None) is not None and failure.code != "fenced":
            self._forget()

    def _handle(self, session: ConsumerSession, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            lines: list[str] = []
            for batch in batches(delivery.payload):
                for place, value in enumerate(batch.values() if batch.record_count else []):
                    offset = batch.base_offset + place
                    if delivery.offset <= offset < delivery.next_offset:
                        lines.append(f"{delivery.partition} {offset} {value.decode()}")
            self._journal.note(*lines)
            session.handed_out(delivery)
            session.finished(delivery)
        positions = session.to_commit() if deliveries else []
        if positions:
            self._request += 1
            self._commits[self._request] = positions
            self._send(m.Commit(self._request, session.session, self._topic, self._group, positions))
        if (credit := session.credit_due()) is not None:
            self._send(credit)


def main(arguments: list[str]) -> None:
    role, url, topic, *rest = arguments
    ending = Ending()
    if role == "producer":
        partition, label, journal = rest
        Producer(url, bytes.fromhex(topic), int(partition), label, Journal(journal)).run(ending)
    else:
        group, member, journal, delivery = rest
        Consumer(url, bytes.fromhex(topic), group, member, Journal(journal), delivery).run(ending)


if __name__ == "__main__":
    main(sys.argv[1:])
