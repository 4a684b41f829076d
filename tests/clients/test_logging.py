"""What clients log, by area: connections lost and found, rebalances, lost sessions and leases."""

from __future__ import annotations

import logging

import pytest
from penstock.clients import connect
from penstock.clients.memory_broker import MemoryBroker
from penstock.transport.messages import Evicted
from support.reading import fetched


@pytest.fixture(autouse=True)
def _told(caplog):
    caplog.set_level(logging.INFO, "penstock.clients")


def said(caplog, area: str) -> list[tuple[int, str]]:
    name = f"penstock.clients.{area}"
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == name]


def test_a_connection_that_is_lost_and_found_is_said(penstock_client, caplog):
    penstock_client.ping()
    assert said(caplog, "connection") == []
    penstock_client._driver.connection.channel.break_off()
    penstock_client.ping()
    assert said(caplog, "connection") == [
        (logging.WARNING, f"the connection to the broker at {penstock_client.url} is lost: connecting again"),
        (logging.INFO, f"connected again, to the broker at {penstock_client.url}"),
    ]


def test_a_rebalance_is_said_and_a_seek_is_none(penstock_client, caplog):
    client = penstock_client
    client.create_topic("t", partitions=2)
    with client.consumer("t", group="g", member="ann") as ann:
        ann.seek("earliest")
        assert said(caplog, "consumers") == []
        with client.consumer("t", group="g", member="bob"):
            while len(ann.assignment) == 2:
                ann.fetch(wait=0.01)
        while len(ann.assignment) == 1:
            ann.fetch(wait=0.01)
        messages = [message for _, message in said(caplog, "consumers") if "ann" in message]
    assert len(messages) == 2
    assert messages[0].startswith("consumer ann of topic t, group g was given partitions [] and is to release [")
    assert messages[1].endswith("] and is to release []")


def test_a_lost_session_is_said(penstock_client, caplog):
    client = penstock_client
    client.create_topic("t")
    client.producer("t").send(b"x")
    with client.consumer("t", member="ann") as consumer:
        life = consumer._core.life
        client._driver.do(lambda: life.told(Evicted(life.session.session, "session_expired", "it was silent"), b""))
        assert len(fetched(consumer, 1)) == 1
    assert said(caplog, "consumers") == [
        (logging.WARNING, "consumer ann of topic t, group (none) lost its session and joins again: it was silent")
    ]


def test_a_lost_lease_is_said_once(penstock_broker, caplog):
    with connect(penstock_broker.url) as client, connect(penstock_broker.url) as other:
        client.create_topic("t")
        client.producer("t").send_many([b"x"] * 3)
        with client.worker("t", group="jobs", name="ann", lease=10, prefetch=0, max_processing=1) as worker:
            tasks = worker.fetch(3)
            tasks[0].ack()
            assert other.settle("t", "jobs", [tasks[1].id], "ack") == 1
            other.forget_worker("t", "jobs", "ann")
            for task in tasks[1:]:
                with pytest.raises(Exception, match="lease"):
                    task.ack()
    ((level, message),) = said(caplog, "workers")
    assert level == logging.WARNING
    assert message.startswith("worker ann lost its lease of ")
    assert "records of topic t, partition 0, from offset" in message


def test_nothing_is_said_where_nothing_happens(caplog):
    with MemoryBroker() as broker, connect(broker.url) as client:
        client.create_topic("t")
        client.producer("t").send(b"x")
        with client.consumer("t", group="g") as consumer:
            assert len(fetched(consumer, 1)) == 1
        with client.worker("t", group="jobs") as worker:
            worker.fetch(1)[0].ack()
    assert [record for record in caplog.records if record.name.startswith("penstock")] == []
