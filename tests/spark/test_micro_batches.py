"""Micro-batches: how far each goes and what it reads, over a broker in memory, without Spark."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.broker.errors import UnknownTopic
from penstock.clients import Client
from penstock.spark.errors import DataLoss, InvalidOffsets, InvalidOption
from penstock.spark.micro_batches import IDLE_WAIT_S, MicroBatches
from penstock.spark.offsets import NEW, Position, Positions, SourceOffsets
from penstock.spark.source_options import SourceOptions
from support.micro_batches import client, ends, fill, kept, read, stream

__all__ = ["client", "stream"]  # fixtures, instead of those of a served broker


# -- where a query begins -------------------------------------------------------------------------------------


def test_a_stream_begins_at_the_end_unless_told_otherwise(client, stream):
    client.create_topic("t", partitions=2)
    fill(client, 3)
    end = stream().next(NEW, limited=False)
    assert ends(end) == {"t-0": 3, "t-1": 0}
    assert read(stream().plan(NEW, kept(end))) == {}


def test_the_earliest_records_are_read_when_they_are_asked_for(client, stream):
    client.create_topic("t", partitions=2)
    fill(client, 3)
    run = stream(starting_offsets="earliest")
    assert read(run.plan(NEW, kept(run.next(NEW, limited=False)))) == {"t-0": (0, 3)}


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_the_first_micro_batch_is_repeated_as_it_was(client, stream, begin):
    """Spark remembers no beginning; the end that it remembers says it."""
    client.create_topic("t")
    fill(client, 3)
    end = kept(stream(starting_offsets=begin).next(NEW, limited=False))
    fill(client, 4)
    restarted = stream(starting_offsets=begin)
    assert read(restarted.plan(NEW, end)) == ({"t-0": (0, 3)} if begin == "earliest" else {})
    assert read(restarted.plan(end, kept(restarted.next(end, limited=False)))) == {"t-0": (3, 7)}


def test_records_that_come_while_a_query_begins_are_read(client, stream):
    """Between the beginning and the end of the first micro-batch, and between that and the next."""
    client.create_topic("t")
    run = stream()
    end = kept(run.next(NEW, limited=False))
    fill(client, 2)
    following = kept(run.next(end, limited=False))
    assert read(run.plan(end, following)) == {"t-0": (0, 2)}


def test_a_query_goes_on_where_it_ended(client, stream):
    client.create_topic("t", partitions=2)
    run = stream()
    first = kept(run.next(NEW, limited=False))
    fill(client, 2, partition=1)
    second = kept(run.next(first, limited=False))
    fill(client, 1, partition=0)
    third = kept(run.next(second, limited=False))
    assert read(run.plan(first, second)) == {"t-1": (0, 2)}
    assert read(run.plan(second, third)) == {"t-0": (0, 1)}
    assert not second.begins
    assert not third.begins


def test_without_anything_new_the_offsets_stay_the_same(client, stream):
    client.create_topic("t")
    run = stream()
    end = kept(run.next(NEW, limited=False))
    assert run.next(end, limited=False) is end


class Asked:
    """A client that remembers how long it was left to wait for ends."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.waits: list[float] = []

    def ends(self, *args: Any, wait: float = 0.0, **options: Any) -> Any:
        self.waits.append(wait)
        return self._client.ends(*args, wait=wait, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_an_idle_query_asks_once_and_leaves_one_question_with_the_broker(client):
    client.create_topic("t", partitions=50)
    asked = Asked(client)
    run = MicroBatches(SourceOptions(subscribe=("t",)), lambda: asked)  # pyright: ignore[reportArgumentType]
    end = kept(run.next(NEW, limited=False))
    asked.waits.clear()
    for _ in range(3):
        assert run.next(end, limited=False) is end
    assert len(asked.waits) <= 3 * 2 + 1  # a wait that ended a moment too early is begun again
    assert sum(asked.waits) >= 3 * 0.9 * IDLE_WAIT_S


def test_a_query_that_waits_goes_on_when_a_record_comes(client, stream):
    client.create_topic("t")
    run = stream()
    end = kept(run.next(NEW, limited=False))
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(run.next, end, limited=False)
        fill(client, 1)
        found = following.result(20)
    while found is end:  # the record came too late for that wait
        found = run.next(end, limited=False)
    assert ends(found) == {"t-0": 1}


def test_a_topic_that_is_not_there_is_an_error(stream):
    with pytest.raises(UnknownTopic, match="there is no topic t: create it, or correct option subscribe"):
        stream().next(NEW, limited=False)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ({"subscribe": ("t", "u")}, {"subscribe": ("t",)}, "topic u is in the checkpoint, and option subscribe does"),
        ({"subscribe": ("t", "u")}, {"subscribe_pattern": "t"}, "topic u is in .* and option subscribePattern does"),
        ({"assign": {"t": [0, 1]}}, {"assign": {"t": [1]}}, "t-0 is in the checkpoint, and option assign does not"),
    ],
)
def test_what_is_not_read_any_more_counts_as_lost(client, stream, before, after, sentence):
    for topic in ("t", "u"):
        client.create_topic(topic, partitions=2)
    end = kept(stream(**before).next(NEW, limited=False))
    with pytest.raises(DataLoss, match=sentence):
        stream(**after).next(end, limited=False)
    following = kept(stream(**after, fail_on_data_loss=False).next(end, limited=False))
    assert ends(following).keys() < ends(end).keys()
    assert stream(**after).next(following, limited=False) is following, "it was said once"


