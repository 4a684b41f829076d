"""Logs that rest are opened a few at a time, and no proposal to the others is lost."""

from __future__ import annotations

import pytest
from penstock.storage.batch import encode
from penstock.storage.log import LogWriter
from penstock.transport import messages as m
from support.engine import Rig

PARTITIONS = 20


def proposed() -> tuple[Rig, bytes, list[int]]:
    """A node with a record proposed to each partition of a new topic, and the numbers of the requests."""
    rig = Rig()
    topic, requests = rig.topic("wide", PARTITIONS), []
    for partition in range(PARTITIONS):
        requests.append(rig.next_request())
        rig.send(m.Produce(requests[-1], topic, partition), bytes(encode([b"%d" % partition])))
    return rig, topic, requests


def test_a_flush_opens_eight_logs_and_comes_back_at_once_for_the_others():
    rig, _, requests = proposed()
    for count in (8, 8, 4):
        assert rig.node.tick(rig.now) == 0.0
        appended = rig.node.flush(rig.now)
        assert len(appended) == count
        for log in appended:
            log.sync()
        rig.node.advance(rig.now)
    assert rig.node.tick(rig.now) > 0.0
    assert all(isinstance(rig.answers(request)[0], m.Produced) for request in requests)


def test_logs_that_are_open_do_not_wait_for_those_that_rest():
    rig, topic, _ = proposed()
    rig.node.flush(rig.now)
    for partition in range(8):
        rig.send(m.Produce(rig.next_request(), topic, partition), bytes(encode([b"again"])))
    assert len(rig.node.flush(rig.now)) == 16


def test_a_close_opens_all_logs_that_something_is_proposed_to():
    rig, topic, _ = proposed()
    rig.restart()
    assert [rig.read(topic, partition) for partition in range(PARTITIONS)] == [[b"%d" % n] for n in range(PARTITIONS)]


@pytest.mark.parametrize(
    ("commit", "count", "hurry", "begun"),
    [("durable", 1, True, 1), ("durable", 1, False, 0), ("durable", 2, True, 0), ("written", 1, True, 0)],
)
def test_the_disk_begins_with_a_batch_of_the_only_log_that_a_sync_waits_for(monkeypatch, commit, count, hurry, begun):
    rig, begins = Rig(), []
    topic = rig.topic(partitions=2, commit=commit)
    monkeypatch.setattr(LogWriter, "begin_sync", lambda log: begins.append(log.path))
    for _ in range(2):
        for partition in range(count):
            rig.send(m.Produce(rig.next_request(), topic, partition), bytes(encode([b"x"])))
        rig.node.flush(rig.now, hurry=hurry)
        assert len(begins) == begun
        begins.clear()
        rig.turn()
    rig.produce(topic, [b"x"])
    assert begins == [], "others do not hurry"
