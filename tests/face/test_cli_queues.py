"""Queues from the command line: tasks by hand, dead ones, settings and pauses, schedules."""

from __future__ import annotations

import json
import os
from typing import Any

import penstock
import pytest
from penstock.cli import exits

from .conftest import Cli


def test_how_long_finished_tasks_are_kept_is_a_setting_of_the_queue(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("queue", "set", topic, "keep_finished_s=1d")
    assert "keep_finished_s    1 d" in on("queue", "stats", topic).text
    on("queue", "set", topic, "keep_finished_s=")
    assert "keep_finished_s    -" in on("queue", "stats", topic).text


def enqueued(on: Cli, topic: str, *values: str, **options: str) -> list[str]:
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    found = on("task", "enqueue", topic, *values, *words)
    assert found.code == exits.OK, found
    return found.text.split()


def leased(on: Cli, topic: str, count: int = 1) -> list[str]:
    return [line["leased"] for line in on("task", "lease", topic, "--count", str(count), "--json").lines]


def state(on: Cli, id_: str) -> str:
    return on("task", "status", id_, "--json").lines[0]["state"]


def test_the_newest_tasks_are_listed_with_their_states(on: Cli, queue: str) -> None:
    assert on("task", "list", queue).text == "no such task\n"
    ids = enqueued(on, queue, *"abcd")
    late = enqueued(on, queue, "e", delay="1h")
    done, held = leased(on, queue, 2)
    on("task", "ack", done)
    found = {line["id"]: line["state"] for line in on("task", "list", queue, "--json").lines}
    assert list(found) == [*late, *reversed(ids)]
    assert list(found.values()) == ["delayed", "pending", "pending", "leased", "completed"]
    assert [line["id"] for line in on("task", "list", queue, "--count", "1", "--json").lines] == late
    some = on("task", "list", queue, "--state", "leased", "--state", "completed", "--count", "1", "--json").lines
    assert [line["id"] for line in some] == [held.partition("@")[0]]
    assert "leased" in on("task", "list", queue).text


def test_a_purge_skips_what_no_worker_has_begun(on: Cli, queue: str) -> None:
    enqueued(on, queue, *"abcd")
    (held,) = leased(on, queue)
    enqueued(on, queue, "late", delay="1h")
    assert on("task", "purge", queue).code == exits.USAGE
    found = on("task", "purge", queue, "--yes", "--json").lines[0]
    assert (found["count"], found["topic"]) == (4, queue)
    assert on("task", "lease", queue).text == "nothing to lease now\n"
    assert on("task", "ack", held).text == "ack: 1 task\n"
    (later,) = enqueued(on, queue, "later")
    assert [line.partition("@")[0] for line in leased(on, queue, 5)] == [later]
    assert [line["state"] for line in on("task", "list", queue, "--json").lines] == ["leased"]


def test_a_task_is_enqueued_leased_and_acked_with_a_result(on: Cli, queue: str) -> None:
    (id_,) = enqueued(on, queue, "write", key="k", header="from=me")
    assert id_ == f"{queue}-0-0"
    assert state(on, id_) == "pending"
    (line,) = on("task", "lease", queue, "--json").lines
    assert (line["id"], line["attempt"], line["value"], line["key"]) == (id_, 1, "write", "k")
    assert line["headers"] == {"from": "me"}
    assert line["leased"].startswith(f"{id_}@")
    assert state(on, id_) == "leased"
    assert on("task", "ack", line["leased"], "--result", "42").text == "ack: 1 task\n"
    found = on("task", "status", id_, "--wait", "5s", "--json").lines[0]
    assert (found["state"], found["result"]) == ("completed", "42")
    assert "completed" in on("task", "status", id_).text
    assert on("task", "lease", queue).text == "nothing to lease now\n"


def test_leases_without_an_end_and_any_number_of_attempts(on: Cli, queue: str) -> None:
    on("queue", "set", queue, "lease_s=", "max_attempts=")
    shown = on("queue", "stats", queue).text
    assert "lease_s            until settled" in shown
    assert "max_attempts       any number" in shown
    assert on("queue", "stats", queue, "--json").lines[0]["settings"]["lease_s"] is None
    (id_,) = enqueued(on, queue, "a")
    (line,) = on("task", "lease", queue, "--json").lines
    assert line["until"] is None
    found = on("task", "status", id_, "--json").lines[0]
    assert (found["state"], found["attempt"], found["time"]) == ("leased", 1, None)
    assert found["given"] is not None
    text = on("task", "status", id_).text
    assert [line.split()[0] for line in text.splitlines()] == ["task", "state", "why", "attempt", "worker", "given"]
    on("task", "ack", line["leased"])
    assert "given" not in on("task", "status", id_).text


def test_each_line_of_standard_input_is_a_task(on: Cli, queue: str) -> None:
    found = on("task", "enqueue", queue, "--json", stdin=b"one\n\xff\n")
    assert [line["event"] for line in found.lines] == ["enqueued"] * 2
    on("task", "lease", queue, "--count", "9")
    (shown,) = on("queue", "stats", queue, "--json").lines
    assert (shown["in_flight"], shown["depth"]) == (2, 2)


def test_a_task_that_fails_too_often_is_dead_and_can_be_tried_again_or_given_up(on: Cli, queue: str) -> None:
    ids = enqueued(on, queue, "a", "b")
    for _ in range(2):
        assert on("task", "nack", *leased(on, queue, 2), "--reason", "no [luck]").code == exits.OK
    found = on("dead", "list", queue, "--json").lines
    assert [line["id"] for line in found] == ids
    assert [(line["attempt"], line["reason"], line["value"]) for line in found] == [
        (2, "no [luck]", "a"),
        (2, "no [luck]", "b"),
    ]
    assert [len(line["history"]) for line in found] == [2, 2]
    shown = on("dead", "show", queue, ids[1]).text
    assert "no [luck]" in shown
    assert shown.count("by hand") == 2
    assert [line["id"] for line in on("dead", "show", queue, *reversed(ids), "--json").lines] == ids[::-1]
    assert on("dead", "show", queue, *ids).text.count("dead-lettered  ") == 2
    assert on("dead", "list", queue, "--reason", "other").text == "no dead-lettered tasks\n"
    assert on("dead", "redrive", queue, ids[0], "--json").lines[0]["count"] == 1
    found = on("dead", "redrive", queue, f"{queue}-0-77")
    assert (found.code, found.out) == (exits.NOT_FOUND, b"")
    assert f"has no dead-lettered task {queue}-0-77" in found.err
    assert state(on, ids[0]) in ("retrying", "pending")
    missing = on("dead", "show", queue, ids[0])
    assert missing.code == exits.NOT_FOUND
    assert "is not dead-lettered" in missing.err
    assert on("dead", "discard", queue, "--reason", "luck", "--yes").text == "1 task discarded\n"
    assert state(on, ids[1]) == "discarded"
    assert on("dead", "list", queue).text == "no dead-lettered tasks\n"


def test_discarding_all_asks_with_how_many_there_are(on: Cli, queue: str) -> None:
    found = on("dead", "discard", queue, "--all", typed=b"n\n")
    assert (found.code, f"discard 0 dead-lettered tasks of topic {queue}?" in found.err) == (exits.INTERRUPTED, True)
    for verb in ("redrive", "discard"):
        found = on("dead", verb, queue, "--all", "--reason", "x", typed=b"y\n")
        assert (found.code, "--reason and --all exclude each other" in found.err) == (exits.USAGE, True)


def test_naming_no_task_redrives_or_discards_nothing(on: Cli, queue: str) -> None:
    for verb in ("redrive", "discard"):
        for words in ([], ["--all", "--reason", "x"], [f"{queue}-0-0", "--all"]):
            found = on("dead", verb, queue, *words, typed=b"y\n")
            assert found.code == exits.USAGE
            assert ("exclude each other" if words else "say which ones") in found.err


def test_rejecting_and_releasing_by_hand(on: Cli, queue: str) -> None:
    first, second = enqueued(on, queue, "a", "b")
    one, other = leased(on, queue, 2)
    on("task", "reject", one, "--reason", "bad")
    on("task", "release", other)
    assert (state(on, first), state(on, second)) == ("dead-lettered", "retrying")
    (again,) = on("task", "lease", queue, "--json").lines
    assert (again["id"], again["attempt"]) == (second, 1)


def test_a_user_without_a_name_leases_by_hand(on: Cli, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with another user id than the image has."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    _, other = enqueued(on, queue, "a", "b")
    leased(on, queue)
    on("task", "claim", other, "--force")
    workers = [line["worker"] for line in on("task", "pending", queue, "--json").lines]
    assert workers == [f"user {os.getuid()}, by hand"] * 2


def test_leased_tasks_are_listed_with_their_workers(on: Cli, queue: str) -> None:
    assert on("task", "lease", queue).text == "nothing to lease now\n"
    assert on("task", "pending", queue).text == "no task is leased\n"
    first, second = enqueued(on, queue, "a", "b")
    leased(on, queue)
    (line,) = on("task", "pending", queue, "--json").lines
    assert (line["id"], line["attempt"]) == (first, 1)
    assert line["worker"].endswith(", by hand")
    on("queue", "set", queue, "lease_s=")
    leased(on, queue)
    shown = on("task", "pending", queue).text
    assert first in shown
    assert second in shown
    assert on("task", "pending", queue, "--worker", "ann").text == "no task is leased\n"
    assert on("task", "pending", queue, "--idle", "1d").text == "no task is leased\n"
    assert [each["id"] for each in on("task", "pending", queue, "--count", "1", "--json").lines] == [first]


def test_leased_tasks_are_claimed_by_id(on: Cli, queue: str) -> None:
    first, second = enqueued(on, queue, "a", "b")
    assert on("task", "claim", first).text == "nothing was claimed\n"
    leased(on, queue)
    assert on("task", "claim", first, second, "--idle", "1d").text == "nothing was claimed\n"
    (line,) = on("task", "claim", first, second, "--worker", "ann", "--lease", "30s", "--json").lines
    assert (line["id"], line["attempt"]) == (first, 2)
    assert line["until"] is not None
    assert on("task", "status", first, "--json").lines[0]["worker"] == "ann"
    assert second in on("task", "claim", second, "--force").text
    assert on("task", "ack", line["leased"]).text == "ack: 1 task\n"
    assert on("task", "claim", "nonsense").code == exits.USAGE


def test_tasks_are_settled_by_their_ids_alone_or_beside_leased_ones(on: Cli, queue: str) -> None:
    ids = enqueued(on, queue, "a", "b", "c", "d", "e")
    names = leased(on, queue, 4)
    assert on("task", "ack", names[0], ids[1], ids[1], "--result", "42").text == "ack: 2 tasks\n"
    assert [on("task", "status", id_, "--json").lines[0]["result"] for id_ in ids[:2]] == ["42", "42"]
    found = on("task", "nack", ids[2], ids[4], "--reason", "no", "--delay", "1h")
    assert (found.code, found.text) == (exits.OK, "nack: 1 task; 1 other not leased\n")
    (line,) = on("task", "release", ids[3], "--json").lines
    assert (line["event"], line["tasks"], line["count"]) == ("release", [ids[3]], 1)
    assert on("task", "reject", *ids).text == "reject: 0 tasks; 5 others not leased\n"
    assert [state(on, id_) for id_ in ids] == ["completed", "completed", "retrying", "retrying", "pending"]
    assert on("task", "ack", "nonsense").code == exits.USAGE


def test_a_queue_is_reset_to_a_place(on: Cli, queue: str) -> None:
    enqueued(on, queue, "a", "b", "c")
    on("task", "ack", *leased(on, queue, 3))
    assert on("queue", "reset", queue, "--to", "1").code == exits.USAGE
    assert on("queue", "reset", queue, "--to", "latest", "--partition", "0", "--yes").code == exits.USAGE
    assert on("queue", "reset", queue, "--to", "1", "--yes").text.endswith("reset: 2 tasks ready\n")
    (line,) = on("queue", "reset", queue, "--to", "earliest", "--yes", "--json").lines
    assert (line["event"], line["ready"]) == ("reset", 3)


def test_why_says_what_holds_a_task_back(on: Cli, queue: str) -> None:
    (id_,) = enqueued(on, queue, "later", delay="1h")
    assert state(on, id_) == "delayed"
    assert on("task", "why", id_).text.strip()
    assert on("task", "why", id_, "--json").lines[0]["why"] == on("task", "why", id_).text.strip()
    assert on("task", "lease", queue).text == "nothing to lease now\n"


def test_callbacks_that_wait_are_listed_with_what_they_wait_for(on: Cli, broker: Any, queue: str) -> None:
    assert on("task", "barriers", queue).text == "no callback waits for tasks\n"
    with penstock.connect(broker.unix) as client:
        members = [penstock.GroupTask(queue, "tasks", b"v") for _ in range(2)]
        first, _ = client.send_group(members, then=penstock.Callback(queue, {"penstock-task": b"report"}))
    (found,) = on("task", "barriers", queue, "--json").lines
    assert (found["members"], found["why"]) == (2, "2 of 2 tasks have not ended: 0, 1")
    assert found["headers"] == {"penstock-task": "report"}
    on("task", "reject", *leased(on, queue), "--reason", "no")
    text = " ".join(on("task", "barriers").text.split())
    held = f"task {first} is dead-lettered (no): redrive it"
    for said in (found["id"], "report", "1 of 2 tasks have not ended: 1", held):
        assert said in text
    assert f"barrier {found['id']} waits for it" in on("task", "why", first).text


def test_callbacks_that_wait_are_deleted(on: Cli, broker: Any, queue: str) -> None:
    with penstock.connect(broker.unix) as client:
        for _ in range(3):
            client.send_group([penstock.GroupTask(queue, "tasks", b"v")], then=penstock.Callback(queue))
        one, two, three = [each.id for each in client.barriers(queue)]
    words = ["task", "barriers", queue, "--delete", one, "--delete", two]
    refused = on(*words)
    assert (refused.code, "--yes" in refused.err) == (exits.USAGE, True)
    assert on(*words, typed=b"n\n").code == exits.INTERRUPTED
    assert len(on("task", "barriers", queue, "--json").lines) == 3
    said = on(*words, typed=b"y\n")
    assert "delete 2 callbacks of topic" in said.err
    assert said.text == f"barrier {one} of topic {queue} deleted\nbarrier {two} of topic {queue} deleted\n"
    assert [each["id"] for each in on("task", "barriers", queue, "--json").lines] == [three]
    again = on(*words, "--yes")
    assert (again.code, one in again.err) == (exits.NOT_FOUND, True)
    needs = on("task", "barriers", "--delete", three, "--yes")
    assert (needs.code, "TOPIC" in needs.err) == (exits.USAGE, True)
    (line,) = on("task", "barriers", queue, "--delete", three, "--yes", "--json").lines
    assert (line["event"], line["topic"], line["barrier"]) == ("deleted", queue, three)


def test_a_cancelled_task_is_not_leased(on: Cli, queue: str) -> None:
    (id_,) = enqueued(on, queue, "never")
    assert on("task", "cancel", id_, "--json").lines[0]["state"] == "cancelled"
    assert on("task", "lease", queue).text == "nothing to lease now\n"


def test_urgent_tasks_go_first(on: Cli, queue: str) -> None:
    enqueued(on, queue, "low")
    (high,) = enqueued(on, queue, "high", priority="9")
    assert on("task", "lease", queue, "--json").lines[0]["id"] == high


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["task", "ack", "nonsense"], exits.USAGE, "no id of a task"),
        (["task", "ack", "{queue}-0-0@77"], exits.FAILED, "77"),
        (["task", "status", "nonsense"], exits.USAGE, "topic-partition-offset"),
        (["task", "status", "{queue}-0-99"], exits.NOT_FOUND, "99"),
        (["task", "status", "{queue}-0-0", "--group", "other"], exits.NOT_FOUND, "other"),
        (["task", "enqueue", "{queue}", "x", "--delay", "1s", "--at", "2030-01-01"], exits.USAGE, "say the same"),
        (["task", "enqueue", "{queue}", "x", "--at", "soon"], exits.USAGE, "is no time"),
        (["task", "enqueue", "{queue}", "x", "--priority", "256"], exits.USAGE, "256"),
        (["queue", "set", "{queue}", "max_attempts=0"], exits.USAGE, "max_attempts"),
        (["queue", "set", "{queue}", "attempts=3"], exits.USAGE, "attempts"),
        (["queue", "set", "{queue}", "lease_s=soon"], exits.USAGE, "lease_s=soon"),
        (["queue", "stats", "{queue}", "--group", "other"], exits.NOT_FOUND, "other"),
        (["queue", "pause", "{queue}", "--for", "1s", "--until", "2030-01-01"], exits.USAGE, "say the same"),
        (["queue", "pause", "{queue}", "--until", "2001-01-01T00:00Z"], exits.USAGE, "is over: give a time to come"),
        (["queue", "pause", "{queue}", "--for", "0s"], exits.USAGE, "0s is no time: give one above 0"),
        (["queue", "set", "{queue}", "dead_topic=nosuch"], exits.USAGE, "dead_topic=nosuch names no topic: create it"),
        (["dead", "show", "{queue}", "{queue}-0-0"], exits.NOT_FOUND, "is not dead-lettered"),
        (["dead", "show", "{queue}-0-0"], exits.USAGE, "before {queue}-0-0: penstock dead show {queue} {queue}-0-0"),
        (["dead", "show", "{queue}"], exits.USAGE, "say which ones: ids"),
        (["dead", "show", "{queue}", "other-0-0"], exits.USAGE, "other-0-0 is no task of topic {queue}"),
        (["schedule", "set", "{queue}", "n", "every now", "v"], exits.USAGE, "every now"),
        (["schedule", "set", "{queue}", "n", "* * *", "v"], exits.USAGE, "* * *"),
        (["schedule", "delete", "{queue}", "n", "--yes"], exits.NOT_FOUND, "n"),
    ],
    ids=lambda value: f"{value[0]}-{value[1]}" if isinstance(value, list) else "",
)
def test_what_cannot_be_is_said_in_a_line(on: Cli, queue: str, words: list[str], code: int, says: str) -> None:
    enqueued(on, queue, "x")
    found = on(*(word.format(queue=queue) for word in words))
    assert found.code == code, found
    assert says.format(queue=queue) in found.err
    assert len(found.err.splitlines()) == 1


