"""The conditions of lending: which partitions may be lent, and which messages may stand beside a grant.

Idea: a lent partition has plain records and cursors only, because its producer knows nothing else. Everything that may
change anything but cursors ends the grant first, so the messages that do not are listed, and all others do.

Contract: pure; changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....transport import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..logs.partition import Partition

BESIDE: frozenset[type] = frozenset({
    # reads
    m.AskCursors, m.AskEnds, m.AskTask, m.AskTransaction, m.Fetch, m.FetchMany, m.FindOffsets, m.ListBarriers,
    m.ListDead, m.ListDeleted, m.ListGroups, m.ListPending, m.ListQueues, m.ListSchedules, m.ListTopics, m.ListWorkers,
    m.Measure, m.Stats,
    # sessions
    m.AskCluster, m.Credit, m.Hello, m.Join, m.Leave, m.Ping, m.Release, m.SeekTo,
    m.NameRequest, m.ReplaceNode, m.TransferLead,
    # cursors
    m.BeginGroup, m.Commit, m.DeleteGroup, m.ResetGroup,
    # lending itself
    m.GiveBack, m.Moved,
})  # fmt: skip
"""Messages that change nothing of a partition but cursors, owners and grants."""


def named(message: m.Request) -> Iterable[tuple[bytes, int | None]]:
    """The topics, and one partition or all, that cannot stay lent beside a message."""
    if type(message) in BESIDE:
        return ()
    if isinstance(message, m.Produce | m.OpenProducer | m.Lend):
        return ((message.topic, message.partition),)
    topic = getattr(message, "topic", None)
    if topic is not None:
        return ((topic, None),)
    return [(stage.topic, stage.partition) for stage in getattr(message, "stages", ())]


def why_not(partition: Partition) -> str:
    """Why a partition cannot be lent; "" if it can."""
    state = partition.committed
    if partition.settings.commit != "written":
        return "its topic has commit='durable', and only topics that are made with commit='written' are lent"
    if partition.state != "ok":
        return f"it is {partition.state}"
    for what, there in (
        ("queue groups: a queue needs the broker", state.queues.by_name),
        ("schedules: the broker appends to it", state.schedules.by_name),
        ("barriers: the broker appends to it", state.barriers.by_id),
        ("ends of tasks that barriers are to be told of", state.ties.tellings),
        ("records that wait for a transaction", state.stages.by_id),
        ("dedup keys: they are forgotten after dedup_window_s", state.keys.by_digest),
        ("dead-lettered records to move", state.outbox.entries),
    ):
        if there:
            return f"it has {what}"
    return ""
