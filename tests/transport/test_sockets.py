"""Sockets of every kind carry messages, say when they cannot, and refuse strangers."""

from __future__ import annotations

import contextlib
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from penstock.broker.poller import Poller
from penstock.transport import codec, messages
from penstock.transport.errors import AddressInUse, CannotListen, InvalidUrl, ProtocolError
from penstock.transport.sent import Sent
from penstock.transport.sockets import Sockets
from support.samples import BATCH, TOPIC

if TYPE_CHECKING:
    from penstock.transport.sockets import Client, Server

WAIT_S = 10.0


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    with Sockets() as made:
        yield made


@pytest.fixture(params=["unix", "ipc", "tcp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"{request.param}://{tmp_path}/run/broker.sock"


@pytest.fixture(params=["unix", "ipc"])
def path_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}://{tmp_path}/a.sock"


@pytest.fixture
def server(sockets: Sockets, url: str) -> Server:
    return sockets.server(url)


def until(condition: Callable[[], object], server: Server | None, *clients: Client) -> None:
    """Let a server and clients find out what happens until a condition holds."""
    deadline = time.monotonic() + WAIT_S
    with contextlib.closing(Poller()) as poller:
        if server is not None:
            poller.add(server)
        while not condition():
            assert time.monotonic() < deadline, "it never came about"
            poller.poll(0.001)
            for client in clients:
                client.refresh()


def connected(sockets: Sockets, server: Server) -> Client:
    client = sockets.client(server.endpoints[0])
    until(lambda: client.connected, server, client)
    return client


def received(server: Server) -> tuple[Any, list[bytes]]:
    """The next message at the server."""
    found: list[Any] = []
    until(lambda: found.append(server.receive()) or found[-1], server)
    peer, frames = found[-1]
    return peer, [bytes(frame) for frame in frames]


def answered(client: Client) -> list[bytes]:
    """The next message at the client."""
    while (found := client.receive()) is None:
        assert client.poll(WAIT_S), "nothing came"
    return [bytes(frame) for frame in found]


def exchange(server: Server, client: Client, frames: list[bytes]) -> Any:
    """Send `frames` to the server and back; returns the peer."""
    assert client.send(frames)
    found: list[Any] = []
    until(lambda: found.append(server.receive()) or found[-1], server, client)
    peer, there = found[-1]
    assert [bytes(frame) for frame in there] == frames
    assert server.send(peer, there)
    server.flush()
    until(lambda: found.append(client.receive()) or found[-1], server, client)
    assert [bytes(frame) for frame in found[-1]] == frames
    return peer


def test_messages_go_there_and_back(sockets, server):
    client = connected(sockets, server)
    exchange(server, client, [b"header"])
    exchange(server, client, [b"header", BATCH])
    exchange(server, client, [b"", bytes(3 << 20)])
    exchange(server, client, [bytes(range(256)) * 1000])
    assert server.receive() is None
    assert client.receive() is None


def test_a_large_frame_that_was_received_outlives_what_comes_after_it(sockets, server):
    client = connected(sockets, server)
    large = bytes(range(256)) * 4096
    assert client.send([b"x", large])
    found: list[Any] = []
    until(lambda: found.append(server.receive()) or found[-1], server, client)
    payload = found[-1][1][1]
    assert isinstance(payload, memoryview)
    assert payload.readonly
    exchange(server, client, [b"next", large[::-1]])
    assert payload == large


def test_a_peer_that_left_is_gone(sockets, server):
    client = connected(sockets, server)
    peer = exchange(server, client, [b"x"])
    client.close()
    until(lambda: server.receive() or server.send(peer, [b"late"]) is Sent.GONE, server)
    assert not server.send(peer, [b"late"])


def test_a_missing_peer_has_never_been_a_peer(sockets, server):
    peer = exchange(server, connected(sockets, server), [b"x"])
    assert server.send(type(peer)(99), [b"x"]) is Sent.GONE


def test_nothing_is_queued_for_a_server_that_is_not_there(sockets, path_url):
    client = sockets.client(path_url)
    assert client.send([b"x"]) is Sent.FULL
    client.poll(0)  # perhaps it tells that the first try has failed
    assert (client.receive(), client.connections, client.connected) == (None, 0, False)


def test_a_client_that_came_before_its_server_is_connected_when_that_is_there(sockets, path_url):
    client = sockets.client(path_url)
    server = sockets.server(path_url)
    until(lambda: client.connected, server, client)
    exchange(server, client, [b"x"])


def test_a_client_notices_a_restarted_server(sockets, url):
    server = sockets.server(url)
    client = connected(sockets, server)
    exchange(server, client, [b"one"])
    endpoint = server.endpoints[0]
    server.close()
    until(lambda: client.send([b"lost"]) is Sent.FULL and not client.connected, None, client)
    again = bind_again(sockets, endpoint)
    until(lambda: client.connections == 2, again, client)
    exchange(again, client, [b"two"])


def bind_again(sockets: Sockets, endpoint: str) -> Server:
    """libzmq gives a port back from its own thread, soon after the close."""
    while True:
        try:
            return sockets.server(endpoint)
        except AddressInUse:
            continue


def test_many_messages_keep_their_order_both_ways(sockets, server):
    """More than the kernel takes, so that both sides find each other not reading for a while."""
    client = connected(sockets, server)
    sent, back = [[b"%d" % number, bytes(1 + number * 7 % 50_000)] for number in range(300)], []
    rest = list(reversed(sent))

    def turn() -> bool:
        while rest and client.send(rest[-1]):
            rest.pop()
        while (found := server.receive()) is not None:
            assert server.send(*found)
        server.flush()
        while (answer := client.receive()) is not None:
            back.append([bytes(frame) for frame in answer])
        return len(back) == len(sent)

    until(turn, server, client)
    assert back == sent


def test_closing_with_connections_open_and_messages_undelivered_leaves_nothing(tmp_path, path_url):
    sockets = Sockets()
    server = sockets.server(path_url)
    client = connected(sockets, server)
    assert client.send([bytes(1 << 21)])
    sockets.close()
    sockets.close()
    assert list(tmp_path.iterdir()) == []


# -- paths ----------------------------------------------------------------------------------------


def test_sockets_and_the_directories_made_for_them_are_private(sockets, path_url, tmp_path):
    sockets.server(path_url.replace("a.sock", "deep/er/a.sock"))
    assert stat.S_IMODE((tmp_path / "deep" / "er").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep" / "er" / "a.sock").stat().st_mode) == 0o600


def test_a_live_address_is_never_taken_over(sockets, server):
    endpoint = server.endpoints[0]
    with pytest.raises(AddressInUse, match="a process already listens on"):
        sockets.server(endpoint)
    exchange(server, connected(sockets, server), [b"still here"])


@pytest.mark.parametrize("second", ["unix", "ipc"])
def test_a_live_path_is_not_taken_over_by_the_other_kind_either(sockets, path_url, second):
    sockets.server(path_url)
    with pytest.raises(AddressInUse):
        sockets.server(f"{second}://{path_url.partition('://')[2]}")


def test_what_a_killed_server_left_behind_is_removed(sockets, path_url, tmp_path):
    script = (
        "import os, sys\n"
        "from penstock.transport.sockets import Sockets\n"
        "sockets = Sockets()\n"
        "sockets.push(sockets.server(sys.argv[1]))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, path_url], check=False)
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert len(left) == (1 if path_url.startswith("unix") else 2)
    assert left[0] == "a.sock"
    server = sockets.server(path_url)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.sock"]
    exchange(server, connected(sockets, server), [b"x"])


def test_of_many_that_start_at_once_on_a_stale_path_one_listens(path_url):
    """The probe, the removal and the bind are one step for other processes."""
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path_url.partition("://")[2])
        with ThreadPoolExecutor(4) as pool, contextlib.ExitStack() as stack:
            owners = [stack.enter_context(Sockets()) for _ in range(4)]
            outcomes = list(pool.map(lambda sockets: listens(sockets, path_url), owners))
        assert sorted(outcomes) == [False, False, False, True]


def listens(sockets: Sockets, url: str) -> bool:
    try:
        sockets.server(url)
    except AddressInUse:
        return False
    return True


def test_a_file_in_the_way_is_left_alone(sockets, path_url, tmp_path):
    (tmp_path / "a.sock").write_text("precious")
    with pytest.raises(CannotListen, match=r"exists and is not a socket"):
        sockets.server(path_url)
    assert (tmp_path / "a.sock").read_text() == "precious"


@pytest.mark.parametrize(
    ("url", "error", "reason"),
    [
        ("tcp://192.0.2.1:7070", CannotListen, "cannot listen on tcp://192.0.2.1:7070"),
        ("ipc:///proc/nowhere/a.sock", CannotListen, "cannot listen in /proc/nowhere"),
        ("unix:///proc/nowhere/a.sock", CannotListen, "cannot listen in /proc/nowhere"),
        ("unix:///proc/self/a.sock", CannotListen, "cannot listen on"),
        ("mem://x", InvalidUrl, "unix://, ipc://, tcp://"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_the_reason(sockets, url, error, reason):
    with pytest.raises(error) as caught:
        sockets.server(url)
    assert reason in caught.value.message


# -- hostile peers --------------------------------------------------------------------------------

HOSTILE = {
    "garbage": [b"GET / HTTP/1.1"],
    "a produce without its batch": [codec.encode(messages.Produce(1, TOPIC, 0))],
    "a batch where none belongs": [codec.encode(messages.Stats(1)), BATCH],
    "an empty frame": [b""],
}


class Door:
    """What a broker does with what comes in: requests are kept, senders of anything else are cut off."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.requests: list[tuple[Any, messages.Request]] = []
        self.rejected: list[str] = []

    def until(self, *clients: Client, requests: int = 0, rejected: int = 0) -> None:
        def turn() -> bool:
            self.drain()
            return len(self.requests) >= requests and len(self.rejected) >= rejected

        until(turn, self.server, *clients)

    def drain(self) -> None:
        while (found := self.server.receive()) is not None:
            peer, frames = found
            try:
                self.requests.append((peer, codec.decode_request(frames)[0]))
            except ProtocolError:
                self.rejected.append(self.server.cut_off())


@pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_peer_is_counted_dropped_and_cut_off_and_others_are_served(sockets, server, frames):
    door = Door(server)
    hostile, honest = connected(sockets, server), connected(sockets, server)
    assert hostile.send(frames)
    assert hostile.send([codec.encode(messages.Stats(2))])  # behind it, over the same connection: not served
    door.until(hostile, rejected=1)
    until(lambda: hostile.connections == 2, server, hostile)  # it was cut off
    assert honest.send([codec.encode(messages.Stats(3))])
    door.until(honest, requests=1)
    assert [message for _, message in door.requests] == [messages.Stats(3)]
    assert server.send(door.requests[0][0], [b"answer"])
    assert len(door.rejected) == 1


def test_cutting_one_peer_off_leaves_its_successors_alone(sockets, server):
    """The descriptor of a connection that is gone may be another peer's by the time the broker gets to it."""
    door = Door(server)
    hostile = connected(sockets, server)
    assert hostile.send([b"junk"])
    until(lambda: server.readable, server)
    hostile.close()
    honest = connected(sockets, server)
    door.until(honest, rejected=1)

    def served() -> bool:
        honest.send([codec.encode(messages.Stats(1))])  # may be cut off once by mistake; then it is back
        door.drain()
        return bool(door.requests)

    until(served, server, honest)


def test_more_cut_off_peers_than_are_remembered_do_no_harm(sockets, server, monkeypatch):
    monkeypatch.setattr("penstock.transport.zmq_serving.MUTED_MAX", 2)
    door = Door(server)
    for count in range(1, 6):
        hostile = connected(sockets, server)
        assert hostile.send([b"junk"])
        door.until(hostile, rejected=count)
    exchange(server, connected(sockets, server), [b"x"])


def test_a_peer_that_announces_a_huge_frame_is_cut_off_before_memory_is_taken(sockets, url):
    server = sockets.server(url, max_bytes=1 << 16)
    client = connected(sockets, server)
    assert client.send([bytes((1 << 16) + 1)])
    until(lambda: server.receive() or client.connections == 2, server, client)
    assert server.receive() is None
    exchange(server, client, [bytes(1 << 16)])


def test_a_peer_that_speaks_another_protocol_is_not_heard(sockets, server):
    door = Door(server)
    scheme, _, place = server.endpoints[0].partition("://")
    address = ("127.0.0.1", int(place.rpartition(":")[2])) if scheme == "tcp" else place
    with socket.socket(socket.AF_INET if scheme == "tcp" else socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(WAIT_S)
        stranger.connect(address)
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
        if scheme == "unix":
            until(lambda: server.receive() or server.cut["broken framing"], server)
        with contextlib.suppress(ConnectionResetError):  # it left something unread
            while stranger.recv(1000):
                continue  # a greeting of ZMTP, then the end
        exchange(server, connected(sockets, server), [b"x"])
        door.drain()
    assert door.requests == []
