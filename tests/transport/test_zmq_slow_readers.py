"""Peers of ZeroMQ's sockets that do not read: what waits for them is bounded, and what they ask waits until they read.

libzmq's threads and the kernel take more of what was sent at any time, up to 12 MiB over TCP within 50 ms. A test
that needs a peer to stay behind sends as much more.
"""

from __future__ import annotations

import select
import time
from contextlib import closing
from math import inf
from types import SimpleNamespace

import pytest
import zmq
from penstock.transport import zmq_serving
from penstock.transport.sent import Sent
from penstock.transport.unread import MARK_BYTES, SMALL_BYTES, UNREAD_BYTES_MAX
from penstock.transport.zmq_serving import BEHIND_BYTES, LOOK_S, ServerSocket

WAIT = 10.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the server, which stands still while `now` does."""
    made = SimpleNamespace(now=1000.0)
    made.monotonic = lambda: made.now
    monkeypatch.setattr(zmq_serving, "time", made)
    return made


def wait_for(server: ServerSocket) -> None:
    assert server.raw.poll(WAIT * 1000)


def slow_reader(server: ServerSocket) -> tuple[zmq.Socket[bytes], bytes]:
    """A peer of which libzmq reads one message ahead, and its identity."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    raw = context.socket(zmq.DEALER)
    for option, value in ((zmq.LINGER, 0), (zmq.RCVHWM, 1), (zmq.SNDHWM, 0), (zmq.RCVTIMEO, int(WAIT * 1000))):
        raw.setsockopt(option, value)
    raw.connect(server.endpoints[0])
    raw.send(b"hello")
    while (received := server.receive()) is None:
        wait_for(server)
    return raw, received[0]


def until_full(server: ServerSocket, peer: bytes, answer: bytes) -> int:
    """How many bytes it took."""
    taken = 0
    while server.send(peer, [b"head", answer]):
        taken += len(answer)
        assert taken < 2 * UNREAD_BYTES_MAX
    return taken


@pytest.mark.parametrize("size", [SMALL_BYTES, MARK_BYTES - 1000, 4 << 20])
def test_what_waits_for_a_peer_that_does_not_read_is_bounded_in_bytes(server, size, monkeypatch):
    monkeypatch.setattr(zmq_serving, "UNREAD_BYTES_MAX", 8 << 20)
    raw, peer = slow_reader(server)
    with closing(raw):
        taken = until_full(server, peer, bytes(size))
        assert server.send(peer, [b"small"]), "small ones are bounded by number"
        assert server.eased() == [peer]
        for _ in range(taken // size):
            assert raw.recv_multipart() == [b"head", bytes(size)]
        assert raw.recv() == b"small"
        deadline = time.monotonic() + WAIT
        while not server.send(peer, [bytes(size)]):
            assert time.monotonic() < deadline
        assert len(raw.recv()) == size


def test_a_peer_that_takes_nothing_any_more_can_be_disconnected_and_comes_again(server):
    raw, peer = slow_reader(server)
    other, of_another = slow_reader(server)
    with closing(raw), closing(other):
        until_full(server, peer, bytes(SMALL_BYTES - 100))
        assert server.send(peer, [b"small"]) is Sent.FULL
        server.disconnect(peer)
        deadline = time.monotonic() + WAIT
        while server.lost() != [peer]:
            assert time.monotonic() < deadline
        with raw.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED) as connected:
            while not connected.poll(0):  # it hears of it once it has read
                assert time.monotonic() < deadline
                raw.poll(1) and raw.recv_multipart()
            raw.disable_monitor()
        raw.send(b"again")
        while (received := server.receive()) is None:
            wait_for(server)
        anew, frames = received
        assert (frames, anew in (peer, of_another)) == ([b"again"], False)
        assert server.send(peer, [b"small"]) is Sent.GONE
        assert server.send(anew, [b"heard"])
        while raw.recv_multipart() != [b"heard"]:
            pass
        assert server.send(of_another, [b"nothing happened to it"])
        assert other.recv() == b"nothing happened to it"


