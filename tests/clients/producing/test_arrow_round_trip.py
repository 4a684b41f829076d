"""What comes out as Arrow goes in again as it is, by every way out, at every address."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.broker.errors import UnknownPartition
from penstock.clients import InvalidArgument, connect
from penstock.clients.memory_broker import MemoryBroker
from support.reading import until

PARTITIONS = 3
COLUMNS = ["value", "key", "headers", "timestamp", "offset", "topic", "partition"]
TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "timestamp": pa.timestamp("us", "UTC"),
    "offset": pa.int64(),
    "topic": pa.dictionary(pa.int32(), pa.string()),
    "partition": pa.int32(),
}
KEPT = ["partition", "offset", "value", "key", "headers", "timestamp"]
EVENT_US = 1_600_000_000_000_000
NAMES = itertools.count()


def filled(client: Any, topic: str) -> int:
    """Records of every shape in batches of every size and codec, in a new topic. Returns how many."""
    client.create_topic(topic, partitions=PARTITIONS, segment_bytes="1MB", commit="written")
    rng = random.Random(9)
    headers = [None, {}, {"empty": b""}, {"day": b"1", "": b"\x00", "ä": b"2"}, {"large": bytes(200_000)}]
    count = 0
    for codec in ("none", "lz4", "zstd"):
        with client.producer(topic, codec=codec) as producer:
            for partition in range(PARTITIONS):
                for number in range(rng.choice([1, 30])):
                    key, time = rng.choice([None, b"", b"k%d" % number]), rng.choice([None, EVENT_US + number])
                    producer.send_nowait(
                        b"%d" % rng.random() * rng.choice([0, 1, 500]),
                        key=key, headers=rng.choice(headers), timestamp=time, partition=partition,
                    )  # fmt: skip
                    count += 1
                producer.flush()
                count += producer.send_many([b"plain"] * 100, partition=partition)
    return count


def by_consumer(client: Any, topic: str, count: int) -> Iterator[pa.RecordBatch]:
    with client.consumer(topic) as consumer:
        yield from until(count, consumer.batches("arrow", columns=COLUMNS))


def by_range(client: Any, topic: str, count: int, **how: Any) -> Iterator[pa.RecordBatch]:
    for partition, part in enumerate(client.ends([topic])[topic].partitions):
        for batch in client.range(topic, partition, part.first, part.end, columns=COLUMNS, **how):
            yield batch.arrow()


def by_fetched_range(client: Any, topic: str, count: int) -> Iterator[pa.RecordBatch]:
    return by_range(client, topic, count, delivery="control")


def table_of(client: Any, topic: str, count: int, way: Callable[..., Iterator[pa.RecordBatch]]) -> pa.Table:
    """All of a topic, checked to be of the topic and the types that are promised."""
    found = pa.Table.from_batches(list(way(client, topic, count)))
    found.validate(full=True)
    assert found.schema.equals(pa.schema(TYPES), check_metadata=True)
    assert found.num_rows == count
    assert set(found.column("topic").cast(pa.string()).to_pylist()) == {topic}
    return found


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """What of records stays when they are sent again, by place."""
    return table.select(KEPT).sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()


@pytest.mark.parametrize("way", [by_consumer, by_range, by_fetched_range])
def test_what_came_out_goes_in_again(client, topic, way):
    count = filled(client, topic)
    found = table_of(client, topic, count, way)
    expected = rows(found)
    assert [row["partition"] for row in expected] == sorted(row["partition"] for row in expected)
    assert {len(row["headers"] or []) for row in expected} == {0, 1, 3}
    again = f"{topic}-again"
    client.create_topic(again, partitions=PARTITIONS)
    with client.producer(again, codec="zstd") as producer:
        assert producer.send_many(found) == count
    assert rows(table_of(client, again, count, way)) == expected
    for partition in range(PARTITIONS):
        records = client.read(again, partition, 0, max_records=count)
        assert [(record.value, record.key, record.timestamp) for record in records] == [
            (row["value"], row["key"], int(row["timestamp"].timestamp() * 1e6 + 0.5))
            for row in expected
            if row["partition"] == partition
        ]


def test_slices_go_in_as_well(client, topic):
    count = filled(client, topic)
    found = table_of(client, topic, count, by_range)
    again = f"{topic}-again"
    client.create_topic(again, partitions=PARTITIONS)
    with client.producer(again) as producer:
        for start in range(0, count, 37):
            producer.send_many(found.slice(start, 37))
    assert rows(table_of(client, again, count, by_range)) == rows(found)


def test_a_consumer_gives_the_usual_columns_unless_told_otherwise(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send(b"v", headers={"h": b""})
    with client.consumer(topic) as consumer:
        (batch,) = until(1, consumer.batches("arrow"))
        assert batch.schema.names == ["value", "key", "offset", "timestamp", "headers"]
        assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b""}]]
        consumer.seek("earliest")
        (batch,) = until(1, consumer.batches("arrow", columns=["partition", "value"]))
        assert batch.to_pydict() == {"partition": [0], "value": [b"v"]}
        for wrong, says in ((["valeu"], "did you mean 'value'"), (["priority"], "is none of"), ([], "reads nothing")):
            with pytest.raises(InvalidArgument, match=says):
                consumer.batches("arrow", columns=wrong)
        for format in ("records", "numpy"):
            with pytest.raises(InvalidArgument, match="columns= are those of batches"):
                consumer.batches(format, columns=["value"])


def test_the_first_records_of_a_batch_may_be_read_already(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many(pa.table({"value": [b"a", b"b", b"c"], "key": [None, b"", b"k"]}))
    with client.consumer(topic, positions={0: 1}) as consumer:
        (batch,) = until(2, consumer.batches("arrow", columns=["key", "partition", "offset"]))
    assert batch.to_pydict() == {"key": [b"", b"k"], "partition": [0, 0], "offset": [1, 2]}


def test_ranges_refuse_columns_that_they_left_out(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send(b"v", key=b"k", headers={"h": b"x"})
    for delivery in ("auto", "control"):
        (batch,) = client.range(topic, 0, 0, 1, columns=["value", "partition"], delivery=delivery)
        assert batch.arrow().to_pydict() == {"value": [b"v"], "partition": [0]}
        for name in ("key", "headers", "timestamp"):
            with pytest.raises(ValueError, match=f"column '{name}' was left out"):
                batch.arrow([name])
        (batch,) = client.range(topic, 0, 0, 1, columns=["headers"], delivery=delivery)
        assert batch.arrow().to_pydict() == {"headers": [[{"key": "h", "value": b"x"}]]}
        (batch,) = client.range(topic, 0, 0, 1, columns=["topic"], delivery=delivery)
        assert batch.arrow().to_pydict() == {"topic": [topic]}


def test_a_partition_that_is_not_there_is_refused_and_sent_by_key_without_its_column(client, topic):
    count = filled(client, topic)
    found = table_of(client, topic, count, by_range)
    narrow = f"{topic}-narrow"
    client.create_topic(narrow)
    with client.producer(narrow) as producer:
        with pytest.raises(UnknownPartition, match="has no partition 2: it has 1"):
            producer.send_many(found.combine_chunks())
        assert client.ends([narrow])[narrow].partitions[0].end == 0
        assert producer.send_many(found.drop_columns(["partition"])) == count


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    """A client in memory, for many small topics."""
    with MemoryBroker() as broker, connect(broker.url) as client:
        yield client


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
HEADERS = st.none() | st.dictionaries(TEXTS, st.binary(max_size=30), max_size=3)
TIMES = st.none() | st.integers(EVENT_US, 2 * EVENT_US)
ROWS = st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=4), HEADERS, TIMES), max_size=60)


@given(ROWS, st.sampled_from(["none", "lz4", "zstd"]), st.integers(1, 60), st.data())
def test_any_table_cut_anywhere_is_the_same_table_in_the_end(local, found, codec, step, data):
    """Through two topics, in random columns, partitions and pieces."""
    partitions = data.draw(st.lists(st.integers(0, 1), min_size=len(found), max_size=len(found)))
    columns = [list(column) for column in zip(*found, strict=True)] or [[], [], [], []]
    headers = [None if one is None else [{"key": k, "value": v} for k, v in one.items()] for one in columns[2]]
    arrays = [*columns[:2], headers, columns[3], partitions]
    table = pa.table(
        {
            name: pa.array(array, TYPES[name])
            for name, array in zip(["value", "key", "headers", "timestamp", "partition"], arrays, strict=True)
        }
    )
    first, second = (f"t{next(NAMES)}" for _ in range(2))
    tables = [table]
    for topic in (first, second):
        local.create_topic(topic, partitions=2)
        with local.producer(topic, codec=codec) as producer:
            for start in range(0, len(found), step):
                producer.send_many(tables[-1].slice(start, step))
        tables.append(pa.Table.from_batches(list(by_consumer_or_none(local, topic, len(found))), pa.schema(TYPES)))
    assert rows(tables[1]) == rows(tables[2])
    for partition in (0, 1):
        of_it = [row for row, number in zip(found, partitions, strict=True) if number == partition]
        read = tables[1].filter(pc.equal(tables[1].column("partition"), partition)).sort_by("offset")
        assert read.column("value").to_pylist() == [value for value, *_ in of_it]
        assert read.column("key").to_pylist() == [key for _, key, *_ in of_it]
        got = [{one["key"]: one["value"] for one in each or []} for each in read.column("headers").to_pylist()]
        assert got == [headers or {} for *_, headers, _ in of_it]


def by_consumer_or_none(client: Any, topic: str, count: int) -> Iterator[pa.RecordBatch]:
    return by_consumer(client, topic, count) if count else iter(())


def test_pandas_is_not_imported():
    pytest.importorskip("pandas", reason="pandas is not installed, so nothing could import it")
    program = """
import sys
import penstock
with penstock.connect("mem://") as client:
    client.create_topic("t", partitions=2)
    with client.producer("t") as producer, client.consumer("t") as consumer:
        producer.send(b"a", key=b"k", headers={"h": b""}, partition=0)
        producer.send(b"b", partition=0)
        batches = consumer.batches("arrow", columns=["value", "key", "headers", "partition", "timestamp", "topic"])
        for _ in range(3):
            producer.send_many(next(batches))
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
