"""What is ZeroMQ's own: pushes, several addresses, frames without end. The rest is in test_sockets.py."""

from __future__ import annotations

import errno
import os
import select
import socket
from contextlib import closing, suppress
from pathlib import Path

import pytest
import zmq
from penstock.transport import codec, messages
from penstock.transport.errors import AddressInUse, CannotListen, InvalidUrl, ProtocolError
from penstock.transport.sent import Sent
from penstock.transport.socket_options import CLIENT
from penstock.transport.unix_client import RETRY_MAX_S
from penstock.transport.unread import SMALL_BYTES
from penstock.transport.zmq_connecting import ClientSocket, PullSocket
from penstock.transport.zmq_serving import EASED_MOST, PushSocket, ServerSocket
from penstock.transport.zmq_socket import RECEIVE_COPY_BYTES_MAX
from penstock.transport.zmq_sockets import Context
from support.samples import BATCH

WAIT = 10.0


def connected(context: Context, server: ServerSocket) -> ClientSocket:
    client = context.client(server.endpoints[0])
    until_connected(client, 1)
    return client


def until_connected(client: ClientSocket, connections: int) -> None:
    while client.connections < connections:
        assert client.poll(WAIT), f"connection {connections} never came about"


def wait_for(member: ServerSocket | ClientSocket | PullSocket) -> None:
    assert member.raw.poll(WAIT * 1000)


def test_a_server_that_is_back_is_found_as_soon_as_over_unix() -> None:
    """Leases that ran out meanwhile have a third of their time to be extended then."""
    assert CLIENT["RECONNECT_IVL_MAX"] / 1000 <= RETRY_MAX_S


def exchange(server: ServerSocket, client: ClientSocket, frames: list[bytes]) -> bytes:
    """Send `frames` to the server and back; returns the peer."""
    assert client.send(frames)
    while (received := server.receive()) is None:
        wait_for(server)  # also woken by what a muted peer had sent
    peer, found = received
    assert [bytes(frame) for frame in found] == frames
    assert server.send(peer, found)
    while (answer := client.receive()) is None:
        assert client.poll(WAIT)
    assert [bytes(frame) for frame in answer] == frames
    return peer


