"""The bounds of a Unix server, and what happens to peers that cross them."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.transport import unix_server
from penstock.transport.descriptors import DescriptorRoom
from penstock.transport.framing import framed
from penstock.transport.sent import Sent
from penstock.transport.unix_client import UnixClient
from penstock.transport.unix_server import BEHIND_BYTES, FLUSH_BYTES, SILENCE_S, UNREAD_BYTES_MAX, UnixServer

WAIT_S = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(tmp_path: Path, clock: Clock) -> Iterator[UnixServer]:
    made = UnixServer(f"unix://{tmp_path}/a.sock", clock=clock)
    yield made
    made.close()


def dial(server: UnixServer) -> socket.socket:
    """A connection without manners."""
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    raw.settimeout(WAIT_S)
    raw.connect(server.endpoints[0].removeprefix("unix://"))
    return raw


def said(raw: socket.socket, *messages: bytes) -> None:
    raw.sendall(b"".join(buffer for message in messages for buffer in framed([message])))


def received(server: UnixServer) -> list[tuple[int, list[bytes]]]:
    """All that is there to be received now."""
    server.refresh()
    found = []
    while (message := server.receive()) is not None:
        found.append((message[0], [bytes(frame) for frame in message[1]]))
    return found


def is_closed(raw: socket.socket) -> bool:
    try:
        return raw.recv(1) == b""
    except ConnectionResetError:
        return True


def is_readable(raw: socket.socket) -> bool:
    return bool(select.select([raw], [], [], 0)[0])


def test_one_descriptor_tells_of_any_number_of_clients(server):
    clients = [dial(server) for _ in range(50)]
    for client in clients:
        said(client, b"x")
    assert select.select([server.fd], [], [], WAIT_S)[0]
    server.refresh()  # they are let in; what they said is told by the next look
    assert len(received(server)) == 50
    assert not select.select([server.fd], [], [], 0)[0]
    assert not server.readable
    for client in clients:
        client.close()


def test_what_one_read_brought_is_readable_without_the_descriptor(server):
    client = dial(server)
    said(client, b"one", b"two", b"three")
    server.refresh()
    server.refresh()
    assert server.receive() == (1, [b"one"])
    assert not select.select([server.fd], [], [], 0)[0]
    assert server.readable
    assert server.receive() == (1, [b"two"])
    assert server.receive() == (1, [b"three"])
    assert server.receive() is None
    client.close()


def test_clients_take_turns(server):
    greedy, modest = dial(server), dial(server)
    server.refresh()
    said(greedy, *[b"greedy" * 10] * 2000)
    said(modest, b"modest")
    found = [frames for _, frames in received(server)]
    assert len(found) == 2001
    assert found.index([b"modest"]) <= 1  # not behind what one read of the greedy one brought
    greedy.close()
    modest.close()


def test_a_peer_that_does_not_read_its_answers_is_asked_for_no_more(server):
    greedy, modest = dial(server), dial(server)
    said(greedy, b"1", b"2", b"3")
    said(modest, b"modest")
    server.refresh()
    server.refresh()
    peer, _ = server.receive()
    answer = bytes(4 * BEHIND_BYTES)
    server.send(peer, [answer])
    assert received(server) == [(2, [b"modest"])]
    said(greedy, b"4")
    assert not select.select([server.fd], [], [], 0)[0], "nothing to do: it has to read first"
    while not server.readable:
        assert greedy.recv(BEHIND_BYTES)
        server.refresh()
    assert [frames for _, frames in received(server) + received(server)] == [[b"2"], [b"3"], [b"4"]]
    greedy.close()
    modest.close()


def test_a_peer_that_leaves_with_answers_unread_is_lost_at_once(server):
    client = dial(server)
    said(client, b"1", b"2")
    server.refresh()
    server.refresh()
    peer, _ = server.receive()
    server.send(peer, [bytes(4 * BEHIND_BYTES)])
    assert received(server) == []
    client.close()
    assert select.select([server.fd], [], [], WAIT_S)[0]
    assert received(server) == [], "not what came before either: it cannot be answered"
    assert server.lost() == [peer]
    assert not select.select([server.fd], [], [], 0)[0]


def test_answers_of_one_turn_leave_together_and_in_order(server):
    client = dial(server)
    said(client, b"hello")
    server.refresh()
    ((peer, _),) = received(server)
    for number in range(3):
        assert server.send(peer, [b"%d" % number]) is Sent.TAKEN
    assert not select.select([client], [], [], 0)[0]
    server.flush()
    assert client.recv(1000) == b"".join(framed([b"%d" % number])[0] for number in range(3))
    client.close()


def test_who_was_sent_something_first_gets_it_first(server, monkeypatch):
    clients = [dial(server) for _ in range(3)]
    for number, client in enumerate(clients):
        said(client, b"%d" % number)
    server.refresh()  # lets them in
    peers = {bytes(frames[0]): peer for peer, frames in received(server)}
    left: list[bytes] = []
    flush = unix_server.UnixConnection.flush

    def note(connection: unix_server.UnixConnection) -> None:
        flush(connection)
        left.extend(b"%d" % number for number, client in enumerate(clients) if is_readable(client))

    monkeypatch.setattr(unix_server.UnixConnection, "flush", note)
    for name in (b"1", b"2", b"0"):
        server.send(peers[name], [b"answer"])
    server.flush()
    assert list(dict.fromkeys(left)) == [b"1", b"2", b"0"]
    for client in clients:
        client.close()


def test_a_silent_peer_is_closed_in_time_and_one_that_spoke_is_not(server, clock):
    silent, spoke, torn = dial(server), dial(server), dial(server)
    server.refresh()
    assert server.patience_s() == SILENCE_S
    said(spoke, b"hello")
    torn.sendall(framed([b"hello"])[0][:-1])
    assert len(received(server)) == 1
    clock.now += SILENCE_S
    assert server.patience_s() == 0.0
    server.refresh()
    assert server.cut == {"silent": 2}
    assert is_closed(silent)
    assert is_closed(torn)
    assert server.patience_s() == float("inf")
    clock.now += 1000.0
    said(spoke, b"again")
    assert len(received(server)) == 1
    for raw in (silent, spoke, torn):
        raw.close()


def test_a_peer_that_does_not_read_is_cut_off_at_the_bound_and_counted(server):
    client, other = dial(server), dial(server)
    said(client, b"hello")
    said(other, b"hello")
    server.refresh()
    (peer, _), (friend, _) = received(server)
    sent = 0
    while server.send(peer, [b"answer", bytes(1 << 20)]) is Sent.TAKEN:
        sent += 1
        assert sent < 100
    assert UNREAD_BYTES_MAX >> 20 <= sent < (UNREAD_BYTES_MAX >> 20) + 16
    assert server.cut == {"does not read": 1}
    assert server.lost() == [peer]
    assert server.lost() == []
    assert server.send(peer, [b"x"]) is Sent.GONE
    assert server.send(friend, [b"x"]) is Sent.TAKEN
    client.close()
    other.close()


def test_a_peer_that_is_behind_catches_up_and_gets_everything(server):
    client = dial(server)
    said(client, b"hello")
    server.refresh()
    ((peer, _),) = received(server)
    sent = bytearray()
    while not server.is_behind(peer):
        frames = [b"%d" % len(sent), bytes(300_000)]
        sent += b"".join(framed(frames))
        assert server.send(peer, frames)
    assert len(sent) > BEHIND_BYTES
    server.flush()
    assert (server.eased(), server.readable) == ([], False)
    got = bytearray()
    while len(got) < len(sent):
        got += client.recv(1 << 20)
        server.refresh()
    assert got == sent
    assert server.readable
    assert (server.eased(), server.eased(), server.readable) == ([peer], [], False), "told once"
    assert not server.is_behind(peer)
    assert not select.select([server.fd], [], [], 0)[0]  # nothing is waited for any more
    client.close()


def test_a_peer_that_was_behind_and_left_is_lost_and_nothing_else(server):
    client = dial(server)
    said(client, b"hello")
    server.refresh()
    ((peer, _),) = received(server)
    server.send(peer, [bytes(4 * BEHIND_BYTES)])
    assert server.is_behind(peer)
    client.close()
    received(server)
    assert (server.lost(), server.eased(), server.readable) == ([peer], [], False)
    assert not server._full
    assert not select.select([server.fd], [], [], 0)[0]


def test_what_a_client_said_before_it_left_is_handed_out(server):
    client = dial(server)
    server.refresh()
    said(client, b"one", b"two")
    client.close()
    assert [frames for _, frames in received(server)] == [[b"one"], [b"two"]]
    received(server)
    assert server.readable, "the poller has to ask which peers are lost"
    assert server.lost() == [1]
    assert not server.readable
    assert server.cut == {}


@pytest.mark.parametrize("answer", [1, 2 * FLUSH_BYTES], ids=["flushed", "sent at once"])
def test_once_an_answer_fails_nothing_more_is_done_for_one_that_has_left(server, answer):
    client, other = dial(server), dial(server)
    said(client, *[b"%d" % number for number in range(1000)])
    server.refresh()
    server.refresh()
    assert server.receive() == (1, [b"0"])
    client.close()
    assert server.send(1, [bytes(answer)])
    server.flush()
    said(other, b"hello")
    assert received(server) == [(2, [b"hello"])]
    assert server.lost() == [1]
    assert server.send(1, [b"answer"]) is Sent.GONE
    assert not select.select([server.fd], [], [], 0)[0]
    other.close()


def test_a_thousand_connections_are_served(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2200:
        pytest.skip(f"needs 2200 descriptors, the hard limit is {hard}")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2200), hard))
    server = UnixServer(f"unix://{tmp_path}/a.sock")
    clients = []
    try:
        for number in range(1000):
            clients.append(UnixClient(server.endpoints[0]))
            if number % 50 == 0:
                server.refresh()
        answered = 0
        for client in clients:
            assert client.send([b"hello"])
        while answered < 1000:
            server.refresh()
            while (found := server.receive()) is not None:
                assert server.send(*found)
            server.flush()
            answered += sum(client.receive() == [b"hello"] for client in clients)
    finally:
        for client in clients:
            client.close()
        server.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_connection_too_many_is_closed_and_counted_until_another_leaves(tmp_path):
    server = UnixServer(f"unix://{tmp_path}/a.sock", room=DescriptorRoom(2))
    raws = [dial(server) for _ in range(3)]
    server.refresh()
    assert server.cut == {"too many": 1}
    assert is_closed(raws[2])
    raws[0].close()
    server.refresh()
    assert server.receive() is None
    raws.append(dial(server))
    server.refresh()
    assert server.cut == {"too many": 1}
    for raw in raws:
        raw.close()
    server.close()


def test_without_descriptors_left_no_peer_is_let_in_for_a_while_and_nothing_spins(server, clock, monkeypatch):
    class Exhausted:
        def __init__(self, listener: socket.socket) -> None:
            self.listener = listener
            self.asked = 0

        def accept(self) -> object:
            self.asked += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        def fileno(self) -> int:
            return self.listener.fileno()

        def close(self) -> None:
            self.listener.close()

    exhausted = Exhausted(server._listener)
    monkeypatch.setattr(server, "_listener", exhausted)
    client = dial(server)
    server.refresh()
    assert exhausted.asked == 1
    assert not select.select([server.fd], [], [], 0)[0]  # though a connection still waits to be accepted
    monkeypatch.setattr(server, "_listener", exhausted.listener)
    clock.now += server.patience_s()
    server.refresh()
    said(client, b"hello")
    server.refresh()
    assert len(received(server)) == 1
    client.close()


def test_a_peer_is_known_by_its_process(server):
    script = "import socket, sys; s = socket.socket(1); s.connect(sys.argv[1]); s.sendall(bytes(9)); s.recv(1)"
    path = server.endpoints[0].removeprefix("unix://")
    with subprocess.Popen([sys.executable, "-c", script, path]) as process:
        while server.receive() is None:
            assert select.select([server.fd], [], [], WAIT_S)[0]
            server.refresh()
        assert server.cut_off() == f"process {process.pid} of user {os.getuid()}"
        assert server.cut == {"nonsense": 1}


def test_nothing_of_a_held_peer_is_handed_out_until_it_is_resumed(server):
    held, other = dial(server), dial(server)
    server.refresh()
    said(held, b"one", b"two", b"three")
    server.refresh()
    assert server.receive() == (1, [b"one"])
    server.hold(1)
    said(held, b"four")
    said(other, b"other")
    assert received(server) == [(2, [b"other"])]
    assert not server.readable
    assert not select.select([server.fd], [], [], 0)[0], "its bytes would be told again and again"
    server.resume(1)
    assert server.readable
    assert received(server) + received(server) == [(1, [b"two"]), (1, [b"three"]), (1, [b"four"])]
    said(held, b"five")
    assert received(server) == [(1, [b"five"])]
    for client in (held, other):
        client.close()


def test_a_held_peer_that_leaves_wakes_no_poller_and_is_lost_when_it_is_resumed(server):
    held = dial(server)
    server.refresh()
    said(held, b"one", b"two")
    server.refresh()
    assert server.receive() == (1, [b"one"])
    server.hold(1)
    held.close()
    assert received(server) == []
    assert not select.select([server.fd], [], [], 0)[0]
    assert server.lost() == []
    server.resume(1)
    assert received(server) == [(1, [b"two"])]
    assert received(server) == []
    assert server.lost() == [1]
    server.hold(1)
    server.resume(1)
    assert not server.readable


def test_a_held_peer_is_sent_to_and_stays_held_when_it_has_read(server):
    held = dial(server)
    server.refresh()
    said(held, b"one")
    server.refresh()
    assert server.receive() == (1, [b"one"])
    server.hold(1)
    while not server.is_behind(1):
        assert server.send(1, [b"x" * (64 << 10)])
    said(held, b"two")
    server.refresh()
    while server.is_behind(1):
        held.recv(1 << 20)
        server.refresh()
    assert received(server) == []
    server.resume(1)
    assert received(server) == [(1, [b"two"])]
    held.close()
