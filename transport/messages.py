"""Every message of the wire, one class each: the contract between client and broker.

A message is the first frame: a msgpack array [tag, field, ...]. Messages that carry records have a
second frame: batches, back to back, as `storage/FORMAT.md` lays them out. Normative text: PROTOCOL.md.

Messages of topics, queues, barriers, transactions, ranges, removal, lending, clusters and names are in modules of their
own, and named here, too.

`request` is chosen by the asker, above 0, and comes back in the answer; 0 marks messages that answer no request.
A `topic` is always the 16-byte topic id (a recreated topic is another topic), a `name` its name.
Times are int64 microseconds UTC, offsets count records, sequences count a producer's records.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from .barrier_messages import Barrier, Barriers, DeleteBarrier, ListBarriers, MemberQueue, SetBarrier, Tie
from .checkpoint_messages import Checkpoint, Checkpointed, LogPlace
from .cluster_messages import AskCluster, ClusterMember, ClusterState, ReplaceNode, TransferBegun, TransferLead
from .fetch_messages import FetchedFrom, FetchedMany, FetchFrom, FetchMany
from .lending_messages import GiveBack, Lend, Lent, Moved
from .message import INT64_MAX, Count, Int64, Listed, Message, Setting, TopicId, Unsigned
from .naming_messages import NameRequest
from .queue_messages import (
    AskTask,
    CancelTask,
    Claim,
    Counted,
    DeadTask,
    DeadTasks,
    DeleteQueue,
    DeleteSchedule,
    DiscardDead,
    Extended,
    ExtendLeases,
    Lease,
    Leased,
    ListDead,
    ListPending,
    ListQueues,
    ListSchedules,
    ListWorkers,
    PauseQueue,
    PendingPartition,
    PendingRecords,
    PendingRun,
    Queue,
    QueuePartition,
    Queues,
    QueueWorker,
    RedriveDead,
    Refusal,
    ResetQueue,
    Schedule,
    Schedules,
    SetQueue,
    SetSchedule,
    Settle,
    Settled,
    SettleRecords,
    SettleTasks,
    SetWorker,
    TaskState,
    Workers,
)  # fmt: skip
from .range_messages import AskCursors, AskEnds, BeginGroup, Begun, Cursors, End, Ends, Known, Measure, Measured, Span
from .removal_messages import DeletedRecords, DeleteRecords, ListDeleted, Trim, TrimmedPartition, TrimmedTopic, TrimRule
from .topic_messages import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    FindOffsets,
    ListTopics,
    Offsets,
    Partition,
    Topic,
    Topics,
)  # fmt: skip
from .transaction_messages import (
    AskTransaction,
    CommitTransaction,
    DropStages,
    Stage,
    TransactionCommitted,
    TransactionState,
)  # fmt: skip

__all__ = [
    "INT64_MAX", "Count", "Int64", "Setting", "TopicId", "Unsigned",
    "DeadTask", "Partition", "PendingPartition", "PendingRun", "Queue", "QueuePartition", "QueueWorker", "Refusal",
    "Schedule", "Settle", "FetchFrom", "FetchedFrom", "Known", "End", "LogPlace", "Span", "Stage", "Topic",
    "ClusterMember", "TrimmedPartition", "TrimRule", "Barrier", "MemberQueue", "Tie",
]  # fmt: skip
"""What is not declared here and not used here either, so that all messages can be looked up in one place."""

# -- any time -------------------------------------------------------------------------------------


class Failure(Message, tag=0, frozen=True):
    """Answer to a request that could not be done."""

    request: Count
    code: str
    message: str
    retry: bool = False
    where: str = ""  # the endpoint to ask instead, when the broker knows one
    offset: Int64 = -1  # diverged, out_of_bounds, corrupt: where reading may go on, when known
    after_ms: Count = 0  # overloaded, read_failed: when to ask again
    term: Count = 0  # not_leader: in which the leader at `where` leads


class Done(Message, tag=1, frozen=True):
    """Answer to a request whose only result is that it is committed."""

    request: Count


class Hello(Message, tag=2, frozen=True):
    """First message of a connection; sent again whenever the peer may have forgotten us."""

    request: Count
    oldest_version: Count
    newest_version: Count
    client: str  # library and version, for people
    term: Count = 0  # the highest that the client has seen: a node of a lower one does not serve it


class Welcome(Message, tag=3, frozen=True):
    """The version that will be spoken, the limits, and what a local reader needs."""

    request: Count
    version: Count
    server: str
    node: str
    cluster: str
    incarnation: Unsigned  # random, new at every start of the broker: sessions of another one are gone
    max_frame_bytes: Count
    max_record_bytes: Count
    boot_id: str  # equal to ours when on the same machine
    data: str  # data directory of the broker
    board: str  # name of the board, see FORMAT.md
    advertise: list[str] = []  # where clients connect to
    role: str = ""  # leader or follower; "" where the broker is alone
    term: Count = 0  # of the leader that the node knows, 0 where the broker is alone
    leader: list[str] = []  # where clients connect to the leader, as far as a follower knows


class Ping(Message, tag=4, frozen=True):
    """Checks that the broker answers (Done). Also a heartbeat if it names a session."""

    request: Count
    session: Count = 0


EARLIEST = -1
LATEST = -2


# -- producing ------------------------------------------------------------------------------------


class OpenProducer(Message, tag=20, frozen=True):
    """Claim a named producer on one partition: fences the one before. Answered by ProducerOpened."""

    request: Count
    topic: TopicId
    partition: Count
    name: str


class ProducerOpened(Message, tag=21, frozen=True):
    request: Count
    producer_id: Unsigned
    epoch: Count
    next_sequence: Count


class Produce(Message, tag=22, frozen=True):
    """One batch in the second frame, with producer id, epoch and first sequence in its header.

    Answered by Produced once the batch stands at the topic's commit level.
    """

    request: Count
    topic: TopicId
    partition: Count
    tie: Tie | None = None  # the records are members of a barrier


class Produced(Message, tag=23, frozen=True):
    request: Count
    offset: Count  # of the first record
    term: Int64
    time_us: Int64
    repeats: list[tuple[Count, Count]] = []  # (record of the batch, offset of the task that it repeats), by dedup key


# -- reading --------------------------------------------------------------------------------------


COLUMNS_MAX = 64
"""Columns that one Fetch names."""


class Fetch(Message, tag=30, frozen=True):
    """Batches from `offset` on, at most `max_bytes` (but at least one batch), waiting up to `wait_ms`.

    `term`: of the record before `offset`, or -1; another is answered `diverged`. `columns`: the only ones that come.
    """

    request: Count
    topic: TopicId
    partition: Count
    offset: Int64
    term: Int64
    max_bytes: Count
    wait_ms: Count
    columns: Annotated[list[Count], Meta(max_length=COLUMNS_MAX)] = []  # ids of FORMAT.md; none: all


class Fetched(Message, tag=31, frozen=True):
    """Second frame: whole batches. The first may start before, the kinds other than records are skipped."""

    request: Count
    next_offset: Count  # where to go on
    first: Count
    end: Count


class Assignment(Struct, array_like=True, frozen=True, gc=False):
    """A partition a session may read, from `offset` on, under `epoch` (new at each hand-over and seek)."""

    partition: Count
    epoch: Count
    offset: Count
    term: Int64


class Join(Message, tag=32, frozen=True):
    """Open a session on one topic: as member of `group`, or alone over all partitions when it is "".

    `delivery`: "push" (own endpoint), "control" (over this socket) or "mapped" (the member reads by itself).
    `start`: EARLIEST, LATEST or a time, for partitions without a cursor; `positions` overrides it without a group.
    Answered by Joined.
    """

    request: Count
    topic: TopicId
    group: str
    member: str  # unique within the group; joining again under it ends the older session
    delivery: str
    start: Int64
    positions: Listed[tuple[Count, Int64]]
    session_timeout_ms: Count
    credit_bytes: Count
    credit_records: Count


class Joined(Message, tag=33, frozen=True):
    request: Count
    session: Count
    endpoint: str  # connect a PULL here; "" when batches come over this socket or not at all
    slot: Int64  # mapped: what to sleep on, on the board; -1 without one
    assignments: list[Assignment]


class Assigned(Message, tag=34, frozen=True):
    """Unasked: partitions given to a session, and partitions it should release soon."""

    session: Count
    assignments: list[Assignment]
    revoked: list[Count]


class Release(Message, tag=35, frozen=True):
    """The session is done with these partitions. No answer."""

    session: Count
    partitions: Listed[Count]


class Credit(Message, tag=36, frozen=True):
    """How much may be sent to the session since it began, in total. No answer; counts as a heartbeat."""

    session: Count
    total_bytes: Count
    total_records: Count


class Deliver(Message, tag=37, frozen=True):
    """Second frame: whole batches of one partition, sent once per number, in order, under credit."""

    session: Count
    number: Count  # 1, 2, 3 ... within the session
    partition: Count
    epoch: Count
    offset: Count  # first record meant for the reader
    next_offset: Count
    end: Count  # committed end when sent, for lag
    records: Count  # charged to the credit
    damage: str = ""  # why records before `offset` did not come: what is wrong with them
    accepted: bool = False  # their loss was accepted


class SeekTo(Message, tag=38, frozen=True):
    """Move a session's partition; answered by Assigned with the new epoch, then Done."""

    request: Count
    session: Count
    partition: Count
    offset: Int64
    paused: bool = False  # nothing of it is delivered until another one says otherwise


