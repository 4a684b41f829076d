"""A gateway beside the broker: started, watched and ended by the supervisor."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from penstock.broker import ServeConfig
from penstock.gateway.config import GatewayConfig
from support.processes import Serving
from support.servers import descendants, end_of

from .conftest import NEEDS


@pytest.fixture(scope="module", autouse=True)
def redis() -> Any:
    for name in ("hiredis", "uvloop"):
        pytest.importorskip(name, reason=NEEDS)
    return pytest.importorskip("redis", reason=NEEDS)


@pytest.fixture
def serve(tmp_path, folder) -> Iterator[Callable[..., Serving]]:
    """Serve with a gateway; `more` are settings of the supervisor."""
    started: list[Serving] = []

    def start(*resp: str, wait: bool = True, **more: Any) -> Serving:
        gateway = GatewayConfig(url="", resp=resp or ("tcp://127.0.0.1:0", f"unix://{folder}/beside")).to_json()
        settings = {"listen": (f"unix://{folder}/s",), "gateway": gateway, **more}
        config = ServeConfig(**{"data": str(tmp_path / "data"), "board_rows": 64, "restart_most_s": 0.2, **settings})
        started.append(Serving(config, wait=wait))
        return started[-1]

    yield start
    for each in started:
        each.close()


def connected(redis: Any, serving: Serving) -> Any:
    place = serving.ready["resp"][0]
    return redis.Redis(port=int(place.rpartition(":")[2]), socket_timeout=60)


def test_it_is_started_and_ends_with_the_broker(serve, redis):
    serving = serve()
    assert set(serving.ready["pids"]) == {"broker", "keeper", "gateway"}
    assert [place.partition(":")[0] for place in serving.ready["resp"]] == ["tcp", "unix"]
    with connected(redis, serving) as client:
        assert client.xadd("t", {"n": 1}).endswith(b"-0")
    with end_of(serving.pid("gateway")) as ended:
        assert serving.end() == 0
        assert select.select([ended], [], [], 10)[0]
    assert serving.errors() == ""


def test_without_addresses_there_is_none(serve):
    serving = serve(gateway="")
    assert set(serving.ready) == {"event", "listen", "advertise", "data", "pids"}
    assert len(descendants(serving.process.pid)) == 2


def test_one_that_was_killed_is_started_again_at_the_same_addresses(serve, redis):
    serving = serve()
    before = serving.ready
    with connected(redis, serving) as client:
        client.xadd("t", {"n": 1})
        os.kill(serving.pid("gateway"), signal.SIGKILL)
        after = serving.wait_ready(other_than=before)
        assert after["resp"] == before["resp"]
        assert after["pids"]["gateway"] != before["pids"]["gateway"]
        assert client.xadd("t", {"n": 2}).endswith(b"-1")
        assert client.xlen("t") == 2


def test_a_terminal_that_is_closed_is_none_of_its_business(serve, redis):
    """The signal goes to the whole group, and the supervisor says what follows of it."""
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as of a service; what runs under nohup inherits another
    serving = serve()
    signal.signal(signal.SIGHUP, ignored)
    with connected(redis, serving) as client, end_of(serving.pid("gateway")) as ended:
        os.kill(serving.pid("gateway"), signal.SIGHUP)
        os.kill(serving.pid("gateway"), signal.SIGINT)
        client.xadd("t", {"n": 1})
        assert not select.select([ended], [], [], 0)[0]


def test_it_stays_when_the_broker_is_killed(serve, redis):
    serving = serve()
    gateway = serving.pid("gateway")
    with connected(redis, serving) as client:
        client.xadd("t", {"n": 1})
        serving.kill_broker()
        assert client.xadd("t", {"n": 2}).endswith(b"-1")
    assert serving.pid("gateway") == gateway


def test_it_follows_a_broker_that_listens_elsewhere_afterwards(serve, redis):
    serving = serve(listen=("tcp://127.0.0.1:0",))
    with connected(redis, serving) as client:
        client.xadd("t", {"n": 1})
        before, place = serving.pid("gateway"), serving.ready["resp"]
        serving.kill_broker()
        while serving.ready["pids"].get("gateway", before) == before:
            serving.wait_ready(other_than=serving.ready)
        assert serving.ready["resp"] == place
        assert client.xadd("t", {"n": 2}).endswith(b"-1")


def test_it_ends_when_the_supervisor_is_killed(serve):
    serving = serve()
    with end_of(serving.pid("gateway")) as ended, end_of(serving.pid("broker")) as broker:
        serving.process.kill()
        for each in (ended, broker):
            assert select.select([each], [], [], 30)[0]


def test_one_that_cannot_serve_is_a_sentence(serve, folder):
    serve(f"unix://{folder}/taken")
    second = serve(f"unix://{folder}/taken", wait=False, data=str(folder / "second"), listen=(f"unix://{folder}/s2",))
    assert second.process.wait(60) == 1
    assert "a process already listens" in second.errors()
    assert len(second.errors().splitlines()) == 1
