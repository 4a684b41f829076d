"""One partition of a topic cannot be opened: readers of every kind hand out the others and name it once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from penstock.broker.errors import PartitionUnavailable, Unavailable

WHY = "partition 1 of topic {} cannot be opened: "


@pytest.fixture
def client(dial: Callable[..., Any], topic: str, tmp_path: Path) -> Any:
    """A topic of two partitions, a record in each, of which the second was cut short meanwhile."""
    url = f"file://{tmp_path}/data"
    with_both = dial(url)
    with_both.create_topic(topic, partitions=2)
    with_both.set_queue(topic, "jobs", start="earliest")
    with with_both.producer(topic) as producer:
        for partition in (0, 1):
            producer.send(b"%d" % partition, partition=partition)
    directory = with_both.topic(topic).partitions[1].directory
    with_both.close()
    for segment in Path(directory).glob("*.segment"):
        segment.write_bytes(segment.read_bytes()[:63])
    return dial(url)


def told(call: Callable[[], Any], topic: str) -> None:
    with pytest.raises(PartitionUnavailable) as raised:
        call()
    assert raised.value.message.startswith(WHY.format(topic))
    assert raised.value.partition == 1
    assert raised.value.retry, "the next call goes on with the others"


HOW = [{}, {"group": "g"}, {"positions": {1: 0}}, {"delivery": "control"}]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_a_consumer_names_it_once_and_hands_out_the_others(client, topic, how):
    with client.consumer(topic, start="earliest", **how) as consumer:
        told(consumer.fetch, topic)
        assert [record.value for record in consumer.fetch()] == [b"0"]
        assert consumer.fetch(wait=0) == []


@pytest.mark.parametrize("how", HOW[:2], ids=str)
def test_what_a_consumer_has_yet_to_read_there_is_not_known(client, topic, how):
    with client.consumer(topic, start="earliest", **how) as consumer:
        with pytest.raises(Unavailable, match=WHY.format(topic)):
            consumer.lag()
        assert consumer.lags() == {0: 1}


def test_iterating_and_batches_name_it_once(client, topic):
    with client.consumer(topic, start="earliest") as consumer:
        told(lambda: next(iter(consumer)), topic)
        assert next(iter(consumer)).value == b"0"
    with client.consumer(topic, start="earliest") as consumer:
        told(lambda: next(consumer.batches(wait=0)), topic)
        assert [record.value for record in next(consumer.batches(wait=1))] == [b"0"]


def test_a_worker_names_it_once_and_works_on_the_others(client, topic):
    with client.worker(topic, group="jobs") as worker:
        told(lambda: worker.fetch(wait=0), topic)
        (task,) = worker.fetch()
        task.ack()
        assert worker.fetch(wait=0) == []


def test_an_ack_holds_that_was_given_with_the_call_that_names_it(client, topic):
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        worker._core._unavailable.untold.clear()
        (task,) = worker.fetch()
        worker._core._unavailable.untold[1] = WHY.format(topic)
        told(lambda: worker.ack_and_fetch([task], wait=0), topic)
        worker.flush()
    assert client.queue(topic, "jobs").depth == 0


def test_topics_queues_and_groups_name_it(client, topic):
    with client.consumer(topic, group="g"):
        found = client.topic(topic)
        assert [each.unavailable.startswith(WHY.format(topic)) for each in found.partitions] == [False, True]
        assert client.queue(topic, "jobs").unavailable == [1]
        assert client.group(topic, "g").unavailable == [1]
