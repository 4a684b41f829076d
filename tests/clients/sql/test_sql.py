"""`client.sql`: queries over topics, and what they read of them."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import penstock
import pytest
from penstock import aio
from penstock.clients.descriptions import Topic
from penstock.clients.errors import InvalidQuery
from penstock.clients.sql import tables
from penstock.clients.sql.bounds import Bounds, Span

pytest.importorskip("duckdb", reason="SQL runs in DuckDB")
pa = pytest.importorskip("pyarrow", reason="its answers are Arrow tables")

PATIENCE_S = 60.0
KEYS = [b"UA", b"AA", b"B6"]
OLD = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["file", "mem"])
def url(request, tmp_path) -> str:
    return f"file://{tmp_path / 'data'}" if request.param == "file" else f"mem://{tmp_path.name}"


@pytest.fixture
def client(url):
    with penstock.connect(url) as client:
        client.create_topic("flights", partitions=2)
        with client.producer("flights") as producer:
            for begin in range(0, 60, 20):
                for partition in range(2):
                    values = [b"%d" % number for number in range(begin, begin + 20)]
                    producer.send_many(values, keys=[KEYS[n % 3] for n in range(20)], partition=partition)
        yield client


@pytest.fixture
def read(monkeypatch) -> list[tuple[Any, ...]]:
    """What each scan reads: columns and bounds."""
    seen, original = list[tuple[Any, ...]](), tables.record_batches

    def spied(topic: Topic, read: Any, names: tuple[str, ...], bounds: Bounds) -> Any:
        seen.append((names, bounds))
        return original(topic, read, names, bounds)

    monkeypatch.setattr(tables, "record_batches", spied)
    return seen


def test_records_are_grouped_by_key_from_the_column_of_keys_alone(client, read) -> None:
    found = client.sql("select decode(key) k, count(*) n from flights group by key order by k")
    assert found.to_pylist() == [{"k": "AA", "n": 42}, {"k": "B6", "n": 36}, {"k": "UA", "n": 42}]
    assert [names for names, _ in read] == [("key",)]


def test_counting_reads_no_values(client, read) -> None:
    assert client.sql("select count(*) n from flights").to_pylist() == [{"n": 120}]
    assert [names for names, _ in read] == [("offset",)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('"offset" >= 25 and "offset" < 45', range(25, 45)),
        ('"offset" > 25 and "offset" <= 45', range(26, 46)),
        ('"offset" = 33', range(33, 34)),
        ('"offset" between 59 and 70', range(59, 60)),
        ('"offset" < 0', range(0)),
    ],
)
def test_a_condition_on_offsets_bounds_what_is_read_and_holds_exactly(client, read, condition, expected) -> None:
    rows = client.sql(f'select "offset" o, decode(value) v from flights where partition = 1 and {condition} order by o')
    assert [(row["o"], row["v"]) for row in rows.to_pylist()] == [(number, str(number)) for number in expected]
    for names, bounds in read:
        assert names == ("offset", "partition", "value")
        assert bounds.partition == Span(1, 1)
        assert bounds.offset != Span()


def test_partitions_and_offsets_outside_of_the_bounds_are_never_asked_for(client, monkeypatch) -> None:
    asked = []

    def read(topic: str, partition: int, start: int, end: int, columns: Any) -> Any:
        asked.append((topic, partition, start, end, tuple(columns)))
        return client.range(topic, partition, start, end, columns=columns)

    bounds = Bounds(offset=Span(30, 39), partition=Span(1, 5))
    found = list(tables.record_batches(client.topic("flights"), read, ("offset",), bounds))
    assert asked == [("flights", 1, 30, 40, ("offset",))]
    assert [offset for batch in found for offset in batch["offset"].to_pylist()] == list(range(30, 40))


def test_batches_of_another_time_are_passed_over_unless_records_have_times_of_their_own(client) -> None:
    topic, read = client.topic("flights"), lambda *place: client.range(*place[:4], columns=place[4])
    past = Bounds(timestamp=Span(most=0))
    assert list(tables.record_batches(topic, read, ("timestamp",), past)) == []
    client.producer("flights").send(b"early", timestamp=OLD, partition=0)
    rows = client.sql("select decode(value) v from flights where timestamp < timestamptz '2020-01-02 00:00:00+00'")
    assert rows.to_pylist() == [{"v": "early"}]
    assert client.sql("select count(*) n from flights where timestamp > now() - interval 1 hour").to_pylist() == [
        {"n": 120}
    ]


def test_all_columns_are_what_the_records_have(client) -> None:
    client.create_topic("one")
    client.producer("one").send(None, key=b"k", headers={"h": b"1"}, timestamp=OLD)
    (row,) = client.sql("select * from one").to_pylist()
    assert row == {
        "offset": 0, "timestamp": OLD, "partition": 0, "key": b"k", "value": None,
        "headers": [{"key": "h", "value": b"1"}], "topic": "one",
    }  # fmt: skip


def test_topics_are_joined_and_names_that_are_no_words_are_quoted(client) -> None:
    client.create_topic("air-lines")
    client.producer("air-lines").send(b"United", key=b"UA")
    rows = client.sql(
        'with names as (select * from "air-lines") select decode(n.value) v, count(*) c '
        "from flights f join names n on f.key = n.key group by v"
    )
    assert rows.to_pylist() == [{"v": "United", "c": 42}]
    assert client.sql("select 1 a").to_pylist() == [{"a": 1}]


@pytest.mark.parametrize(
    ("query", "error", "text"),
    [
        ("selec", InvalidQuery, "syntax error"),
        ("select nope from flights", InvalidQuery, "nope"),
        ("select * from nope", penstock.errors.UnknownTopic, "nope"),
        ("select * from read_csv('/etc/passwd')", InvalidQuery, "disabled"),
        ("set enable_external_access = true", InvalidQuery, "is no query"),
        ("create table flights as select 1", InvalidQuery, "is no query"),
        ("select 1; select 2", InvalidQuery, "is no query"),
        (7, penstock.errors.InvalidArgument, "query=7"),
    ],
)
def test_what_is_no_query_over_topics_is_refused(client, query, error, text) -> None:
    with pytest.raises(error, match=text):
        client.sql(query)


def test_an_error_of_reading_is_the_one_that_range_raises(client) -> None:
    topic = client.topic("flights")
    from penstock.clients.sql.query import run_query

    def gone(*place: Any) -> Any:
        raise penstock.errors.OutOfBounds("retention was faster")
        yield

    with pytest.raises(penstock.errors.OutOfBounds, match="retention was faster"):
        run_query("select max(value) from flights", [topic], gone, Future())


def test_on_an_event_loop_a_query_runs_beside_it(client, url) -> None:
    async def main() -> list[Any]:
        async with aio.connect(url) as other:
            found = await other.sql("select decode(key) k, count(*) n from flights group by key order by k")
            return found.to_pylist()

    assert asyncio.run(main()) == [{"k": "AA", "n": 42}, {"k": "B6", "n": 36}, {"k": "UA", "n": 42}]


def test_a_query_of_a_task_that_is_cancelled_ends(url, client, monkeypatch) -> None:
    """Its thread is the loop's, which waits for it when it is closed."""
    there, original = threading.Event(), tables.record_batches

    def telling(*args: Any) -> Any:
        there.set()
        return original(*args)

    async def main() -> None:
        async with aio.connect(url) as other:
            query = "select count(*) from " + ", ".join(f"flights f{number}" for number in range(8))
            asking = asyncio.ensure_future(other.sql(query))
            assert await asyncio.get_running_loop().run_in_executor(None, there.wait, PATIENCE_S)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

    monkeypatch.setattr(tables, "record_batches", telling)
    running = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    running.start()
    running.join(2 * PATIENCE_S)
    assert not running.is_alive(), "the query goes on"


def test_control_c_ends_a_query_wherever_it_is(client, monkeypatch) -> None:
    caller, original, told = threading.get_ident(), tables.record_batches, threading.Lock()

    def interrupting(*args: Any) -> Any:
        if told.acquire(blocking=False):  # the first of many scans
            signal.pthread_kill(caller, signal.SIGINT)
        return original(*args)

    monkeypatch.setattr(tables, "record_batches", interrupting)
    with pytest.raises(KeyboardInterrupt):
        client.sql("select count(*) from " + ", ".join(f"flights f{number}" for number in range(8)))
    monkeypatch.undo()
    assert client.sql("select count(*) from flights").num_rows == 1
