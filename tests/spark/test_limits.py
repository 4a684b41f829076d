"""A limit of bytes over what changes while it is measured. Micro-batches with limits are in `test_micro_batches.py`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from penstock.broker.errors import UnknownTopic
from penstock.clients.descriptions import End
from penstock.spark.limits import Limits
from penstock.spark.offsets import PartitionKey, Position
from penstock.spark.planning import PlannedTopic
from penstock.spark.source_options import SourceOptions
from penstock.storage.errors import Corrupt, Error, OutOfBounds


class Measuring:
    """Measures as a broker does: records of a byte, each in a batch of its own. `bounds`: of its partitions."""

    def __init__(self, *bounds: tuple[int, int], fails: Error | None = None) -> None:
        self._bounds = bounds
        self._fails = fails  # where partition 0 is measured

    def measure(
        self, topic: str, spans: Iterable[tuple[int, int, int]], most: int, *, id: str
    ) -> list[list[tuple[int, int]]]:
        return [self._pieces(*span, most) for span in spans]

    def _pieces(self, partition: int, begin: int, end: int, most: int) -> list[tuple[int, int]]:
        first, last = self._bounds[partition]
        if self._fails is not None and not partition:
            raise self._fails
        if not first <= begin <= end <= last:
            error = OutOfBounds("it is not there")
            error.offset = first if begin < first else last
            raise error
        return [(min(at + most, end), min(most, end - at)) for at in range(begin, end, most)]


def limited(most: int, broker: Measuring) -> list[int]:
    """Where a micro-batch ends that begins at 0, of two partitions that ended at 100 when that was asked."""
    topic = PlannedTopic("t", "x", {0: End(0, 100, 1), 1: End(0, 100, 1)})
    begins = {PartitionKey("t", number): Position(0) for number in topic.ends}
    limits = Limits(SourceOptions(subscribe=("t",), max_bytes=most), lambda: broker)  # pyright: ignore
    return list(limits.ends([topic], begins).values())


def test_what_is_there_is_shared_by_bytes():
    assert limited(200, Measuring((0, 100), (0, 100))) == [100, 100]
    assert limited(70, Measuring((0, 100), (0, 100))) == [35, 35]


def test_what_retention_took_takes_no_bytes_of_the_limit():
    assert limited(70, Measuring((60, 100), (0, 100))) == [80, 50]
    assert limited(70, Measuring((200, 300), (0, 100))) == [100, 70]


def test_what_does_not_count_is_passed_by_in_one_micro_batch():
    assert limited(70, Measuring((0, 60), (0, 100))) == [100, 70]
    assert limited(70, Measuring((0, 100), (0, 100), fails=Corrupt("its index rotted"))) == [100, 70]


def test_of_a_topic_that_is_gone_nothing_is_left_for_later():
    assert limited(70, Measuring((0, 100), (0, 100), fails=UnknownTopic("it is gone"))) == [100, 100]


def test_an_error_about_neither_records_nor_topics_is_raised():
    with pytest.raises(Error, match="the disk is on fire"):
        limited(70, Measuring((0, 100), (0, 100), fails=Error("the disk is on fire")))
