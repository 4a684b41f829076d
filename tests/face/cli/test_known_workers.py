"""Workers from the command line: who holds what, since when, and forgetting those that are gone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from penstock.cli import exits, known_workers
from penstock.clients import Queue, QueueWorker, connect
from penstock.clients.queues.descriptions import workers_of
from penstock.transport import messages

from ..conftest import Cli, Served


def enqueued(on: Cli, topic: str, *values: str) -> list[str]:
    return on("task", "enqueue", topic, *values).text.split()


def names(on: Cli, *words: str) -> list[str]:
    return [each["name"] for each in on("worker", "list", *words, "--json").lines]


def test_workers_are_listed_with_what_they_hold_and_since_when(on: Cli, queue: str) -> None:
    assert on("worker", "list", queue).text == "no worker has asked for tasks yet\n"
    first, second, third = enqueued(on, queue, "a", "b", "c")
    on("task", "claim", second, "--worker", "ann", "--force")
    on("task", "claim", first, "--worker", "ann", "--force")
    on("task", "claim", third, "--worker", "bob", "--force")
    row = rf"^ann +{queue} +tasks +2 +{second} +20\d\d-.+ +20\d\d-.+ +20\d\d-"
    assert re.search(row, on("worker", "list", queue).text, re.MULTILINE)
    bob, ann = on("worker", "list", queue, "--json").lines
    assert (bob["name"], [task["id"] for task in bob["tasks"]]) == ("bob", [third])
    assert (ann["topic"], ann["group"], ann["name"], ann["pending"]) == (queue, "tasks", "ann", 2)
    assert [task["id"] for task in ann["tasks"]] == [second, first], "the longest held first"
    task = ann["tasks"][0]
    assert sorted(task) == ["attempt", "given", "id", "idle", "until"]
    assert ann["first_seen"] == task["given"] < ann["tasks"][1]["given"] == ann["last_active"] < task["until"]
    on("task", "ack", third)
    assert "tasks    0" in re.sub(" {2,}", "    ", on("worker", "list", queue).text), "bob holds nothing any more"


def test_who_waits_for_tasks_is_seen_now_and_who_ended_was_then(on: Cli, queue: str, broker: Served) -> None:
    with connect(broker.unix) as client, client.worker(queue, group="tasks", name="ann") as ann:
        assert ann.fetch(1, wait=0) == []
        (found,) = on("worker", "list", queue, "--json").lines
        assert (found["waiting"], found["last_active"]) == (True, None)
        assert re.search(rf"^ann +{queue} +tasks +0 .* now *$", on("worker", "list", queue).text, re.MULTILINE)
    (found,) = on("worker", "list", queue, "--json").lines
    assert (found["waiting"], found["last_asked"] >= found["first_seen"]) == (False, True)
    assert (found["gone"], 0 <= found["silent"] < 60) == (False, True)
    times = r"^ann .* 20\d\d-\S+ \S+ UTC +20\d\d-\S+ \S+ UTC *$"
    assert re.search(times, on("worker", "list", queue).text, re.MULTILINE)


@pytest.mark.parametrize(
    ("pending", "waiting", "silent", "gone", "shown"),
    [
        (0, False, 59.9, False, "2023-11-14 22:13:20 UTC"),
        (0, False, 60.0, True, "2023-11-14 22:13:20 UTC, gone"),
        (1, False, 3600.0, False, "2023-11-14 22:13:20 UTC"),
        (0, True, 0.0, False, "now"),
        (0, False, None, True, "never, gone"),
    ],
)
def test_a_worker_that_holds_nothing_and_is_silent_for_a_minute_is_marked(
    pending: int, waiting: bool, silent: float | None, gone: bool, shown: str
) -> None:
    seen = None if silent is None else datetime.fromtimestamp(1_700_000_000, UTC)
    worker = QueueWorker("ann", pending, seen, None, None, waiting, silent)
    assert worker.gone == gone
    assert known_workers._row(Queue("t", "g", {}, []), worker, [])[-1] == shown


@pytest.mark.parametrize(
    ("times", "silent"),
    [((1, 5, 3), 60.0), ((1, 3, 5), 60.0), ((5, -1, -1), 60.0), ((-1, -1, -1), None), ((1, 1, 66), 0.0)],
)
def test_a_worker_is_silent_since_it_was_last_heard_of(times: tuple[int, int, int], silent: float | None) -> None:
    first_us, last_us, asked_us = (each * 1_000_000 if each >= 0 else -1 for each in times)
    workers = [messages.QueueWorker("ann", 0, first_us, last_us, asked_us, waits) for waits in (False, True)]
    found = workers_of(messages.Workers(1, [], workers, 65_000_000))
    assert [each.silent for each in found] == [silent, 0.0]


def test_workers_of_all_queues_are_listed_or_those_of_one_group(on: Cli, topic: str) -> None:
    short = topic[:40]
    for name in (f"{short}-a", f"{short}-b"):
        on("topic", "create", name)
    for name, group, worker in (("a", "tasks", "all-ann"), ("b", "tasks", "all-bob"), ("b", "g", "all-cid")):
        name = f"{short}-{name}"
        on("queue", "set", name, "--group", group)
        (id_,) = enqueued(on, name, "x")
        on("task", "claim", id_, "--worker", worker, "--group", group, "--force")
    everywhere = [name for name in names(on) if name in ("all-ann", "all-bob", "all-cid")]
    assert everywhere == ["all-cid", "all-bob", "all-ann"]
    assert names(on, f"{short}-b") == ["all-cid", "all-bob"]
    assert names(on, f"{short}-b", "--group", "g") == ["all-cid"]
    assert [name for name in names(on, "--group", "tasks") if name in everywhere] == ["all-bob", "all-ann"]
    (line,) = on("worker", "list", f"{short}-b", "--group", "g", "--tasks", "1", "--json").lines
    assert len(line["tasks"]) == 1
    assert on("worker", "list", f"{short}-b", "--group", "none").code == exits.NOT_FOUND
    assert on("worker", "list", "no-such-topic").code == exits.NOT_FOUND


def test_workers_are_forgotten(on: Cli, queue: str) -> None:
    first, second = enqueued(on, queue, "a", "b")
    on("task", "claim", first, second, "--worker", "ann", "--force")
    assert on("worker", "forget", queue, "ann").code == exits.USAGE
    found = on("worker", "forget", queue, "ann", "--yes")
    assert found.text == "worker ann is forgotten; release: 2 tasks\n"
    assert names(on, queue) == []
    again = on("worker", "forget", queue, "ann", "--yes")
    assert again.text == "worker ann was not known; release: 0 tasks\n", "a misspelled name is to be seen"
    for worker, id_ in (("bob", second), ("ann", first)):
        on("task", "claim", id_, "--worker", worker, "--force")
    assert names(on, queue) == ["ann", "bob"]
    on("task", "claim", second, "--worker", "cid")
    assert names(on, queue) == ["cid", "ann", "bob"]
    (line,) = on("worker", "forget", queue, "ann", "--tasks", "reject", "--yes", "--json").lines
    assert (line["worker"], line["tasks"], line["count"]) == ("ann", "reject", 1)
    states = [on("task", "status", id_, "--json").lines[0]["state"] for id_ in (first, second)]
    assert states == ["dead-lettered", "leased"]


def test_run_is_meant_where_no_command_is_named(on: Cli) -> None:
    for words in (["jobs"], ["run", "jobs"], ["--concurrency", "3", "jobs"]):
        found = on("worker", *words)
        assert (found.code, "'jobs' is not MODULE:APP" in found.err) == (exits.USAGE, True), words
    for word in ("--help", "-h"):
        shown = on("worker", word).text
        assert all(name in shown for name in ("MODULE:APP", "run", "list", "forget")), word
    assert "--concurrency" in on("worker", "run", "--help").text
