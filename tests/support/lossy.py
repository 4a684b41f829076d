"""Logs of which a record was lost, which an operator accepted."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.storage.files import Files
from penstock.storage.repair import repair

HEADER, VALUE = -100, 0
"""Where a batch is damaged, as seen from its value."""


def spoil(log: Path, value: bytes, at: int) -> None:
    """Flip a bit where a value stands, or in the header before it."""
    (path,) = (path for path in log.glob("*.segment") if value in path.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(value) + at] ^= 1
    path.write_bytes(data)


def give_up(log: Path) -> None:
    """Accept what is lost of a log that nothing has open."""
    assert repair(Files(), str(log), now_us=1, accept_loss=True).after.ok


def lossy(data: Path, place: int) -> None:
    """A topic t of which the second of four records was lost, and that was accepted."""
    with penstock.connect(f"file://{data}") as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            for value in (b"before", b"spoiled", b"behind", b"last"):
                producer.send(value)
    (log,) = data.glob("topics/*/0")
    spoil(log, b"spoiled", place)
    give_up(log)
