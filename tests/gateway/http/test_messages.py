"""Messages over HTTP, over a real gateway and a real broker: what comes in there, and what other doors make of it."""

from __future__ import annotations

import base64
import json
import threading

import pyarrow as pa
import pytest
from penstock.gateway.appending import RecordRun
from penstock.gateway.sending import _runs

BINARY = bytes(range(256)) + b"\r\n\r\nHTTP/1.1"


def messages(key: str) -> str:
    return f"/api/v1/queues/{key}/messages"


def consumer(key: str, verb: str = "messages") -> str:
    return f"/api/v1/queues/{key}/consumers/me/{verb}"


def runs(answer) -> list[tuple[int, int, int]]:
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert found["count"] == sum(run["count"] for run in found["runs"])
    return [(run["partition"], run["offset"], run["count"]) for run in found["runs"]]


def test_one_message_goes_in_and_out(http, key):
    whole = {"value": "two teas", "key": "table 7", "headers": {"day": "1"}, "timestamp": 1_700_000_000_000_000}
    assert runs(http.post(messages(key), json=whole)) == [(0, 0, 1)]
    answer = http.get(messages(key))
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["date"].endswith("GMT")
    assert answer.json() == {"messages": [{"partition": 0, "offset": 0, **whole}], "next": {"0": 1}}


def test_bytes_come_out_of_every_door_as_they_came_in(http, key, native, resp):
    sent = [BINARY, b"", "ä".encode(), b"\xff", b'{"a": 1}']
    for each in sent:
        http.post(messages(key), content=each, headers={"content-type": "application/octet-stream"})
    coded = base64.b64encode(BINARY).decode()
    http.post(messages(key), json={"value_base64": coded, "key_base64": coded, "headers_base64": {"h": coded}})
    read = native.read(key, 0, 0)
    assert [record.value for record in read] == [*sent, BINARY]
    assert (read[-1].key, dict(read[-1].headers)) == (BINARY, {"h": BINARY})
    entries = [fields for _, fields in resp.xrange(key)]
    assert [entry.get(b"value", b"") for entry in entries] == [*sent, BINARY]
    assert entries[-1] == {b"value": BINARY, b"key": BINARY, b"h": BINARY}


def test_nulls_are_none_of_the_empty_values_whichever_door_they_take(http, key, native, resp):
    lines = {"content-type": "application/x-ndjson"}
    assert runs(http.post(messages(key), json=[{"value": None, "key": "k"}, {"value": "", "key": "k"}])) == [(0, 0, 2)]
    http.post(messages(key), content='{"value": null, "headers": {"h": "1"}}\n{"value": ""}\n', headers=lines)
    resp.xadd(key, {"key": "r"})
    resp.xadd(key, {"key": "r", "value": ""})
    with native.producer(key) as producer:
        producer.send_many([None, b""])
    values = [None, b""] * 4
    assert [record.value for record in native.read(key, 0, 0)] == values
    found = http.get(messages(key), params={"max_messages": 10}).json()["messages"]
    assert [message["value"] for message in found] == [None, ""] * 4
    assert all("value_base64" not in message for message in found)
    read = http.get(
        messages(key), params={"max_messages": 10}, headers={"accept": "application/vnd.apache.arrow.stream"}
    )
    assert pa.ipc.open_stream(read.content).read_all()["value"].to_pylist() == values
    entries = [fields for _, fields in resp.xrange(key)]
    assert entries[:3] == [{b"key": b"k"}, {b"value": b"", b"key": b"k"}, {b"h": b"1"}]
    assert [b"value" in fields for fields in entries] == [False, True] * 4
    assert entries[6] == {}
    assert resp.execute_command("LISTEN", key, "me", "8") == values