def test_a_queue_shows_what_it_holds_and_how_it_is_set(on: Cli, queue: str) -> None:
    on("task", "enqueue", queue, "a", "b", "c")
    enqueued(on, queue, "later", delay="1h")
    leased(on, queue)
    (shown,) = on("queue", "stats", queue, "--json").lines
    counts = {name: shown[name] for name in ("depth", "ready", "in_flight", "delayed", "retrying", "dead_lettered")}
    assert counts == {"depth": 4, "ready": 2, "in_flight": 1, "delayed": 1, "retrying": 0, "dead_lettered": 0}
    assert shown["settings"]["max_attempts"] == 2
    assert shown["oldest"]
    text = on("queue", "stats", queue).text
    assert "max_attempts" in text
    listed = [line for line in on("queue", "list", "--json").lines if line["topic"] == queue]
    assert [(line["group"], line["depth"]) for line in listed] == [("tasks", 4)]
    assert queue in on("queue", "list", "--topic", queue).text


def test_settings_are_written_as_people_write_them(on: Cli, queue: str) -> None:
    words = ["lease_s=2m", "backoff_max_s=1h", "jitter=0.25", "order=key", "fair=yes", "key_concurrency=3"]
    (said,) = on("queue", "set", queue, *words, "--json").lines
    wanted = {"lease_s": 120, "backoff_max_s": 3600, "jitter": 0.25, "order": "key", "fair": True, "key_concurrency": 3}
    assert wanted.items() <= said["settings"].items()
    (said,) = on("queue", "set", queue, "key_concurrency=", "fair=no", "--json").lines
    assert (said["settings"]["key_concurrency"], said["settings"]["fair"]) == (None, False)


