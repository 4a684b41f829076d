"""One well-formed example of every message, for tests of codecs, parsers and documents."""

from __future__ import annotations

from penstock.storage import batch
from penstock.transport import messages as m

TOPIC = bytes(range(16))
BATCH = bytes(batch.encode([b"one", b"two", b"three"], keys=[b"a", None, b"b"], headers=[{"h": b"v"}, None, None]))

_PARTITION = m.Partition(0, "tcp://127.0.0.1:7070", bytes(16), 3, 0, 1000, 65536, 1, "/data/topics/00/0", 7)
_TOPIC = m.Topic("flights", TOPIC, {"commit": "durable", "retention_s": None, "segment_bytes": 1 << 26}, [_PARTITION])

_SETTLE = m.Settle(0, 5, 1, [(100, 3)], 5000, "no route", [(100, b"result")])
_HISTORY = [(1_700_000_000_000_000, "w1", "no route")]
_QUEUE = m.Queue(
    TOPIC, "flights", "jobs", {"lease_s": 30.0}, [m.QueuePartition(0, 10, 3, 2, 1, 0, 1_700_000_000_000_000, 0)]
)
_SCHEDULE = m.Schedule(TOPIC, "flights", "nightly", "0 3 * * *", "UTC", b"{}", None, 1_700_000_000_000_000, -1, 0)

