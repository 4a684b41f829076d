"""What `penstock top` shows of two looks."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from penstock.cli.top import ROWS, Sample, drawn, summary
from penstock.clients.descriptions import Group, GroupPartition, Partition, Topic
from rich.console import Console


def a_topic(name: str, end: int) -> Topic:
    return Topic(name, name, {}, [Partition(0, 0, end, 100, 1, "ok", 1, "", "")])


def sample(at_s: float, stats: dict, topics=(), groups=()) -> Sample:
    return Sample(at_s, datetime.fromtimestamp(60.0, UTC), stats, list(topics), list(groups), [])


def test_rates_are_over_the_time_between_looks():
    before = sample(
        1.0, {"requests": 10, "produce.records": 0, "lending.records": 4}, [a_topic("a", 5), a_topic("b", 0)]
    )
    stats = {"requests": 30, "produce.records": 1, "lending.records": 10, "lending.lent": 2}
    now = sample(3.0, stats, [a_topic("a", 5), a_topic("b", 8), a_topic("new", 9)])
    found = summary(now, before)
    assert found["per_second"] == {"requests": 10.0, "records in": 0.5, "records appended directly": 3.0}
    assert found["now"] == {"lending.lent": 2}
    assert [(each["topic"], each["per_second"]) for each in found["topics"]] == [("b", 4.0), ("a", 0.0), ("new", 0.0)]
    assert summary(now, None)["per_second"] == {}


def test_latencies_are_of_what_came_since():
    before = sample(1.0, {"turns.us": [10, 0, 9], "requests.us": {"Ping": [3, 0, 1]}})
    now = sample(2.0, {"turns.us": [99, 0, 9, 0, 1], "requests.us": {"Ping": [3, 0, 1], "Produce": [8, 0, 0, 1]}})
    assert summary(now, before)["latencies_us"] == {"turn": (7, 7), "Ping": (1, 1), "Produce": (3, 3)}
    assert summary(now, None)["latencies_us"]["turn"] == (1, 7)


def test_the_groups_with_the_most_lag_come_first_and_few_are_shown():
    old = GroupPartition(0, 0, 9, 0, "", 1, oldest=datetime.fromtimestamp(50.0, UTC))
    groups = [Group("t", f"g{n}", [], [GroupPartition(0, 0, 9, n, "", 1), old]) for n in range(ROWS + 2)]
    found = summary(sample(1.0, {}, groups=groups), None)["groups"]
    assert [each["lag"] for each in found] == list(range(ROWS + 1, 1, -1))
    assert found[0]["oldest_s"] == 10.0


def test_it_is_drawn_as_tables():
    found = summary(
        sample(2.0, {"requests": 3, "topics": 1}, [a_topic("fl[red]ights", 3)]), sample(1.0, {"requests": 1})
    )
    console = Console(file=io.StringIO(), width=200)
    for table in drawn(found):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "fl[red]ights" in text
    assert [line.split() for line in text.splitlines() if line.startswith("requests")] == [["requests", "2"]]


def test_it_ends_after_so_many_looks(on, topic):
    on("topic", "create", topic)
    on("produce", topic, stdin=b"x\ny\n")
    first, second = on("top", "--count", "2", "--every", "10ms", "--json").lines
    assert (first["per_second"], set(second["per_second"]) >= {"requests", "records in"}) == ({}, True)
    assert second["now"]["topics"] >= 1
    assert "latency, us" in on("top", "--count", "1").text


@pytest.mark.parametrize("words", [["--every", "0s"], ["--count", "0"]])
def test_it_takes_no_nonsense(cli, words):
    assert cli("top", *words).code == 2
