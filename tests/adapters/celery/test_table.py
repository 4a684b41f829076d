"""Values by key in a topic, beside a list of all that was put."""

from __future__ import annotations

import random

import pytest
from penstock.adapters.celery import table as tables
from penstock.adapters.celery.table import ValuesByKey
from penstock.testing import MemoryBroker


@pytest.mark.parametrize("seed", range(40))
def test_a_table_knows_what_was_put_whatever_was_looked_for_before(seed, monkeypatch):
    """Of a key that was announced, from then on; of any other, what retention left."""
    chance = random.Random(seed)
    monkeypatch.setattr(tables, "PARTITIONS", 2)
    monkeypatch.setattr(tables, "KEYS_MOST", chance.choice([3, 100]))
    monkeypatch.setattr(tables, "READ_MOST", chance.choice([2, 100]))
    keys = [b"%d" % number for number in range(8)]
    put: dict[bytes, list[bytes | None]] = {key: [] for key in keys}
    fresh = iter(range(10**6))
    with MemoryBroker() as broker, broker.connect() as client:
        ours, theirs = ValuesByKey(client, "t", None), ValuesByKey(client, "t", None)
        for _ in range(120):
            match chance.choice(["put", "put", "look", "look several", "announce"]):
                case "put":
                    key, value = chance.choice(keys), chance.choice([None, b"%d" % chance.randrange(99)])
                    theirs.put(key, value)
                    put[key].append(value)
                case "look":
                    key = chance.choice(keys)
                    assert ours.values(key) == put[key]
                case "look several":
                    some = chance.sample(keys, 3)
                    assert ours.values_of(some) == [put[key] for key in some]
                case "announce":
                    key = b"new%d" % next(fresh)
                    keys.append(key)
                    put[key] = []
                    ours.begin(key)
        assert ours.values_of(keys) == [put[key] for key in keys]


def test_each_record_is_read_once_for_all_keys_that_were_announced(monkeypatch):
    monkeypatch.setattr(tables, "PARTITIONS", 1)
    with MemoryBroker() as broker, broker.connect() as client:
        table = ValuesByKey(client, "t", None)
        keys = [b"%d" % number for number in range(50)]
        for key in keys:
            table.begin(key)
        for key in keys:
            table.put(key, key)
        read, reads = client.read, []
        monkeypatch.setattr(client, "read", lambda *place, **how: reads.append(place) or read(*place, **how))
        assert [table.values(key) for key in keys] == [[key] for key in keys]
        assert len(reads) == 1


def test_what_retention_took_between_two_looks_is_gone_and_the_rest_is_there():
    with MemoryBroker() as broker, broker.connect() as client:
        client.create_topic("t")
        table = ValuesByKey(client, "t", None)
        table.put(b"a", b"1")
        assert table.values(b"a") == [b"1"]
        table.put(b"b", b"2")
        client.trim("t", before="latest")
        table.put(b"b", b"3")
        assert table.values_of([b"a", b"b", b"c"]) == [[b"1"], [b"3"], []]
        table.put(b"c", b"4")
        assert table.values_of([b"c", b"a"]) == [[b"4"], [b"1"]]


def test_a_value_behind_others_that_were_not_read_is_noted_with_them(monkeypatch):
    monkeypatch.setattr(tables, "PARTITIONS", 1)
    with MemoryBroker() as broker, broker.connect() as client:
        table, theirs = ValuesByKey(client, "t", None), ValuesByKey(client, "t", None)
        table.begin(b"early")
        theirs.put(b"early", b"1")
        table._ends = client.ends(["t"])["t"]  # as a look at another partition leaves it
        table.begin(b"late")
        theirs.put(b"early", b"2")
        assert table.values(b"late") == []
        assert table.values(b"early") == [b"1", b"2"]