class Leave(Message, tag=39, frozen=True):
    """End a session. Answered by Done."""

    request: Count
    session: Count


class Evicted(Message, tag=40, frozen=True):
    """Unasked: the session is over (expired, replaced, topic deleted). Join again."""

    session: Count
    code: str
    message: str


class LeaderMoved(Message, tag=41, frozen=True):
    """The node leads no longer: the connection counts as lost. Or it did not lead, and a leader serves. Unsolicited."""

    term: Count  # the newest that the node knows
    leader: list[str] = []  # where clients connect to the leader, as far as the node knows


# -- groups ---------------------------------------------------------------------------------------


class Position(Struct, array_like=True, frozen=True, gc=False):
    """A cursor: the next offset to read, and the assignment epoch it was read under (0 outside a session)."""

    partition: Count
    offset: Int64
    epoch: Count
    note: str = ""  # kept beside the cursor until it moves again


class Commit(Message, tag=50, frozen=True):
    """Move cursors. Answered by Done when durable; by `fenced` when a partition has a new owner."""

    request: Count
    session: Count  # 0: by an administrator, refused while the group has members
    topic: TopicId
    group: str
    positions: Listed[Position]


class ListGroups(Message, tag=51, frozen=True):
    """Groups of one topic, or of a page of all when the id is empty. Answered by Groups."""

    request: Count
    topic: Annotated[bytes, Meta(max_length=16)] = b""
    after: str = ""


