"""Every type of request, with common and with the largest allowed arguments, as a hostile client sends it.

Idea: one table by type of message, for the bench that times what other clients feel and for the test that counts the
cost. A type that is missing in either table fails both.

Contract: values only. `Subjects` are the topics and groups of the requests; the request numbers are all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from penstock.storage.batch import encode
from penstock.transport import messages as m
from penstock.transport.barrier_messages import MEMBERS_MAX
from penstock.transport.message import LIST_MAX
from penstock.transport.naming_messages import REQUEST_ID_MAX, REQUEST_IDS_MAX
from penstock.transport.queue_messages import SETTLES_MAX
from penstock.transport.transaction_messages import STAGES_MAX

KINDS: tuple[type, ...] = get_args(m.Request)
PATIENT = 60_000
GONE = b"g" * 16
WHOLE = bytes(encode([b"v" * 100] * 5000))
ONE = bytes(encode([b"v" * 100]))


@dataclass(frozen=True)
class Subjects:
    """The subjects of requests: topics by id, a session on the wide one, a lease of the queue group `q` of `work`."""

    wide: bytes
    """Of many partitions, with a queue group `q` and cursors of the group `c`."""
    narrow: bytes
    """Of one partition, with 3,000 records."""
    work: bytes
    """Of one partition, with 3,000 records and the queue group `q`."""
    partitions: int
    session: int
    token: int


def most(on: Subjects) -> dict[type, list[m.Request]]:
    """By type, requests with the largest allowed arguments."""
    return _most_of_streams(on) | _most_of_queues(on) | _most_of_transactions(on)


def _most_of_streams(on: Subjects) -> dict[type, list[m.Request]]:
    """Requests about topics, records, groups and ranges."""
    wide, narrow, every = on.wide, on.narrow, range(on.partitions)
    many = [(0, number) for number in range(LIST_MAX)]
    positions = [m.Position(number, 0, 0) for number in every]
    return {
        m.Hello: [m.Hello(1, 1, 1, "x" * 1000)],
        m.Ping: [m.Ping(1), m.Ping(1, on.session)],
        m.CreateTopic: [m.CreateTopic(1, "another", on.partitions, {}), m.CreateTopic(1, "wide", on.partitions, {})],
        m.AlterTopic: [m.AlterTopic(1, wide, {"retention_s": 1e6}), m.AlterTopic(1, narrow, {}, on.partitions)],
        m.DeleteTopic: [m.DeleteTopic(1, GONE)],
        m.ListTopics: [
            m.ListTopics(1, []), m.ListTopics(1, ["wide"]), m.ListTopics(1, ["wide"] * LIST_MAX),
            m.ListTopics(1, [str(number) for number in range(LIST_MAX)]),
        ],
        m.FindOffsets: [m.FindOffsets(1, wide, 1), m.FindOffsets(1, wide, -2)],
        m.OpenProducer: [m.OpenProducer(1, narrow, 0, "me")],
        m.Produce: [m.Produce(1, narrow, 0)],
        m.Fetch: [m.Fetch(1, narrow, 0, 0, -1, 1 << 30, 0)],
        m.FetchMany: [
            m.FetchMany(1, [m.FetchFrom(wide, number, 0, 1 << 30) for number in range(on.partitions)], 1 << 30, 1, 0),
            m.FetchMany(1, [m.FetchFrom(narrow, 0, 0, 1 << 30)], 1 << 30, 1 << 30, PATIENT),
            m.FetchMany(1, [m.FetchFrom(wide, number, 0, 1) for number in range(4096)], 1, 1, PATIENT),
        ],
        m.Join: [
            m.Join(1, wide, "", "", "control", -1, [], 300_000, 0, 0),
            m.Join(1, wide, "members", "m", "control", -1, [], 300_000, 0, 0),
            m.Join(1, narrow, "", "", "control", -1, many, 300_000, 0, 0),
        ],
        m.Release: [m.Release(on.session, list(range(LIST_MAX)))],
        m.Credit: [m.Credit(on.session, 0, 0)],
        m.SeekTo: [m.SeekTo(1, on.session, 0, 0)],
        m.Leave: [m.Leave(1, 1)],
        m.Commit: [
            m.Commit(1, 0, wide, "c", positions), m.Commit(1, 0, narrow, "d", [m.Position(0, 0, 0)] * LIST_MAX),
            m.Commit(1, 0, narrow, "d", [m.Position(0, 0, 0, "n" * 40)] * LIST_MAX),
        ],
        m.AskCursors: [m.AskCursors(1, wide, "c")],
        m.ListGroups: [m.ListGroups(1), m.ListGroups(1, wide)],
        m.ResetGroup: [m.ResetGroup(1, wide, "c", 1, []), m.ResetGroup(1, wide, "c", 1, many)],
        m.DeleteGroup: [m.DeleteGroup(1, wide, "no")],
        m.Stats: [m.Stats(1)],
        m.Checkpoint: [m.Checkpoint(1)],
        m.AskEnds: [
            m.AskEnds(1, [m.Known(wide)]), m.AskEnds(1, [m.Known(wide, [0] * on.partitions)], PATIENT),
            m.AskEnds(1, [m.Known(number.to_bytes(16, "big")) for number in range(LIST_MAX)]),
        ],
        m.Measure: [
            m.Measure(1, wide, [m.Span(0, 0, 0)] * LIST_MAX, 0), m.Measure(1, narrow, [m.Span(0, 0, 3000)], 0),
        ],
        m.BeginGroup: [m.BeginGroup(1, wide, "fresh", [(number, 0) for number in every])],
        m.DeleteRecords: [m.DeleteRecords(1, narrow, many)],
        m.ListDeleted: [m.ListDeleted(1, narrow, 0, 0, 3000)],
        **_lending(narrow),
        **_cluster(),
        m.Trim: [m.Trim(1, wide, m.TrimRule.RECORDS, 0), m.Trim(1, wide, m.TrimRule.TIME, 1)],
    }  # fmt: skip


def _lending(topic: bytes) -> dict[type, list[m.Request]]:
    return {
        m.Lend: [m.Lend(1, topic, 0, 1, 0, 0)], m.Moved: [m.Moved(1)], m.GiveBack: [m.GiveBack(topic, 0, 1)],
    }  # fmt: skip


def _cluster() -> dict[type, list[m.Request]]:
    return {
        m.AskCluster: [m.AskCluster(1)], m.ReplaceNode: [m.ReplaceNode(1, 1)], m.TransferLead: [m.TransferLead(1, 0)],
        m.NameRequest: [m.NameRequest(1, ["x" * REQUEST_ID_MAX] * REQUEST_IDS_MAX)],
    }  # fmt: skip


def _most_of_queues(on: Subjects) -> dict[type, list[m.Request]]:
    """Requests about queues, tasks and schedules."""
    wide, narrow, work = on.wide, on.narrow, on.work
    many = [(0, number) for number in range(LIST_MAX)]
    settles = [m.Settle(0, on.token, 3, [(number, 1)]) for number in range(SETTLES_MAX)]
    return {
        m.Lease: [
            m.Lease(1, work, "q", "w", 1000), m.Lease(1, work, "q", "w", 1, settles=settles),
            m.Lease(1, wide, "q", "w", 1, wait_ms=PATIENT),
        ],
        m.SettleTasks: [
            m.SettleTasks(1, work, "q", settles, [*range(999)]), m.SettleTasks(1, work, "q", [m.Settle(0, 1, 1, many)]),
        ],
        m.ExtendLeases: [
            m.ExtendLeases(1, work, "q", many), m.ExtendLeases(1, work, "q", [(0, on.token)], 0,
                                                               [(0, number, b"") for number in range(LIST_MAX)]),
        ],
        m.SetQueue: [m.SetQueue(1, wide, "q", {"lease_s": 60}), m.SetQueue(1, wide, "new", {})],
        m.ListQueues: [m.ListQueues(1), m.ListQueues(1, wide, "q")],
        m.PauseQueue: [m.PauseQueue(1, wide, "q", 0)],
        m.ResetQueue: [m.ResetQueue(1, wide, "q", -1), m.ResetQueue(1, work, "no", 0, many)],
        m.DeleteQueue: [m.DeleteQueue(1, wide, "no")],
        m.AskTask: [m.AskTask(1, work, "q", 0, 1), m.AskTask(1, work, "q", 0, 2600, PATIENT)],
        m.CancelTask: [m.CancelTask(1, work, "q", 0, 2700)],
        m.ListDead: [m.ListDead(1, work, "q", 0, 0, 1000), m.ListDead(1, work, "q", 0, 0, 1000, "no such reason")],
        m.SettleRecords: [m.SettleRecords(1, work, "q", 3, many)],
        m.ListPending: [
            m.ListPending(1, work, "q", 0, 1 << 30), m.ListPending(1, work, "q", 0, 1 << 30, worker="no such"),
            m.ListPending(1, work, "q", 0, 1 << 30, min_idle_ms=1 << 40),
        ],
        m.ListWorkers: [m.ListWorkers(1, work, "q"), m.ListWorkers(1, wide, "q")],
        m.SetWorker: [m.SetWorker(1, wide, "q", "w"), m.SetWorker(1, work, "q", "no such", False)],
        m.Claim: [
            m.Claim(1, work, "q", "w", 0, 1000), m.Claim(1, work, "q", "w", 0, 1000, max_bytes=0),
            m.Claim(1, work, "q", "w", 0, offsets=list(range(2900, 3000)), force=True, max_bytes=1 << 30),
        ],
        m.RedriveDead: [m.RedriveDead(1, work, "q", many, "no such"), m.RedriveDead(1, work, "q", [], "no such")],
        m.DiscardDead: [m.DiscardDead(1, work, "q", many, "no such"), m.DiscardDead(1, work, "q", [], "no such")],
        m.SetBarrier: [
            m.SetBarrier(1, narrow, 0, bytes(16), MEMBERS_MAX, True, queues=[m.MemberQueue(wide, "q")] * MEMBERS_MAX),
            m.SetBarrier(1, narrow, 0, bytes(16), 1, True, queues=[m.MemberQueue(wide, "no")]),
        ],
        m.DeleteBarrier: [m.DeleteBarrier(1, wide, bytes(16))],
        m.ListBarriers: [m.ListBarriers(1)],
        m.SetSchedule: [m.SetSchedule(1, narrow, "s", "every 3600s", "", b"v")],
        m.DeleteSchedule: [m.DeleteSchedule(1, narrow, "no")],
        m.ListSchedules: [m.ListSchedules(1)],
    }  # fmt: skip


def _most_of_transactions(on: Subjects) -> dict[type, list[m.Request]]:
    stages = [m.Stage(on.narrow, 0, number, 1) for number in range(STAGES_MAX)]
    return {
        m.CommitTransaction: [m.CommitTransaction(1, "tx", 1, stages)],
        m.DropStages: [m.DropStages(1, stages)],
        m.AskTransaction: [m.AskTransaction(1, "tx")],
    }  # fmt: skip


def usual(on: Subjects) -> dict[type, list[m.Request]]:
    """By type, requests as clients usually send them."""
    narrow, work = on.narrow, on.work
    settle = m.Settle(0, on.token, 1, [(0, 1)])
    stage = m.Stage(narrow, 0, 1, 1)
    return {
        m.Hello: [m.Hello(1, 1, 1, "a client")],
        m.Ping: [m.Ping(1)],
        m.CreateTopic: [m.CreateTopic(1, f"made-{number}", 1, {}) for number in range(64)],
        m.AlterTopic: [m.AlterTopic(1, narrow, {"retention_s": 1e6 + number}) for number in range(64)],
        m.DeleteTopic: [m.DeleteTopic(1, GONE)],
        m.ListTopics: [m.ListTopics(1, ["narrow"])],
        m.FindOffsets: [m.FindOffsets(1, narrow, -2)],
        m.OpenProducer: [m.OpenProducer(1, narrow, 0, f"me-{number}") for number in range(64)],
        m.Produce: [m.Produce(1, narrow, 0)],
        m.Fetch: [m.Fetch(1, narrow, 0, 2990, -1, 4096, 0)],
        m.FetchMany: [m.FetchMany(1, [m.FetchFrom(narrow, 0, 2990, 4096)], 4096, 1, 0)],
        m.Join: [m.Join(1, narrow, "members", f"m{number}", "control", -1, [], 10_000, 1 << 20, 1000)
                 for number in range(64)],
        m.Release: [m.Release(on.session, [0])],
        m.Credit: [m.Credit(on.session, 1 << 20, 1000)],
        m.SeekTo: [m.SeekTo(1, on.session, 0, 0)],
        m.Leave: [m.Leave(1, 1)],
        m.Commit: [m.Commit(1, 0, narrow, "c", [m.Position(0, number, 0)]) for number in range(64)],
        m.AskCursors: [m.AskCursors(1, narrow, "c")],
        m.ListGroups: [m.ListGroups(1, narrow)],
        m.ResetGroup: [m.ResetGroup(1, narrow, "c", -1, [])],
        m.DeleteGroup: [m.DeleteGroup(1, narrow, "no")],
        m.Stats: [m.Stats(1)],
        m.Checkpoint: [m.Checkpoint(1)],
        m.Lease: [m.Lease(1, work, "q", "w", 1)],
        m.SettleTasks: [m.SettleTasks(1, work, "q", [settle])],
        m.ExtendLeases: [m.ExtendLeases(1, work, "q", [(0, on.token)])],
        m.SetQueue: [m.SetQueue(1, work, "q", {"lease_s": 60 + number}) for number in range(64)],
        m.ListQueues: [m.ListQueues(1, work, "q")],
        m.PauseQueue: [m.PauseQueue(1, work, "q", 0)],
        m.ResetQueue: [m.ResetQueue(1, narrow, "q", -1)],
        m.DeleteQueue: [m.DeleteQueue(1, work, "no")],
        m.AskTask: [m.AskTask(1, work, "q", 0, 1)],
        m.CancelTask: [m.CancelTask(1, work, "q", 0, 2700 + number) for number in range(64)],
        m.ListDead: [m.ListDead(1, work, "q", 0, 0, 10)],
        m.SettleRecords: [m.SettleRecords(1, work, "q", 3, [(0, 1)])],
        m.ListPending: [m.ListPending(1, work, "q", 0, 10)],
        m.ListWorkers: [m.ListWorkers(1, work, "q")],
        m.SetWorker: [m.SetWorker(1, work, "q", "w")],
        m.Claim: [m.Claim(1, work, "q", "w", 0, 1)],
        m.RedriveDead: [m.RedriveDead(1, work, "q", [(0, 1)], "no such")],
        m.DiscardDead: [m.DiscardDead(1, work, "q", [(0, 1)], "no such")],
        m.SetBarrier: [m.SetBarrier(1, narrow, 0, number.to_bytes(16), 1, False) for number in range(64)],
        m.DeleteBarrier: [m.DeleteBarrier(1, narrow, bytes(16))],
        m.ListBarriers: [m.ListBarriers(1)],
        m.SetSchedule: [m.SetSchedule(1, narrow, f"s{number}", "every 3600s", "", b"v") for number in range(64)],
        m.DeleteSchedule: [m.DeleteSchedule(1, narrow, "no")],
        m.ListSchedules: [m.ListSchedules(1)],
        m.CommitTransaction: [m.CommitTransaction(1, "one", number, [stage]) for number in range(1, 64)],
        m.DropStages: [m.DropStages(1, [stage])],
        m.AskTransaction: [m.AskTransaction(1, "one")],
        m.AskEnds: [m.AskEnds(1, [m.Known(narrow)])],
        m.Measure: [m.Measure(1, narrow, [m.Span(0, 0, 3000)], 0)],
        m.BeginGroup: [m.BeginGroup(1, narrow, f"fresh-{number}", [(0, 0)]) for number in range(64)],
        m.DeleteRecords: [m.DeleteRecords(1, narrow, [(0, number)]) for number in range(64)],
        m.ListDeleted: [m.ListDeleted(1, narrow, 0, 0, 3000)],
        **_lending(narrow),
        **_cluster(),
        m.Trim: [m.Trim(1, narrow, m.TrimRule.OFFSET, number) for number in range(64)],
    }  # fmt: skip
