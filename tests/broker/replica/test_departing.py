"""Files that go behind a checkpoint: each once, with the entry at which it was noted first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.broker.replica.departing import Departing
from penstock.storage.segment import SegmentRef


class Log:
    def __init__(self, segment_bytes: int = 100) -> None:
        self.options = SimpleNamespace(segment_bytes=segment_bytes)


def segment(number: int) -> SegmentRef:
    return SegmentRef(f"/{number}.segment", number, 1)


def taken(departing: Departing, entry: int) -> list[tuple[Any, list[SegmentRef]]]:
    return list(departing.take_segments(entry))


def test_segments_go_with_a_checkpoint_of_the_entry_at_which_they_were_noted_first():
    departing, one, two = Departing(), Log(), Log(7)
    departing.retire(one, [segment(1)], 5)
    departing.retire(one, [segment(1), segment(2)], 6)
    departing.retire(two, [segment(1)], 7)
    assert departing
    assert departing.bytes == 207
    assert taken(departing, 4) == []
    assert taken(departing, 5) == [(one, [segment(1)])]
    assert departing.bytes == 107
    assert taken(departing, 7) == [(one, [segment(2)]), (two, [segment(1)])]
    assert departing.bytes == 0
    assert not departing
    assert taken(departing, 9) == []


def test_a_size_that_is_changed_meanwhile_does_not_stay_in_the_sum():
    departing, one = Departing(), Log()
    departing.retire(one, [segment(1)], 5)
    one.options.segment_bytes = 40
    assert taken(departing, 5) == [(one, [segment(1)])]
    assert departing.bytes == 0


def test_a_deleted_topic_goes_with_its_segments():
    departing, one, other = Departing(), Log(), Log()
    departing.retire(one, [segment(1)], 5)
    departing.retire(other, [segment(2)], 5)
    departing.delete(b"topic", [one, Log()], 6)
    assert departing.bytes == 100
    assert departing.take_topics(5) == []
    assert taken(departing, 9) == [(other, [segment(2)])]
    assert departing
    assert departing.take_topics(6) == [b"topic"]
    assert departing.take_topics(6) == []
    assert not departing
