"""Without an address, a program finds the broker that the command line would find."""

from __future__ import annotations

import asyncio

import penstock
import pytest
from penstock import aio
from penstock.address import broker_url
from penstock.config import InvalidConfig


def test_the_environment_names_the_broker(broker, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", broker.unix)
    with penstock.connect(timeout=30) as client:
        assert client.url == broker.unix


def test_on_a_loop_too(broker, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", broker.unix)

    async def connected() -> str:
        async with await aio.connect(timeout=30) as client:
            return client.url

    assert asyncio.run(connected()) == broker.unix


def test_tasks_find_it_too(broker, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", broker.unix)
    with penstock.Tasks(timeout=30) as app:
        assert app.url == broker.unix
        assert app.client().url == broker.unix


def test_tasks_that_name_a_broker_use_that_one(monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", "mem://other")
    assert penstock.Tasks("mem://this").url == "mem://this"


def test_otherwise_it_is_where_this_user_serves_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert broker_url() == f"unix://{tmp_path}/penstock/broker.sock"


def test_a_default_directory_that_others_can_write_is_not_trusted(monkeypatch, tmp_path):
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock").chmod(0o777)
    with pytest.raises(InvalidConfig, match="only you can write"):
        penstock.connect(timeout=1)
