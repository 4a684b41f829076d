"""Fetching: at once, later, never past what is committed, and never from a place that is not the reader's."""

from __future__ import annotations

import pytest
from penstock.storage.batch import ColumnId, batches
from penstock.storage.reader import LogReader
from penstock.transport import messages as m
from penstock.transport.removal_messages import TrimRule
from support.engine import Rig, records


def filled(count: int = 5, **config: float) -> tuple[Rig, bytes]:
    rig = Rig(**config)
    topic = rig.topic()
    for number in range(count):
        rig.produce(topic, [b"%d" % number])
    return rig, topic


def payload(rig: Rig, request: int) -> bytes:
    return next(data for _, message, data in rig.port.sent if getattr(message, "request", 0) == request)


def test_a_fetch_gives_whole_batches_and_where_to_go_on():
    rig, topic = filled()
    answer = rig.fetch(topic, 2)
    assert (answer.next_offset, answer.first, answer.end) == (5, 0, 5)
    assert records(payload(rig, answer.request), 2) == [b"2", b"3", b"4"]


def test_a_small_limit_still_gives_one_batch():
    rig, topic = filled()
    answer = rig.ask(m.Fetch, topic, 0, 1, -1, 1, 0)
    assert answer.next_offset == 2


def test_a_fetch_at_the_end_without_a_wait_is_answered_empty():
    rig, topic = filled()
    answer = rig.fetch(topic, 5)
    assert (answer.next_offset, payload(rig, answer.request)) == (5, b"")


def test_a_fetch_at_the_end_waits_for_the_next_record():
    rig, topic = filled()
    assert rig.fetch(topic, 5, wait_ms=1000) is None
    request = rig._request
    rig.store.hold = True
    rig.produce(topic, [b"new"])
    assert rig.answers(request) == [], "it is not committed"
    rig.sync()
    assert rig.answers(request)[0].next_offset == 6
    assert records(payload(rig, request), 5) == [b"new"]


@pytest.mark.parametrize("goes_on", [False, True], ids=["anew", "going on"])
def test_a_fetch_that_retention_overtakes_is_told_where_the_partition_begins(goes_on: bool):
    rig, topic = filled()
    if goes_on:
        rig.ask(m.Fetch, topic, 0, 0, -1, 1, 0)
    rig.port.cold = []
    assert rig.fetch(topic, 1, wait_ms=1000) is None
    request, (waiting,) = rig._request, rig.port.cold
    rig.port.cold = None
    rig.ask(m.Trim, topic, TrimRule.OFFSET, 3)
    rig.node.warmed(waiting)
    rig.turn()
    (answer,) = rig.answers(request)
    assert (answer.code, answer.offset) == ("out_of_bounds", 3)
    assert "is out of range: 3 to 5 are valid" in answer.message


def test_a_fetch_whose_time_is_up_is_answered_empty_and_once():
    rig, topic = filled()
    assert rig.fetch(topic, 5, wait_ms=1000) is None
    request = rig._request
    assert rig.node.tick(rig.now) == pytest.approx(1.0)
    rig.pass_time(0.9)
    assert rig.answers(request) == []
    rig.pass_time(0.2)
    rig.produce(topic, [b"new"])
    assert [answer.next_offset for answer in rig.answers(request)] == [5]


def test_a_wait_has_a_limit():
    rig, topic = filled(wait_max_s=2.0)
    assert rig.fetch(topic, 5, wait_ms=10**9) is None
    request = rig._request
    rig.pass_time(2.5)
    assert len(rig.answers(request)) == 1


def test_a_peer_that_went_away_is_not_waited_for():
    rig, topic = filled()
    rig.fetch(topic, 5, wait_ms=1000)
    request = rig._request
    assert rig.node.stats()["fetch.waiting"] == 1
    rig.node.disconnect("c")
    rig.produce(topic, [b"new"])
    assert (rig.answers(request), rig.node.stats()["fetch.waiting"]) == ([], 0)


@pytest.mark.parametrize(("offset", "valid"), [(6, 5), (1 << 40, 5)])
def test_an_offset_out_of_range_is_refused_with_the_valid_range(offset: int, valid: int):
    rig, topic = filled()
    answer = rig.fetch(topic, offset)
    assert (answer.code, answer.offset) == ("out_of_bounds", valid)
    assert answer.message.startswith(f"offset {offset} of partition 0 of topic t is out of range: 0 to 5 are valid")


def test_a_fetch_of_cold_pages_is_answered_when_they_are_warm():
    rig, topic = filled()
    rig.port.cold = []
    assert rig.fetch(topic, 0) is None
    request, tokens = rig._request, rig.port.cold
    rig.pass_time(2)
    assert rig.answers(request) == [], "the records exist: an empty answer would be wrong"
    rig.port.cold = None
    rig.node.warmed(tokens[0])
    assert rig.answers(request)[0].next_offset == 5


