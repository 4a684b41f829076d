"""What a range makes of losses: damage, retention, topics that go, brokers that go and come back, cut logs."""

from __future__ import annotations

import glob
import os
import shutil
import signal
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.broker.errors import UnknownTopic
from penstock.clients import connect
from penstock.clients.ranges import fetched as fetched_range
from penstock.clients.ranges import mapped as mapped_range
from penstock.storage.batch import encode
from penstock.storage.errors import BadChecksum, Corrupt, Diverged, OutOfBounds
from penstock.storage.record import records
from support.processes import Serving

COUNT = 400
VALUES = [b"%04d" % number + bytes(5000) for number in range(COUNT)]
WAYS = ["mapped", "control"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """So that a range takes many steps."""
    monkeypatch.setattr(mapped_range, "CHUNK_BYTES", 30_000)
    monkeypatch.setattr(fetched_range, "PIECE_BYTES", 30_000)


def fill(client, topic, values=VALUES):
    client.create_topic(topic, segment_bytes="256KB", commit="written")
    send(client, topic, values)


def send(client, topic, values):
    """In batches of four."""
    with client.producer(topic) as producer:
        for at in range(0, len(values), 4):
            producer.send_many(values[at : at + 4])


def read(batches, start=0):
    return [record.value for batch in batches for record in records(batch) if record.offset >= start]


@pytest.mark.parametrize("delivery", WAYS)
def test_a_range_goes_on_over_the_death_of_its_broker(tidying, tidied, topic, delivery):
    fill(tidied, topic)
    batches = tidied.range(topic, 0, 0, COUNT, delivery=delivery)
    seen = [next(batches)]
    before = tidying.ready
    os.kill(tidying.pid("broker"), signal.SIGKILL)
    seen.append(next(batches))
    tidying.wait_ready(60, other_than=before)
    assert read([*seen, *batches]) == VALUES


@pytest.mark.parametrize("delivery", WAYS)
def test_a_topic_that_is_deleted_meanwhile_is_said_to_be(tidied, topic, delivery):
    fill(tidied, topic)
    batches = tidied.range(topic, 0, 0, COUNT, delivery=delivery)
    next(batches)
    tidied.delete_topic(topic)
    with pytest.raises(UnknownTopic):
        list(batches)


@pytest.mark.parametrize("delivery", WAYS)
def test_what_retention_took_meanwhile_is_said_to_be_gone(tidied, topic, delivery):
    fill(tidied, topic)
    batches = tidied.range(topic, 0, 0, COUNT, delivery=delivery)
    next(batches)
    tidied.alter_topic(topic, retention_bytes="64KB")
    send(tidied, topic, VALUES[:4])
    while (part := tidied.topic(topic).partitions[0]).first < COUNT - 100 or part.segments > 2:
        tidied.ends([topic], known=tidied.ends([topic]), wait=0.05)
    while len(glob.glob(f"{part.directory}/*.segment")) > 2:
        tidied.ends([topic], known=tidied.ends([topic]), wait=0.05)
    with pytest.raises(OutOfBounds) as caught:
        list(batches)
    first = tidied.topic(topic).partitions[0].first
    assert 0 < caught.value.offset <= first
    with pytest.raises(OutOfBounds, match=f"it has {first} to"):
        tidied.range(topic, 0, 0, COUNT, delivery=delivery)
    assert read(tidied.range(topic, 0, first, COUNT, delivery=delivery), first) == VALUES[first:]


def test_a_damaged_record_ends_a_range_which_goes_on_behind_it(tidied, topic):
    fill(tidied, topic)
    path, position = place_of(tidied, topic, VALUES[202])
    write(path, position, b"\xff")
    for delivery in WAYS:
        seen = []
        with pytest.raises(BadChecksum, match="records 200 to 203") as caught:
            seen.extend(tidied.range(topic, 0, 0, COUNT, delivery=delivery))
        assert read(seen) == VALUES[:200]
        assert caught.value.next_offset == 204
        assert read(tidied.range(topic, 0, 204, COUNT, delivery=delivery), 204) == VALUES[204:]
        trusting = read(tidied.range(topic, 0, 0, COUNT, delivery=delivery, verify=False))
        assert [at for at, value in enumerate(trusting) if value != VALUES[at]] == [202]
        keys_only = tidied.range(topic, 0, 0, COUNT, delivery=delivery, columns=["key"])
        assert sum(batch.record_count for batch in keys_only) == COUNT, "values were not asked for"


def test_a_damaged_header_ends_a_range_which_goes_on_behind_it(tidied, topic):
    fill(tidied, topic)
    path, position = place_of(tidied, topic, VALUES[200])
    start = path.read_bytes().rfind(bytes(encode(VALUES[200:204]))[8:20], 0, position) - 8
    write(path, start, b"\xff" * 8)
    for delivery in WAYS:
        for end in (COUNT, 204):
            seen = []
            with pytest.raises(Corrupt) as caught:
                seen.extend(tidied.range(topic, 0, 0, end, delivery=delivery))
            assert read(seen) == VALUES[:200]
            assert caught.value.next_offset == 204
        assert read(tidied.range(topic, 0, 204, COUNT, delivery=delivery), 204) == VALUES[204:]


def place_of(client, topic, value: bytes) -> tuple[Path, int]:
    """The segment that has a record, and where."""
    for path in Path(client.topic(topic).partitions[0].directory).glob("*.segment"):
        at = path.read_bytes().find(value)
        if at >= 0:
            return path, at
    raise AssertionError("no segment has it")


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_records_that_a_power_cut_took_are_not_taken_for_those_that_came_after(tmp_path):
    data, url = tmp_path / "data", f"unix://{tmp_path}/b.sock"
    config = ServeConfig(data=str(data), listen=(url,), board_rows=64)
    with Serving(config) as serving:
        with connect(url, timeout=60) as client:
            fill(client, "t", VALUES[:8])
        assert serving.end() == 0
    shutil.copytree(data, tmp_path / "copy")
    with Serving(config) as serving:
        with connect(url, timeout=60) as client:
            send(client, "t", VALUES[8:16])
            lost = client.ends(["t"])["t"].partitions[0]
        assert serving.end() == 0
    shutil.copy(data / "promises", tmp_path / "copy" / "promises")
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "copy", data)
    with Serving(config), connect(url, timeout=60) as client:
        send(client, "t", VALUES[100:120])
        assert lost.end == 16
        for delivery in WAYS:
            with pytest.raises(Diverged) as caught:
                list(client.range("t", 0, lost.end, 28, term=lost.term, delivery=delivery))
            assert caught.value.offset == 8
            assert read(client.range("t", 0, 0, 28, delivery=delivery)) == VALUES[:8] + VALUES[100:120]
