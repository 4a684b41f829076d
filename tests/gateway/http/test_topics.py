"""Administration over HTTP, and what the gateway says of itself."""

from __future__ import annotations

import json

from support.kafka_keys import MURMUR2, kafka_partition_of


def test_a_topic_is_made_changed_and_deleted(http, key, native):
    made = http.post("/api/v1/topics", json={"name": key, "partitions": 2, "settings": {"retention_s": "7d"}})
    assert (made.status_code, made.json()["settings"]["retention_s"]) == (201, 604800.0)
    assert [each["partition"] for each in made.json()["partitions"]] == [0, 1]
    assert http.post("/api/v1/topics", json={"name": key}).status_code == 409
    same = {"name": key, "partitions": 2, "if_missing": True}
    assert http.post("/api/v1/topics", json=same).status_code == 201
    assert http.get(f"/api/v1/topics/{key}").json() == made.json()
    assert made.json() in http.get("/api/v1/topics").json()
    changed = http.patch(f"/api/v1/topics/{key}", json={"partitions": 3, "settings": {"codec": "zstd"}}).json()
    assert (len(changed["partitions"]), changed["settings"]["codec"]) == (3, "zstd")
    assert len(native.topic(key).partitions) == 3
    assert http.delete(f"/api/v1/topics/{key}").status_code == 204
    assert http.get(f"/api/v1/topics/{key}").status_code == 404


def test_added_partitions_get_messages_at_once(http, key):
    path = f"/api/v1/queues/{key}/messages"
    http.post(path, json={"value": "x"})
    http.patch(f"/api/v1/topics/{key}", json={"partitions": 8})
    found = http.post(path, json=[{"value": "x", "key": f"k{n}"} for n in range(100)]).json()
    assert len({run["partition"] for run in found["runs"]}) == 8


def test_keys_go_where_the_clients_of_kafka_send_them(http, key, native):
    http.post("/api/v1/topics", json={"name": key, "partitions": 16, "settings": {"partitioner": "murmur2"}})
    sent = [{"value": "x", "key": each.decode()} for each in MURMUR2]
    http.post(f"/api/v1/queues/{key}/messages", json=sent)
    found = {record.key: partition for partition in range(16) for record in native.read(key, partition, 0)}
    assert found == {each: kafka_partition_of(each, 16) for each in MURMUR2}


def test_a_topic_is_trimmed(http, key):
    http.post(f"/api/v1/queues/{key}/messages", json=[{"value": str(n)} for n in range(10)])
    path = f"/api/v1/topics/{key}/trim"
    assert http.post(path, json={"records": 7}).json() == [{"partition": 0, "before": 0, "first": 3, "lost": {}}]
    assert http.post(path, json={"before_offset": 5, "partition": 0}).json()[0]["first"] == 5
    assert http.get(f"/api/v1/queues/{key}/messages").json()["messages"][0]["value"] == "5"
    assert http.post(path, json={"before": "latest"}).json()[0]["first"] == 10
    for body in ({}, {"records": 1, "before_offset": 1}, {"before": "latest", "before_offset": 1}, {"before": "x"}):
        assert http.post(path, json=body).status_code == 400


def test_a_queue_is_a_topic(http, key):
    http.post(f"/api/v1/queues/{key}/messages", json=[{"value": "x"}] * 3)
    found = http.get(f"/api/v1/queues/{key}").json()
    assert (found["name"], found["count_pushed"], found["records"], found["is_ready"]) == (key, 3, 3, True)
    assert found in http.get("/api/v1/queues").json()["queues"]


def test_it_is_healthy(http):
    found = http.get("/health").json()
    assert (found["status"], found["live"], found["ready"], found["reasons"]) == ("ok", True, True, [])
    assert found["version"]
    assert http.get("/health/live").json() == found


def test_its_operations_are_in_the_document_and_on_the_page(http):
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    page = http.get("/docs")
    for path, operations in document["paths"].items():
        assert path in page.text
        for operation in operations.values():
            assert operation["summary"] in page.text.replace("&#x27;", "'")
    assert "script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_what_the_document_refers_to_is_there(http):
    document = http.get("/openapi.json").json()
    for reference in {part.split('"')[0] for part in json.dumps(document).split('"$ref": "')[1:]}:
        found = document
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
        assert found
