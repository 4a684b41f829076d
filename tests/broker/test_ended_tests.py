"""Tests that are ended or killed leave no process behind: the kernel ends what they started."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from penstock.gateway.config import GatewayConfig
from support.processes import TESTS
from support.servers import end_of

TEST = """
import json, sys
from penstock.broker import ServeConfig
from support.processes import Serving

serving = Serving(ServeConfig.from_json(sys.argv[1]))
print(json.dumps([serving.process.pid, *serving.ready["pids"].values()]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_test_that_is_ended_takes_its_broker_and_gateway_along(tmp_path, number):
    pytest.importorskip("hiredis", reason="needs the extra gateway")
    gateway = GatewayConfig(url="", resp=("tcp://127.0.0.1:0",)).to_json()
    config = {"data": str(tmp_path / "data"), "listen": ["tcp://127.0.0.1:0"], "gateway": gateway, "board_rows": 64}
    command = [sys.executable, "-c", TEST, json.dumps(config)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TESTS, stdin=pipe, stdout=pipe) as test, ExitStack() as watched:
        assert test.stdout is not None
        ends = [watched.enter_context(end_of(pid)) for pid in json.loads(test.stdout.readline())]
        assert len(ends) == 4
        test.send_signal(number)
        for end in ends:
            assert select.select([end], [], [], 30)[0]
