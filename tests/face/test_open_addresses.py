"""Every door in one table: what other machines can reach needs authentication, or a word that it is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from penstock.broker import ServeConfig
from penstock.broker.errors import InsecureListen
from penstock.exporter import ExporterConfig
from penstock.gateway.config import GatewayConfig

DOORS: dict[str, Callable[..., Any]] = {
    "broker": lambda place, **more: ServeConfig(data="/x", listen=(place,), **more).addresses(),
    "resp": lambda place, **more: GatewayConfig(url="", resp=(place,), **more).addresses(),
    "http": lambda place, **more: GatewayConfig(url="", http=(place,), **more).addresses(),
    "metrics": lambda place, **more: ExporterConfig(url="", metrics=(place,), **more).addresses(),
}
GUARDS: dict[str, dict[str, Any]] = {
    "broker": {"access": "/access", "broker_key": "/key"},
    "resp": {"users": "/users"},
    "http": {"users": "/users"},
    "metrics": {"users": "/users"},
}
"""What makes clients authenticate."""

OPEN = ["tcp://0.0.0.0:1", "tcp://*:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tcp://example.org:1", "tcp://128.0.0.1:1"]
CLOSED = ["tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://localhost:1", "tcp://[::1]:1", "unix:///run/x"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("place", OPEN)
def test_what_other_machines_reach_is_refused_unless_guarded_or_insisted_upon(door: str, place: str):
    with pytest.raises(InsecureListen, match=r"can be reached from other machines.*127\.0\.0\.1.*--insecure"):
        DOORS[door](place)
    assert DOORS[door](place, insecure=True)
    assert DOORS[door](place, **GUARDS[door])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("place", CLOSED)
def test_paths_and_loopback_need_nothing(door: str, place: str):
    assert DOORS[door](place)


def test_users_of_a_broker_without_a_key_are_no_guard_over_tcp_and_insecure_does_not_change_that():
    for place in ("tcp://127.0.0.1:1", "tcp://0.0.0.0:1"):
        with pytest.raises(InsecureListen, match="--broker-key"):
            DOORS["broker"](place, access="/access", insecure=True)
    with pytest.raises(InsecureListen):
        DOORS["broker"]("tcp://0.0.0.0:1", broker_key="/key")