@pytest.mark.parametrize("held", [False, True])
def test_the_requests_of_a_peer_that_is_behind_wait_until_it_has_read(server, clock, held):
    raw, peer = slow_reader(server)
    with closing(raw):
        server.hold(peer)
        server.resume(peer)
        assert server.patience_s() == inf
        for _ in range(UNREAD_BYTES_MAX // MARK_BYTES):  # the kernel takes some
            assert server.send(peer, [bytes(MARK_BYTES)])
        raw.send(b"ask")
        wait_for(server)
        assert server.receive() is None
        server.refresh()
        assert server.patience_s() == pytest.approx(LOOK_S)
        assert not server.readable
        server.hold(peer)
        server.resume(peer)
        assert not server.readable, "who else held it has no say in that"
        if held:
            server.hold(peer)
        deadline = time.monotonic() + WAIT
        while server.patience_s() != inf:
            assert time.monotonic() < deadline
            raw.poll(1) and raw.recv()
            server.refresh()
        assert server.readable
        assert server.eased() == [peer]
        if held:
            assert not server.readable, "it is held still"
            server.resume(peer)
        assert server.receive() == (peer, [b"ask"])


def test_what_waits_at_a_push_whose_peer_does_not_read_is_bounded_in_bytes(context, server, monkeypatch):
    monkeypatch.setattr(zmq_serving, "UNREAD_BYTES_MAX", 8 << 20)
    push = context.push(server.endpoints[0])
    with zmq.Context() as readers, readers.socket(zmq.PULL) as raw:
        for option, value in ((zmq.RCVHWM, 1), (zmq.RCVBUF, 4096), (zmq.LINGER, 0)):
            raw.setsockopt(option, value)
        raw.connect(push.endpoint)
        deadline = time.monotonic() + WAIT
        while not push.send([b"head", b"first"]):
            assert time.monotonic() < deadline
        taken = 0
        while push.send([b"head", bytes(2 << 20)]):
            taken += 1
            assert taken < 20
        assert taken >= 4
        assert not select.select([push.fd], [], [], 0)[0], "a poller is not told of what is known"
        assert push.send([b"head", b"small"])
        found = [raw.recv_multipart()[1] for _ in range(taken + 2)]
        assert [len(each) for each in found] == [5, *[2 << 20] * taken, 5]
        while not push.send([b"head", bytes(2 << 20)]):
            assert time.monotonic() < deadline
    push.close()


def test_deliveries_to_a_peer_that_is_behind_wait_until_it_has_read(server, clock):
    raw, peer = slow_reader(server)
    with closing(raw):
        sent = 0
        while not server.is_behind(peer):
            assert server.send(peer, [bytes(MARK_BYTES)])
            sent += 1
        assert sent > BEHIND_BYTES // MARK_BYTES
        for _ in range(BEHIND_BYTES // MARK_BYTES):  # libzmq's thread and the kernel take some after a look
            assert server.send(peer, [bytes(MARK_BYTES)])
        assert not server.is_behind(b"another")
        server.refresh()
        assert (server.readable, server.eased()) == (False, [])
        assert server.patience_s() == pytest.approx(LOOK_S)
        clock.now += 2 * LOOK_S
        assert server.patience_s() == 0.0
        deadline = time.monotonic() + WAIT
        while not server.eased():
            assert time.monotonic() < deadline
            raw.poll(1) and raw.recv()
            server.refresh()
        assert not server.is_behind(peer)
        assert server.patience_s() == inf


def test_a_peer_that_is_behind_and_leaves_holds_nothing(server):
    raw, peer = slow_reader(server)
    with closing(raw):
        until_full(server, peer, bytes(4 << 20))
        raw.send(b"ask")
        wait_for(server)
        assert server.receive() is None
    deadline = time.monotonic() + WAIT
    while server.patience_s() != inf:
        assert time.monotonic() < deadline
        server.raw.poll(1)  # libzmq notices what happens to its sockets when it is asked
        server.refresh()
    assert server.receive() == (peer, [b"ask"])
    server._unread.sent(peer, MARK_BYTES - 1)
    while server.send(peer, [bytes(SMALL_BYTES)]) is not Sent.GONE:
        assert time.monotonic() < deadline
    assert not server._unread.wants_mark(peer, 1), "nothing is kept of a peer that is gone"
