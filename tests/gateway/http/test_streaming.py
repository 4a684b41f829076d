"""Messages and stats as server-sent events, and messages as NDJSON and Arrow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

from .test_messages import BINARY, consumer, messages
from .test_refusals import refused

ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"


def events(answer: httpx.Response) -> Iterator[dict]:
    """The events of a stream, without comments."""
    assert answer.headers["content-type"] == "text/event-stream", answer.read()
    found: dict = {}
    for line in answer.iter_lines():
        name, _, rest = line.partition(": ")
        if name in ("data", "id", "event"):
            found[name] = json.loads(rest) if name == "data" else rest
        elif not line and found:
            yield found
            found = {}


def tail(http: httpx.Client, key: str, **more: object):
    return http.stream("GET", f"/api/v1/queues/{key}/tail", **more)


def test_a_stream_brings_messages_as_they_come(http, key, native):
    native.create_topic(key)
    with tail(http, key) as answer, native.producer(key) as producer:
        found = events(answer)
        for number in range(3):
            producer.send(b"%d" % number)
            event = next(found)
            assert (event["data"]["value"], event["id"]) == (str(number), str(number + 1))


def test_a_stream_goes_on_where_a_client_left(http, key, native):
    native.create_topic(key, partitions=3)
    listed = [{"value": str(n), "partition": n % 3} for n in range(30)]
    http.post(messages(key), json=listed)
    with tail(http, key, params={"start": "earliest"}) as answer:
        found = events(answer)
        first = [next(found) for _ in range(30)]
    assert sorted(int(event["data"]["value"]) for event in first) == list(range(30))
    last = next(event["id"] for event in reversed(first) if "id" in event)
    http.post(messages(key), json=[{"value": "new", "partition": 1}])
    with tail(http, key, headers={"Last-Event-ID": last}) as answer:
        assert next(events(answer))["data"]["value"] == "new"


def test_a_stream_sees_partitions_that_are_added(http, key, native):
    native.create_topic(key)
    with tail(http, key) as answer:
        found = events(answer)
        native.alter_topic(key, partitions=2)
        http.post(messages(key), json={"value": "x", "partition": 1})
        assert next(found)["data"]["partition"] == 1


def test_a_stream_of_a_topic_that_is_deleted_ends_with_an_error(http, key, native):
    native.create_topic(key)
    with tail(http, key) as answer:
        native.delete_topic(key)
        (event,) = list(events(answer))
    assert (event["event"], event["data"]["code"]) == ("error", "unknown_topic")


def test_a_stream_goes_on_behind_what_retention_removed(http, key, native):
    native.create_topic(key)
    http.post(messages(key), json=[{"value": str(n)} for n in range(2000)])
    native.trim(key, before=1500)
    with tail(http, key, headers={"Last-Event-ID": "3"}) as answer:
        assert next(events(answer))["data"]["value"] == "1500"


def test_only_the_head_of_a_stream_ends_at_once(http, key, native):
    native.create_topic(key)
    answer = http.head(f"/api/v1/queues/{key}/tail")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")


def test_what_is_no_place_of_a_stream_is_refused(http, key, native):
    native.create_topic(key)
    path = f"/api/v1/queues/{key}/tail"
    refused(http.get(path, headers={"Last-Event-ID": "x"}), 400, "invalid_request")
    refused(http.get(path, params={"start": "now"}), 400, "invalid_request")
    refused(http.get(f"/api/v1/queues/{key}-none/tail"), 404, "unknown_topic")


def test_stats_come_at_intervals(http, key, native):
    native.create_topic(key)
    native.set_queue(key, "g")
    with http.stream("GET", "/stats/events", params={"interval_s": 0.5}) as answer:
        found = events(answer)
        first, second = next(found)["data"], next(found)["data"]
    assert key in [each["queue"] for each in second["queues"]]
    assert set(first["broker"]) == set(second["broker"]) != set()


@pytest.mark.parametrize("path", [messages, consumer])
def test_messages_leave_as_lines(http, key, path):
    http.post(messages(key), json=[{"value": str(n)} for n in range(3)])
    answer = http.get(path(key), params={"max_messages": 2}, headers={"accept": LINES})
    assert answer.headers["content-type"] == LINES
    assert [json.loads(line)["value"] for line in answer.text.splitlines()] == ["0", "1"]
    assert json.loads(answer.headers["penstock-next"]) == {"0": 2}


def test_lines_go_in_as_they_came_out(http, key, native):
    http.post(messages(key), content=BINARY, headers={"content-type": "application/octet-stream"})
    http.post(messages(key), json={"value": "x", "key": "k", "headers": {"a": "b"}, "timestamp": 1_700_000_000_000_000})
    lines = http.get(messages(key), params={"max_messages": 9}, headers={"accept": LINES}).text
    parsed = [json.loads(line) for line in lines.splitlines()]
    plain = "\n".join(json.dumps({k: v for k, v in each.items() if k != "offset"}) for each in parsed)
    answer = http.post(messages(key), content=plain, headers={"content-type": LINES})
    assert answer.json()["count"] == 2, (answer.text, plain)
    records = [(r.value, r.key, dict(r.headers), r.timestamp) for r in native.read(key, 0, 0)]
    assert records[:2] == records[2:]


def test_messages_leave_as_arrow(http, key, native):
    native.create_topic(key, partitions=2)
    http.post(messages(key), json=[{"value": str(n), "partition": n % 2, "key": "k"} for n in range(10)])
    answer = http.get(consumer(key), params={"max_messages": 7}, headers={"accept": f"{ARROW}, {LINES};q=0.5"})
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.num_rows == 7
    places = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    following = json.loads(answer.headers["penstock-next"])
    assert all(offset < following[str(partition)] for partition, offset in places)
    values = [int(value) for value in table["value"].to_pylist()]
    assert all(value == 2 * offset + partition for value, (partition, offset) in zip(values, places, strict=True))
    assert set(table["key"].to_pylist()) == {b"k"}


def test_no_messages_leave_as_an_empty_stream_of_arrow(http, key, native):
    native.create_topic(key)
    empty = pa.ipc.open_stream(http.get(messages(key), headers={"accept": ARROW}).content).read_all()
    http.post(messages(key), json={"value": "x"})
    full = pa.ipc.open_stream(http.get(messages(key), headers={"accept": ARROW}).content).read_all()
    assert (empty.num_rows, full.num_rows, empty.schema) == (0, 1, full.schema)


def test_viewers_that_leave_end_their_streams(http, key, native, gateway):
    native.create_topic(key)
    stop = threading.Event()

    def write() -> None:
        with native.producer(key) as producer:
            while not stop.is_set():
                producer.send(b"x" * 1000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            with tail(http, key) as answer:
                next(events(answer))
    finally:
        stop.set()
        writer.join()
    assert http.get("/health").status_code == 200
