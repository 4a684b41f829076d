"""The clients: sync and async, over sockets, in a directory or in memory, with the same verbs."""

from __future__ import annotations

from ..transport.messages import Stage
from .arguments.settings import QueueOptions, TopicOptions
from .barriers.descriptions import Barrier, Callback, GroupTask
from .batches.fetched import FetchedBatches
from .client import Client, connect
from .consumer import Consumer
from .consuming.columnar import Columns
from .descriptions import (
    Appended,
    AssignmentChange,
    Committed,
    End,
    Group,
    GroupPartition,
    Member,
    OpenedProducer,
    Partition,
    Topic,
    TopicEnds,
    TrimmedPartition,
)
from .errors import ClientError, InvalidArgument, MappedUnavailable, NoGroup, NotAssigned, TimedOut, WindowFull
from .producer import Producer, Staging, Transaction
from .producing.direct import Direct
from .producing.pending import Future, Posted
from .queues.descriptions import (
    Claimed,
    ClaimedTask,
    DeadTask,
    Failure,
    PendingSummary,
    PendingTask,
    Queue,
    QueuePartition,
    QueueWorker,
    Schedule,
    TaskInfo,
)
from .task import Task
from .topics_consumer import TopicsConsumer
from .worker import Worker
from .working.leases import SettleFuture

__all__ = [
    "Posted", "Client", "Consumer", "Future", "Producer", "SettleFuture", "Task", "TopicsConsumer", "Worker",
    "connect",
    "Stage", "Staging", "Transaction",
    "Appended", "AssignmentChange", "Direct", "FetchedBatches", "OpenedProducer",
    "Columns", "Committed", "End", "Group", "GroupPartition", "Member", "Partition", "Topic", "TopicEnds",
    "TrimmedPartition",
    "Barrier", "Callback", "GroupTask",
    "Claimed", "ClaimedTask", "DeadTask", "Failure", "PendingSummary", "PendingTask",
    "Queue", "QueuePartition", "QueueOptions", "QueueWorker", "Schedule", "TaskInfo", "TopicOptions",
    "ClientError", "InvalidArgument", "MappedUnavailable", "NoGroup", "NotAssigned", "TimedOut", "WindowFull",
]  # fmt: skip
