"""In which order a turn's deliveries and answers leave: readers first, and each peer's messages in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import pytest
from penstock.broker.poller import Poller
from penstock.broker.port import SocketPeer, SocketPort
from penstock.transport import codec
from penstock.transport.messages import Assigned, Assignment, Deliver, Done, Evicted, Fetched, Joined, Produced
from penstock.transport.sent import Sent
from penstock.transport.sockets import Sockets

WAIT_S = 10.0

READER, PRODUCER = SocketPeer(0, 7), SocketPeer(0, 8)
BATCH = b"batch"


class RecordingServer:
    """A server that keeps what it is given and in which order it was let go."""

    def __init__(self) -> None:
        self.behind = False
        self.full: set[str] = set()
        self.events: list[Any] = []
        self.disconnected: list[int] = []
        self._put: list[Any] = []

    def is_behind(self, identity: int) -> bool:
        return self.behind

    def send(self, identity: int, frames: Sequence[bytes]) -> Sent:
        message, _ = codec.decode_answer(frames)
        if type(message).__name__ in self.full:
            return Sent.FULL
        self._put.append((identity, type(message).__name__))
        return Sent.TAKEN

    def disconnect(self, identity: int) -> None:
        self.disconnected.append(identity)

    def flush(self) -> None:
        self.events += [*self._put, "flush"] if self._put else []
        self._put = []


@pytest.fixture
def server() -> RecordingServer:
    return RecordingServer()


@pytest.fixture
def port(server: RecordingServer) -> SocketPort:
    unused = cast("Any", None)
    return SocketPort(unused, [cast("Any", server)], unused, unused)


def deliver(number: int) -> Deliver:
    return Deliver(1, number, 0, 1, 0, 1, 1, 1)


def test_a_delivery_is_gone_before_another_peers_answer_is_sent(port, server):
    assert port.reply(PRODUCER, Produced(1, 0, 1, 1))
    assert port.reply(READER, deliver(1), BATCH)
    port.send_answers()
    assert server.events == [(7, "Deliver"), "flush", (8, "Produced"), "flush"]


def test_fetched_batches_are_gone_before_another_peers_answer_too(port, server):
    port.reply(PRODUCER, Produced(1, 0, 1, 1))
    port.reply(READER, Fetched(2, 1, 0, 1), BATCH)
    port.send_answers()
    assert server.events == [(7, "Fetched"), "flush", (8, "Produced"), "flush"]


def test_a_delivery_does_not_overtake_what_its_own_peer_was_told_before(port, server):
    port.reply(PRODUCER, Produced(1, 0, 1, 1))
    port.reply(READER, Joined(1, 1, "", -1, [Assignment(0, 1, 0, 0)]))
    port.reply(READER, Done(2))
    port.reply(READER, deliver(1), BATCH)
    port.reply(READER, Done(3))
    port.send_answers()
    assert server.events == [
        (7, "Joined"), (7, "Done"), (7, "Deliver"), (7, "Done"), "flush",
        (8, "Produced"), "flush",
    ]  # fmt: skip


def test_an_answer_to_a_peer_that_gets_a_batch_wakes_it_once_and_only_then(port, server):
    port.reply(READER, deliver(1), BATCH)
    port.reply(READER, Done(1))
    port.send_answers()
    assert server.events == [(7, "Deliver"), (7, "Done"), "flush"]
    server.events.clear()
    port.reply(PRODUCER, deliver(2), BATCH)
    port.reply(READER, Done(2))  # its own batch has left
    port.send_answers()
    assert server.events == [(8, "Deliver"), "flush", (7, "Done"), "flush"]


def test_answers_of_one_peer_keep_their_order_and_are_sent_once(port, server):
    for request in (1, 2):
        port.reply(PRODUCER, Produced(request, 0, 1, 1))
    port.reply(READER, Done(3))
    port.reply(PRODUCER, Done(4))
    port.send_answers()
    port.send_answers()
    assert [event for event in server.events if event[0] == 8] == [(8, "Produced"), (8, "Produced"), (8, "Done")]
    assert server.events.count((7, "Done")) == 1


def test_a_peer_that_is_behind_gets_its_answers_and_deliveries_are_to_wait(port, server):
    server.behind = True
    port.reply(READER, Done(1))
    assert port.is_behind(READER)
    port.send_answers()
    assert server.events == [(7, "Done"), "flush"]
    server.behind = False
    assert not port.is_behind(READER)


def test_an_answer_for_which_no_room_is_left_becomes_an_error_that_says_so(port, server):
    server.full = {"Fetched", "Deliver"}
    assert not port.reply(READER, Fetched(2, 1, 0, 1), BATCH)
    assert not port.reply(READER, deliver(1), BATCH), "it is sent again later"
    port.send_answers()
    assert server.events == [(7, "Failure"), "flush"]
    assert (port.stats()["answers.dropped"], server.disconnected) == (2, [])


@pytest.mark.parametrize("message", [Done(3), Assigned(1, [Assignment(0, 1, 0, 0)], []), Evicted(1, "no", "no")])
def test_a_peer_that_misses_an_answer_and_cannot_be_told_so_begins_anew(port, server, message):
    """It would wait for an answer without end, and a consumer for records of a partition that it does not know of."""
    server.full = {type(message).__name__} if type(message) is not Done else {"Done", "Failure"}
    port.reply(PRODUCER, message)
    port.send_answers()
    assert (server.events, server.disconnected) == ([], [8])
    assert port.stats()["answers.dropped"] == 1


# -- delivery sockets that take no more -------------------------------------------------------------


@pytest.fixture(params=["ipc", "tcp"])
def pushing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SocketPort, Sockets, Poller]]:
    """A port over real sockets, and a poller that watches it."""
    url = f"ipc://{tmp_path}/s" if request.param == "ipc" else "tcp://127.0.0.1:0"
    unused = cast("Any", None)
    with ExitStack() as stack:
        sockets, poller = stack.enter_context(Sockets()), stack.enter_context(closing(Poller()))
        port = stack.enter_context(closing(SocketPort(sockets, [sockets.server(url)], unused, unused)))
        poller.add(port.fd)
        yield port, sockets, poller


def until_eased(port: SocketPort, poller: Poller, *sessions: int) -> None:
    """Wait until something has happened to these."""
    left = set(sessions)
    while left:
        assert poller.poll(WAIT_S) == [port.fd]
        left -= set(port.eased())


def test_an_endpoint_without_a_peer_is_told_of_when_one_comes_and_not_before(pushing):
    port, sockets, poller = pushing
    endpoints = {session: port.open_delivery(session, SocketPeer(0, b"")) for session in (1, 2)}
    for _ in range(2):
        assert not any(port.deliver(session, deliver(1), BATCH) for session in endpoints)
    while poller.poll(0.0):  # what making them has left behind
        assert not any(port.deliver(session, deliver(1), BATCH) for session in port.eased())
    pull = sockets.zmq.pull(endpoints[1])
    until_eased(port, poller, 1)
    while not port.deliver(1, deliver(1), BATCH):
        until_eased(port, poller, 1)
    pull.close()
    while port.deliver(1, deliver(1), BATCH):
        pass
    while poller.poll(0.05):  # it left, and what is told of that comes to an end
        for session in port.eased():
            port.deliver(session, deliver(1), BATCH)
    while port.deliver(1, deliver(1), BATCH):  # what it took was on its way when the peer left
        pass
    assert list(port._full.values()).count(1) == 1


def test_an_endpoint_that_is_closed_while_it_is_full_is_not_told_of(pushing):
    port, _, poller = pushing
    for session in (1, 2):
        port.open_delivery(session, SocketPeer(0, b""))
        assert not port.deliver(session, deliver(1), BATCH)
    for session in (1, 2):
        port.close_delivery(session)
    assert not port._full
    assert poller.poll(0.0) == []
    assert port.eased() == []
