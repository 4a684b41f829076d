"""A program that commits one transaction after the other under one name: `python -m support.transaction_load`.

    URL NAME JOURNAL

Idea: what an epoch brings is determined by the name and the number, as in a batch of a job that is run again; a
program that starts anew asks which epoch was committed last and goes on behind it. It may be killed at any instant.
Its journal has an epoch once it was told that it is committed.
"""

from __future__ import annotations

import sys

import penstock
from support.load import Ending, Journal

TOPICS = {"a": 2, "b": 1}
RECORDS = 30
"""Of one epoch to one topic."""


def values_of(name: str, epoch: int, topic: str) -> list[bytes]:
    """What an epoch brings to a topic."""
    return [f"{name}/{epoch}/{topic}/{number}".encode() for number in range(RECORDS)]


def key_of(value: bytes) -> bytes:
    """Spreads the records of an epoch, the same ones to the same partitions."""
    return value.rpartition(b"/")[2]


class Committer:
    """Commits epochs under one name."""

    def __init__(self, client: penstock.Client, name: str, journal: Journal) -> None:
        self._client = client
        self._name = name
        self._journal = journal

    def run(self, ending: Ending) -> None:
        last = None
        while not ending.asked:
            try:
                last = self._client.transaction_epoch(self._name) or 0 if last is None else last
                self._commit(last + 1)
                last += 1
            except penstock.Error as error:
                print(f"{self._name}: {error!r}", file=sys.stderr, flush=True)
                last = None  # asking again waits for the broker

    def _commit(self, epoch: int) -> None:
        with self._client.transaction(self._name, epoch) as transaction:
            for topic in TOPICS:
                values = values_of(self._name, epoch, topic)
                producer = transaction.producer(topic)
                for value in values:
                    producer.send_nowait(value, key=key_of(value))
        self._journal.note(f"committed {epoch}")


def main(arguments: list[str]) -> None:
    url, name, journal = arguments
    ending = Ending()
    with penstock.connect(url, timeout=10.0) as client:
        Committer(client, name, Journal(journal)).run(ending)


if __name__ == "__main__":
    main(sys.argv[1:])
