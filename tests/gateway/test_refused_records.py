"""Records that clients of the gateway sent and the broker did not append are in the gateway's log."""

from __future__ import annotations

import signal
from typing import Any

import penstock
import pytest

from .conftest import NEEDS, GatewayProcess
from .test_overdue import own, stopped  # noqa: F401

redis = pytest.importorskip("redis", reason=NEEDS)


def test_the_log_says_which_records_were_refused_and_why(broker: Any):
    process = GatewayProcess(broker.url)
    with penstock.connect(broker.ready["listen"][0]) as native, redis.Redis(port=process.port) as client:
        client.xadd("refused", {"f": "v"})
        native.delete_topic("refused")
        with pytest.raises(redis.ResponseError, match="unknown_topic"):
            client.xadd("refused", {"f": "a secret"})
        client.xadd("refused", {"f": "v"})  # the topic is made anew
        native.delete_topic("refused")
    process.process.send_signal(signal.SIGTERM)
    said = process.process.communicate(timeout=30)[1].decode()
    assert "batches of records that were not appended: 1, the last: refused of user default: unknown_topic: " in said
    assert "secret" not in said


def test_the_log_says_that_the_broker_did_not_answer(own: Any):  # noqa: F811
    process = GatewayProcess(own.url, options=("--set", "timeout_s=0.5s"))
    with redis.Redis(port=process.port, retry=None) as client:
        client.xadd("late", {"f": "v"})
        with stopped(own), pytest.raises(redis.ResponseError, match="timed_out"):
            client.xadd("late", {"f": "v"})
    process.process.send_signal(signal.SIGTERM)
    said = process.process.communicate(timeout=30)[1].decode()
    assert "batches of records that were not appended: 1, the last: late of user default: timed_out: " in said
