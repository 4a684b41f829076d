"""kombu's own integration tests, over the transport of penstock: run in kombu's sources by tests/adapters/celery.

The classes are kombu's. The address of a broker stands in KOMBU_SUITE_URL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest
from kombu.utils import functional
from penstock.adapters.celery import link
from t.integration import common

import kombu_penstock  # noqa: F401  kombu learns of the transport before it loads serializers

URL = os.environ["KOMBU_SUITE_URL"]


@pytest.fixture
def connection() -> Iterator[kombu.Connection]:
    with kombu.Connection(URL) as made:
        yield made


@pytest.fixture
def invalid_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kombu.Connection:
    """Nothing listens there. One of the tests sets options of its own, so the timeout is not among them."""
    monkeypatch.setattr(link, "CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(functional, "sleep", lambda seconds: None)  # kombu's, for two seconds between its tries
    return kombu.Connection(f"penstock+unix://{tmp_path}/none")


@pytest.fixture
def failover_connection(tmp_path: Path) -> Iterator[kombu.Connection]:
    dead = f"penstock+unix://{tmp_path}/none"
    with kombu.Connection(f"{dead};{URL}", transport_options={"timeout": 0.1}, connect_timeout=10) as made:
        yield made


class TestBasicFunctionality(common.BasicFunctionality):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestPriority(common.BasePriority):
    PRIORITY_ORDER = "asc"


class TestMessage(common.BaseMessage):
    pass


class TestFailover(common.BaseFailover):
    """Without those that it inherits and that have one address: they are of TestBasicFunctionality."""

    test_failed_connect = test_failed_connection = test_failed_channel = test_failed_default_channel = None