REQUESTS: list[tuple[m.Request, bytes]] = [
    (m.Hello(1, 1, 1, "penstock-python 0.1.0"), b""),
    (m.Hello(1, 1, 1, "penstock-python 0.1.0", 9), b""),
    (m.Ping(2, 9), b""),
    (m.CreateTopic(3, "flights", 4, {"commit": "written", "retain_unread": True, "ratio": 0.5}), b""),
    (m.AlterTopic(4, TOPIC, {"retention_s": None}, 8), b""),
    (m.DeleteTopic(5, TOPIC), b""),
    (m.ListTopics(6, ["flights", "fläche"]), b""),
    (m.FindOffsets(7, TOPIC, m.EARLIEST), b""),
    (m.OpenProducer(8, TOPIC, 0, "loader"), b""),
    (m.Produce(9, TOPIC, 3), BATCH),
    (m.Produce(9, TOPIC, 3, m.Tie("jobs", TOPIC, 0, bytes(16), [0, 1, 2])), BATCH),
    (m.SetBarrier(45, TOPIC, 0, bytes(16), 3, True, {"h": b"v"}, 5, 60_000, [m.MemberQueue(TOPIC, "jobs")]), b""),
    (m.ListBarriers(46, TOPIC, 10), b""),
    (m.DeleteBarrier(48, TOPIC, bytes(16)), b""),
    (m.Fetch(10, TOPIC, 3, 1000, -1, 1 << 20, 500), b""),
    (m.FetchMany(10, [m.FetchFrom(TOPIC, 3, 1000, 1 << 20), m.FetchFrom(TOPIC, 4, -1, 1, 7)], 1 << 20, 1, 500), b""),
    (m.Join(11, TOPIC, "report", "member-1", "push", m.LATEST, [(0, 10), (1, 20)], 10_000, 1 << 20, 50_000), b""),
    (m.Release(77, [0, 1]), b""),
    (m.Credit(77, 1 << 40, 1 << 33), b""),
    (m.SeekTo(12, 77, 0, 123), b""),
    (m.SeekTo(12, 77, 0, 123, True), b""),
    (m.Leave(13, 77), b""),
    (m.Commit(14, 77, TOPIC, "report", [m.Position(0, 100, 5)]), b""),
    (m.ListGroups(15, TOPIC), b""),
    (m.ResetGroup(16, TOPIC, "report", m.EARLIEST, []), b""),
    (m.DeleteGroup(17, TOPIC, "report"), b""),
    (m.Stats(18), b""),
    (m.Lease(19, TOPIC, "jobs", "w1", 100, -1, 1 << 20, 30_000, 500, [_SETTLE], m.EARLIEST, True, True), b""),
    (m.SettleTasks(20, TOPIC, "jobs", [_SETTLE, m.Settle(1, 7, 0, [], -1, "", [(3, b"{}")])], [19]), b""),
    (m.ExtendLeases(21, TOPIC, "jobs", [(0, 5)], 30_000, [(0, 100, b"0.4")]), b""),
    (m.SetQueue(22, TOPIC, "jobs", {"lease_s": 30.0, "order": "key"}, m.LATEST), b""),
    (m.ListQueues(23, b"", "jobs"), b""),
    (m.PauseQueue(24, TOPIC, "jobs", 1_700_000_000_000_000), b""),
    (m.DeleteQueue(25, TOPIC, "jobs"), b""),
    (m.AskTask(26, TOPIC, "jobs", 0, 100, 500), b""),
    (m.CancelTask(27, TOPIC, "jobs", 0, 100), b""),
    (m.ListDead(28, TOPIC, "jobs", 0, 0, 100, "timeout"), b""),
    (m.SettleRecords(93, TOPIC, "jobs", 0, [(0, 100)], -1, "", [(0, 100, b"{}")], [(0, 101, 9)], True), b""),
    (m.ListPending(120, TOPIC, "jobs", 0, 100, 10, 1000, "w1", 60_000), b""),
    (m.ListWorkers(122, TOPIC, "jobs"), b""),
    (m.SetWorker(125, TOPIC, "jobs", "w1", False, 0), b""),
    (m.ResetQueue(98, TOPIC, "jobs", m.EARLIEST, [(0, 100)]), b""),
    (m.DeleteRecords(126, TOPIC, [(0, 100)]), b""),
    (m.ListDeleted(127, TOPIC, 0, 100, 200), b""),
    (m.Trim(94, TOPIC, m.TrimRule.OFFSET, 100, 3), b""),
    (m.Claim(124, TOPIC, "jobs", "w2", 0, 10, [100], 5, 1000, "w1", 60_000, 2, -1000, 30_000, True, 1 << 16), b""),
    (m.RedriveDead(29, TOPIC, "jobs", [(0, 100)], "", 10.0), b""),
    (m.DiscardDead(30, TOPIC, "jobs", [], "timeout"), b""),
    (m.SetSchedule(31, TOPIC, "nightly", "0 3 * * *", "UTC", b"{}", b"k", {"h": b"v"}, 5, True), b""),
    (m.DeleteSchedule(32, TOPIC, "nightly"), b""),
    (m.ListSchedules(33, TOPIC), b""),
    (m.CommitTransaction(34, "etl", 7, [m.Stage(TOPIC, 3, 2**64 - 1, 1000)]), b""),
    (m.DropStages(35, [m.Stage(TOPIC, 3, 5, 0)]), b""),
    (m.AskTransaction(36, "etl"), b""),
    (m.AskEnds(37, [m.Known(TOPIC, [1003, 0]), m.Known(TOPIC)], 200), b""),
    (m.Measure(38, TOPIC, [m.Span(0, 10, 1003)], 1 << 20), b""),
    (m.AskCursors(129, TOPIC, "stream", 3), b""),
    (m.Checkpoint(62), b""),
    (m.BeginGroup(39, TOPIC, "stream", [(0, 1003), (1, 0)]), b""),
    (m.Lend(40, TOPIC, 3, 2**64 - 1, 2, 1003), b""),
    (m.Moved(2**62 + 1), b""),
    (m.AskCluster(116), b""),
    (m.TransferLead(118, 2), b""),
    (m.ReplaceNode(144, 2), b""),
    (m.NameRequest(118, ["order-17", "order-18"]), b""),
    (m.GiveBack(TOPIC, 3, 2**62 - 1), b""),
]

