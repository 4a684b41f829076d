"""Room for connections: counted over all sockets, given back when they close, refused without an abort of libzmq."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from penstock.transport.descriptors import PUSH_DESCRIPTORS, DescriptorRoom
from penstock.transport.errors import CannotListen
from penstock.transport.zmq_serving import ServerSocket
from penstock.transport.zmq_sockets import Context

WAIT_S = 10.0


def test_what_is_taken_is_counted_until_it_is_given_back() -> None:
    room = DescriptorRoom(4, end=100)
    assert room.take(7)
    assert room.take(8, 3)
    assert not room.take(9)
    room.give_back(3)
    assert room.take(99)
    assert not room.take(100)
    assert (room.used, room.refused) == (2, 2)


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(room=DescriptorRoom(2)) as made:
        yield made


def dial(server: ServerSocket) -> socket.socket:
    """A connection that libzmq has accepted and the server has heard of."""
    room = server._context.room
    before = room.used + room.refused
    scheme, _, place = server.endpoints[0].partition("://")
    if scheme == "ipc":
        made = socket.socket(socket.AF_UNIX)
        made.connect(place)
    else:
        host, port = place.rsplit(":", 1)
        made = socket.create_connection((host, int(port)))
    hear(server, lambda: room.used + room.refused > before)
    return made


def hear(server: ServerSocket, until: Callable[[], bool]) -> None:
    """What a poller does."""
    ((descriptor, admit),) = server.guards().items()
    while not until():
        assert select.select([descriptor], [], [], WAIT_S)[0]
        admit()


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_a_zmq_connection_too_many_is_closed_until_another_leaves(context: Context, tmp_path: Path, scheme: str):
    server = context.server([f"ipc://{tmp_path}/s" if scheme == "ipc" else "tcp://127.0.0.1:0"])
    kept = [dial(server) for _ in range(2)]
    with dial(server) as third:
        third.settimeout(WAIT_S)
        while third.recv(4096):
            """libzmq's greeting may come first."""
    assert (context.room.used, context.room.refused) == (2, 1)
    kept.pop().close()
    hear(server, lambda: context.room.used < 2)
    kept.append(dial(server))
    assert (context.room.used, context.room.refused) == (2, 1)
    server.close()
    assert context.room.used == 0
    for each in kept:
        each.close()


def test_a_delivery_socket_needs_room_for_three_and_gives_it_back():
    with Context(room=DescriptorRoom(PUSH_DESCRIPTORS)) as context:
        server = context.server(["tcp://127.0.0.1:0"])
        push = context.push(server.endpoints[0])
        with pytest.raises(CannotListen, match="3 descriptors are in use"):
            context.push(server.endpoints[0])
        push.close()
        push.close()
        assert context.room.used == 0
        context.push(server.endpoints[0])


EXHAUSTED = """
import os, resource, sys, time
from penstock.transport.errors import CannotListen
from penstock.transport.zmq_sockets import Context
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
context = Context()
server = context.server([sys.argv[1]])
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
while True:
    try:
        context.push(server.endpoints[0])
        break
    except CannotListen:
        print("refused", flush=True)
        os.close(held.pop())
        time.sleep(0.01)  # a thread of libzmq closes what was refused
print("listens", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("url", ["ipc://PATH/s", "tcp://127.0.0.1:0", "tcp://[::1]:0"])
def test_a_delivery_socket_without_descriptors_left_is_refused_and_ends_no_process(tmp_path: Path, url: str):
    url = url.replace("PATH", str(tmp_path))
    ran = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[:2] == ["refused", "refused"]
    assert ran.stdout.split()[-1] == "listens"
