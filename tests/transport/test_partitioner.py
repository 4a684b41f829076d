"""Keys go where every other client sends them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from penstock.transport import partitioner as module
from penstock.transport.murmur2 import SHORT_BYTES, murmur2
from penstock.transport.partitioner import PARTITIONERS, Partitioner, partition_of
from support.kafka_keys import MURMUR2

DOCUMENT = Path(module.__file__).with_name("PROTOCOL.md")
VECTOR = re.compile(r"^\| `([0-9a-f]*)` \| `([0-9a-f]{16}|[0-9a-f]{8})` \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
COUNTS = (3, 16, 1000)


@pytest.fixture(params=PARTITIONERS)
def partitioner(request: pytest.FixtureRequest) -> Partitioner:
    return PARTITIONERS[request.param]


def vectors() -> list[tuple[str, bytes, int, list[int]]]:
    rows = VECTOR.findall(DOCUMENT.read_text())
    return [
        ("xxh3" if len(digest) == 16 else "murmur2", bytes.fromhex(key), int(digest, 16), [int(each) for each in rest])
        for key, digest, *rest in rows
    ]


@pytest.mark.parametrize("name", PARTITIONERS)
def test_the_vectors_of_the_document_hold(name: str):
    rows = [row for row in vectors() if row[0] == name]
    assert len(rows) >= 8
    for _, key, digest, partitions in rows:
        assert PARTITIONERS[name].hash(key) == digest
        assert [PARTITIONERS[name].of(key, count) for count in COUNTS] == partitions
        assert [digest % count for count in COUNTS] == partitions


def test_names_of_the_broker_go_by_xxh3():
    assert [partition_of(b"penstock", count) for count in COUNTS] == [2, 7, 303]


def test_murmur2_is_that_of_kafka():
    assert [murmur2(key) for key in MURMUR2] == [expected & 0x7FFFFFFF for expected in MURMUR2.values()]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_many_keys_go_where_each_of_them_goes(partitioner: Partitioner, count: int):
    lengths = random.Random(count)
    keys = [lengths.randbytes(lengths.choice([0, 1, 2, 3, 4, 5, 7, 8, 31])) for _ in range(2000)]
    expected = [partitioner.of(key, count) for key in keys]
    assert partitioner.of_each(keys, count).tolist() == expected


@pytest.mark.parametrize(
    "sizes", [[], [0], [3], [4], [SHORT_BYTES], [SHORT_BYTES + 1], [1000, 0, SHORT_BYTES, 7, 4096]]
)
def test_keys_of_all_lengths_go_where_each_of_them_goes(partitioner: Partitioner, sizes: list[int]):
    keys = [random.Random(size).randbytes(size) for size in sizes]
    assert partitioner.of_each(keys, 1000).tolist() == [partitioner.of(key, 1000) for key in keys]


def test_keys_that_are_no_bytes_are_a_type_error(partitioner: Partitioner):
    for wrong in (5, None):
        with pytest.raises(TypeError):
            partitioner.of_each([b"good", wrong], 3)  # pyright: ignore[reportArgumentType]


def test_no_partition_is_left_out_or_preferred(partitioner: Partitioner):
    found = partitioner.of_each([b"key-%d" % index for index in range(8000)], 8)
    assert all(800 < each < 1200 for each in np.bincount(found, minlength=8))


@pytest.mark.parametrize("size", [0, 1, 500])
def test_a_split_keeps_the_order_and_loses_nothing(partitioner: Partitioner, size: int):
    keys = [b"%d" % (index % 17) for index in range(size)]
    parts = partitioner.split(keys, 4)
    assert sorted(position for _, positions in parts for position in positions.tolist()) == list(range(size))
    assert [partition for partition, _ in parts] == sorted({partitioner.of(key, 4) for key in keys})
    for partition, positions in parts:
        assert positions.tolist() == sorted(positions.tolist())
        assert all(partitioner.of(keys[position], 4) == partition for position in positions.tolist())