def test_lists_of_headers_come_out_of_every_door(http, key, native, resp):
    pairs = [("a", b"1"), ("b", None), ("a", b"\xff")]
    listed = [
        {"name": "a", "value": "1"}, {"name": "b", "value": None},
        {"name": "a", "value_base64": base64.b64encode(b"\xff").decode()},
    ]  # fmt: skip
    assert runs(http.post(messages(key), json={"value": "v", "header_list": listed})) == [(0, 0, 1)]
    with native.producer(key) as producer:
        producer.send(b"v", headers=pairs)
        producer.send(b"v", headers=[("only", None)])
        producer.send(b"v", headers=[("z", b"1"), ("y", b"2")])
    assert [record.header_list for record in native.read(key, 0, 0)][:2] == [pairs, pairs]
    found = http.get(messages(key), params={"max_messages": 10}).json()["messages"]
    assert [message.get("header_list") for message in found] == [
        listed, listed, [{"name": "only", "value": None}], None,
    ]  # fmt: skip
    assert found[0]["headers_base64"] == {"a": base64.b64encode(b"\xff").decode()}
    assert "headers" not in found[0]
    assert found[3]["headers"] == {"z": "1", "y": "2"}
    entries = [fields for _, fields in resp.xrange(key)]  # a dict, which has the last of two fields
    assert entries[0] == entries[1] == {b"value": b"v", b"a": b"\xff", b"b": b""}
    assert entries[2] == {b"value": b"v", b"only": b""}
    with pytest.raises(Exception, match="is there twice"):
        resp.execute_command("XADD", key, "*", "a", "1", "a", "2")
    for wrong in (
        {"header_list": listed, "headers": {"a": "1"}}, {"header_list": [{"name": "a"}]},
        {"header_list": [{"name": "a", "value": "", "value_base64": ""}]}, {"header_list": [{"value": "a"}]},
    ):  # fmt: skip
        assert http.post(messages(key), json={"value": "v", **wrong}).status_code == 400


def test_nulls_are_tasks_and_no_schedules(http, key, resp):
    made = http.post("/tasks", json={"queue": key, "value": None, "key": "k"})
    assert made.status_code == 201, made.text
    leased = http.post("/tasks/lease", json={"queue": key}).json()
    assert [task["value"] for task in leased["tasks"]] == [None]
    refused = http.put(f"/schedules/{key}/s", json={"spec": "every 30s", "value": None})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")


def test_bytes_of_other_doors_come_out(http, key, native, resp):
    resp.xadd(key, {"value": BINARY, "key": "k", "note": "n"})
    with native.producer(key) as producer:
        producer.send(BINARY, headers={"h": b"\xff", "t": b"text"})
    first, second = http.get(messages(key), params={"max_messages": 10}).json()["messages"]
    assert base64.b64decode(first["value_base64"]) == base64.b64decode(second["value_base64"]) == BINARY
    assert (first["key"], first["headers"]) == ("k", {"note": "n"})
    assert (second["headers"], base64.b64decode(second["headers_base64"]["h"])) == ({"t": "text"}, b"\xff")


def test_many_messages_in_one_request(http, key, native):
    listed = [{"value": f"v{n}", "key": f"k{n}"} for n in range(500)]
    assert runs(http.post(messages(key), json=listed)) == [(0, 0, 500)]
    lines = "\n".join(json.dumps(each) for each in listed)
    kind = {"content-type": "application/x-ndjson; charset=utf-8"}
    assert runs(http.post(messages(key), content=lines, headers=kind)) == [(0, 500, 500)]
    few = "\n".join(json.dumps({**each, "headers": {"n": "1"}}) for each in listed[:3])
    assert runs(http.post(messages(key), content=few, headers=kind)) == [(0, 1000, 3)]
    read = [(record.value, record.key) for record in native.read(key, 0, 0, max_records=2000)]
    each = [(f"v{n}".encode(), f"k{n}".encode()) for n in range(500)]
    assert read == [*each, *each, *each[:3]]


def test_many_with_headers_are_sent_as_well(http, key, native):
    listed = [{"value": f"v{n}", "headers": {"n": str(n)}} for n in range(200)]
    assert runs(http.post(messages(key), json=listed)) == [(0, 0, 200)]
    assert [dict(record.headers) for record in native.read(key, 0, 0)] == [{"n": b"%d" % n} for n in range(200)]


def test_a_line_of_plain_text_is_a_value(http, key, native):
    kind = {"content-type": "text/plain"}
    assert runs(http.post(messages(key), content=b"a\n\xff\r\n\nlast\n", headers=kind)) == [(0, 0, 4)]
    assert runs(http.post(messages(key), content=b"b\nc", headers=kind, params={"key": "k"})) == [(0, 4, 2)]
    read = native.read(key, 0, 0)
    assert [record.value for record in read] == [b"a", b"\xff\r", b"", b"last", b"b", b"c"]
    assert [record.key for record in read] == [None] * 4 + [b"k"] * 2


def test_headers_of_a_request_are_those_of_its_bytes(http, key, native):
    kind = {"content-type": "application/octet-stream", "Penstock-Header-Day": "1", "X-Other": "2"}
    http.post(messages(key), content=b"v", headers=kind, params={"key": "k"})
    (record,) = native.read(key, 0, 0)
    assert (record.value, record.key, dict(record.headers)) == (b"v", b"k", {"day": b"1"})


