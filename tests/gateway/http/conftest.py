"""Clients of HTTP at the door of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import GatewayProcess


@pytest.fixture(params=["tcp", "unix"])
def http(gateway: GatewayProcess, folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of httpx."""
    import httpx

    unix = request.param == "unix"
    transport = httpx.HTTPTransport(uds=str(folder / "h")) if unix else None
    url = "http://gateway" if unix else gateway.http_url
    with httpx.Client(base_url=url, transport=transport, timeout=60, trust_env=False) as client:
        yield client