def test_a_partition_that_is_not_there_is_an_error(client, stream):
    client.create_topic("t")
    with pytest.raises(InvalidOption, match="assign names t-3"):
        stream(assign={"t": [0, 3]}).next(NEW, limited=False)


def test_only_assigned_partitions_are_read(client, stream):
    client.create_topic("t", partitions=3)
    for partition in range(3):
        fill(client, 2, partition)
    run = stream(assign={"t": [0, 2]}, starting_offsets="earliest")
    end = kept(run.next(NEW, limited=False))
    assert read(run.plan(NEW, end)) == {"t-0": (0, 2), "t-2": (0, 2)}
    fill(client, 1, partition=1)
    assert run.next(end, limited=False) is end


def test_times_are_looked_up(client, stream):
    client.create_topic("t")
    fill(client, 1)
    appended_ms = client.read("t", 0, 0)[0].timestamp // 1000
    run = stream(starting_timestamp=appended_ms)
    assert read(run.plan(NEW, run.next(NEW, limited=False))) == {"t-0": (0, 1)}
    run = stream(starting_timestamp=appended_ms + 3_600_000, starting_strategy="latest")
    assert read(run.plan(NEW, run.next(NEW, limited=False))) == {}


# -- limits ---------------------------------------------------------------------------------------------------


def test_a_limit_of_records_is_shared_by_lag(client, stream):
    client.create_topic("t", partitions=2)
    fill(client, 30, 0)
    fill(client, 10, 1)
    run = stream(starting_offsets="earliest", max_rows=8)
    end = kept(run.next(NEW, limited=True))
    assert read(run.plan(NEW, end)) == {"t-0": (0, 6), "t-1": (0, 2)}
    assert ends(run.next(end, limited=True)) == {"t-0": 12, "t-1": 4}
    assert ends(run.next(end, limited=False)) == {"t-0": 30, "t-1": 10}  # as a trigger that runs once wants it


def test_a_limit_of_bytes_is_about_kept(client, stream):
    client.create_topic("t", partitions=2)
    for partition in (0, 1):
        fill(client, 50, partition, value=bytes(1000))
    run = stream(starting_offsets="earliest", max_bytes=20_000)
    taken, start = [], NEW
    while start.new or sum(ends(start).values()) < 100:
        end = kept(run.next(start, limited=True))
        taken.append(sum(high - low for low, high in read(run.plan(start, end)).values()))
        start = end
    assert sum(taken) == 100
    assert all(10 <= count <= 20 for count in taken[:-1])


def test_a_limit_below_one_batch_takes_one(client, stream):
    client.create_topic("t")
    fill(client, 3, value=bytes(1000))
    run = stream(starting_offsets="earliest", max_bytes=1)
    assert ends(run.next(NEW, limited=True)) == {"t-0": 1}


def test_what_is_there_at_the_beginning_is_read_in_limits_and_no_more(client, stream):
    client.create_topic("t")
    fill(client, 10)
    run = stream(starting_offsets="earliest", max_rows=4)
    run.pin()
    fill(client, 5)
    found, start = [], NEW
    while (end := run.next(start, limited=True)) is not start:
        start = kept(end)
        found.append(ends(start)["t-0"])
    assert found == [4, 8, 10]


