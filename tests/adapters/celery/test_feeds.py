"""Feeds of queues: what they ask the broker for, and what goes along."""

from __future__ import annotations

import json
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from penstock.adapters.celery import feeds
from penstock.adapters.celery.deliveries import Deliveries
from penstock.adapters.celery.feeds import QueueFeed
from penstock.clients import Client
from penstock.testing import MemoryBroker


@pytest.fixture
def client() -> Iterator[Client]:
    with MemoryBroker() as broker, broker.connect() as client:
        client.create_topic("q")
        yield client


def put(client: Client) -> None:
    message = {"body": "", "headers": {}, "properties": {"delivery_info": {}}}
    client.producer("q").send(json.dumps(message).encode())


def test_acks_go_with_the_next_request_of_the_feed(client, monkeypatch):
    monkeypatch.setattr("penstock.clients.working.settling.GATHER_S", 3600.0)
    deliveries = Deliveries(None)
    with client.worker("q", group="g", prefetch=0) as worker:
        feed = QueueFeed(SimpleQueue(), print, worker, deliveries)
        put(client)
        (first,) = feed._next()
        deliveries.ack(first["properties"]["delivery_tag"])
        put(client)
        assert client.task("q-0-0", group="g").state == "leased"
        (second,) = feed._next()
        assert client.task("q-0-0", group="g").state == "completed"
        assert client.task("q-0-1", group="g").state == "leased"
        deliveries.ack(second["properties"]["delivery_tag"])


def test_a_feed_rests_behind_messages_and_not_where_there_were_none(client, monkeypatch):
    rests: list[float] = []
    monkeypatch.setattr(feeds, "sleep", rests.append)
    monkeypatch.setattr(feeds, "WAIT_S", 0.0)
    with client.worker("q", group="g", prefetch=0) as worker:
        feed = QueueFeed(SimpleQueue(), print, worker, Deliveries(None))
        looks = [1, 0, 1, 0, 0]
        asked = iter(looks)
        take = feed._next

        def following() -> list[dict]:
            more = next(asked, None)
            if more is None:
                feed.stopped = True
                return []
            if more:
                put(client)
            return take()

        monkeypatch.setattr(feed, "_next", following)
        feed._run()
        feed.stop()
    assert rests == [feeds.REST_S] * 2


def test_a_feed_tells_of_what_nobody_expects(client, monkeypatch):
    inbox = SimpleQueue()
    with client.worker("q", group="g", prefetch=0) as worker:
        feed = QueueFeed(inbox, print, worker, Deliveries(None))
        monkeypatch.setattr(feed, "_next", lambda: 1 // 0)
        feed._run()
        assert isinstance(inbox.get_nowait(), ZeroDivisionError)
        feed.stopped = True
        feed._run()
        assert inbox.empty()
