"""Answers that leave before what they say is applied: which do, and that none leaves before it is durable."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.storage.batch import batches, encode
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.core import Core
from support.writeback import WritebackFiles


@pytest.fixture
def core() -> Core:
    core = Core(WritebackFiles())
    core.idle = True
    return core


@pytest.fixture
def moments(core: Core, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int, int]]:
    """Each answer from now on: its kind, and how far the partition was written, durable and applied then."""
    found: list[tuple[str, int, int, int]] = []
    reply = core.port.reply

    def replied(peer: Any, message: Any, payload: Any = b"") -> bool:
        partitions = list(core.node._registry.partitions.values())
        if partitions:
            log = partitions[0].log
            found.append((type(message).__name__, log.written, log.durable, partitions[0].seq))
        return reply(peer, message, payload)

    monkeypatch.setattr(core.port, "reply", replied)
    return found


def produce(core: Core, topic: bytes, *values: bytes) -> int:
    return core.send(lambda request: m.Produce(request, topic, 0), bytes(encode(list(values or (b"x",)))))


def lease(core: Core, topic: bytes, **how: Any) -> int:
    """A request for tasks that waits."""
    fields = {"wait_ms": 60_000, **how}
    request = core.send(
        lambda request: m.Lease(request, topic, "g", "w", fields.pop("max_records", 1), **fields), peer="worker"
    )
    core.turn()
    return request


def answer_of(core: Core, request: int) -> tuple[Any, bytes]:
    ((answer, payload),) = [
        (message, payload) for _, message, payload in core.port.sent if getattr(message, "request", 0) == request
    ]
    return answer, payload


def answers_ahead(core: Core) -> bool:
    """Whether the node answers ahead what is proposed now, once it is durable."""
    for log in core.node.flush(core.now):
        log.sync()
    return core.node.answer_ahead()


def test_a_record_is_answered_once_it_is_durable_and_before_it_is_applied(core: Core, moments: list[Any]):
    topic = core.create_topic("t")
    moments.clear()
    request = produce(core, topic)
    core.turn()
    assert moments == [("Produced", 1, 1, 0)]
    assert answer_of(core, request)[0].offset == 0
    assert core.topic("t").partitions[0].end == 1


def test_a_task_is_leased_to_a_worker_that_waits_and_acked_in_the_same_way(core: Core, moments: list[Any]):
    topic = core.create_topic("t")
    asked = lease(core, topic)
    moments.clear()
    produced = produce(core, topic, b"task")
    core.turn()
    kinds = [kind for kind, *_ in moments]
    assert kinds == ["Leased", "Produced"], "the worker hears first"
    for _, written, durable, applied in moments:
        assert (durable, applied) == (written, written - 1)
    leased, payload = answer_of(core, asked)
    (batch,) = batches(payload)
    assert [bytes(value) for value in batch.values()] == [b"task"]
    assert leased.runs == [(answer_of(core, produced)[0].offset, 1, 1)]
    moments.clear()
    settles = [m.Settle(0, leased.token, Verb.ACK)]
    settled = core.send(lambda request: m.SettleTasks(request, topic, "g", settles))
    core.turn()
    ((kind, written, durable, applied),) = moments
    assert (kind, durable, applied) == ("Settled", written, written - 1)
    assert answer_of(core, settled)[0].refused == []
    (queue,) = core.ask(lambda request: m.ListQueues(request, topic, "g")).queues
    assert (queue.partitions[0].in_flight, queue.partitions[0].ready) == (0, 0)


def test_nothing_is_answered_ahead_that_is_not_durable(core: Core):
    topic = core.create_topic("t")
    produce(core, topic)
    (log,) = core.node.flush(core.now)
    assert not core.node.answer_ahead()
    log.sync()
    assert core.node.answer_ahead()
    assert not core.node.answer_ahead(), "once is enough"


@pytest.mark.parametrize("begins", [False, True], ids=["in the sync", "in the begin of the sync"])
def test_what_a_failed_sync_leaves_fails_and_is_not_there_to_be_read(core: Core, monkeypatch, begins: bool):
    topic = core.create_topic("t")
    produce(core, topic)
    core.turn()
    asked = lease(core, topic)
    assert answer_of(core, asked)[0].runs
    asked = lease(core, topic)
    log = next(each for each in core.node._registry.logs() if each.path == core.topic("t").partitions[0].directory)
    if begins:
        monkeypatch.setattr(type(log.opened[-1].file), "begin_sync", fail)
    else:
        core.files.fail_next(log.opened[-1].ref.path)
    end = core.topic("t").partitions[0].end
    request = produce(core, topic)
    core.turn()
    assert log.poisoned is not None
    assert core.watermarks.held(log).row.poison
    for each in (request, asked):
        answer, _ = answer_of(core, each)
        assert (type(answer), answer.code) == (m.Failure, "poisoned")
    assert core.topic("t").partitions[0].end == end


def fail(_: object) -> None:
    raise OSError(5, "Input/output error")


def test_a_log_whose_sync_began_badly_is_not_left_to_the_keeper_which_may_not_hear_of_it(core: Core, monkeypatch):
    topic = core.create_topic("t")
    produce(core, topic)
    core.turn()
    log = next(each for each in core.node._registry.logs() if each.path == core.topic("t").partitions[0].directory)
    with monkeypatch.context() as patch:
        patch.setattr(type(log.opened[-1].file), "begin_sync", fail)
        request = produce(core, topic)
        dirty = core.node.flush(core.now, hurry=True)
    assert not core.watermarks.flushed(dirty, idle=False, now_s=core.now_s)
    core.node.advance(core.now)
    assert answer_of(core, request)[0].code == "poisoned"


def test_readers_hear_of_records_before_their_producer_does(core: Core):
    topic = core.create_topic("t")
    core.ask(lambda request: m.Join(request, topic, "", "", "push", m.EARLIEST, [], 10_000, 1 << 20, 1 << 20))
    produce(core, topic)
    assert not answers_ahead(core)


@pytest.mark.parametrize("waits", ["a fetch", "a fetch of many", "a question for ends"])
def test_requests_that_wait_for_records_are_answered_before_their_producer(core: Core, waits: str):
    topic = core.create_topic("t")
    core.send(
        {
            "a fetch": lambda request: m.Fetch(request, topic, 0, 0, -1, 1 << 20, 60_000),
            "a fetch of many": lambda request: m.FetchMany(
                request, [m.FetchFrom(topic, 0, 0, 1 << 20)], 1 << 20, 1, 60_000
            ),
            "a question for ends": lambda request: m.AskEnds(request, [m.Known(topic, [0])], 60_000),
        }[waits]
    )
    produce(core, topic)
    assert not answers_ahead(core)


def test_the_catalogue_and_two_logs_are_applied_before_they_are_answered_for(core: Core):
    topics = [core.create_topic(name) for name in "tu"]
    core.send(lambda request: m.CreateTopic(request, "v", 1, {}))
    assert not answers_ahead(core)
    core.turn()
    for each in topics:
        produce(core, each)
    assert not answers_ahead(core)
    core.node.advance(core.now)
    core.node.resign()
    assert not core.node.answer_ahead()


@pytest.mark.parametrize(
    ("how", "count", "is_ahead"),
    [
        ({}, 1, True), ({"max_records": 2}, 2, True), ({"max_records": 1}, 2, False), ({"max_bytes": 50}, 1, False),
        ({"takes": True}, 1, False),
    ],
    ids=["one", "two", "a part", "does not fit", "without a lease"],
)  # fmt: skip
def test_a_lease_is_answered_ahead_with_a_whole_batch_that_fits(core: Core, how: dict[str, Any], count: int, is_ahead):
    topic = core.create_topic("t")
    asked = lease(core, topic, **how)
    request = produce(core, topic, *[b"x"] * count)
    assert answers_ahead(core) is is_ahead
    for each in (asked, request):
        assert any(getattr(found, "request", 0) == each for _, found, _ in core.port.sent) is is_ahead
    core.node.advance(core.now)
    assert len(answer_of(core, asked)[0].runs) == 1
    assert answer_of(core, request)


def test_a_lease_of_records_that_were_there_before_is_read_once_it_is_applied(core: Core):
    topic = core.create_topic("t")
    produce(core, topic)
    core.turn()
    request = core.send(lambda request: m.Lease(request, topic, "g", "w", 1))
    assert not answers_ahead(core)
    core.node.advance(core.now)
    assert answer_of(core, request)[0].runs == [(0, 1, 1)]


def test_a_lease_for_a_worker_that_is_gone_goes_to_the_next_one(core: Core):
    topic = core.create_topic("t")
    lease(core, topic)
    core.port.gone.add("worker")
    request = produce(core, topic)
    assert answers_ahead(core)
    core.node.advance(core.now)
    core.turn()
    assert answer_of(core, request)
    found = core.ask(lambda request: m.Lease(request, topic, "g", "another", 1), peer="another")
    assert found.runs == [(0, 1, 1)]


def test_a_worker_that_takes_no_answer_is_answered_once(core: Core, moments: list[Any]):
    """Over ZeroMQ one that has not read for long is sent a refusal in its place: two would be one too many."""
    topic = core.create_topic("t")
    lease(core, topic)
    moments.clear()
    core.port.gone.add("worker")
    produce(core, topic)
    core.turn()
    assert [kind for kind, *_ in moments] == ["Leased", "Produced"]
    leased = core.ask(lambda request: m.Lease(request, topic, "g", "another", 1), peer="another")
    core.port.gone.add("another")
    moments.clear()
    settles = [m.Settle(0, leased.token, Verb.ACK)]
    core.send(lambda request: m.SettleTasks(request, topic, "g", settles), peer="another")
    core.turn()
    assert [kind for kind, *_ in moments] == ["Settled"]