def test_a_query_that_begins_at_the_end_and_reads_what_is_there_reads_nothing(client, stream):
    client.create_topic("t")
    fill(client, 2)
    run = stream()
    run.pin()
    fill(client, 3)
    end = run.next(NEW, limited=True)
    assert ends(end) == {"t-0": 2}
    assert run.next(end, limited=True) is end
    later = stream()
    later.pin()
    assert ends(later.next(end, limited=True)) == {"t-0": 5}


def test_too_few_records_wait_for_more_or_for_long(client):
    now = itertools.count(0.0, 0.05)
    late: list[float] = []
    client.create_topic("t")
    run = MicroBatches(
        SourceOptions(subscribe=("t",), min_rows=5, max_delay_s=100.0), lambda: client, lambda: next(now) + sum(late)
    )
    start = run.next(NEW, limited=True)
    fill(client, 3)
    assert run.next(start, limited=True) is start
    fill(client, 2)
    end = run.next(start, limited=True)
    assert ends(end) == {"t-0": 5}
    fill(client, 1)
    assert run.next(end, limited=True) is end
    late.append(100.0)
    assert ends(run.next(end, limited=True)) == {"t-0": 6}


def test_records_that_are_too_few_are_not_asked_about_one_by_one(client):
    now = [0.0]

    def pause(seconds: float) -> None:
        fill(client, 1)
        now[0] += seconds

    client.create_topic("t")
    asked = Asked(client)
    options = SourceOptions(subscribe=("t",), min_rows=5)
    run = MicroBatches(options, lambda: asked, lambda: now[0], pause)  # pyright: ignore[reportArgumentType]
    start = run.next(NEW, limited=True)
    fill(client, 1)
    asked.waits.clear()
    assert run.next(start, limited=True) is start
    assert (asked.waits, now[0]) == ([0.0, 0.0], IDLE_WAIT_S)


def test_too_few_records_are_read_by_a_query_that_ends(client, stream):
    client.create_topic("t")
    start = stream().next(NEW, limited=True)
    fill(client, 1)
    run = stream(min_rows=5)
    run.pin()
    assert ends(run.next(start, limited=True)) == {"t-0": 1}


def test_tasks_are_as_many_and_as_long_as_asked(client, stream):
    client.create_topic("t")
    fill(client, 10)
    run = stream(starting_offsets="earliest", min_partitions=4)
    end = run.next(NEW, limited=False)
    assert [span.rows for span in run.plan(NEW, end)] == [2, 3, 2, 3]
    assert max(span.rows for span in stream(max_partition_rows=3).plan(NEW, end)) <= 3


# -- cursors --------------------------------------------------------------------------------------------------------


def cursors(client: Client, name: str = "report") -> list[int]:
    return [found.cursor for found in client.group("t", name).partitions]


def test_a_cursor_is_put_where_the_query_begins_and_follows_it(client, stream):
    client.create_topic("t", partitions=2)
    fill(client, 3)
    run = stream(cursor="report")
    start = kept(run.next(NEW, limited=False))
    assert cursors(client) == [3, 0]
    fill(client, 2, partition=1)
    end = kept(run.next(start, limited=False))
    assert cursors(client) == [3, 0]
    run.commit(end)
    assert cursors(client) == [3, 2]
    assert client.group("t", "report").lag == 0


def test_a_cursor_moves_also_when_spark_only_asks_for_more(client, stream):
    """Spark says that a micro-batch is done when it plans the next, and never of the last one of a run."""
    client.create_topic("t")
    fill(client, 3)
    run = stream(cursor="report", starting_offsets="earliest")
    run.pin()
    end = kept(run.next(NEW, limited=False))
    assert cursors(client) == [0]
    assert run.next(end, limited=False) is end
    assert cursors(client) == [3]


def test_a_new_query_begins_where_the_cursor_stands(client, stream):
    client.create_topic("t")
    fill(client, 5)
    first = stream(cursor="report", starting_offsets="earliest", max_rows=2)
    end = kept(first.next(NEW, limited=True))
    first.commit(end)
    other = stream(cursor="report")  # another checkpoint
    assert read(other.plan(NEW, kept(other.next(NEW, limited=False)))) == {"t-0": (2, 5)}


@pytest.mark.parametrize("begin", [{"starting_offsets": {"t": {0: 99}}}, {"starting_timestamp": 4_000_000_000_000}])
def test_where_a_cursor_stands_it_does_not_matter_where_options_would_begin(client, stream, begin):
    client.create_topic("t")
    fill(client, 5)
    with pytest.raises(InvalidOffsets):
        stream(cursor="report", **begin).next(NEW, limited=False)
    client.commit_group("t", "report", {0: 2})
    run = stream(cursor="report", **begin)
    assert read(run.plan(NEW, kept(run.next(NEW, limited=False)))) == {"t-0": (2, 5)}