def test_port_0_becomes_a_real_port(context):
    server = context.server(["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])
    assert len(set(server.endpoints)) == 2
    assert not any(endpoint.endswith(":0") for endpoint in server.endpoints)


def test_one_server_listens_on_several_addresses(context, tmp_path):
    server = context.server([f"ipc://{tmp_path}/a.sock", "tcp://127.0.0.1:0"])
    for endpoint in server.endpoints:
        client = context.client(endpoint)
        until_connected(client, 1)
        exchange(server, client, [endpoint.encode()])


def test_ipv6_works_where_the_machine_has_it(context):
    if not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
        pytest.skip("no IPv6 here")
    server = context.server(["tcp://[::1]:0"])
    exchange(server, connected(context, server), [b"six"])


def test_nothing_is_sent_on_a_connection_that_is_not_counted_yet(context, server):
    client = context.client(server.endpoints[0])
    assert client.raw.poll(WAIT * 1000, zmq.POLLOUT), "libzmq never connected"
    assert client.send([b"x"]) is Sent.FULL
    until_connected(client, 1)
    exchange(server, client, [b"x"])


def test_a_push_reaches_its_one_peer(context, server):
    push = context.push(server.endpoints[0])
    assert push.send([b"x"]) is Sent.FULL  # no peer is connected yet
    pull = context.pull(push.endpoint)
    until_taken(push, [b"one", BATCH])
    wait_for(pull)
    assert pull.receive() == [b"one", BATCH]
    assert pull.receive() is None


def until_taken(push: PushSocket, frames: list[bytes]) -> None:
    while not push.send(frames):
        push.raw.poll(1)


def test_a_push_whose_peer_connects_while_it_is_tried_has_news(context, server, monkeypatch):
    push, pulls = context.push(server.endpoints[0]), list[PullSocket]()
    large, send = [b"head", bytes(SMALL_BYTES)], push._send

    def late(frames):
        sent = send(frames)
        if not pulls:
            pulls.append(context.pull(push.endpoint))
            assert select.select([push.fd], [], [], WAIT)[0]
        return sent

    monkeypatch.setattr(push, "_send", late)
    while not push.send(large):
        assert select.select([push.fd], [], [], WAIT)[0], "nothing tells that it may be tried again"


def test_every_push_has_an_endpoint_of_its_own_beside_its_server(context, server):
    endpoints = {context.push(server.endpoints[0]).endpoint for _ in range(10)}
    assert len(endpoints) == 10
    start = server.endpoints[0].rpartition(":")[0] if server.endpoints[0].startswith("tcp") else server.endpoints[0]
    assert all(endpoint.startswith(start) for endpoint in endpoints)


def test_a_push_whose_peer_left_takes_nothing_more(context, server):
    push = context.push(server.endpoints[0])
    pull = context.pull(push.endpoint)
    until_taken(push, [b"x"])
    pull.close()
    while push.send([b"x"]) is not Sent.FULL:
        push.raw.poll(1)


def test_peers_that_were_full_are_told_of_a_few_at_once_and_each_once(context, server, monkeypatch):
    peers = [b"%d" % number for number in range(EASED_MOST + 2)]
    monkeypatch.setattr(server, "_send", lambda frames: Sent.TAKEN if frames[0] == b"read" else Sent.FULL)
    for peer in [*peers, b"read", peers[0]]:
        server.send(peer, [b"x"])
    assert [server.eased() for _ in range(3)] == [peers[:EASED_MOST], peers[EASED_MOST:], []]


def test_a_context_closes_with_sockets_open_and_messages_undelivered(tmp_path):
    context = Context()
    server = context.server([f"ipc://{tmp_path}/a.sock"])
    client = connected(context, server)
    assert client.send([bytes(1 << 21)])
    context.push(server.endpoints[0])
    context.close()
    context.close()
    assert list(tmp_path.iterdir()) == []


# -- paths ----------------------------------------------------------------------------------------


def test_a_server_that_gets_only_some_of_its_addresses_listens_on_none(context, tmp_path):
    first, second = f"ipc://{tmp_path}/a.sock", f"ipc://{tmp_path}/b.sock"
    taken = context.server([second])
    with pytest.raises(AddressInUse):
        context.server([first, second])
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.sock"]
    exchange(taken, connected(context, taken), [b"x"])


@pytest.mark.parametrize("call", ["monitor", "socket"])
def test_a_client_for_whose_events_there_is_no_socket_left_says_so(context, server, monkeypatch, call):
    def none_left(self: object, *given: object) -> object:
        if call == "socket" and given[0] != zmq.PAIR:
            return made(self, *given)
        raise zmq.ZMQError(errno.EMFILE)

    kind = zmq.Socket if call == "monitor" else zmq.Context
    made = getattr(kind, call)
    with monkeypatch.context() as patched:
        patched.setattr(kind, call, none_left)
        with pytest.raises(CannotListen, match="no socket left"):
            context.client(server.endpoints[0])


def test_a_push_beside_a_path_that_leaves_no_room_says_so(context, tmp_path):
    path = str(tmp_path / ("x" * (105 - len(str(tmp_path)))))
    server = context.server([f"ipc://{path}"])
    with pytest.raises(InvalidUrl, match="over 107 bytes"):
        context.push(server.endpoints[0])


# -- hostile peers --------------------------------------------------------------------------------

HOSTILE = {
    "three frames": [codec.encode(messages.Stats(1)), b"", b""],
    "a thousand frames": [b"x"] * 1000,
}


class Door:
    """What a broker does with what comes in: requests are kept, senders of anything else are cut off."""

    def __init__(self, server: ServerSocket) -> None:
        self.server = server
        self.requests: list[tuple[bytes, messages.Request]] = []
        self.rejected: list[str] = []

    def until(self, *, requests: int = 0, rejected: int = 0) -> None:
        while len(self.requests) < requests or len(self.rejected) < rejected:
            wait_for(self.server)
            self.drain()

    def drain(self) -> None:
        while (received := self.server.receive()) is not None:
            peer, frames = received
            try:
                self.requests.append((peer, codec.decode_request(frames)[0]))
            except ProtocolError:
                self.rejected.append(self.server.cut_off())


@pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_peer_is_counted_dropped_and_cut_off_and_others_are_served(context, server, frames):
    door = Door(server)
    hostile, honest = connected(context, server), connected(context, server)
    assert hostile.send(frames)
    assert hostile.send([codec.encode(messages.Stats(2))])  # behind it, over the same connection: not served
    door.until(rejected=1)
    until_connected(hostile, 2)  # it was cut off
    assert honest.send([codec.encode(messages.Stats(3))])
    door.until(requests=1)
    assert [message for _, message in door.requests] == [messages.Stats(3)]
    assert server.send(door.requests[0][0], [b"answer"])
    assert len(door.rejected) == 1


def test_small_frames_are_bytes_and_large_ones_views_that_outlive_their_message(context, server):
    client = connected(context, server)
    large = os.urandom(RECEIVE_COPY_BYTES_MAX + 1)
    assert client.send([bytes(RECEIVE_COPY_BYTES_MAX), large])
    while (received := server.receive()) is None:
        wait_for(server)
    header, payload = received[1]
    assert type(header) is bytes
    assert isinstance(payload, memoryview)
    assert payload.readonly
    del received
    exchange(server, client, [b"next", bytes(RECEIVE_COPY_BYTES_MAX + 1)])
    assert payload == large


def test_a_connection_broken_off_in_the_middle_of_an_answer_leaves_no_rest_of_it(context, server):
    """libzmq drops what is left of it with the connection, and aborts the process that reads on."""
    client = connected(context, server)
    peer = exchange(server, client, [b"ask"])
    server.send(peer, [b"first", b"second", b"third"])
    wait_for(client)
    assert bytes(client.raw.recv()) == b"first"
    client.break_off()
    Door(server).until(rejected=1)
    until_connected(client, 2)
    assert client.receive() is None
    exchange(server, client, [b"ask again"])


def test_what_comes_from_a_held_peer_is_set_aside_until_it_is_resumed(context, server):
    held, other = connected(context, server), connected(context, server)
    peer = exchange(server, held, [b"hello"])
    server.hold(peer)
    for text in (b"one", b"two"):
        assert held.send([text])
    wait_for(server)
    assert server.receive() is None
    other_peer = exchange(server, other, [b"heard"])
    assert other_peer != peer
    server.resume(peer)
    assert server.readable
    found = []
    while len(found) < 2:
        if (message := server.receive()) is None:
            wait_for(server)
        else:
            found.append(message)
    assert found == [(peer, [b"one"]), (peer, [b"two"])]
    assert not server.readable


def lost_of(server: ServerSocket, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        guards = list(server.guards())
        assert server.readable or select.select(guards, [], [], WAIT)[0]
        found += server.lost()
    return found


def test_peers_that_leave_are_told_of_once(context, server):
    assert server.lost() == []
    clients = [connected(context, server) for _ in range(3)]
    peers = [exchange(server, client, [b"x"]) for client in clients]
    assert server.lost() == []
    for client in clients[:2]:
        client.close()
    assert sorted(lost_of(server, 2)) == sorted(peers[:2])
    connected(context, server).close()  # one that never says anything
    clients[2].close()
    assert (lost_of(server, 1), server.lost()) == (peers[2:], [])


@pytest.mark.parametrize("held", [False, True])
def test_a_peer_of_which_something_is_handed_out_after_it_has_left_is_told_of_again(context, server, held):
    client = connected(context, server)
    peer = exchange(server, client, [b"before"])
    if held:
        server.hold(peer)
    assert client.send([b"after"])
    wait_for(server)
    if held:
        assert server.receive() is None
    client.close()
    assert lost_of(server, 1) == [peer]
    server.resume(peer)
    while (received := server.receive()) is None:
        wait_for(server)
    assert (received[0], server.readable) == (peer, True)
    assert (server.lost(), server.lost()) == ([peer], [])


def test_a_descriptor_that_another_connection_has_now_is_not_taken_for_the_old_one(context, server):
    peers = []
    for _ in range(20):
        with closing(connected(context, server)) as client:
            peers.append(exchange(server, client, [b"x"]))
    there = exchange(server, connected(context, server), [b"y"])
    assert sorted(lost_of(server, 20)) == sorted(peers)
    assert (server._heard, list(server._heard_at.values())) == ({there}, [there])


def test_an_address_of_events_is_never_one_that_libzmq_may_still_be_giving_up():
    with Context() as context:
        client = context.client("tcp://127.0.0.1:9")
        events = context.monitor(client.raw, zmq.EVENT_ALL)
        client.close()  # waits until its last event is taken
        events.close(0)


GREETINGS = {
    "no version, as 1.0": b"*1\r\n$4\r\nPING\r\n" * 100,
    "1.0": b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x00\x05" + b"\x01\x00" * 20,
    "2.0": b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00\x00" + b"\x00\x01x" * 20,
}


@pytest.mark.parametrize("version", GREETINGS)
@pytest.mark.parametrize("kind", ["server", "push"])
def test_a_peer_of_a_version_before_3_is_hung_up_on(context: Context, version: str, kind: str):
    """libzmq keeps 17 KiB of each peer of 1.0 that has left."""
    listener = "tcp://127.0.0.1:0"
    listening = context.server([listener]) if kind == "server" else context.push("tcp://127.0.0.1:1")
    place = listening.endpoints[0] if isinstance(listening, ServerSocket) else listening.endpoint
    with socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2])), timeout=WAIT) as peer:
        peer.sendall(GREETINGS[version])
        with suppress(ConnectionResetError, BrokenPipeError):
            while peer.recv(1000):
                peer.sendall(b"\x00\x01x" * 20)
    if isinstance(listening, ServerSocket):
        assert listening.receive() is None
        connected(context, listening)
