"""Keys go where every other client sends them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from penstock.transport import partitioner

DOCUMENT = Path(partitioner.__file__).with_name("PROTOCOL.md")
VECTOR = re.compile(r"^\| `([0-9a-f]*)` \| `([0-9a-f]{16})` \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
COUNTS = (3, 16, 1000)


def vectors() -> list[tuple[bytes, int, list[int]]]:
    rows = VECTOR.findall(DOCUMENT.read_text())
    return [(bytes.fromhex(key), int(digest, 16), [int(each) for each in rest]) for key, digest, *rest in rows]


def test_the_vectors_of_the_document_hold():
    rows = vectors()
    assert len(rows) >= 8
    for key, digest, partitions in rows:
        assert [partitioner.partition_of(key, count) for count in COUNTS] == partitions
        assert [digest % count for count in COUNTS] == partitions


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_many_keys_go_where_each_of_them_goes(count):
    keys = [b"key-%d" % index for index in range(2000)]
    expected = [partitioner.partition_of(key, count) for key in keys]
    assert partitioner.partitions_of(keys, count).tolist() == expected


def test_no_partition_is_left_out_or_preferred():
    found = partitioner.partitions_of([b"key-%d" % index for index in range(8000)], 8)
    assert all(800 < each < 1200 for each in np.bincount(found, minlength=8))


@pytest.mark.parametrize("size", [0, 1, 500])
def test_a_split_keeps_the_order_and_loses_nothing(size):
    keys = [b"%d" % (index % 17) for index in range(size)]
    parts = partitioner.split_by_partition(keys, 4)
    assert sorted(position for _, positions in parts for position in positions.tolist()) == list(range(size))
    assert [partition for partition, _ in parts] == sorted({partitioner.partition_of(key, 4) for key in keys})
    for partition, positions in parts:
        assert positions.tolist() == sorted(positions.tolist())
        assert all(partitioner.partition_of(keys[position], 4) == partition for position in positions.tolist())


def test_records_without_a_key_stick_for_a_batch_and_go_round():
    sticky = partitioner.Sticky(3, first=5)
    seen = [sticky.partition] * 2 + [sticky.next_batch() for _ in range(4)]
    assert seen == [2, 2, 0, 1, 2, 0]
    sticky.grow(4)
    assert [sticky.next_batch() for _ in range(4)] == [1, 2, 3, 0]
