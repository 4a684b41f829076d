"""What tests of spools do again and again."""

from __future__ import annotations

from typing import Any

from penstock.clients.spooling.forwarding import Forwarder


def stands(client: Any, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in client.read(topic, partition, 0, max_records=100_000)]


def forward_all(path: Any, client: Any) -> int:
    count = 0
    with Forwarder(str(path)) as forwarder:
        while found := forwarder.forward(client):
            count += found
    return count
