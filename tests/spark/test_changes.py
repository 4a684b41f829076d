"""What changes under a query: partitions and topics that come, records and topics that are gone. Without Spark."""

from __future__ import annotations

import itertools
import logging

import pytest
from penstock.clients import Client
from penstock.spark.errors import DataLoss
from penstock.spark.micro_batches import MicroBatches
from penstock.spark.offsets import NEW, SourceOffsets
from penstock.spark.source_options import SourceOptions
from support.micro_batches import client, ends, fill, kept, read, stream

__all__ = ["client", "stream"]  # fixtures, instead of those of a served broker


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_partition_that_is_added_is_read_from_its_first_record(client, stream):
    client.create_topic("t")
    run = stream()
    start = kept(run.next(NEW, limited=False))
    client.alter_topic("t", partitions=2)
    fill(client, 3, partition=1)
    end = kept(run.next(start, limited=False))
    assert read(run.plan(start, end)) == {"t-1": (0, 3)}
    assert not kept(run.next(end, limited=False)).begins.keys() - end.begins.keys()


def test_topics_that_match_are_read_when_they_come(client):
    now = itertools.count(0.0, 0.6)
    client.create_topic("a-1")
    run = MicroBatches(SourceOptions(subscribe_pattern="a-.*"), lambda: client, lambda: next(now))
    start = kept(run.next(NEW, limited=False))
    client.create_topic("a-2")
    client.create_topic("b-2")
    fill(client, 2, topic="a-2")
    fill(client, 2, topic="b-2")
    end = kept(run.next(start, limited=False))
    assert read(run.plan(start, end)) == {"a-2-0": (0, 2)}


def test_a_pattern_that_matches_nothing_yet_waits(client):
    now, pauses = itertools.count(0.0, 0.06), []
    run = MicroBatches(SourceOptions(subscribe_pattern="a-.*"), lambda: client, lambda: next(now))
    run._subscription._pause = pauses.append  # nothing is slept
    start = kept(run.next(NEW, limited=False))
    assert not start.new
    assert run.next(start, limited=False) is start
    assert pauses
    client.create_topic("a-1")
    fill(client, 2, topic="a-1")
    for _ in range(20):
        end = run.next(start, limited=False)
    assert read(run.plan(start, end)) == {"a-1-0": (0, 2)}


def remade(client: Client) -> SourceOffsets:
    """Where a query stood on a topic that was made again since."""
    client.create_topic("t")
    fill(client, 3)
    start = kept(MicroBatches(SourceOptions(subscribe=("t",)), lambda: client).next(NEW, limited=False))
    client.delete_topic("t")
    client.create_topic("t")
    fill(client, 2)
    return start


def test_a_topic_that_was_made_again_is_data_loss(client, stream, caplog):
    start = remade(client)
    with pytest.raises(DataLoss, match=r"topic t was deleted and created again .*failOnDataLoss=false"):
        stream().next(start, limited=False)
    run = stream(fail_on_data_loss=False)
    end = kept(run.next(start, limited=False))
    assert read(run.plan(start, end)) == {"t-0": (0, 2)}
    assert warnings(caplog) == ["topic t was deleted and created again; going on without them"]
    assert run.next(end, limited=False) is end


def test_a_cursor_on_a_topic_that_was_made_again_is_begun_anew(client, stream):
    client.create_topic("t")
    fill(client, 3)
    start = kept(stream(cursor="report").next(NEW, limited=False))
    client.delete_topic("t")
    client.create_topic("t")
    fill(client, 2)
    run = stream(cursor="report", fail_on_data_loss=False)
    end = kept(run.next(start, limited=False))
    assert read(run.plan(start, end)) == {"t-0": (0, 2)}
    assert run.next(end, limited=False) is end
    assert [found.cursor for found in client.group("t", "report").partitions] == [2]


def test_a_micro_batch_of_a_topic_that_was_made_again_is_data_loss(client, stream, caplog):
    """It was decided before, and is repeated now."""
    client.create_topic("t")
    fill(client, 3)
    end = kept(stream(starting_offsets="earliest").next(NEW, limited=False))
    client.delete_topic("t")
    client.create_topic("t")
    fill(client, 9)
    with pytest.raises(DataLoss, match="records 0 to 2 of t-0 are gone: the topic was deleted"):
        stream().plan(NEW, end)
    assert stream(fail_on_data_loss=False).plan(NEW, end) == []
    assert len(warnings(caplog)) == 1


