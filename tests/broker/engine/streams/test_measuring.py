"""Measuring spans through a node: right, in slices, and without a batch being read."""

from __future__ import annotations

import pytest
from penstock.broker.engine.streams import measuring
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig

SIZE = len(encode([b"x" * 1000]))
"""Of one batch."""


def filled(*counts: int) -> tuple[Rig, bytes]:
    """Batches of one record each."""
    rig = Rig()
    topic = rig.topic(partitions=len(counts), segment_bytes=1 << 16)
    for partition, count in enumerate(counts):
        for _ in range(count):
            rig.produce(topic, [b"x" * 1000], partition)
    return rig, topic


def test_spans_are_cut_as_they_were_asked():
    rig, topic = filled(10, 4)
    size = SIZE
    spans = [m.Span(1, 0, 4), m.Span(0, 2, 9), m.Span(0, 5, 5)]
    answer = rig.ask(m.Measure, topic, spans, 3 * size)
    assert answer.pieces == [[(3, 3 * size), (4, size)], [(5, 3 * size), (8, 3 * size), (9, size)], []]


def test_pieces_go_over_segments():
    rig, topic = filled(200)
    assert rig.partition(topic).segments > 3
    (found,) = rig.ask(m.Measure, topic, [m.Span(0, 0, 200)], 50 * SIZE).pieces
    assert [end for end, _ in found] == [50, 100, 150, 200]


@pytest.mark.parametrize(
    ("spans", "code", "offset"),
    [
        ([m.Span(2, 0, 1)], "unknown_partition", -1),
        ([m.Span(0, 0, 4), m.Span(0, 3, 11)], "out_of_bounds", 10),
        ([m.Span(0, 11, 11)], "out_of_bounds", 10),
        ([m.Span(0, 5, 4)], "invalid_request", -1),
    ],
)
def test_what_cannot_be_is_refused(spans, code: str, offset: int):
    rig, topic = filled(10, 4)
    answer = rig.ask(m.Measure, topic, spans, 1000)
    assert (answer.code, answer.offset) == (code, offset)
    assert rig.ask(m.Measure, bytes(16), [], 1).code == "unknown_topic"


def test_too_many_pieces_are_refused(monkeypatch):
    monkeypatch.setattr(measuring, "PIECES_MAX", 5)
    rig, topic = filled(3, 3)
    answer = rig.ask(m.Measure, topic, [m.Span(0, 0, 3), m.Span(1, 0, 3)], 0)
    assert (answer.code, "larger" in answer.message) == ("limit_reached", True)
    assert len(rig.ask(m.Measure, topic, [m.Span(0, 0, 3), m.Span(1, 0, 2)], 0).pieces) == 2


def test_a_long_measurement_is_done_in_slices_between_other_work(monkeypatch):
    monkeypatch.setattr(measuring, "SLICE", 1)
    rig, topic = filled(30)
    long, short = rig.next_request(), rig.next_request()
    rig.send(m.Measure(long, topic, [m.Span(0, 0, 30)], 0), peer="a")
    rig.send(m.Measure(short, topic, [m.Span(0, 0, 3)], 0), peer="b")
    assert rig.node.tick(rig.now) == 0.0, "it asks to be called again"
    rig.turn(2)
    assert (rig.answers(long), len(rig.answers(short))) == ([], 1)
    rig.turn(10)
    assert [end for end, _ in rig.answers(long)[0].pieces[0]] == list(range(1, 31))
    assert rig.node.tick(rig.now) > 0


def test_who_goes_away_is_not_worked_for(monkeypatch):
    monkeypatch.setattr(measuring, "SLICE", 1)
    rig, topic = filled(30)
    rig.send(m.Measure(rig.next_request(), topic, [m.Span(0, 0, 30)], 0))
    rig.node.disconnect("c")
    assert rig.node.tick(rig.now) > 0


def test_a_topic_that_is_deleted_meanwhile_is_said_to_be(monkeypatch):
    monkeypatch.setattr(measuring, "SLICE", 1)
    rig, topic = filled(30)
    request = rig.next_request()
    rig.send(m.Measure(request, topic, [m.Span(0, 0, 30)], 0))
    rig.ask(m.DeleteTopic, topic)
    assert [answer.code for answer in rig.answers(request)] == ["unknown_topic"]


def test_records_that_come_meanwhile_are_not_counted(monkeypatch):
    monkeypatch.setattr(measuring, "SLICE", 1)
    rig, topic = filled(5)
    request = rig.next_request()
    rig.send(m.Measure(request, topic, [m.Span(0, 0, 5)], 0))
    for _ in range(5):
        rig.produce(topic, [b"more"])
    rig.turn(10)
    assert [end for end, _ in rig.answers(request)[0].pieces[0]] == [1, 2, 3, 4, 5]


def test_spans_without_records_are_looked_at_in_slices_too(monkeypatch):
    monkeypatch.setattr(measuring, "SLICE", 1)
    rig, topic = filled(3)
    long, short = rig.next_request(), rig.next_request()
    rig.send(m.Measure(long, topic, [m.Span(0, 0, 0)] * 30, 0), peer="a")
    rig.turn(7)  # while the spans are checked
    rig.send(m.Measure(short, topic, [m.Span(0, 0, 3)], 0), peer="b")
    rig.turn(4)
    assert (rig.answers(long), len(rig.answers(short))) == ([], 1)
    rig.turn(10)
    assert rig.answers(long)[0].pieces == [[]] * 30
