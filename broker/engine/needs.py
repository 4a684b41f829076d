"""What each message needs: the operations on resources that its principal must be allowed (decision 095).

Contract: every class of `Request` has a row; a test counts them. A row sees a message and a lookup of topics' names by
id, and names resources by canonical names alone. A topic that is unknown needs nothing: the handler refuses it. What
names a session needs to be its owner, which `sessions.py` asks; lists show what the principal may see. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...transport import messages as m
from ..rights import NODE, Operation

Need = tuple[Operation, str]

NameOf = Callable[[bytes], str | None]
"""The name of a topic by id; None if there is none."""

Row = Callable[[Any, NameOf], Iterable[Need]]


def _nothing(message: Any, name_of: NameOf) -> Iterable[Need]:
    return ()


def _topic(operation: Operation) -> Row:
    def row(message: Any, name_of: NameOf) -> Iterable[Need]:
        name = name_of(message.topic)
        return () if name is None else ((operation, f"topic:{name}"),)

    return row


def _topic_if_named(message: Any, name_of: NameOf) -> Iterable[Need]:
    return _see(message, name_of) if message.topic else ()


def _of_topic(operation: Operation, kind: str, field: str) -> Row:
    """About something of a topic, which the message names in a field. "" is none."""

    def row(message: Any, name_of: NameOf) -> Iterable[Need]:
        topic, name = name_of(message.topic), getattr(message, field)
        return () if topic is None or not name else ((operation, f"{kind}:{topic}/{name}"),)

    return row


def _group(operation: Operation) -> Row:
    return _of_topic(operation, "group", "group")


def _all_of(*rows: Row) -> Row:
    def row(message: Any, name_of: NameOf) -> Iterable[Need]:
        for each in rows:
            yield from each(message, name_of)

    return row


def _topics_in(operation: Operation, field: str) -> Row:
    """About each topic that the entries of a list name."""

    def row(message: Any, name_of: NameOf) -> Iterable[Need]:
        for topic in dict.fromkeys(entry.topic for entry in getattr(message, field)):
            name = name_of(topic)
            if name is not None:
                yield operation, f"topic:{name}"

    return row


def _transaction(operation: Operation) -> Row:
    return lambda message, name_of: ((operation, f"transaction:{message.transaction}"),)


def _dead_topic(message: m.SetQueue, name_of: NameOf) -> Iterable[Need]:
    """The broker writes there on behalf of the group from then on."""
    name = message.settings.get("dead_topic")
    return (("write", f"topic:{name}"),) if name else ()


_see, _read, _write, _manage = _topic("see"), _topic("read"), _topic("write"), _topic("manage")
_work = _all_of(_read, _group("read"))

TABLE: dict[type, Row] = {
    m.Hello: _nothing,
    m.Ping: _nothing,
    m.Stats: lambda message, name_of: (("see", NODE),),
    m.Checkpoint: lambda message, name_of: (("manage", NODE),),
    m.AskCluster: lambda message, name_of: (("see", NODE),),
    m.ReplaceNode: lambda message, name_of: (("manage", NODE),),
    m.TransferLead: lambda message, name_of: (("manage", NODE),),
    # topics
    m.CreateTopic: lambda message, name_of: (("manage", f"topic:{message.name}"),),
    m.AlterTopic: _manage,
    m.DeleteTopic: _manage,
    m.ListTopics: lambda message, name_of: [("see", f"topic:{name}") for name in message.names],
    m.FindOffsets: _read,
    m.Trim: _manage,
    m.DeleteRecords: _manage,
    m.ListDeleted: _read,
    # producing
    m.OpenProducer: _all_of(_write, _of_topic("write", "producer", "name")),
    m.Produce: _write,
    m.Lend: _write,
    m.Moved: _nothing,  # it does nothing
    m.NameRequest: _nothing,  # the request that it names is asked about
    m.GiveBack: _nothing,  # of its own connection
    # reading
    m.Fetch: _read,
    m.FetchMany: _topics_in("read", "places"),
    m.AskEnds: _topics_in("read", "topics"),
    m.Measure: _read,
    m.Join: _work,
    m.Release: _nothing,
    m.Credit: _nothing,
    m.SeekTo: _nothing,
    m.Leave: _nothing,
    # groups
    m.Commit: _work,
    m.BeginGroup: _work,
    m.AskCursors: _group("read"),
    m.ListGroups: _topic_if_named,
    m.ResetGroup: _group("manage"),
    m.DeleteGroup: _group("manage"),
    # queues
    m.Lease: _work,
    m.SettleTasks: _work,
    m.ExtendLeases: _work,
    m.SettleRecords: _work,
    m.Claim: _work,
    m.ListPending: _work,
    m.ListWorkers: _work,
    m.SetWorker: _work,
    m.ListDead: _work,
    m.AskTask: _group("read"),
    m.CancelTask: _group("write"),
    m.RedriveDead: _group("manage"),
    m.DiscardDead: _group("manage"),
    m.SetQueue: _all_of(_group("manage"), _dead_topic),
    m.PauseQueue: _group("manage"),
    m.ResetQueue: _group("manage"),
    m.DeleteQueue: _group("manage"),
    m.ListQueues: _topic_if_named,
    # schedules: what one appends is appended on behalf of its maker
    m.SetSchedule: _all_of(_write, _of_topic("manage", "schedule", "name")),
    m.DeleteSchedule: _of_topic("manage", "schedule", "name"),
    m.ListSchedules: _topic_if_named,
    # barriers
    m.SetBarrier: _all_of(_write, _topics_in("write", "queues")),
    m.DeleteBarrier: _write,
    m.ListBarriers: _topic_if_named,
    # transactions
    m.CommitTransaction: _all_of(_transaction("write"), _topics_in("write", "stages")),
    m.DropStages: _topics_in("write", "stages"),
    m.AskTransaction: _transaction("see"),
}
"""By class of message."""