@pytest.mark.parametrize("words", [[], ["--for", "1h"], ["--until", "2999-01-01T00:00Z"]])
def test_a_paused_queue_gives_nothing_until_it_is_resumed(on: Cli, queue: str, words: list[str]) -> None:
    enqueued(on, queue, "x")
    assert on("queue", "pause", queue, *words).code == exits.OK
    assert on("task", "lease", queue).text == "nothing to lease now\n"
    assert "paused" in on("queue", "list").text
    assert on("queue", "stats", queue, "--json").lines[0]["paused_until"]
    assert on("queue", "resume", queue).code == exits.OK
    assert len(leased(on, queue)) == 1


def test_a_queue_whose_dead_topic_is_gone_says_so(on: Cli, queue: str) -> None:
    on("topic", "create", f"{queue}-dead")
    assert on("queue", "set", queue, f"dead_topic={queue}-dead").code == exits.OK
    assert "copies of dead letters" not in on("queue", "list", "--topic", queue).text
    on("topic", "delete", f"{queue}-dead", "--yes")
    says = f"copies of dead letters wait: topic {queue}-dead is missing"
    for words in (["list", "--topic", queue], ["stats", queue]):
        assert says in on("queue", *words).text


def test_a_deleted_queue_is_forgotten_and_its_records_stay(on: Cli, queue: str) -> None:
    enqueued(on, queue, "x")
    assert on("queue", "delete", queue, "--yes").code == exits.OK
    assert on("queue", "stats", queue).code == exits.NOT_FOUND
    assert on("consume", queue, "--until-end").out == b"x\n"


