"""The pytest fixtures `penstock_broker` and `penstock_client`, which come with the package as a plugin.

Contract: nothing else imports this, as it needs pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .memory_broker import MemoryBroker

if TYPE_CHECKING:
    from .client import Client


@pytest.fixture
def penstock_broker() -> Iterator[MemoryBroker]:
    """A fresh broker in memory, closed when the test ends."""
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def penstock_client(penstock_broker: MemoryBroker) -> Iterator[Client]:
    """A client of `penstock_broker`."""
    with penstock_broker.connect() as client:
        yield client
