"""What each message needs: a row for every message; and without one of its needs, no message is heard."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest
from penstock.broker.engine.needs import TABLE, Need
from penstock.broker.engine.node import Node
from penstock.broker.rights import Grant, Principal
from penstock.transport import messages as m
from support import samples
from support.engine import Rig

TOPIC, JOBS, REPORT, STREAM = "topic:flights", "group:flights/jobs", "group:flights/report", "group:flights/stream"
READ, WRITE, MANAGE = ("read", TOPIC), ("write", TOPIC), ("manage", TOPIC)
WORK: list[Need] = [READ, ("read", JOBS)]

NEEDS: dict[type, list[Need]] = {
    m.Hello: [],
    m.Ping: [],
    m.Stats: [("see", "node")],
    m.Checkpoint: [("manage", "node")],
    m.AskCluster: [("see", "node")],
    m.TransferLead: [("manage", "node")],
    m.ReplaceNode: [("manage", "node")],
    m.CreateTopic: [MANAGE],
    m.AlterTopic: [MANAGE],
    m.DeleteTopic: [MANAGE],
    m.ListTopics: [("see", TOPIC), ("see", "topic:fläche")],
    m.FindOffsets: [READ],
    m.Trim: [MANAGE],
    m.DeleteRecords: [MANAGE],
    m.ListDeleted: [READ],
    m.OpenProducer: [WRITE, ("write", "producer:flights/loader")],
    m.Produce: [WRITE],
    m.Lend: [WRITE],
    m.Moved: [],
    m.NameRequest: [],
    m.GiveBack: [],
    m.Fetch: [READ],
    m.FetchMany: [READ],
    m.AskEnds: [READ],
    m.Measure: [READ],
    m.Join: [READ, ("read", REPORT)],
    m.Release: [],
    m.Credit: [],
    m.SeekTo: [],
    m.Leave: [],
    m.Commit: [READ, ("read", REPORT)],
    m.BeginGroup: [READ, ("read", STREAM)],
    m.AskCursors: [("read", STREAM)],
    m.ListGroups: [("see", TOPIC)],
    m.ResetGroup: [("manage", REPORT)],
    m.DeleteGroup: [("manage", REPORT)],
    m.Lease: WORK,
    m.SettleTasks: WORK,
    m.ExtendLeases: WORK,
    m.SettleRecords: WORK,
    m.Claim: WORK,
    m.ListPending: WORK,
    m.ListWorkers: WORK,
    m.SetWorker: WORK,
    m.ListDead: WORK,
    m.AskTask: [("read", JOBS)],
    m.CancelTask: [("write", JOBS)],
    m.RedriveDead: [("manage", JOBS)],
    m.DiscardDead: [("manage", JOBS)],
    m.SetQueue: [("manage", JOBS)],
    m.PauseQueue: [("manage", JOBS)],
    m.ResetQueue: [("manage", JOBS)],
    m.DeleteQueue: [("manage", JOBS)],
    m.ListQueues: [],  # of all topics
    m.SetSchedule: [WRITE, ("manage", "schedule:flights/nightly")],
    m.DeleteSchedule: [("manage", "schedule:flights/nightly")],
    m.ListSchedules: [("see", TOPIC)],
    m.SetBarrier: [WRITE, WRITE],  # of its record, and of its members
    m.DeleteBarrier: [WRITE],
    m.ListBarriers: [("see", TOPIC)],
    m.CommitTransaction: [("write", "transaction:etl"), WRITE],
    m.DropStages: [WRITE],
    m.AskTransaction: [("see", "transaction:etl")],
}

SAMPLES = [message for message, _ in samples.REQUESTS]


def name_of(topic: bytes) -> str | None:
    return {samples.TOPIC: "flights"}.get(topic)


def allowed(needs: list[Need], *denied: Need) -> Principal:
    return Principal(
        "ann",
        [Grant(False, frozenset([operation]), resource) for operation, resource in needs]
        + [Grant(True, frozenset([operation]), resource) for operation, resource in denied],
    )


def test_every_message_has_a_row_and_nothing_else_has():
    assert set(get_args(m.Request)) == set(TABLE) == set(NEEDS)
    assert {type(message) for message in SAMPLES} == set(NEEDS)


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_each_message_needs_what_the_table_says(message: Any):
    found = list(TABLE[type(message)](message, name_of))
    assert Counter(found) == Counter(NEEDS[type(message)])


def heard(monkeypatch: pytest.MonkeyPatch, message: Any, principal: Principal) -> bool:
    """Whether a node's handler gets a message. Handlers do nothing here."""
    rig = Rig()
    rig.node._registry.topics.by_id[samples.TOPIC] = type("Named", (), {"name": "flights"})  # type: ignore[assignment]
    taken: list[Any] = []
    handlers = dict.fromkeys(TABLE, lambda peer, message, payload, now: taken.append(message))
    monkeypatch.setattr(rig.node, "_handlers", handlers)
    rig.node.receive("c", message, b"", rig.now, principal)
    refused = [each for _, each, _ in rig.port.sent]
    assert (len(taken), [each.code for each in refused]) in [(1, []), (0, ["forbidden"])]
    assert len(refused) == rig.node.guard.refused
    return bool(taken)


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_node_hears_a_message_with_all_it_needs_and_not_without_any_of_it(
    monkeypatch: pytest.MonkeyPatch, message: Any
):
    needs = NEEDS[type(message)]
    assert heard(monkeypatch, message, allowed(needs))
    for missing in needs:
        assert not heard(monkeypatch, message, allowed([each for each in needs if each != missing]))
        assert not heard(monkeypatch, message, allowed(needs, missing))


def test_a_message_without_a_row_reaches_no_handler(monkeypatch: pytest.MonkeyPatch):
    rig, taken = Rig(), list[Any]()
    monkeypatch.setattr(rig.node, "_handlers", {m.Ping: lambda *request: taken.append(request)})
    monkeypatch.delitem(TABLE, m.Ping)
    rig.node.receive("c", m.Ping(1, 0), b"", rig.now, allowed([]))
    assert ([each.code for _, each, _ in rig.port.sent], taken) == (["invalid_request"], [])


def test_what_a_queue_writes_its_dead_letters_to_is_written():
    message = m.SetQueue(1, samples.TOPIC, "jobs", {"dead_topic": "secret"})
    assert list(TABLE[m.SetQueue](message, name_of)) == [("manage", JOBS), ("write", "topic:secret")]


def test_every_topic_of_many_is_asked_for_once():
    other = bytes(16)
    stages = [m.Stage(samples.TOPIC, 0, 1, 1), m.Stage(other, 0, 2, 1), m.Stage(samples.TOPIC, 1, 3, 1)]
    message = m.CommitTransaction(1, "t", 1, stages)
    found = list(TABLE[m.CommitTransaction](message, {samples.TOPIC: "a", other: "b"}.get))
    assert found == [("write", "transaction:t"), ("write", "topic:a"), ("write", "topic:b")]


def test_a_session_of_no_group_needs_none():
    message = m.Join(1, samples.TOPIC, "", "", "push", -1, [], 1, 1, 1)
    assert list(TABLE[m.Join](message, name_of)) == [READ]


def test_the_node_asks_before_any_handler():
    names = Node._handle.__code__.co_names
    assert names.index("check") < names.index("_handlers")
    assert "_handlers" not in Node.receive.__code__.co_names