ANSWERS: list[tuple[m.Answer, bytes]] = [
    (m.Failure(1, "unknown_topic", "there is no topic x", False, ""), b""),
    (m.Done(2), b""),
    (m.Welcome(3, 1, "penstock 0.1.0", "aa", "bb", 2**64 - 1, 1 << 26, 1 << 24, "boot", "/data", "/penstock-1"), b""),
    (m.Welcome(3, 1, "penstock", "aa", "bb", 7, 1 << 26, 1 << 24, "", "", "", ["tcp://broker.example:7070"]), b""),
    (m.Welcome(3, 1, "", "aa", "bb", 7, 1, 1, "", "", "", [], "follower", 9, ["tcp://a:7070", "unix:///a"]), b""),
    (m.Failure(3, "not_leader", "it follows", True, "tcp://a:7070", -1, 0, 9), b""),
    (m.LeaderMoved(9, ["tcp://a:7070"]), b""),
    (m.Topics(4, [_TOPIC, _TOPIC]), b""),
    (m.Offsets(5, [(10, 2), (0, 0)]), b""),
    (m.ProducerOpened(6, 2**63 + 1, 2, 500), b""),
    (m.Produced(7, 1000, 2, 1_700_000_000_000_000), b""),
    (m.Fetched(8, 1003, 0, 1003), BATCH),
    (
        m.FetchedMany(
            8, [m.FetchedFrom(len(BATCH), 1003, 0, 1003), m.FetchedFrom(0, 7, 0, 0, "unknown_partition", "no", True, 3)]
        ),
        BATCH,
    ),
    (m.Joined(9, 77, "ipc:///run/x.sock.0123456789ab", 3, [m.Assignment(0, 5, 100, 2)]), b""),
    (m.Assigned(77, [m.Assignment(1, 6, 0, 0)], [0]), b""),
    (m.Deliver(77, 1, 0, 5, 100, 103, 2000, 3), BATCH),
    (m.Evicted(77, "session_expired", "nothing was heard for 10 s"), b""),
    (m.Groups(10, [m.Group(TOPIC, "flights", "report", [("m", 15)], [m.GroupPartition(0, -1, 9, 9, "m", 5)])]), b""),
    (m.StatsReply(11, {"topics": 1, "rates": [1.5, 2.5], "nested": {"a": None}}), b""),
    (
        m.Leased(12, 0, 5, 1_700_000_000_000_000, 30_000, [(1000, 3, 1)], [m.Refusal(0, "lease_lost", "over")], 9, [7]),
        BATCH,
    ),
    (m.Settled(13, [m.Refusal(1, "lease_lost", "over")]), b""),
    (m.Extended(14, 1_700_000_000_000_000, [(0, 5)], [(0, 100)], 30_000), b""),
    (m.Queues(15, [_QUEUE]), b""),
    (m.TaskState(16, "dead", 3, "it failed", "w1", 1_700_000_000_000_000, "boom", b"{}", b"0.4", True, _HISTORY), b""),
    (m.DeadTasks(17, 1003, [m.DeadTask(1000, 3, 1_700_000_000_000_000, "boom", _HISTORY)]), BATCH),
    (m.Counted(18, 5, [(0, 7, 5)]), b""),
    (m.PendingRecords(121, 1003, 1_700_000_000_000_000, [m.PendingRun(1000, 3, 2, "w1", -1, 1 << 62, 5)]), b""),
    (
        m.Workers(
            123,
            [m.PendingPartition(0, 3, 1000, 1002)],
            [m.QueueWorker("w1", 3, 1_700_000_000_000_000, 1_700_000_000_000_001)],
            1_700_000_000_000_002,
        ),
        b"",
    ),
    (m.Schedules(19, [_SCHEDULE]), b""),
    (m.Barriers(47, [m.Barrier(TOPIC, "t", 0, bytes(16), 3, True, {}, 5, 1, [1], [(0, "x", "")], [("u", 0, 7)])]), b""),
    (m.TransactionCommitted(20, 7, True), b""),
    (m.TransactionState(21, -1, True, 0), b""),
    (m.Ends(22, [[m.End(0, 1003, 5), m.End(0, 0, 0)], []]), b""),
    (m.Measured(23, [[(500, 1 << 20), (1003, 77)]]), b""),
    (m.Checkpointed(63, [m.LogPlace("flights", TOPIC, 3, bytes(16), 77, 1003)], {"flights/4": "damaged"}), b""),
    (
        m.ClusterState(
            116, "flights", 1, 2, 4, 1003, [m.ClusterMember(2, "leader", "serving", 0, 1 << 40, -1, ["tcp://b:7070"])]
        ),
        b"",
    ),
    (m.TransferBegun(118, 3, 4), b""),
    (m.Cursors(129, [(3, 1003, "näher"), (5, 0, "")], 7), b""),
    (m.Begun(24, [(1003, 5), (0, 0)]), b""),
    (m.TrimmedTopic(25, [m.TrimmedPartition(0, 0, 1003, [("jobs", 3)])]), b""),
    (m.DeletedRecords(26, [(100, 3)], 200), b""),
    (
        m.Lent(
            40, 2**62 - 1, 2**64 - 1, 7, bytes(16), "/data/topics/00/3", 1, 0, 1000, 65536, 1003, 2**64 - 1,
            1_700_000_000_000_000, 0, 1 << 26, 1 << 25, 1 << 24, 1_700_000_000_000_001, 86400.5,
            [(2, 11), (2, 12), (2, 13)],
        ),
        b"",
    ),
]  # fmt: skip