def test_schedules_are_set_listed_and_deleted(on: Cli, queue: str) -> None:
    words = ["nightly", "0 4 * * 1-5", "clean", "--zone", "Europe/Vienna", "--key", "k", "--header", "a=b"]
    (said,) = on("schedule", "set", queue, *words, "--json").lines
    assert (said["name"], said["spec"], said["zone"], said["value"], said["key"]) == (
        "nightly", "0 4 * * 1-5", "Europe/Vienna", "clean", "k",
    )  # fmt: skip
    assert said["next"]
    assert said["last"] is None
    assert on("schedule", "list", queue, "--json").lines == [{k: v for k, v in said.items() if k != "event"}]
    assert "nightly" in on("schedule", "list").text
    assert not said["coalesce"]
    (said,) = on("schedule", "set", queue, *words, "--coalesce", "--json").lines
    assert said["coalesce"]
    assert "0 4 * * 1-5 (coalesces)" in on("schedule", "list", queue).text
    assert on("schedule", "delete", queue, "nightly", "--yes").code == exits.OK
    assert on("schedule", "list", queue).text.startswith("no schedules yet")


def test_the_rate_of_a_queue_is_set_shown_and_taken_off(on: Cli, queue: str) -> None:
    enqueued(on, queue, *"abc")
    on("queue", "set", queue, "rate=1/h", "rate_burst=2")
    assert on("queue", "stats", queue, "--json").lines[0]["settings"]["rate"] == "1/h"
    assert len(leased(on, queue, 3)) == 2
    refused = on("queue", "set", queue, "rate=now")
    assert (refused.code, "as in 100/s, 10/m" in refused.err) == (exits.USAGE, True)
    on("queue", "set", queue, "rate=", "rate_burst=")
    assert len(leased(on, queue, 3)) == 1


