"""What grows in growth.py has grown when it is measured."""

from __future__ import annotations

from contextlib import ExitStack

import penstock
import pytest

from perf.benches import growth
from perf.benches.growth import Backlog, GrowingConsumers, GrowingLog, GrowingTopics, Once
from perf.lab import harness
from perf.lab.harness import Lab
from perf.systems.broker import serve


def test_a_growing_log_has_the_size_and_as_many_samples_as_the_harness_asks_for(tmp_path):
    log = GrowingLog(tmp_path / "log")
    for size in (1 << 20, 4 << 20):
        for what in ("append", "open", "seek and read one record"):
            samples = [log.figure(what, size) for _ in range(growth.TURNS + 1)]
            assert min(samples) > 0
        with penstock.Log(tmp_path / "log", read_only=True) as grown:
            assert grown.end_offset * growth.BIG >= size
    with pytest.raises(IndexError):
        log.figure("append", 1 << 20)


def test_the_curves_over_a_log_are_measured_in_one_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "LOG_SIZES", (1 << 20, 2 << 20))
    curves = list(harness.measure_all(growth._log(Lab(tmp_path, 5, 1.0)), Lab(tmp_path, 5, 1.0), lambda text: None))
    assert [curve.series[0].xs for curve in curves] == [[1 << 20, 2 << 20]] * 3
    assert {len(samples) for curve in curves for samples in curve.series[0].samples} == {growth.TURNS}


def test_what_grows_is_measured_before_it_grows_on():
    sizes: list[int] = []
    grown = Once(sizes.append, {"size": lambda: float(sizes[-1]), "twice": lambda: 2.0 * sizes[-1]})
    assert [grown.figure("size", size) for size in (1, 5)] == [1, 5]
    assert [grown.figure("twice", size) for size in (1, 5)] == [2, 10]
    assert sizes == [1, 5]


def test_topics_consumers_and_backlog_are_as_many_as_asked_for(tmp_path):
    with ExitStack() as stack:
        topics = GrowingTopics(stack, tmp_path / "topics", 3)
        for count in (2, 3):
            assert topics.figure("one record acknowledged", count) > 0
            assert len(topics._client.topics()) == count
        consumers = GrowingConsumers(stack, tmp_path / "consumers").of(3)
        assert len(consumers._consumers) == 3
        assert consumers.delivered_us() > 0
    with serve(tmp_path / "backlog") as broker, penstock.connect(broker.url) as client:
        backlog = Backlog(broker, client).of(1000)
        assert backlog.read_ns() > 0
        assert backlog.lag_us() > 0
        backlog._count += 1
        with pytest.raises(RuntimeError, match="the lag says 1000"):
            backlog.lag_us()


def test_a_window_of_one_waits_for_every_record(tmp_path):
    with serve(tmp_path) as broker, penstock.connect(broker.url) as client:
        client.create_topic("in-flight", commit="written")
        with client.producer("in-flight") as producer:
            assert growth._windowed_us(producer, 1) > 0
        assert client.offsets("in-flight", "latest") == {0: 300}
