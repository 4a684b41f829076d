"""All readable records of topics, in order."""

from __future__ import annotations

from penstock.clients import Client
from penstock.storage.record import Record


def records(client: Client, topic: str) -> list[Record]:
    """Every record of a topic, partition by partition."""
    found = client.topic(topic)
    return [record for part in found.partitions for record in _all_of(client, topic, part.partition, part.first)]


def _all_of(client: Client, topic: str, partition: int, first: int) -> list[Record]:
    found: list[Record] = []
    while more := client.read(topic, partition, found[-1].offset + 1 if found else first, max_records=10_000):
        found += more
    return found


def texts(client: Client, topic: str) -> list[str]:
    """The values as text."""
    return [record.value.decode() for record in records(client, topic)]


def open_stages(client: Client) -> int:
    """How many stages the broker keeps for transactions that may still be committed."""
    return client.stats()["stages.open"]