def test_the_term_before_an_offset_is_checked():
    rig, topic = filled()
    rig.restart()
    rig.produce(topic, [b"second term"])
    for offset, term in [(2, 1), (5, 1), (6, 2)]:
        assert isinstance(rig.fetch(topic, offset, term=term), m.Fetched)
    assert isinstance(rig.fetch(topic, 0, term=0), m.Fetched)


@pytest.mark.parametrize(
    ("offset", "term", "valid"),
    [
        (6, 1, 5),  # read six records of term 1, of which the last was lost and its offset reused
        (9, 1, 5),  # far beyond
        (3, 2, 3),  # a term that the record before does not have
        (7, 2, 6),
        (3, 9, 3),  # a term of the past
    ],
)
def test_a_position_that_was_lost_is_answered_with_the_valid_end(offset: int, term: int, valid: int):
    rig, topic = filled()
    rig.restart()
    rig.produce(topic, [b"second term"])
    answer = rig.fetch(topic, offset, term=term)
    assert (answer.code, answer.offset) == ("diverged", valid)
    assert f"end at {valid}" in answer.message


def test_offsets_are_found_by_time_for_all_partitions_at_once():
    rig = Rig()
    topic = rig.topic(partitions=3)
    times = []
    for number in range(3):
        rig.pass_time(1)
        times.append(rig.now.wall_us)
        for partition in range(number + 1):
            rig.produce(topic, [b"x"], partition)
    ask = lambda time_us: rig.ask(m.FindOffsets, topic, time_us).offsets  # noqa: E731
    assert ask(m.EARLIEST) == [(0, 0), (0, 0), (0, 0)]
    assert ask(m.LATEST) == [(3, 1), (2, 1), (1, 1)]
    assert ask(times[1]) == [(1, 1), (0, 0), (0, 0)]
    assert ask(times[2]) == [(2, 1), (1, 1), (0, 0)]
    assert ask(times[2] + 1) == ask(m.LATEST)
    assert rig.ask(m.FindOffsets, topic, -7).code == "invalid_request"


def test_ends_are_found_without_a_look_into_the_logs(monkeypatch: pytest.MonkeyPatch):
    rig = Rig()
    topic = rig.topic(partitions=40)
    for partition in range(0, 40, 3):
        rig.produce(topic, [b"x"], partition)

    def looked(*_: object) -> int:
        raise AssertionError("a log was looked into")

    monkeypatch.setattr(LogReader, "term_at", looked)
    monkeypatch.setattr(LogReader, "offset_at", looked)
    ends = [(1, 1) if partition % 3 == 0 else (0, 0) for partition in range(40)]
    assert rig.ask(m.FindOffsets, topic, m.LATEST).offsets == ends
    assert rig.ask(m.FindOffsets, topic, m.EARLIEST).offsets == [(0, 0)] * 40


# -- some columns only ----------------------------------------------------------------------------------


def keyed(rig: Rig) -> bytes:
    topic = rig.topic("keyed")
    for number in range(3):
        rig.produce(topic, [b"value" * 100], keys=[b"k%d" % number], event_times=[number])
    return topic


def test_a_fetch_of_some_columns_brings_no_others():
    rig = Rig()
    topic = keyed(rig)
    answer = rig.ask(m.Fetch, topic, 0, 1, -1, 1 << 20, 0, [ColumnId.KEY])
    assert answer.next_offset == 3
    found = list(batches(payload(rig, answer.request)))
    assert [batch.keys() for batch in found] == [[b"k1"], [b"k2"]]
    assert {column.id for batch in found for column in batch.directory()} == {ColumnId.KEY}


def test_what_is_no_column_brings_only_places():
    rig = Rig()
    topic = keyed(rig)
    answer = rig.ask(m.Fetch, topic, 0, 0, -1, 1 << 20, 0, [0, 2**63 - 1, ColumnId.OFFSET])
    found = list(batches(payload(rig, answer.request)))
    assert [(batch.base_offset, batch.end_offset, batch.directory()) for batch in found] == [
        (0, 1, []), (1, 2, []), (2, 3, []),
    ]  # fmt: skip


def test_a_waiting_fetch_of_some_columns_gets_these():
    rig = Rig()
    topic = keyed(rig)
    request = rig.next_request()
    rig.send(m.Fetch(request, topic, 0, 3, -1, 1 << 20, 5000, [ColumnId.EVENT_TIME]))
    rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)])
    rig.produce(topic, [b"v"], event_times=[7])
    (batch,) = batches(payload(rig, request))
    assert (batch.event_times().tolist(), batch.values()) == ([7], [])
