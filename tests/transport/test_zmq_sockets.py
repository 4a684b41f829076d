"""The sockets carry messages, say when they cannot, and let nobody in who does not belong."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from penstock.transport import codec, messages
from penstock.transport.errors import AddressInUse, CannotListen, InvalidUrl, ProtocolError
from penstock.transport.zmq_sockets import (
    RECEIVE_COPY_BYTES_MAX,
    ClientSocket,
    Context,
    Poller,
    PullSocket,
    PushSocket,
    Sent,
    ServerSocket,
)
from support.samples import BATCH, TOPIC

WAIT = 10.0


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


@pytest.fixture(params=["ipc", "tcp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/run/broker.sock" if request.param == "ipc" else "tcp://127.0.0.1:0"


@pytest.fixture
def server(context: Context, url: str) -> ServerSocket:
    return context.server([url])


def connected(context: Context, server: ServerSocket) -> ClientSocket:
    client = context.client(server.endpoints[0])
    until_connected(client, 1)
    return client


def until_connected(client: ClientSocket, connections: int) -> None:
    while client.connections < connections:
        assert client.poll(WAIT), f"connection {connections} never came about"


def wait_for(member: ServerSocket | ClientSocket | PullSocket) -> None:
    poller = Poller()
    poller.add(member)
    assert poller.poll(WAIT) == [member]


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


def test_messages_go_there_and_back(context, server):
    client = connected(context, server)
    exchange(server, client, [b"header"])
    exchange(server, client, [b"header", BATCH])
    exchange(server, client, [b"", bytes(3 << 20)])  # over the size from which frames are not copied
    assert server.receive() is None
    assert client.receive() is None


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


def test_a_peer_that_left_is_gone(context, server):
    client = connected(context, server)
    peer = exchange(server, client, [b"x"])
    client.close()
    poller = Poller()
    poller.add(server)
    while (sent := server.send(peer, [b"late"])) is not Sent.GONE:
        assert not poller.poll(0.01), "nobody sends anything"
    assert not sent
    assert server.send(b"nobody", [b"x"]) is Sent.GONE


def test_nothing_is_queued_for_a_server_that_is_not_there(context, tmp_path):
    client = context.client(f"ipc://{tmp_path}/nobody.sock")
    assert client.send([b"x"]) is Sent.FULL
    assert not client.poll(0)
    assert (client.connections, client.connected) == (0, False)


def test_a_client_notices_a_restarted_server(context, url):
    server = context.server([url])
    client = connected(context, server)
    exchange(server, client, [b"one"])
    endpoint = server.endpoints[0]
    server.close()
    while client.connected:
        assert client.poll(WAIT)
    while client.send([b"lost"]) is not Sent.FULL:
        client.poll(0.001)  # libzmq tells of the loss a moment before it stops taking messages
    again = bind_again(context, endpoint)
    until_connected(client, 2)
    exchange(again, client, [b"two"])


def bind_again(context: Context, endpoint: str) -> ServerSocket:
    """libzmq gives a port back from its own thread, soon after the close."""
    while True:
        try:
            return context.server([endpoint])
        except AddressInUse:
            continue


def test_a_push_reaches_its_one_peer(context, server):
    push = context.push(server.endpoints[0])
    assert push.send([b"x"]) is Sent.FULL  # nobody is connected yet
    pull = context.pull(push.endpoint)
    until_taken(push, [b"one", BATCH])
    wait_for(pull)
    assert pull.receive() == [b"one", BATCH]
    assert pull.receive() is None


def until_taken(push: PushSocket, frames: list[bytes]) -> None:
    idle = Poller()
    while not push.send(frames):
        idle.poll(0.001)


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
    idle = Poller()
    while push.send([b"x"]) is not Sent.FULL:
        idle.poll(0.001)


def test_a_poller_watches_sockets_and_plain_descriptors(context, server):
    client = connected(context, server)
    reader, writer = os.pipe()
    poller = Poller()
    poller.add(server)
    poller.add(reader)
    assert poller.poll(0) == []
    os.write(writer, b"x")
    assert poller.poll(WAIT) == [reader]
    os.read(reader, 1)
    client.send([b"x"])
    assert poller.poll(WAIT) == [server]
    poller.remove(server)
    poller.remove(reader)
    assert poller.poll(0) == []
    os.close(reader)
    os.close(writer)


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


def test_sockets_and_the_directories_made_for_them_are_private(context, tmp_path):
    context.server([f"ipc://{tmp_path}/deep/er/a.sock"])
    assert stat.S_IMODE((tmp_path / "deep" / "er").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep" / "er" / "a.sock").stat().st_mode) == 0o600


def test_a_live_address_is_never_taken_over(context, server, url):
    endpoint = server.endpoints[0]
    with pytest.raises(AddressInUse, match="somebody already listens on"):
        context.server([endpoint])
    exchange(server, connected(context, server), [b"still here"])


def test_a_server_that_gets_only_some_of_its_addresses_listens_on_none(context, tmp_path):
    first, second = f"ipc://{tmp_path}/a.sock", f"ipc://{tmp_path}/b.sock"
    taken = context.server([second])
    with pytest.raises(AddressInUse):
        context.server([first, second])
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.sock"]
    exchange(taken, connected(context, taken), [b"x"])


def test_what_a_killed_server_left_behind_is_removed(context, tmp_path):
    script = (
        "import os, sys\n"
        "from penstock.transport.zmq_sockets import Context\n"
        "context = Context()\n"
        "server = context.server([sys.argv[1]])\n"
        "context.push(sys.argv[1])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    url = f"ipc://{tmp_path}/a.sock"
    subprocess.run([sys.executable, "-c", script, url], check=False)
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert len(left) == 2
    assert left[0] == "a.sock"
    server = context.server([url])
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.sock"]
    exchange(server, connected(context, server), [b"x"])


def test_of_many_that_start_at_once_on_a_stale_path_one_listens(tmp_path):
    """The probe, the removal and the bind are one step for everybody else."""
    url = f"ipc://{tmp_path}/a.sock"
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(url.removeprefix("ipc://"))
        with ThreadPoolExecutor(4) as pool, contextlib.ExitStack() as stack:
            contexts = [stack.enter_context(Context()) for _ in range(4)]
            outcomes = list(pool.map(lambda context: listens(context, url), contexts))
        assert sorted(outcomes) == [False, False, False, True]


def listens(context: Context, url: str) -> bool:
    try:
        context.server([url])
    except AddressInUse:
        return False
    return True


def test_a_file_in_the_way_is_left_alone(context, tmp_path):
    (tmp_path / "a.sock").write_text("precious")
    with pytest.raises(CannotListen, match=r"exists and is not a socket"):
        context.server([f"ipc://{tmp_path}/a.sock"])
    assert (tmp_path / "a.sock").read_text() == "precious"


@pytest.mark.parametrize(
    ("url", "error", "reason"),
    [
        ("tcp://192.0.2.1:7070", CannotListen, "cannot listen on tcp://192.0.2.1:7070"),
        ("ipc:///proc/nowhere/a.sock", CannotListen, "cannot listen in /proc/nowhere"),
        ("mem://x", InvalidUrl, "ipc://, tcp://"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_the_reason(context, url, error, reason):
    with pytest.raises(error) as caught:
        context.server([url])
    assert reason in caught.value.message


def test_a_push_beside_a_path_that_leaves_no_room_says_so(context, tmp_path):
    path = str(tmp_path / ("x" * (105 - len(str(tmp_path)))))
    server = context.server([f"ipc://{path}"])
    with pytest.raises(InvalidUrl, match="over 107 bytes"):
        context.push(server.endpoints[0])


# -- hostile peers --------------------------------------------------------------------------------

HOSTILE = {
    "garbage": [b"GET / HTTP/1.1"],
    "three frames": [codec.encode(messages.Stats(1)), b"", b""],
    "a thousand frames": [b"x"] * 1000,
    "a produce without its batch": [codec.encode(messages.Produce(1, TOPIC, 0))],
    "an empty frame": [b""],
}


class Door:
    """What a broker does with what comes in: requests are kept, whoever sends anything else is cut off."""

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


def test_cutting_one_peer_off_leaves_its_successors_alone(context, server):
    """The descriptor of a connection that is gone may be another peer's by the time the broker gets to it."""
    door = Door(server)
    hostile = connected(context, server)
    assert hostile.send([b"junk"])
    wait_for(server)
    hostile.close()
    honest = connected(context, server)
    door.until(rejected=1)
    until_served(door, honest)