def test_where_only_one_topic_has_a_cursor_the_other_begins_where_options_say(client, stream):
    for topic in ("t", "u"):
        client.create_topic(topic)
        fill(client, 5, topic=topic)
    client.commit_group("t", "report", {0: 2})
    run = stream(subscribe=("t", "u"), cursor="report", starting_offsets="latest")
    assert read(run.plan(NEW, kept(run.next(NEW, limited=False)))) == {"t-0": (2, 5)}


def test_the_first_micro_batch_is_repeated_from_the_cursor(client, stream):
    client.create_topic("t")
    fill(client, 3)
    end = kept(stream(cursor="report").next(NEW, limited=False))
    fill(client, 2)
    run = stream(cursor="report")
    assert read(run.plan(NEW, end)) == {}
    assert read(run.plan(end, kept(run.next(end, limited=False)))) == {"t-0": (3, 5)}


def test_unread_records_are_kept_for_the_cursor(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t", retention_bytes="64KB", segment_bytes="64KB", retain_unread=True)
        run = MicroBatches(SourceOptions(subscribe=("t",), cursor="report"), lambda: client)
        start = kept(run.next(NEW, limited=False))
        fill(client, 40, value=bytes(8192))
        penstock_broker.advance(600)
        assert client.topic("t").partitions[0].first == 0
        run.commit(kept(run.next(start, limited=False)))
        penstock_broker.advance(600)
        fill(client, 1)
        penstock_broker.advance(600)
        assert client.topic("t").partitions[0].first > 0


# -- terms ------------------------------------------------------------------------------------------------------------


def test_positions_carry_the_term_of_the_record_before(tmp_path: Path):
    url = f"file://{tmp_path}/data"
    with penstock.connect(url) as client:
        client.create_topic("t")
        fill(client, 4)
    with penstock.connect(url) as client:
        fill(client, 4)  # under another term
        low, high = (client.positions("t", at)[0][1] for at in ("earliest", "latest"))
        terms = []
        run = MicroBatches(SourceOptions(subscribe=("t",), starting_offsets="earliest", max_rows=2), lambda: client)
        start = NEW
        for _ in range(4):
            start = kept(run.next(start, limited=True))
            terms.append(start.topics["t"].partitions[0])
        assert [position.offset for position in terms] == [2, 4, 6, 8]
        first = terms[0].term
        assert low == 0
        assert 0 < first < high
        assert [position.term for position in terms] == [first, first, high, high]


def test_a_position_keeps_the_term_that_was_read_while_nothing_is_read_behind_it(client, stream):
    """As many records as a power cut took were written in their place: only their term tells, and only to who asks."""
    client.create_topic("t", partitions=2)
    for partition in (0, 1):
        fill(client, 3, partition)
    run = stream()
    known = run.next(NEW, limited=False).topics["t"]
    term = known.partitions[0].term
    start = SourceOffsets({"t": Positions(known.id, {0: Position(3, term + 7), 1: Position(3)})})
    client.alter_topic("t", partitions=3)
    following = kept(run.next(start, limited=False))
    assert following.topics["t"].partitions == {0: Position(3, term + 7), 1: Position(3, term), 2: Position(0, 0)}
    fill(client, 1)
    (span,) = run.plan(following, kept(run.next(following, limited=False)))
    assert (span.begin, span.end) == (Position(3, term + 7), 4)


def test_the_newest_offsets_are_those_seen_last(client, stream):
    client.create_topic("t")
    run = stream()
    assert run.newest() is None
    start = run.next(NEW, limited=False)
    fill(client, 2)
    run.next(start, limited=False)
    newest = run.newest()
    assert newest is not None
    assert ends(newest) == {"t-0": 2}


def test_few_records_are_read_by_one_task_unless_more_are_asked_for(client, stream):
    client.create_topic("t", partitions=2)
    fill(client, 2)
    fill(client, 3, partition=1)
    end = stream(starting_offsets="earliest").next(NEW, limited=False)
    assert [[span.rows for span in spans] for spans in stream().tasks(NEW, end)] == [[2, 3]]
    assert [[span.rows for span in spans] for spans in stream(min_partitions=2).tasks(NEW, end)] == [[2], [3]]
