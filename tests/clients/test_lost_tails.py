"""Topics with commit="written" may lose their newest records in a power cut; others get those offsets then.

The cut is played by an older copy of the data directory. What promises were made is never lost: it was synced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.clients import connect
from penstock.storage.errors import Diverged, OutOfBounds
from support.processes import Serving

OLD = [b"old %d" % number for number in range(5)]
LOST = [b"lost %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(8)]


class Place:
    """A data directory that is served, and taken back to what it was before."""

    def __init__(self, folder: Path) -> None:
        self.data, self.copy = folder / "data", folder / "copy"
        self.url = f"ipc://{folder}/b.sock"
        self.config = ServeConfig(data=str(self.data), listen=(self.url,), board_rows=64)

    def remember(self) -> None:
        shutil.copytree(self.data, self.copy)

    def cut(self) -> None:
        shutil.copy(self.data / "promises", self.copy / "promises")
        shutil.rmtree(self.data)
        shutil.copytree(self.copy, self.data)

    def send(self, values: list[bytes]) -> None:
        with connect(self.url) as client, client.producer("t") as producer:
            for value in values:
                producer.send(value)


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    with Serving(place.config) as serving:
        with connect(place.url) as client:
            client.create_topic("t", commit="written")
        place.send(OLD)
        assert serving.end() == 0
    place.remember()
    return place


def read(consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [record.value for record in consumer.fetch(100, wait=20)]
    return found


def test_a_group_reads_again_from_its_cursor_and_misses_nothing_new(place):
    serving = Serving(place.config)
    with connect(place.url) as client, client.consumer("t", group="g", start="earliest") as consumer:
        place.send(LOST)
        assert read(consumer, 10) == OLD + LOST
        assert serving.end() == 0
        serving.close()
        place.cut()
        with Serving(place.config):
            place.send(NEW)
            assert read(consumer, 13) == OLD + NEW


def test_who_reads_alone_is_told_that_its_position_is_another_place_now(place):
    serving = Serving(place.config)
    with connect(place.url) as client:
        consumer = client.consumer("t", start="earliest")
        place.send(LOST)
        assert read(consumer, 10) == OLD + LOST
        assert serving.end() == 0
        serving.close()
        place.cut()
        with Serving(place.config):
            place.send(NEW)
            # Whether it asked before or after the others had its offsets.
            with pytest.raises((Diverged, OutOfBounds)):
                read(consumer, 1)


def test_who_reads_alone_goes_on_where_nothing_was_lost(place):
    serving = Serving(place.config)
    with connect(place.url) as client, client.consumer("t", start="earliest") as consumer:
        assert read(consumer, 5) == OLD
        assert serving.end() == 0
        serving.close()
        with Serving(place.config):
            place.send(NEW)
            assert read(consumer, 8) == NEW
