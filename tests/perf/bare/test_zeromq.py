"""Bare ZeroMQ moves the batches it is given, over every wire, and its peers end."""

from __future__ import annotations

import os

import pytest
import zmq
from support.servers import descendants
from zmq.utils.monitor import recv_monitor_message

from perf.bare import zeromq
from perf.bare.other_process import peer

VALUES = [b"x" * 100] * 30
REFUSALS = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    zmq.EVENT_DISCONNECTED,
}  # fmt: skip
WIRES = [
    "ipc",
    "tcp",
    pytest.param(
        "tcp with CURVE", marks=pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq was built without CURVE")
    ),
]


@pytest.fixture(autouse=True)
def peers_end():
    before = descendants(os.getpid())
    yield
    assert descendants(os.getpid()) <= before


@pytest.mark.parametrize("wire", WIRES)
def test_batches_are_acknowledged_over_every_wire(wire):
    assert zeromq.dealer_router_records_per_s(VALUES, batch=2, wire=wire) > 0


@pytest.mark.parametrize("wire", WIRES)
def test_batches_are_delivered_over_every_wire(wire):
    assert zeromq.push_pull_records_per_s(3 * zeromq.RECORDS, wire=wire) > 0


@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq was built without CURVE")
def test_a_peer_with_a_secret_refuses_a_client_that_has_no_keys():
    _, secret = zmq.curve_keypair()
    with (
        peer("router", "tcp://127.0.0.1:*", secret.decode()) as other,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as socket,
        socket.get_monitor_socket() as events,
    ):
        socket.linger = 0
        socket.connect(other.said)
        seen = set()
        while not seen & {zmq.EVENT_HANDSHAKE_SUCCEEDED, *REFUSALS}:
            assert events.poll(10_000), "neither a handshake nor a refusal within ten seconds"
            seen.add(recv_monitor_message(events)["event"])
        socket.disable_monitor()
    assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in seen
