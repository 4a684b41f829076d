"""What becomes of one look at a broker, and how it is written; processes, from /proc."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from penstock.broker.processes import _part, children, of, usage
from penstock.clients.descriptions import Group, GroupPartition
from penstock.gateway.exposition import BITS, Metric, text
from penstock.metrics import Look, metrics

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def test_a_metric_is_what_it_is_and_its_samples():
    found = Metric("n_total", "counter", "What it is.", [((), 3), ((("a", 'q"\\\n'),), 0.5)])
    assert text([found, Metric("none", "gauge", "Nothing.", [])]) == (
        '# HELP n_total What it is.\n# TYPE n_total counter\nn_total 3\nn_total{a="q\\"\\\\\\n"} 0.5\n'
    )


def test_a_histogram_has_the_same_buckets_whatever_it_counted():
    lines = text([Metric("h", "histogram", "About.", [((), [9, 1, 0, 0, 0, 1])], 0.5)]).splitlines()[2:]
    assert lines[:2] == ['h_bucket{le="15.5"} 2', 'h_bucket{le="31.5"} 2']
    assert lines[-3:] == ['h_bucket{le="+Inf"} 2', "h_sum 4.5", "h_count 2"]
    assert len(lines) == len(BITS) + 3
    beyond = text([Metric("h", "histogram", "About.", [((), [9, *[0] * 30, 1])])]).splitlines()[2:]
    assert (beyond[-4].rpartition(" ")[2], beyond[-3].rpartition(" ")[2]) == ("0", "1")


def samples(look: Look, name: str, **options):
    return {metric.name: metric.samples for metric in metrics(look, **{"most": 10, **options})}.get(f"penstock_{name}")


def test_a_broker_that_does_not_answer_is_down():
    look = Look(now=NOW, took_s=5.0)
    assert (samples(look, "up"), samples(look, "requests_total")) == ([((), 0)], None)


def test_counters_that_an_older_broker_does_not_have_are_left_out():
    look = Look(now=NOW, took_s=0.1, stats={"requests": 3, "clock.ahead_us": 1500})
    assert (samples(look, "up"), samples(look, "requests_total")) == ([((), 1)], [((), 3)])
    assert samples(look, "clock_ahead_seconds") == [((), pytest.approx(0.0015))]
    assert samples(look, "turn_seconds") is None


def test_a_group_without_lag_has_no_age():
    old = GroupPartition(0, 1, 5, 4, "", 1, oldest=datetime(2026, 1, 1, tzinfo=UTC))
    groups = [Group("t", "old", [], [old, GroupPartition(1, 5, 5, 0, "", 1)]), Group("t", "new", [], [])]
    look = Look(now=NOW, took_s=0.1, groups=groups)
    ages = samples(look, "group_oldest_seconds")
    assert ages == [((("topic", "t"), ("group", "old")), 60.0), ((("topic", "t"), ("group", "new")), 0.0)]
    assert samples(look, "group_partition_lag") is None
    assert len(samples(look, "group_partition_lag", partitions=True)) == 2
    assert len(samples(look, "group_partition_lag", partitions=True, most=1)) == 1
    assert samples(look, "left_out", most=1) == [((), 1)]


def test_a_process_is_what_its_command_line_says():
    assert _part(["python", "-P", "-m", "penstock.broker", "--role=keeper", "--parent=1", ""]) == "keeper"
    assert _part(["python", "-m", "penstock.gateway", ""]) == "gateway"
    assert _part(["python", "-m", "penstock.broker", ""]) == ""
    assert _part(["penstock.gateway", "-m"]) == ""
    assert _part([""]) == ""


def test_a_process_uses_something():
    own = of(os.getpid())
    assert own.resident_bytes > 1 << 20
    assert own.descriptors > 2
    assert own.cpu_s > 0
    assert abs(own.started_s - datetime.now(UTC).timestamp()) < 7 * 86400
    assert usage(os.getpid()).keys() == {"supervisor"}


def test_a_process_that_has_ended_is_left_out():
    assert usage(1 << 22) == {}
    assert list(children(1 << 22)) == []