def test_a_topic_that_is_gone_is_data_loss(client, stream, caplog):
    client.create_topic("t")
    client.create_topic("u")
    fill(client, 3)
    run = stream(subscribe=("t", "u"))
    start = kept(run.next(NEW, limited=False))
    client.delete_topic("t")
    with pytest.raises(DataLoss, match="topic t is gone"):
        run.next(start, limited=False)
    run = stream(subscribe=("t", "u"), fail_on_data_loss=False)
    end = kept(run.next(start, limited=False))
    assert ends(end) == {"u-0": 0}
    assert warnings(caplog) == ["topic t is gone: it was deleted; going on without them"]
    fill(client, 1, topic="u")
    assert ends(run.next(end, limited=False)) == {"u-0": 1}


def test_a_topic_that_is_not_asked_for_any_more_is_left_where_loss_is_allowed(client, stream):
    client.create_topic("t")
    client.create_topic("u")
    start = kept(stream(subscribe=("t", "u")).next(NEW, limited=False))
    fill(client, 1)
    fill(client, 1, topic="u")
    run = stream(subscribe=("u",), fail_on_data_loss=False)
    end = kept(run.next(start, limited=False))
    assert read(run.plan(start, end)) == {"u-0": (0, 1)}


def test_records_that_retention_took_are_data_loss(stream, penstock_broker, caplog):
    with penstock_broker.connect() as client:
        client.create_topic("t", retention_s=3600, segment_bytes="64KB")
        fill(client, 40, value=bytes(8192))

        def run(**options: object) -> MicroBatches:
            return MicroBatches(SourceOptions(subscribe=("t",), **options), lambda: client)  # pyright: ignore

        start = kept(run(starting_offsets="earliest", max_rows=2).next(NEW, limited=True))
        penstock_broker.advance(2 * 3600)
        fill(client, 2)
        penstock_broker.advance(600)
        first = client.topic("t").partitions[0].first
        assert first > 2
        with pytest.raises(DataLoss, match=f"records 2 to {first - 1} of t-0 are gone: retention took them"):
            run().next(start, limited=False)
        lossy = run(fail_on_data_loss=False)
        end = kept(lossy.next(start, limited=False))
        assert read(lossy.plan(start, end)) == {"t-0": (first, 42)}
        with pytest.raises(DataLoss, match="records 0 to 1 of t-0 are gone"):
            run().plan(NEW, start)
        assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("what", ["records", "topic"])
def test_what_goes_while_a_query_reads_what_was_there_by_its_bytes(penstock_broker, what):
    """Where it ends was decided at its start; what it has yet to measure may be gone by then."""
    with penstock_broker.connect() as client:
        client.create_topic("t", partitions=2, retention_s=3600, segment_bytes="64KB")
        for partition in (0, 1):
            fill(client, 40, partition, value=bytes(8192))

        def run(**options: object) -> MicroBatches:
            how = {"subscribe": ("t",), "starting_offsets": "earliest", "max_bytes": 100_000, **options}
            found = MicroBatches(SourceOptions(**how), lambda: client)  # pyright: ignore
            found.pin()
            return found

        strict, lossy = run(), run(fail_on_data_loss=False)
        start = kept(lossy.next(NEW, limited=True))
        begun = [position.offset for _, position in start.places()]
        if what == "topic":
            client.delete_topic("t")
        else:
            penstock_broker.advance(2 * 3600)
            fill(client, 2)
            penstock_broker.advance(600)
        with pytest.raises(DataLoss, match=r"records \d+ to \d+ of t-0 are gone"):
            strict.plan(start, kept(strict.next(start, limited=True)))
        spans = []
        while (end := lossy.next(start, limited=True)) is not start:
            spans += lossy.plan(start, kept(end))
            start = kept(end)
        there = [] if what == "topic" else client.topic("t").partitions
        assert what == "topic" or begun[0] < there[0].first < 40
        found = [(span.place.partition, offset) for span in spans for offset in range(span.begin.offset, span.end)]
        assert sorted(found) == [
            (each.partition, offset) for each in there for offset in range(max(each.first, begun[each.partition]), 40)
        ]