def test_a_schedule_puts_tasks_into_its_queue(on: Cli, queue: str) -> None:
    on("schedule", "set", queue, "often", "every 1s", "tick")
    (line,) = on("task", "lease", queue, "--wait", "20s", "--json").lines
    assert line["value"] == "tick"
    on("schedule", "delete", queue, "often", "--yes")


def test_json_lines_are_json(on: Cli, queue: str) -> None:
    enqueued(on, queue, "x")
    for words in (["queue", "list"], ["queue", "stats", queue], ["task", "status", f"{queue}-0-0"]):
        for line in on(*words, "--json").out.splitlines():
            json.loads(line)


def test_the_settings_of_a_queue_are_shown_as_they_are_given(on: Cli, queue: str) -> None:
    text = on("queue", "stats", queue).text
    shown = {name: " ".join(rest) for name, *rest in (line.split() for line in text.splitlines() if line)}
    assert (shown["lease_s"], shown["dead_retention_s"], shown["backoff_s"]) == ("1 m", "14 d", "0 s")
    assert (shown["max_attempts"], shown["fair"], shown["dead_topic"]) == ("2", "no", "-")


def test_dedup_of_a_topic_is_set_where_its_other_settings_are(on: Cli, topic: str) -> None:
    on("topic", "create", topic, "--dedup", "replace", "--dedup-window", "1m")
    assert enqueued(on, topic, "a", dedup="k") == [f"{topic}-0-0"]
    assert enqueued(on, topic, "b", dedup="k") == [f"{topic}-0-1"]
    assert [line["value"] for line in on("task", "lease", topic, "--count", "9", "--json").lines] == ["b"]
    on("topic", "alter", topic, "--dedup", "drop")
    (shown,) = on("topic", "show", topic, "--json").lines
    assert (shown["settings"]["dedup"], shown["settings"]["dedup_window_s"]) == ("drop", 60.0)
