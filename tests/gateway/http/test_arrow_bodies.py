"""Arrow streams as bodies of messages: what pyarrow writes goes in, and what would grow, or is no stream, does not."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from penstock.clients.producing.pieces import Shape
from penstock.gateway.http import arrow_bodies
from penstock.gateway.http.arrow_bodies import table_of
from penstock.gateway.http.problems import Refusal
from penstock.gateway.http.producing import MANY

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
BINARY = bytes(range(256))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def stream(*batches: Any, **options: Any) -> bytes:
    """What pyarrow writes of record batches of one schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def messages(key: str) -> str:
    return f"/api/v1/queues/{key}/messages"


WHOLE = rows(
    value=pa.array([BINARY, b"", None], pa.binary()),
    key=pa.array([b"\xff", None, b""], pa.binary()),
    headers=pa.array([[("h", BINARY), ("", b"")], [], None], HEADERS),
    timestamp=pa.array([1, 1_700_000_000_000_000, 2], pa.timestamp("us", "UTC")),
)


def test_rows_become_messages_byte_for_byte(http, key, native):
    answer = http.post(messages(key), content=stream(WHOLE, WHOLE), headers=ARROW)
    assert (answer.status_code, answer.json()["count"]) == (201, 6)
    read = native.read(key, 0, 0)
    assert [(each.value, each.key, dict(each.headers), each.timestamp) for each in read] == 2 * [
        (BINARY, b"\xff", {"h": BINARY, "": b""}, 1),
        (b"", None, {}, 1_700_000_000_000_000),
        (None, b"", {}, 2),
    ]


def test_what_is_read_can_be_written_again(http, key, native):
    http.post(messages(key), content=stream(WHOLE), headers=ARROW)
    asked = {"params": {"max_messages": 10}, "headers": {"accept": ARROW["content-type"]}}
    read = http.get(messages(key), **asked).content
    assert http.post(messages(f"{key}-2"), content=read, headers=ARROW).status_code == 201
    again = pa.ipc.open_stream(http.get(messages(f"{key}-2"), **asked).content).read_all()
    assert again.equals(pa.ipc.open_stream(read).read_all())


def test_rows_go_to_partitions_by_column_by_parameter_or_by_key(http, key, native):
    native.create_topic(key, partitions=3)
    values = pa.array([b"a", b"b", b"c"])
    numbered = stream(rows(value=values, partition=pa.array([2, 0, 2], pa.int32())))
    assert http.post(messages(key), content=numbered, headers=ARROW, params={"partition": 1}).json()["count"] == 3
    http.post(messages(key), content=stream(rows(value=values)), headers=ARROW, params={"partition": 1})
    http.post(messages(key), content=stream(rows(value=values, key=pa.array([b"k"] * 3))), headers=ARROW)
    with native.producer(key) as producer:
        chosen = producer.send_nowait(b"d", key=b"k").partition
    found = [[each.value for each in native.read(key, number, 0)] for number in range(3)]
    wanted = [[b"b"], [b"a", b"b", b"c"], [b"a", b"c"]]
    wanted[chosen] += [b"a", b"b", b"c", b"d"]
    assert found == wanted


ONE = pa.array([b"x"])


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "no Arrow stream"),
        (b"{}", 400, "no Arrow stream"),
        (stream(WHOLE)[:-200], 400, "no Arrow stream"),
        (stream(WHOLE.slice(0, 0)), 400, "no message"),
        (stream(rows(value=ONE), compression="zstd"), 400, "compress"),
        (stream(rows(value=ONE.dictionary_encode())), 400, "without dictionaries"),
        (stream(rows(value=ONE.cast(pa.binary_view()))), 400, "without dictionaries"),
        (stream(rows(value=ONE, key=pa.array(["k"]).dictionary_encode())), 400, "without dictionaries"),
        (stream(rows(value=pa.array([1.5]))), 400, "'value' has type double"),
        (stream(rows(value=pa.array([1]))), 400, "binary or text"),
        (stream(rows(key=ONE)), 400, 'needs a column "value"'),
        (stream(rows(value=ONE, more=ONE)), 400, "'more'"),
        (stream(pa.record_batch([ONE, ONE], names=["value", "value"])), 400, "one name"),
        (stream(rows(value=ONE, headers=ONE)), 400, "'headers'"),
        (stream(rows(value=ONE, headers=pa.array([[(None, b"")]], HEADERS))), 400, "without a name"),
        (stream(rows(value=ONE, partition=pa.array([9]))), 404, "no partition 9"),
        (stream(rows(value=ONE, partition=pa.array([2**64 - 1], pa.uint64()))), 404, "no partition"),
        (stream(rows(value=ONE, headers=pa.array([[]], pa.list_view(pa.binary())))), 400, "without dictionaries"),
        (stream(rows(value=ONE, partition=ONE)), 400, "'partition'"),
        (stream(rows(value=ONE, timestamp=pa.array([2**64 - 1], pa.uint64()))), 400, "'timestamp'"),
        (stream(rows(value=ONE, timestamp=pa.array([2**62], pa.timestamp("s")))), 400, "'timestamp'"),
        (stream(rows(value=pa.nulls(MANY)), rows(value=pa.nulls(1))), 413, "at most 100000"),
        (stream(rows(value=pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None]))), 413, "at most 100000"),
        (stream(rows(value=pa.array([b"x" * ((16 << 20) + 1)]))), 413, ""),
    ],
)
def test_what_is_no_table_of_messages_is_refused(http, key, native, body, status, says):
    native.create_topic(key)
    answer = http.post(messages(key), content=body, headers=ARROW)
    assert (answer.status_code, says in answer.json()["message"]) == (status, True), answer.text
    assert native.read(key, 0, 0) == []


def test_the_most_rows_are_taken():
    assert table_of(stream(rows(value=pa.nulls(3)), rows(value=pa.nulls(4))), 7).num_rows == 7


def test_without_pyarrow_the_type_is_refused(monkeypatch):
    monkeypatch.setattr(arrow_bodies, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="needs pyarrow in the gateway: pip install") as refused:
        table_of(b"", 1)
    assert refused.value.status == 415


@pytest.mark.parametrize("seed", [1])
def test_damaged_streams_are_refused_or_whole(seed: int):
    """Whatever byte is wrong: a Refusal, or a table whose pieces can be made or are refused."""
    from penstock.clients.producing.bulk import pieces
    from penstock.storage.errors import Error

    shape = Shape(1, 0, 1 << 20, "t")
    randomness = random.Random(seed)
    whole = stream(WHOLE, WHOLE)
    for _ in range(3000):
        body = bytearray(whole)
        for _ in range(randomness.randint(1, 4)):
            at = randomness.randrange(len(body))
            body[at] = randomness.choice([0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1 << randomness.randrange(8)])
        try:
            table = table_of(bytes(body[: randomness.choice([len(body), randomness.randrange(len(body))])]), MANY)
            if table.num_rows:
                list(pieces(table, None, shape, None))
        except (Refusal, Error):
            pass
