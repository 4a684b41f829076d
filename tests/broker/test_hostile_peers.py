"""What a peer that sends nonsense gets from a real broker: cut off, counted, and the others served."""

from __future__ import annotations

import sys

import pytest
from penstock.broker import ServeConfig
from penstock.transport import messages as m
from support.processes import Serving, until
from support.raw_client import RawClient

NONSENSE = ([b"\xff" * 40], [b"", b""], [b"\x93\x16\x01"], [b"not msgpack", b"payload"])

WITHOUT_A_READER = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 2); os.execv(sys.argv[1], sys.argv[1:])"


def send_nonsense(serving: Serving, frames: list[bytes]) -> None:
    """Send it on a connection of its own, and wait until that is cut off."""
    hostile = RawClient(serving.url)
    hostile.ask(lambda request: m.Ping(request))
    connections = hostile.socket.connections
    hostile.socket.send(frames)
    while hostile.socket.connected and hostile.socket.connections == connections:
        hostile.socket.poll(5.0)
    hostile.close()


def test_a_peer_is_cut_off_also_when_the_reader_of_standard_error_has_left(tmp_path):
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/b.sock",))
    with Serving(config, under=(sys.executable, "-c", WITHOUT_A_READER)) as serving:
        ready = serving.ready
        send_nonsense(serving, NONSENSE[0])
        with RawClient(serving.url) as good:
            good.ask(lambda request: m.Ping(request))
        serving.watch(0.0)
        assert serving.ready == ready, "it serves on, and no other was started"
        assert serving.end() == 0


@pytest.mark.parametrize("scheme", ["unix", "ipc"])
def test_hostile_peers_are_cut_off_in_one_line_while_others_are_served(tmp_path, scheme):
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"{scheme}://{tmp_path}/b.sock",))
    with Serving(config) as serving:
        good = RawClient(serving.url)
        topic = good.create_topic("t")
        for _ in range(5):
            for frames in NONSENSE:
                send_nonsense(serving, frames)
        answer, _ = good.ask(lambda request: m.ListTopics(request, ["t"]))
        assert answer.topics[0].topic == topic
        good.close()
        said: list[str] = []
        assert until(lambda: said.append(serving.errors()) or "cut off" in said[-1], serving)
        assert said[-1].count("cut off") < 5 * len(NONSENSE)
