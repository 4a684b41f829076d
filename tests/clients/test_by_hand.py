"""Leases by hand outlive the client that took them, and are settled by their name."""

from __future__ import annotations

import pytest
from penstock.clients.by_hand import ByHand, parse_leased
from penstock.clients.testing import penstock_broker, penstock_client
from penstock.errors import InvalidArgument, InvalidBatch, LeaseLost, MissingCodec, UnknownLease
from penstock.transport.queue_messages import Verb
from support.unjudged import NOT_ZSTD, append_to, hidden_codec, with_headers

__all__ = ["penstock_broker", "penstock_client"]


@pytest.fixture
def topic(penstock_client):
    penstock_client.create_topic("mails-2")
    with penstock_client.producer("mails-2") as producer:
        for number in range(4):
            producer.send(b"%d" % number, key=b"k", headers={"h": b"1"})
    return "mails-2"


def test_a_lease_stands_when_its_client_is_gone(penstock_broker, penstock_client, topic):
    with penstock_broker.connect() as client:
        tasks = ByHand(client, "g").lease(topic, "me", max_records=2, lease=60)
    assert [(task.record.value, task.record.key, task.attempt) for task in tasks] == [(b"0", b"k", 1), (b"1", b"k", 1)]
    assert tasks[0].record.headers == {"h": b"1"}
    assert [task.id for task in tasks] == ["mails-2-0-0", "mails-2-0-1"]
    by_hand = ByHand(penstock_client, "g")
    assert [task.record.value for task in by_hand.lease(topic, "you", max_records=9)] == [b"2", b"3"]
    by_hand.settle([tasks[0].name], Verb.ACK, result=b"done")
    by_hand.settle([tasks[0].name], Verb.ACK)
    by_hand.settle([tasks[1].name], Verb.RELEASE)
    assert [task.id for task in by_hand.lease(topic, "you", max_records=9)] == ["mails-2-0-1"]


def test_a_lease_without_an_end_says_so(penstock_client, topic):
    penstock_client.set_queue(topic, "g", lease_s=None)
    (task,) = ByHand(penstock_client, "g").lease(topic, "me")
    (other,) = ByHand(penstock_client, "g").lease(topic, "me", lease=60)
    assert (task.until, other.until is None) == (None, False)


def test_nothing_to_lease_is_an_empty_list(penstock_client, topic):
    by_hand = ByHand(penstock_client, "g")
    assert len(by_hand.lease(topic, "me", max_records=9)) == 4
    assert by_hand.lease(topic, "me", max_records=9) == []


def test_a_nack_waits_as_told_and_a_lost_lease_is_refused(penstock_broker, penstock_client, topic):
    by_hand = ByHand(penstock_client, "g")
    (task,) = by_hand.lease(topic, "me", lease=5)
    by_hand.settle([task.name], Verb.NACK, delay=30, reason="not now")
    (other,) = by_hand.lease(topic, "me", lease=5)
    assert other.record.offset == 1
    penstock_broker.advance(31)
    with pytest.raises(LeaseLost):
        by_hand.settle([other.name], Verb.ACK)
    found = by_hand.lease(topic, "me", max_records=9)
    assert {(task.record.offset, task.attempt) for task in found} >= {(0, 2), (1, 2)}
    with pytest.raises(UnknownLease):
        by_hand.settle([f"{task.id}@{1 << 60}"], Verb.ACK)


@pytest.mark.parametrize("most", [0, 10**20, None])
def test_a_number_of_tasks_that_cannot_be_is_refused(penstock_client, topic, most):
    with pytest.raises(InvalidArgument, match="is not a number of tasks from 1 to 100000"):
        ByHand(penstock_client, "jobs").lease(topic, "me", max_records=most)


@pytest.mark.parametrize("name", ["", "mails-0-1", "mails-0-1@", "mails-0-1@x", "mails@1", "mails-0-1@-1", "@1"])
def test_what_is_no_leased_task_is_refused(name):
    with pytest.raises(InvalidArgument, match="no "):
        parse_leased(name)


def test_a_name_says_where_and_under_which_lease():
    assert parse_leased("mails-2-3-17@1099511627777") == ("mails-2", 3, 17, 1099511627777)


def test_what_cannot_be_read_is_buried_and_the_others_are_leased(penstock_broker, penstock_client):
    penstock_client.create_topic("t")
    by_hand = ByHand(penstock_client, "g")
    append_to(penstock_broker, "t", with_headers(b"", b"\x93", b"\x80"))
    leased = by_hand.lease("t", "me", max_records=3)
    assert [(task.record.offset, task.record.value, task.attempt) for task in leased] == [(0, b"0", 1), (2, b"2", 1)]
    by_hand.settle([task.name for task in leased], Verb.ACK)
    append_to(penstock_broker, "t", NOT_ZSTD)
    with pytest.raises(InvalidBatch, match="zstd"):
        by_hand.lease("t", "me", max_records=3)
    assert [task.record.offset for task in penstock_client.dead_letters("t", "g")] == [1, 3, 4]
    assert penstock_client.queue("t", "g").depth == 0


def test_what_cannot_be_decoded_here_goes_back(penstock_client):
    penstock_client.create_topic("t")
    penstock_client.producer("t", codec="zstd").send(b"packed")
    by_hand = ByHand(penstock_client, "g")
    with hidden_codec(), pytest.raises(MissingCodec):
        by_hand.lease("t", "me")
    assert [(task.record.value, task.attempt) for task in by_hand.lease("t", "me")] == [(b"packed", 1)]
