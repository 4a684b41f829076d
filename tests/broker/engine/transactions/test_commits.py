"""Opening a node: decided stages are sealed before the first request, and unfinished commits go on."""

from __future__ import annotations

import pytest
from penstock.broker.engine.transactions import publishing
from penstock.transport import messages as m
from support.engine import MemoryPort, Rig
from support.staging import stage
from support.transactions import answer_to, code, commit, home, open_stages, partition, put, sealed, send_commit, state


def decided(rig: Rig, topic: bytes, *values: bytes) -> m.Stage:
    """A stage whose decision is durable and of which nothing is published; then the broker is killed."""
    commit(rig, "first", 1)
    only = put(rig, topic, 1, *values)
    send_commit(rig, "etl", 1, only)
    for log in rig.node.flush(rig.now):
        log.sync()
    return only


def reopen(rig: Rig) -> None:
    """As a start finds it: not a turn is made."""
    rig.port = MemoryPort()
    rig.node = rig._open()


def test_what_is_decided_is_sealed_before_the_first_message_and_published_without_any():
    rig = Rig()
    topic = rig.topic()
    only = decided(rig, topic, b"1", b"2", b"3")
    reopen(rig)
    rig.port.reads = 0
    request, again = rig.next_request(), send_commit(rig, "etl", 1, only)
    rig.send(m.DropStages(request, [only]))
    assert code(stage(rig, topic, [b"4"], 1, 3)) == "fenced"
    rig.turn()
    assert (answer_to(rig, request), answer_to(rig, again)) == (
        m.Done(request),
        m.TransactionCommitted(again, 1, False),
    )
    assert (rig.read(topic), state(rig, "etl"), open_stages(rig)) == ([b"1", b"2", b"3"], (1, True), 0)
    assert len(home(rig, "etl").committed.transactions.unfinished()) == 0


def test_a_request_for_an_epoch_that_a_start_is_about_to_publish_waits_for_it():
    rig = Rig()
    topic = rig.topic()
    decided(rig, topic, b"1")
    reopen(rig)
    other = m.Stage(topic, 0, 99, 1)
    requests = [send_commit(rig, "etl", 1, other), send_commit(rig, "etl", 0)]
    assert [answer_to(rig, request) for request in requests] == [None, m.TransactionCommitted(requests[1], 1, True)]
    rig.turn()
    assert answer_to(rig, requests[0]) == m.TransactionCommitted(requests[0], 1, True)


def test_what_is_decided_right_after_a_start_stands_behind_what_was_found():
    rig = Rig()
    topic = rig.topic()
    later = put(rig, topic, 2, b"later")
    decided(rig, topic, b"found")
    reopen(rig)
    request = send_commit(rig, "etl", 2, later)
    rig.turn()
    assert answer_to(rig, request).repeated is False
    assert rig.read(topic) == [b"found", b"later"]


@pytest.mark.parametrize("published", [0, 1, 3])
def test_a_start_goes_on_where_publishing_stopped(published: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(publishing, "PORTION_BYTES", 1)
    rig = Rig()
    topic = rig.topic()
    wanted = [b"%d" % number for number in range(8)]
    decided(rig, topic, *wanted)
    rig.node.advance(rig.now)
    for _ in range(published):
        rig.turn(1)
    assert rig.partition(topic).end == 2 * published
    for _ in range(3):
        rig.restart(clean=False)
    rig.turn(20)
    assert (rig.read(topic), state(rig, "etl")) == (wanted, (1, True))


def test_decisions_of_all_names_are_published_in_their_order():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    names = [f"job-{number}" for number in range(9, 0, -1)]
    for number, name in enumerate(names):
        send_commit(rig, name, 1, put(rig, topic, number + 1, name.encode()))
        rig.now = rig.now._replace(wall_us=rig.now.wall_us + 1000, monotonic_s=rig.now.monotonic_s + 0.001)
        for log in rig.node.flush(rig.now):
            log.sync()
        rig.node._office.overlays.unsettled.clear()  # it is killed before it tells a waiter
    reopen(rig)
    rig.turn()
    assert rig.read(topic) == [name.encode() for name in names]


def test_a_clean_end_and_a_start_from_a_snapshot_know_the_same():
    rig = Rig(snapshot_batches=1)
    topic = rig.topic()
    decided(rig, topic, b"1")
    for _ in range(2):
        rig.restart()
    assert (rig.read(topic), state(rig, "etl"), state(rig, "first")) == ([b"1"], (1, True), (1, True))
    assert commit(rig, "etl", 2, put(rig, topic, 2, b"2")).epoch == 2
    assert rig.read(topic) == [b"1", b"2"]


def test_a_partition_that_cannot_be_opened_holds_its_stage_and_no_other():
    rig = Rig()
    topic = rig.topic(partitions=2)
    commit(rig, "first", 1)
    stages = [put(rig, topic, 1, b"1"), put(rig, topic, 2, b"2", partition=1)]
    send_commit(rig, "etl", 1, *stages)
    for log in rig.node.flush(rig.now):
        log.sync()
    path = partition(rig, topic, 1).log.path
    hidden = {name: content for name, content in rig.store.files.contents.items() if name.startswith(path)}
    rig.store.files.remove_tree(path)
    rig.restart(clean=False)
    answer = commit(rig, "etl", 1, *stages)
    assert (code(answer), "is decided" in answer.message) == ("unavailable", True)
    assert (rig.read(topic), state(rig, "etl")) == ([b"1"], (1, False))
    rig.store.files.mkdir(path)
    rig.store.files.contents |= hidden
    rig.restart(clean=False)
    assert (rig.read(topic), rig.read(topic, 1), state(rig, "etl")) == ([b"1"], [b"2"], (1, True))


def test_a_late_duplicate_of_what_is_published_is_no_stage_that_a_start_finds_decided():
    """On a topic that is written, it takes a moment until the log of decisions says that an epoch is finished."""
    rig = Rig()
    rig.store.lazy = True
    topic = rig.topic(commit="written")
    only = put(rig, topic, 1, b"1", b"2")
    request = send_commit(rig, "etl", 1, only)
    rig.pass_time(0.1, step=0.01)
    assert answer_to(rig, request) == m.TransactionCommitted(request, 1, False)
    assert len(home(rig, "etl").committed.transactions.unfinished()) == 1
    assert code(stage(rig, topic, [b"1", b"2"], 1)) == "fenced"
    reopen(rig)
    rig.turn()
    assert rig.read(topic) == [b"1", b"2"]


def test_nothing_stays_sealed_once_the_log_says_that_an_epoch_is_finished():
    rig = Rig(housekeeping_s=1.0)
    rig.store.lazy = True
    topic = rig.topic(commit="written")
    only = put(rig, topic, 1, b"1", b"2")
    send_commit(rig, "etl", 1, only)
    rig.pass_time(0.1, step=0.01)
    assert sealed(rig, topic) == {1}
    rig.sync()
    rig.pass_time(2.0)
    assert (len(home(rig, "etl").committed.transactions.unfinished()), sealed(rig, topic)) == (
        0,
        set(),
    )
