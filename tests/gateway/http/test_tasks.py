"""Tasks over HTTP: what a worker does by requests alone, and what other clients see of it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from penstock.broker.rights import ANYONE
from penstock.clients.barriers.descriptions import Callback, GroupTask
from penstock.gateway.http import tasks
from penstock.gateway.http.operation import ClientLeft, HttpCall
from penstock.gateway.http.task_shapes import LeaseRequestBody

from .test_refusals import refused


def enqueue(http: httpx.Client, queue: str, value: str = "x", **more: object) -> dict:
    answer = http.post("/tasks", json={"queue": queue, "value": value, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def lease(http: httpx.Client, key: str, **more: object) -> list[dict]:
    answer = http.post("/tasks/lease", json={"queue": key, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["tasks"]


def settle(http: httpx.Client, task: dict, verb: str, **more: object) -> httpx.Response:
    return http.post(f"/tasks/{task['id']}/{verb}", json={"lease": task["lease"], **more})


def test_a_task_is_leased_and_done(http, key, native):
    place = enqueue(http, key, "mail", key="k", headers={"a": "b"})
    assert place == {"id": f"{key}-0-0", "repeated": False}
    (task,) = lease(http, key, worker="w1", lease_s=60)
    assert (task["id"], task["value"], task["key"], task["headers"], task["attempt"]) == (
        f"{key}-0-0", "mail", "k", {"a": "b"}, 1,
    )  # fmt: skip
    assert time.time() < task["until_us"] / 1e6 < time.time() + 61
    assert lease(http, key) == []
    status = http.get(f"/tasks/{task['id']}").json()
    assert (status["state"], status["worker"], status["attempt"]) == ("leased", "w1", 1)
    assert settle(http, task, "ack", result={"sent": True}).status_code == 204
    assert json.loads(native.task(task["id"], "tasks").result or b"") == {"sent": True}
    status = http.get(f"/tasks/{task['id']}").json()
    assert (status["state"], json.loads(status["result"])) == ("completed", {"sent": True})


def test_many_tasks_come_in_one_lease(http, key):
    for number in range(5):
        enqueue(http, key, str(number))
    found = lease(http, key, max_tasks=3)
    assert [task["value"] for task in found] == ["0", "1", "2"]
    assert len({task["lease"] for task in found}) == 1
    assert settle(http, found[1], "ack").status_code == 204
    assert [task["value"] for task in lease(http, key, max_tasks=9)] == ["3", "4"]


def test_a_failed_task_is_tried_again_and_a_rejected_one_dead_lettered(http, key):
    enqueue(http, key)
    (first,) = lease(http, key)
    assert settle(http, first, "nack", delay_s=0, reason="no route").status_code == 204
    (second,) = lease(http, key, timeout_ms=5000)
    assert second["attempt"] == 2
    assert settle(http, second, "release").status_code == 204
    (third,) = lease(http, key)
    assert third["attempt"] == 2
    assert settle(http, third, "reject", reason="no address").status_code == 204
    status = http.get(f"/tasks/{third['id']}").json()
    assert (status["state"], status["reason"]) == ("dead-lettered", "no address")
    (dead,) = http.get("/dead-letters", params={"queue": key}).json()["tasks"]
    assert (dead["id"], dead["value"], dead["attempt"], dead["reason"]) == (third["id"], "x", 2, "no address")
    assert http.get("/dead-letters", params={"queue": key, "reason": "route"}).json() == {"tasks": []}
    assert http.post("/dead-letters/redrive", json={"queue": key, "ids": [dead["id"]]}).json() == {"count": 1}
    (again,) = lease(http, key)
    settle(http, again, "reject")
    assert http.post("/dead-letters/discard", json={"queue": key}).json() == {"count": 1}
    assert http.get(f"/tasks/{third['id']}").json()["state"] == "discarded"


def test_a_lease_that_is_over_is_a_conflict(http, key):
    enqueue(http, key)
    (task,) = lease(http, key, lease_s=0.001)
    (other,) = lease(http, key, timeout_ms=10_000)
    assert other["lease"] != task["lease"]
    for verb in ("ack", "nack", "reject", "release", "extend"):
        answer = settle(http, task, verb)
        assert (answer.status_code, answer.json()["code"]) in ((409, "lease_lost"), (409, "unknown_lease"))
    assert settle(http, other, "ack").status_code == 204
    refused(http.post(f"/tasks/{task['id']}/ack", json={}), 409, "lease_lost")


def test_a_task_is_settled_without_its_lease_too(http, key):
    enqueue(http, key)
    (task,) = lease(http, key)
    assert http.post(f"/tasks/{task['id']}/ack", json={"result_base64": "/w=="}).status_code == 204
    assert http.get(f"/tasks/{task['id']}").json()["result_base64"] == "/w=="


def test_a_lease_is_extended_and_says_of_a_cancelled_task(http, key, native):
    enqueue(http, key)
    (task,) = lease(http, key, lease_s=5)
    found = settle(http, task, "extend", lease_s=600, progress={"done": 1}).json()
    assert found["until_us"] > task["until_us"] + 500e6
    assert not found["cancelled"]
    assert http.get(f"/tasks/{task['id']}").json()["progress"] == '{"done":1}'
    assert http.post(f"/tasks/{task['id']}/cancel", json={}).json()["cancelling"]
    assert settle(http, task, "extend").json()["cancelled"]


def test_a_repeated_request_is_answered_with_the_first_task(http, key):
    header = {"Idempotency-Key": "order-17"}
    first = enqueue(http, key)
    repeated = http.post("/tasks", json={"queue": key, "value": "a"}, headers=header).json()
    again = http.post("/tasks", json={"queue": key, "value": "a"}, headers=header).json()
    assert (repeated["repeated"], again) == (False, {"id": repeated["id"], "repeated": True})
    assert first["id"] != repeated["id"]
    assert len(lease(http, key, max_tasks=10)) == 2
    refused(
        http.post("/tasks", json={"queue": key, "value": "a"}, headers={"Idempotency-Key": "x" * 1025}),
        400, "invalid_argument",
    )  # fmt: skip


def test_tasks_wait_and_the_urgent_come_first(http, key):
    enqueue(http, key, "late", delay_s=3600)
    enqueue(http, key, "later", at="2036-01-01T00:00:00Z")
    enqueue(http, key, "calm")
    enqueue(http, key, "urgent", priority=9)
    assert [task["value"] for task in lease(http, key, max_tasks=9)] == ["urgent", "calm"]
    assert [http.get(f"/tasks/{key}-0-{offset}").json()["state"] for offset in (0, 1)] == ["delayed"] * 2
    both = {"queue": key, "value": "", "delay_s": 1, "at": "2036-01-01T00:00:00Z"}
    refused(http.post("/tasks", json=both), 400, "invalid_argument")


def test_a_lease_waits_for_a_task(http, key, native):
    native.create_topic(key)
    found: list[dict] = []
    waiting = threading.Thread(target=lambda: found.extend(lease(http, key, timeout_ms=60_000)))
    waiting.start()
    with native.producer(key) as producer:
        producer.send(b"there")
    waiting.join(50)
    assert [task["value"] for task in found] == ["there"]


def test_what_came_for_a_client_that_left_is_given_to_the_next(http, key, native, gateway):
    native.create_topic(key)
    native.set_queue(key, "tasks", lease_s=3600)
    with (
        httpx.Client(base_url=gateway.http_url, timeout=0.3, trust_env=False) as client,
        pytest.raises(httpx.TimeoutException),
    ):
        client.post("/tasks/lease", json={"queue": key, "timeout_ms": 60_000})
    enqueue(http, key)
    assert lease(http, key, timeout_ms=20_000)[0]["attempt"] == 1


def test_what_came_as_the_client_left_is_released(monkeypatch):
    """Both are noticed in one turn of the loop."""
    settled: list[tuple[object, ...]] = []

    async def leased(*_: object, **__: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(id=lambda queue: f"{queue}-0-7")]

    async def settle(*given: object) -> None:
        settled.append(given)

    async def leaves() -> None: ...

    async def run() -> None:
        link = SimpleNamespace(client=SimpleNamespace(settle=settle))
        door: Any = SimpleNamespace(users=None, link=link, ending=asyncio.get_running_loop().create_future())
        call = HttpCall(door, ANYONE, {}, {}, leaves)
        call.body = LeaseRequestBody("q")
        with pytest.raises(ClientLeft):
            await tasks.lease_tasks(call)

    monkeypatch.setattr(tasks, "lease", leased)
    asyncio.run(run())
    assert settled == [("q", "tasks", ["q-0-7"], "release")]


def test_a_status_waits_until_a_task_is_final(http, key):
    task = enqueue(http, key)
    lease(http, key)
    assert http.get(f"/tasks/{task['id']}", params={"timeout_ms": 10}).json()["state"] == "leased"
    found: list[dict] = []
    path = f"/tasks/{task['id']}"
    waiting = threading.Thread(target=lambda: found.append(http.get(path, params={"timeout_ms": 60_000}).json()))
    waiting.start()
    http.post(f"{path}/ack", json={})
    waiting.join(50)
    assert found[0]["state"] == "completed"


def test_what_is_no_task_is_refused(http, key):
    enqueue(http, key)
    lease(http, key)
    refused(http.get("/tasks/nonsense"), 400, "invalid_argument")
    refused(http.get(f"/tasks/{key}-0-9"), 404, "out_of_bounds")
    refused(http.get(f"/tasks/{key}-0-0", params={"group": "none"}), 404, "unknown_group")
    refused(http.post("/tasks/lease", json={"queue": key + "-none"}), 404, "unknown_topic")
    refused(http.post(f"/tasks/{key}-0-0/ack", json={"delay_s": 1}), 400, "invalid_request")
    refused(http.post(f"/tasks/{key}-0-0/ack", json={"lease": "x"}), 400, "invalid_request")
    refused(http.post("/tasks", json={"queue": "a b", "value": "x"}), 400, "invalid_topic")


def test_a_queue_group_is_made_changed_paused_and_deleted(http, key):
    enqueue(http, key)
    path = f"/api/v1/topics/{key}/groups/g"
    made = http.put(path, json={"settings": {"max_attempts": 3, "lease_s": "1m"}}).json()
    assert (made["settings"]["max_attempts"], made["settings"]["lease_s"]) == (3, 60.0)
    assert (made["ready"], made["depth"]) == (1, 1)
    assert http.get(f"/api/v1/topics/{key}/groups").json() == [http.get(path).json()]
    assert http.post(f"{path}/pause", json={"until": "2101-01-01T00:00:00Z"}).status_code == 204
    assert http.get(path).json()["paused_until"] == "2101-01-01T00:00:00Z"
    assert lease(http, key, group="g") == []
    assert http.post(f"{path}/resume").status_code == 204
    assert len(lease(http, key, group="g")) == 1
    stats = http.get("/stats").json()
    assert [each["in_flight"] for each in stats["queues"] if each["queue"] == key] == [1]
    assert stats["broker"]
    assert http.delete(path).status_code == 204
    refused(http.get(path), 404, "unknown_group")
    refused(http.put(path, json={"settings": {"topic": 1}}), 400, "invalid_settings")


def test_a_schedule_is_set_listed_and_deleted(http, key, native):
    native.create_topic(key)
    path = f"/schedules/{key}/daily"
    made = http.put(path, json={"spec": "0 6 * * *", "zone": "Europe/Vienna", "value": "x", "key": "k"}).json()
    assert (made["name"], made["value"], made["key"], made["zone"]) == ("daily", "x", "k", "Europe/Vienna")
    assert http.get("/schedules", params={"queue": key}).json() == {"schedules": [made]}
    assert made in http.get("/schedules").json()["schedules"]
    assert "coalesce" not in made
    assert http.put(path, json={"spec": "0 6 * * *", "value": "x", "coalesce": True}).json()["coalesce"]
    refused(http.put(path, json={"spec": "nonsense", "value": "x"}), 400, "invalid_request")
    assert http.delete(path).status_code == 204
    refused(http.delete(path), 404, "unknown_schedule")


def test_a_callback_that_waits_is_listed_and_deleted(http, key, native):
    for queue in (key, f"{key}-then"):
        native.create_topic(queue)
        native.set_queue(queue, "tasks")
    members = [GroupTask(key, "tasks", b"a")] * 3
    native.send_group(members, then=Callback(f"{key}-then", {"penstock-task": b"shop.report"}, ended=True))
    found = http.get("/barriers", params={"queue": f"{key}-then"}).json()["barriers"]
    (barrier,) = native.barriers(f"{key}-then")
    assert [each.pop("until")[:19] for each in found] == [barrier.until.isoformat()[:19]]
    assert found == [
        {"id": barrier.id, "queue": f"{key}-then", "function": "shop.report", "members": 3, "waiting": 3,
         "ended": True, "why": barrier.why},
    ]  # fmt: skip
    assert barrier.id in [each["id"] for each in http.get("/barriers").json()["barriers"]]
    assert http.get("/barriers", params={"queue": key}).json() == {"barriers": []}
    path = f"/barriers/{key}-then/{barrier.id}"
    refused(http.delete(f"/barriers/{key}/{barrier.id}"), 404, "unknown_barrier")
    assert http.delete(path).status_code == 204
    refused(http.delete(path), 404, "unknown_barrier")
    refused(http.get("/barriers", params={"queue": f"{key}-none"}), 404, "unknown_topic")


def test_workers_of_a_group_are_listed_and_forgotten(http, key, native):
    id_ = enqueue(http, key, "a")["id"]
    path = f"/api/v1/topics/{key}/groups/tasks/workers"
    native.set_queue(key, "tasks")
    native.claim(key, "tasks", "w 1", [id_], force=True)  # by hand: a running worker asks again, and is known again
    (found,) = [each for each in http.get(path).json()["workers"] if each["pending"]]
    assert found["first_seen"] <= found["last_active"]
    name = found["name"].replace(" ", "%20")
    refused(http.delete(f"{path}/{name}", params={"verb": "lose"}), 400, "invalid_request")
    assert http.delete(f"{path}/{name}", params={"verb": "reject"}).json() == {"count": found["pending"]}
    assert found["name"] not in [each["name"] for each in http.get(path).json()["workers"]]
    assert http.get(f"/tasks/{id_}").json()["state"] == "dead-lettered"
    assert http.delete(f"{path}/nothing").json() == {"count": 0}
    refused(http.get(f"/api/v1/topics/{key}/groups/none/workers"), 404, "unknown_group")
