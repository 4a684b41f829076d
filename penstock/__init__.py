"""penstock: a message log and task queue for Python.

Names are imported when they are first used: every process of penstock imports this module, and most need only a part
of the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors
    from .clients import (
        Appended,
        AssignmentChange,
        Barrier,
        Callback,
        Claimed,
        ClaimedTask,
        Client,
        Columns,
        Committed,
        Consumer,
        DeadTask,
        End,
        Failure,
        FetchedBatches,
        Future,
        Group,
        GroupPartition,
        GroupTask,
        Member,
        OpenedProducer,
        Partition,
        PendingSummary,
        PendingTask,
        Posted,
        Producer,
        Queue,
        QueueOptions,
        QueuePartition,
        QueueWorker,
        Schedule,
        SettleFuture,
        Stage,
        Staging,
        Task,
        TaskInfo,
        Topic,
        TopicEnds,
        TopicOptions,
        TopicsConsumer,
        Transaction,
        TrimmedPartition,
        Worker,
    )
    from .clients.connection.request_ids import request_id
    from .clients.spooling.spool import Spool
    from .clients.tasks import Again, Call, CurrentTask, Ended, Job, JobStatus, Reject, Retry, current_task, group
    from .clients.tasks.runner import Runner
    from .connecting import connect
    from .storage.batch import Batch
    from .storage.channel import Channel
    from .storage.embedded import Log
    from .storage.errors import Error
    from .storage.follow import Following
    from .storage.record import Record
    from .tasks import Tasks
    from .transport.keys import Key

__version__ = "0.1.0"

_DESCRIPTIONS = (
    *("Topic", "Partition", "TopicEnds", "End", "Group", "GroupPartition"),
    *("Member", "Committed", "Queue", "QueuePartition", "QueueWorker", "TaskInfo"),
    *("DeadTask", "Failure", "PendingTask", "PendingSummary", "Claimed", "ClaimedTask"),
    *("Schedule", "Future", "SettleFuture", "Columns", "FetchedBatches", "Appended", "AssignmentChange"),
    *("OpenedProducer", "TrimmedPartition", "Barrier"),
)
"""What verbs of clients return."""

_SETTINGS = ("TopicOptions", "QueueOptions", "GroupTask", "Callback")
"""What verbs of clients take."""

_HOMES = {
    "connect": ".connecting",
    "request_id": ".clients.connection.request_ids",
    "Client": ".clients",
    "Producer": ".clients",
    "Consumer": ".clients",
    "TopicsConsumer": ".clients",
    "Worker": ".clients",
    "Task": ".clients",
    "Transaction": ".clients",
    "Staging": ".clients",
    "Stage": ".clients",
    "Tasks": ".tasks",
    "Retry": ".clients.tasks",
    "Reject": ".clients.tasks",
    "Again": ".clients.tasks",
    "Runner": ".clients.tasks.runner",
    "Job": ".clients.tasks",
    "JobStatus": ".clients.tasks",
    "CurrentTask": ".clients.tasks",
    "current_task": ".clients.tasks",
    "group": ".clients.tasks",
    "Call": ".clients.tasks",
    "Ended": ".clients.tasks",
    "Log": ".storage.embedded",
    "Channel": ".storage.channel",
    "Spool": ".clients.spooling.spool",
    "Record": ".storage.record",
    "Posted": ".clients",
    "Batch": ".storage.batch",
    "Following": ".storage.follow",
    **dict.fromkeys((*_DESCRIPTIONS, *_SETTINGS), ".clients"),
    "Key": ".transport.keys",
    "Error": ".storage.errors",
}

__all__ = [
    # talking to a broker
    "connect",
    "request_id",
    "Key",
    "Client",
    "Producer",
    "Consumer",
    "TopicsConsumer",
    "Worker",
    "Task",
    # all or nothing
    "Transaction",
    "Staging",
    "Stage",
    # functions as tasks
    "Tasks",
    "Retry",
    "Reject",
    "Again",
    "Runner",
    "Job",
    "JobStatus",
    "CurrentTask",
    "current_task",
    "group",
    "Call",
    "Ended",
    # a log in this process, and a queue of several
    "Log",
    "Channel",
    "Spool",
    # values
    "Record",
    "Posted",
    "Batch",
    "Following",
    "Topic",
    "Partition",
    "TopicEnds",
    "End",
    "Group",
    "GroupPartition",
    "Member",
    "Committed",
    "Queue",
    "QueuePartition",
    "QueueWorker",
    "TaskInfo",
    "DeadTask",
    "Failure",
    "PendingTask",
    "PendingSummary",
    "Claimed",
    "ClaimedTask",
    "Schedule",
    "Future",
    "SettleFuture",
    "Columns",
    "FetchedBatches",
    "Appended",
    "AssignmentChange",
    "OpenedProducer",
    "TrimmedPartition",
    "Barrier",
    # arguments
    "GroupTask",
    "Callback",
    "TopicOptions",
    "QueueOptions",
    # errors: the root of the tree, and a module with all of them
    "Error",
    "errors",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in ("aio", "errors", "testing"):
        return import_module(f".{name}", __name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "aio"})