class GroupPartition(Struct, array_like=True, frozen=True, gc=False):
    """`cursor` is -1 before the first commit; `lag` is then counted from where an owner would begin."""

    partition: Count
    cursor: Int64
    end: Count
    lag: Count
    member: str
    epoch: Count
    first: Count = 0  # the first offset that can be read: what lies below and at the cursor or above was removed unread
    oldest_us: Int64 = -1  # append time of the oldest record of the lag; -1 without one, or where it cannot be read


class Group(Struct, array_like=True, frozen=True, gc=False):
    topic: TopicId
    topic_name: str
    group: str
    members: list[tuple[str, Count]]  # member, milliseconds since last seen
    partitions: list[GroupPartition]
    unavailable: Listed[Count] = []  # partitions that cannot be opened


class Groups(Message, tag=52, frozen=True):
    request: Count
    groups: list[Group]
    next: str = ""  # behind which topic's name to go on; "": that was all


class ResetGroup(Message, tag=53, frozen=True):
    """Move all cursors of a group without members: to EARLIEST, LATEST, a time, or `positions` if any."""

    request: Count
    topic: TopicId
    group: str
    time_us: Int64
    positions: Listed[tuple[Count, Int64]]


class DeleteGroup(Message, tag=54, frozen=True):
    """Delete a group without members. Answered by Done."""

    request: Count
    topic: TopicId
    group: str


# -- numbers --------------------------------------------------------------------------------------


class Stats(Message, tag=60, frozen=True):
    """Answered by StatsReply."""

    request: Count


class StatsReply(Message, tag=61, frozen=True):
    request: Count
    values: dict[str, Any]


Request = (
    Hello | Ping | CreateTopic | AlterTopic | DeleteTopic | ListTopics | FindOffsets | OpenProducer | Produce
    | Fetch | Join | Release | Credit | SeekTo | Leave | Commit | ListGroups | ResetGroup | DeleteGroup | Stats
    | Lease | SettleTasks | ExtendLeases | SetQueue | ListQueues | PauseQueue | DeleteQueue | AskTask | CancelTask
    | SettleRecords | ListDead | RedriveDead | DiscardDead | SetSchedule | DeleteSchedule | ListSchedules
    | ListPending | ListWorkers | SetWorker | Claim
    | CommitTransaction | DropStages | AskTransaction | AskEnds | Measure | BeginGroup | Trim | ResetQueue
    | DeleteRecords | ListDeleted | AskCursors | FetchMany | Checkpoint | Lend | Moved | GiveBack
    | AskCluster | ReplaceNode | TransferLead | NameRequest
    | SetBarrier | DeleteBarrier | ListBarriers
)  # fmt: skip
"""Messages from a client."""

Answer = (
    Failure | Done | Welcome | Topics | Offsets | ProducerOpened | Produced | Fetched | Joined | Assigned
    | Deliver | Evicted | LeaderMoved | Groups | StatsReply
    | Leased | Settled | Extended | Queues | TaskState | DeadTasks | Counted | Schedules
    | PendingRecords | Workers
    | TransactionCommitted | TransactionState | Ends | Measured | Begun | TrimmedTopic | DeletedRecords | Cursors
    | FetchedMany | Checkpointed | Lent | ClusterState | TransferBegun | Barriers
)  # fmt: skip
"""Messages from a broker."""