def until_served(door: Door, client: ClientSocket) -> None:
    """It may be cut off once by mistake; then it is back, and served."""
    while not door.requests:
        if not client.send([codec.encode(messages.Stats(1))]):
            assert client.poll(WAIT)
        door.drain()


def test_more_cut_off_peers_than_are_remembered_do_no_harm(context, server, monkeypatch):
    monkeypatch.setattr("penstock.transport.zmq_sockets.MUTED_MAX", 2)
    door = Door(server)
    for count in range(1, 6):
        assert connected(context, server).send([b"junk"])
        door.until(rejected=count)
    exchange(server, connected(context, server), [b"x"])


def test_a_peer_that_announces_a_huge_frame_is_cut_off_before_memory_is_taken(context):
    server = context.server(["tcp://127.0.0.1:0"], max_bytes=1 << 16)
    client = connected(context, server)
    assert client.send([bytes((1 << 16) + 1)])
    until_connected(client, 2)
    assert server.receive() is None
    exchange(server, client, [bytes(1 << 16)])


def test_a_peer_that_speaks_another_protocol_is_not_heard(context, server):
    door = Door(server)
    endpoint = server.endpoints[0]
    ipc = endpoint.startswith("ipc")
    address = endpoint.removeprefix("ipc://") if ipc else ("127.0.0.1", int(endpoint.rpartition(":")[2]))
    with socket.socket(socket.AF_UNIX if ipc else socket.AF_INET, socket.SOCK_STREAM) as stranger:
        stranger.connect(address)
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)  # libzmq takes it for ZMTP 1.0
        door.until(rejected=1)
        exchange(server, connected(context, server), [b"x"])
        door.drain()
    assert len(door.rejected) == 1
    assert door.requests == []


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
