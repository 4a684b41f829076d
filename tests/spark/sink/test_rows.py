"""Rows on their way to producers: taken apart by topic, in order, gathered, bounded."""

from __future__ import annotations

import pyarrow as pa
import pytest
from penstock.spark.sink import rows as rows_module
from penstock.spark.sink.columns import Layout
from penstock.spark.sink.rows import SinkRows, by_topic
from penstock.storage.errors import InvalidBatch
from penstock.transport.producer_session import TARGET_BYTES

VALUES = Layout(("value",), (0,), "flights")
TO_TOPICS = Layout(("value", "key"), (2, 0), "", 1)


class Sender:
    """Keeps what it is given."""

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        self.tables: list[pa.Table] = []

    def send_many_nowait(self, values: pa.Table) -> int:
        self.tables.append(values)
        return values.num_rows

    @property
    def values(self) -> list[bytes]:
        return [value for table in self.tables for value in table["value"].to_pylist()]


class Senders(dict[str, Sender]):
    """A sender for each topic that is asked for."""

    def __missing__(self, topic: str) -> Sender:
        self[topic] = Sender()
        return self[topic]


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], ["value"])


def keyed(*found: tuple[str, str | None, str]) -> pa.RecordBatch:
    """Rows of key, topic and value."""
    keys, topics, values = zip(*found, strict=True)
    return pa.record_batch([pa.array(column, pa.string()) for column in (keys, topics, values)], ["k", "t", "v"])


def test_columns_get_the_names_of_records():
    ((topic, part),) = by_topic(keyed(("a", "x", "1"), ("b", "x", "2")), TO_TOPICS)
    assert topic == "x"
    assert part.to_pydict() == {"value": ["1", "2"], "key": ["a", "b"]}


def test_rows_are_taken_apart_by_topic_and_keep_their_order():
    found = keyed(*((str(number), "xyz"[number * number % 3], str(number)) for number in range(50)))
    parts = dict(by_topic(found, TO_TOPICS))
    assert {topic: part["value"].to_pylist() for topic, part in parts.items()} == {
        "x": [str(number) for number in range(50) if number % 3 == 0],
        "y": [str(number) for number in range(50) if number % 3],
    }
    assert all(part["key"].to_pylist() == part["value"].to_pylist() for part in parts.values())


def test_a_batch_without_rows_names_no_topic():
    assert list(by_topic(batch(), VALUES)) == []


def test_a_row_without_a_topic_is_refused():
    with pytest.raises(InvalidBatch, match="1 of 1 rows have null as their topic"):
        list(by_topic(keyed(("a", None, "1")), TO_TOPICS))


def test_rows_gather_until_there_is_enough_for_every_partition():
    sender = Sender(partitions=2)
    rows = SinkRows(VALUES, lambda topic: sender)
    half = batch(bytes(TARGET_BYTES))
    rows.add(half)
    assert sender.tables == []
    rows.add(half)
    assert [table.num_rows for table in sender.tables] == [2]
    rows.add(half)
    rows.send()
    assert [table.num_rows for table in sender.tables] == [2, 1]
    assert rows.count == 3


def test_nothing_is_sent_twice_and_nothing_for_nothing():
    senders = Senders()
    rows = SinkRows(TO_TOPICS, senders.__getitem__)
    rows.add(keyed(("a", "x", "1"), ("b", "y", "2")))
    rows.send()
    rows.send()
    assert {topic: sender.values for topic, sender in senders.items()} == {"x": ["1"], "y": ["2"]}
    assert all(len(sender.tables) == 1 for sender in senders.values())


def test_what_gathers_over_many_topics_is_bounded(monkeypatch):
    monkeypatch.setattr(rows_module, "GATHERED_BYTES_MAX", 1000)
    senders = Senders()
    rows = SinkRows(TO_TOPICS, senders.__getitem__)
    for number in range(20):
        rows.add(keyed(("k", f"t{number}", "v" * 100)))
    assert any(sender.tables for sender in senders.values())
    rows.send()
    assert len(senders) == 20
    assert all(sender.values == ["v" * 100] for sender in senders.values())