def test_json_is_stored_as_it_came(http, key, native):
    http.post(messages(key), content=b'{"json": {"b" : [1,2], "a":null}}', headers={"content-type": "application/json"})
    http.post(messages(key), content=b'{"json": null}', headers={"content-type": "application/json"})
    assert [record.value for record in native.read(key, 0, 0)] == [b'{"b" : [1,2], "a":null}', b"null"]


def test_messages_go_to_partitions_by_key_or_by_number(http, key, native):
    native.create_topic(key, partitions=4)
    listed = [{"value": str(n), "key": f"k{n}"} for n in range(100)]
    placed = runs(http.post(messages(key), json=listed))
    assert sum(count for _, _, count in placed) == 100
    with native.producer(key) as producer:
        chosen = {f"k{n}": producer.send_nowait(b"", key=f"k{n}".encode()).partition for n in range(100)}
    for partition in range(4):
        found = http.get(messages(key), params={"partition": partition, "max_messages": 200}).json()["messages"]
        assert {each["partition"] for each in found} <= {partition}
        assert all(chosen[each["key"]] == partition for each in found)
    assert runs(http.post(messages(key), json={"value": "x", "partition": 3}))[0][0] == 3
    assert runs(http.post(messages(key), json=[{"value": "x"}] * 100, params={"partition": 2}))[0][0] == 2


def test_a_consumer_reads_from_its_offset_and_moves_when_told(http, key):
    http.post(messages(key), json=[{"value": str(n)} for n in range(5)])
    first = http.get(consumer(key), params={"max_messages": 2}).json()
    assert ([each["value"] for each in first["messages"]], first["next"]) == (["0", "1"], {"0": 2})
    assert http.get(consumer(key), params={"max_messages": 2}).json() == first
    assert http.post(consumer(key, "commit"), json={"next": first["next"]}).json() == {"next": {"0": 2}}
    assert http.get(consumer(key)).json()["messages"][0]["value"] == "2"
    assert http.get(f"/api/v1/queues/{key}/consumers").json()["consumers"] == [
        {"name": "me", "lag": 3, "members": [], "partitions": [{"partition": 0, "next_offset": 2, "lag": 3}]}
    ]
    assert http.get(f"/api/v1/queues/{key}/consumers/me").json()["lag"] == 3
    assert http.delete(f"/api/v1/queues/{key}/consumers/me").status_code == 204
    assert http.get(consumer(key)).json()["messages"][0]["value"] == "0"


def test_a_consumer_reads_all_partitions(http, key, native):
    native.create_topic(key, partitions=3)
    listed = [{"value": str(n), "partition": n % 3} for n in range(30)]
    http.post(messages(key), json=listed)
    seen: list[str] = []
    while found := http.get(consumer(key), params={"max_messages": 7}).json():
        if not found["messages"]:
            break
        seen += [each["value"] for each in found["messages"]]
        http.post(consumer(key, "commit"), json={"next": found["next"]})
    assert sorted(seen, key=int) == [str(n) for n in range(30)]


def test_a_consumer_seeks(http, key):
    http.post(messages(key), json={"value": "old"})
    time = http.get(messages(key)).json()["messages"][0]["timestamp"]
    http.post(messages(key), json={"value": "new"})
    assert http.post(consumer(key, "seek"), json={"to": "latest"}).json() == {"next": {"0": 2}}
    assert http.post(consumer(key, "seek"), json={"to": "earliest"}).json() == {"next": {"0": 0}}
    later = f"{time // 1_000_000 - 1}"
    assert http.post(consumer(key, "seek"), json={"to": later}).status_code == 400
    assert http.post(consumer(key, "seek"), json={"to": "2001-01-01T00:00:00Z"}).json() == {"next": {"0": 0}}
    assert http.post(consumer(key, "seek"), json={"to": "2101-01-01T00:00:00+01:00"}).json() == {"next": {"0": 2}}


def test_a_consumer_is_that_of_other_doors(http, key, resp):
    http.post(messages(key), json=[{"value": str(n)} for n in range(3)])
    http.post(consumer(key, "commit"), json={"next": {"0": 1}})
    assert resp.execute_command("OFFSET", key, "me") == 1
    resp.execute_command("OFFSET", key, "me", 2)
    assert http.get(consumer(key)).json()["messages"][0]["value"] == "2"


