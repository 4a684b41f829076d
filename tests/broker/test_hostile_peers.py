"""What a peer that sends nonsense gets from a real broker: cut off, counted, and the others served."""

from __future__ import annotations

import pytest
from penstock.broker import ServeConfig
from penstock.transport import messages as m
from support.processes import Serving, until
from support.raw_client import RawClient

NONSENSE = ([b"\xff" * 40], [b"", b""], [b"\x93\x16\x01"], [b"not msgpack", b"payload"])


@pytest.mark.parametrize("scheme", ["unix", "ipc"])
def test_hostile_peers_are_cut_off_in_one_line_while_others_are_served(tmp_path, scheme):
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"{scheme}://{tmp_path}/b.sock",))
    with Serving(config) as serving:
        good = RawClient(serving.url)
        topic = good.create_topic("t")
        for _ in range(5):
            for frames in NONSENSE:
                hostile = RawClient(serving.url)
                hostile.ask(lambda request: m.Ping(request))
                connections = hostile.socket.connections
                hostile.socket.send(frames)
                while hostile.socket.connected and hostile.socket.connections == connections:
                    hostile.socket.poll(5.0)
                hostile.close()
        answer, _ = good.ask(lambda request: m.ListTopics(request, ["t"]))
        assert answer.topics[0].topic == topic
        good.close()
        said: list[str] = []
        assert until(lambda: said.append(serving.errors()) or "cut off" in said[-1], serving)
        assert said[-1].count("cut off") < 5 * len(NONSENSE)