def test_a_long_poll_is_answered_when_a_message_comes(http, key, native):
    native.create_topic(key)
    found: list[dict] = []

    def poll() -> None:
        found.append(http.get(consumer(key), params={"timeout_ms": 60_000}).json())

    waiting = threading.Thread(target=poll)
    waiting.start()
    with native.producer(key) as producer:
        producer.send(b"there")
    waiting.join(50)
    assert [each["value"] for each in found[0]["messages"]] == ["there"]


def test_a_long_poll_without_messages_is_answered_in_time(http, key, native):
    native.create_topic(key)
    assert http.get(consumer(key), params={"timeout_ms": 20}).json() == {"messages": [], "next": {"0": 0}}


def test_many_messages_come_in_one_answer_within_its_bytes(http, key):
    large = "x" * (1 << 20)
    for _ in range(20):
        http.post(messages(key), json={"value": large})
    first = http.get(consumer(key), params={"max_messages": 100}).json()
    assert 15 <= len(first["messages"]) <= 18
    assert first["next"] == {"0": len(first["messages"])}


def test_a_topic_made_again_takes_messages_at_once(http, key, native):
    http.post(messages(key), json={"value": "old"})
    native.delete_topic(key)
    assert runs(http.post(messages(key), json={"value": "new"})) == [(0, 0, 1)]
    native.delete_topic(key)
    assert runs(http.post(messages(key), json=[{"value": "new"}] * 100)) == [(0, 0, 100)]


def test_what_was_removed_is_passed_over(http, key, native):
    http.post(messages(key), json=[{"value": str(n)} for n in range(5)])
    http.post(consumer(key, "commit"), json={"next": {"0": 1}})
    native.trim(key, before=3)
    assert http.get(consumer(key)).json()["messages"][0]["value"] == "3"
    assert http.get(messages(key), params={"offset": 5}).json() == {"messages": [], "next": {"0": 5}}


def test_deleted_messages_are_left_out(http, key, resp):
    http.post(messages(key), json=[{"value": str(n)} for n in range(6)])
    ids = [id_ for id_, _ in resp.xrange(key)]
    resp.xdel(key, ids[1], ids[2])
    found = http.get(consumer(key), params={"max_messages": 9}).json()
    assert [each["value"] for each in found["messages"]] == ["0", "3", "4", "5"]
    lines = http.get(messages(key), params={"max_messages": 9}, headers={"accept": "application/x-ndjson"}).text
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [0, 3, 4, 5]
    arrow = http.get(
        messages(key), params={"max_messages": 9}, headers={"accept": "application/vnd.apache.arrow.stream"}
    ).content
    assert pa.ipc.open_stream(arrow).read_all()["offset"].to_pylist() == [0, 3, 4, 5]
    http.post(consumer(key, "commit"), json={"next": {"0": 1}})
    assert http.get(consumer(key)).json()["messages"][0]["value"] == "3"
    resp.xdel(key, *ids)
    assert http.get(consumer(key), params={"max_messages": 9}).json() == {"messages": [], "next": {"0": 6}}


def test_runs_are_of_one_partition():
    places = [RecordRun(0, 0, 1), RecordRun(0, 1, 2), RecordRun(1, 3, 1), RecordRun(1, 4, 1), RecordRun(0, 5, 1)]
    assert _runs(places) == [RecordRun(0, 0, 3), RecordRun(1, 3, 2), RecordRun(0, 5, 1)]


@pytest.mark.parametrize("offset", [0, 3])
def test_browsing_begins_where_it_is_told(http, key, offset):
    http.post(messages(key), json=[{"value": str(n)} for n in range(5)])
    found = http.get(messages(key), params={"offset": offset, "max_messages": 2}).json()
    assert [each["offset"] for each in found["messages"]] == [offset, offset + 1]
    assert found["next"] == {"0": offset + 2}


def test_a_note_stands_beside_the_offsets_of_a_commit(http, key, native):
    http.post(messages(key), json=[{"value": str(n)} for n in range(5)])
    assert http.post(consumer(key, "commit"), json={"next": {"0": 2}, "note": "by ann"}).status_code == 200
    (place,) = http.get(f"/api/v1/queues/{key}/consumers/me").json()["partitions"]
    assert place == {"partition": 0, "next_offset": 2, "lag": 3, "note": "by ann"}
    assert native.committed(key, "me")[0].note == "by ann"
    assert http.post(consumer(key, "commit"), json={"next": {"0": 3}, "note": "é" * 4000}).status_code == 400
    http.post(consumer(key, "commit"), json={"next": {"0": 3}})
    assert http.get(f"/api/v1/queues/{key}/consumers/me").json()["partitions"][0].get("note", "") == ""
