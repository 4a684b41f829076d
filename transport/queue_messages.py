"""Messages of queues: lease, settle, extend; tasks by id; dead letters; schedules.

Queue groups process a topic's records as work items. A *lease* gives some of them to one worker until a time; the
*token* is its number, and requests to settle or extend name it. To *settle* is to report the outcome of leased
records: ack, nack, reject or release. Normative text: PROTOCOL.md, sections 8.7 and 8.8.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta, Struct

from .message import SETTINGS_MAX, Count, Int64, Listed, Message, Setting, Settings, TopicId

AnyTopic = Annotated[bytes, Meta(max_length=16)]
"""A topic's id, or nothing for all topics."""

ANY = -1
"""A lease from whichever partition has something."""

NOWHERE = -3
"""In place of a time from which a group begins: it has to be there."""

BY_GROUP = -1
"""A delay that the group's back-off decides."""

FOREVER_US = 1 << 62
"""A time that never comes: the end of a lease or a pause that has none, the next time of a schedule without one."""

PROGRESS_BYTES_MAX = 4096
"""Of what a worker says of one record: it stands in every snapshot while the record is leased."""


SETTLES_MAX = 4096
"""Settles of one request."""

Settles = Annotated["list[Settle]", Meta(max_length=SETTLES_MAX)]


class Verb(IntEnum):
    """The outcome of leased records."""

    ACK = 0  # done
    NACK = 1  # failed: again later, or dead-lettered when that was the last attempt
    REJECT = 2  # failed for good: dead-lettered now
    RELEASE = 3  # not tried: back at once, and the attempt does not count


# -- working --------------------------------------------------------------------------------------


class Settle(Struct, array_like=True, frozen=True, gc=False):
    """The outcome of the records of one lease, or of some of them. Idempotent."""

    partition: Count
    token: Count
    verb: Count  # 0 ack, 1 nack, 2 reject, 3 release
    ranges: Listed[tuple[Count, Count]] = []  # (first offset, how many); none: all that the lease still holds
    delay_ms: Int64 = BY_GROUP  # before the next attempt: nack, -1 for the group's back-off; release, -1 for none
    reason: str = ""  # nack and reject: for the record's history
    results: Listed[tuple[Count, bytes]] = []  # ack: (offset, result), returned when the task is asked for


class Refusal(Struct, array_like=True, frozen=True, gc=False):
    """One Settle of a request that was refused; the others hold."""

    index: Count  # which one of the request
    code: str
    message: str


class Lease(Message, tag=70, frozen=True):
    """Settle what is done, and lease up to `max_records` records of one partition, waiting up to `wait_ms` for some.

    A worker may have several such requests out: each is credit for as many records, and is answered as they come.
    """

    request: Count
    topic: TopicId
    group: str
    worker: str  # for people; leases are told apart by their tokens
    max_records: Count
    partition: Int64 = ANY  # -1: whichever has something
    max_bytes: Count = 1 << 20  # of the second frame, but at least one record
    lease_ms: Count = 0  # 0: as long as the group says
    wait_ms: Count = 0
    settles: Settles = []
    start: Int64 = -1  # where a group begins that does not exist yet: -1 first, -2 end, a time; NOWHERE: refused
    takes: bool = False  # without a lease: the records are done when they are given
    remember: bool = False  # the worker, also while there is nothing for it


class Leased(Message, tag=71, frozen=True):
    """Second frame: batches that hold the leased records and may hold others. `runs` empty: none came in time."""

    request: Count
    partition: Count
    token: Count
    until_us: Int64  # log time; FOREVER_US: until it is settled
    lease_ms: Count  # from when this was sent: for those whose clock is another one
    runs: list[tuple[Count, Count, Count]]  # (first offset, how many, attempt), attempts counted from 1
    refused: list[Refusal] = []
    next_offset: Int64 = -1  # of a claim: where to go on; -1: that was all
    gone: list[Count] = []  # of a claim: leased records that the log has no more, and that left their leases


class SettleTasks(Message, tag=72, frozen=True):
    """Say what became of leased records, and which requests for more need not wait any longer."""

    request: Count
    topic: TopicId
    group: str
    settles: Settles
    recalled: Listed[Count] = []  # requests of Lease that wait, of this connection: answered now


class Settled(Message, tag=73, frozen=True):
    """All but the refused ones are committed."""

    request: Count
    refused: list[Refusal] = []


class ExtendLeases(Message, tag=74, frozen=True):
    """Keep leases for `lease_ms` from now on, and say how far their tasks are."""

    request: Count
    topic: TopicId
    group: str
    leases: Listed[tuple[Count, Count]]  # (partition, token)
    lease_ms: Count = 0  # 0: as long as the group says
    progress: Listed[tuple[Count, Count, bytes]] = []  # (partition, offset, value)


class Extended(Message, tag=75, frozen=True):
    """The leases of the request that still stand have been extended; the lost ones belong to other workers by now."""

    request: Count
    until_us: Int64  # as in Leased
    lost: list[tuple[Count, Count]] = []  # (partition, token)
    cancelled: list[tuple[Count, Count]] = []  # (partition, offset) of held records that were cancelled
    lease_ms: Count = 0  # from when this was sent


# -- queue groups ---------------------------------------------------------------------------------


class SetQueue(Message, tag=76, frozen=True):
    """Create a queue group, or change its settings. Answered by Queues with one entry."""

    request: Count
    topic: TopicId
    group: str
    settings: Settings
    start: Int64 = -1  # of a new one: -1 first, -2 end, or a time


class ListQueues(Message, tag=77, frozen=True):
    """Queue groups of one topic or a page of all, of one name or all. Answered by Queues."""

    request: Count
    topic: AnyTopic = b""
    group: str = ""
    after: str = ""


class QueuePartition(Struct, array_like=True, frozen=True, gc=False):
    """The counts of one partition for a group. Every unfinished record is counted once."""

    partition: Count
    ready: Count  # could be leased now, but for limits and order of keys
    in_flight: Count
    delayed: Count  # by their producer
    waiting: Count  # retrying: failed, and due again after a back-off
    dead: Count  # dead-lettered
    oldest_us: Int64  # append time of the oldest that is ready, retrying or in flight; -1 without one
    paused_until_us: Int64  # 0: not paused


class Queue(Struct, array_like=True, frozen=True, gc=False):
    """One queue group of one topic."""

    topic: TopicId
    topic_name: str
    group: str
    settings: dict[str, Setting]
    partitions: list[QueuePartition]
    unavailable: Listed[Count] = []  # partitions on which queue groups cannot work


class Queues(Message, tag=78, frozen=True):
    request: Count
    queues: list[Queue]
    next: str = ""  # behind which topic's name to go on; "": that was all


class PauseQueue(Message, tag=79, frozen=True):
    """Lease nothing until a time. Settling and extending go on."""

    request: Count
    topic: TopicId
    group: str
    until_us: Int64  # 0: resume


class ResetQueue(Message, tag=98, frozen=True):
    """Let a queue group go on at `positions`, or at a time or an end on every partition. Answered by Done."""

    request: Count
    topic: TopicId
    group: str
    time_us: Int64
    positions: Listed[tuple[Count, Count]] = []  # (partition, offset)


class DeleteQueue(Message, tag=80, frozen=True):
    """Delete a queue group: leases, attempts, dead letters."""

    request: Count
    topic: TopicId
    group: str


# -- tasks ----------------------------------------------------------------------------------------


class AskTask(Message, tag=81, frozen=True):
    """The status of one record in a group. With `wait_ms`, answered when it is final or the time is up."""

    request: Count
    topic: TopicId
    group: str
    partition: Count
    offset: Count
    wait_ms: Count = 0


class TaskState(Message, tag=82, frozen=True):
    """One record as a group has it."""

    request: Count
    state: str  # pending, delayed, leased, waiting (retrying), completed, dead (dead-lettered), discarded or cancelled
    attempt: Count  # of the latest lease; completed: that gave the result, 0 without one; 0 before the first
    why: str  # in a sentence, what holds it back or what became of it
    worker: str = ""  # leased: the worker
    time_us: Int64 = -1  # delayed, waiting, leased: until when; dead: since when; else when it ended, if known
    reason: str = ""  # dead, waiting: of the last failure
    result: bytes | None = None  # completed: what the worker gave
    progress: bytes | None = None  # leased: what the worker said last
    cancelling: bool = False  # leased, and cancelled meanwhile
    history: list[tuple[Int64, str, str]] = []  # (time, worker, reason) of failures, oldest first
    given_us: Int64 = -1  # leased: since when by this worker, if known


class CancelTask(Message, tag=83, frozen=True):
    """Cancel a task: a worker that holds it is told with its next extension. Answered by TaskState."""

    request: Count
    topic: TopicId
    group: str
    partition: Count
    offset: Count


class ListDead(Message, tag=84, frozen=True):
    """Dead-lettered records of one partition from `offset` on. Answered by DeadTasks."""

    request: Count
    topic: TopicId
    group: str
    partition: Count
    offset: Count
    max_records: Count
    reason: str = ""  # only those whose reason has this in it


class DeadTask(Struct, array_like=True, frozen=True, gc=False):
    """One dead-lettered record."""

    offset: Count
    attempt: Count
    time_us: Int64  # since when
    reason: str
    history: list[tuple[Int64, str, str]]  # (time, worker, reason), oldest first


class DeadTasks(Message, tag=85, frozen=True):
    """Second frame: batches that hold these records and may hold others."""

    request: Count
    next_offset: Int64  # where to go on; -1: that was all
    tasks: list[DeadTask]


class RedriveDead(Message, tag=86, frozen=True):
    """Try dead-lettered records again, from attempt 1. Answered by Counted."""

    request: Count
    topic: TopicId
    group: str
    offsets: Listed[tuple[Count, Count]] = []  # (partition, offset); none: all
    reason: str = ""  # of all, only those whose reason has this in it
    per_s: float = 0.0  # how many become ready each second; 0: at once


class DiscardDead(Message, tag=87, frozen=True):
    """Give dead-lettered records up. Answered by Counted."""

    request: Count
    topic: TopicId
    group: str
    offsets: Listed[tuple[Count, Count]] = []
    reason: str = ""


class SettleRecords(Message, tag=93, frozen=True):
    """The outcome of records, under whichever lease each is; those that are not leased stay. Answered by Counted."""

    request: Count
    topic: TopicId
    group: str
    verb: Count  # as in Settle
    offsets: Listed[tuple[Count, Count]]  # (partition, offset)
    delay_ms: Int64 = BY_GROUP
    reason: str = ""
    results: Listed[tuple[Count, Count, bytes]] = []  # ack: (partition, offset, result), of records that are named
    ranges: Listed[tuple[Count, Count, Count]] = []  # (partition, first offset, how many): more records
    tells: bool = False  # the answer says which were leased


class ListPending(Message, tag=120, frozen=True):
    """Leased records of one partition, by offset. Answered by PendingRecords."""

    request: Count
    topic: TopicId
    group: str
    partition: Count
    max_records: Count
    offset: Count = 0
    end: Int64 = -1  # only below this offset; -1: all
    worker: str | None = None  # only what this one holds
    min_idle_ms: Count = 0  # only what was given to its worker at least so long ago


class PendingRun(Struct, array_like=True, frozen=True, gc=False):
    """Records without a gap that one worker holds under one lease and attempt."""

    offset: Count
    count: Count
    attempt: Count
    worker: str
    given_us: Int64  # when the worker got them; -1: not known
    until_us: Int64  # as in Leased
    token: Count


class PendingRecords(Message, tag=121, frozen=True):
    request: Count
    next_offset: Int64  # where to go on; -1: that was all
    now_us: Int64  # log time, from which what is idle counts
    runs: list[PendingRun]


class ListWorkers(Message, tag=122, frozen=True):
    """The workers that a queue group remembers, and what each holds. Answered by Workers."""

    request: Count
    topic: TopicId
    group: str


class QueueWorker(Struct, array_like=True, frozen=True, gc=False):
    """One worker of a queue group."""

    name: str
    pending: Count  # records it holds
    first_us: Int64 = -1  # when it was first given records, or made; -1: not known
    last_us: Int64 = -1  # when it was last given records, or extended a lease; -1: never, or not known
    asked_us: Int64 = -1  # when it last asked for records, or ceased to wait for some; -1: not since the broker began
    waits: bool = False  # a request of it waits for records now


class PendingPartition(Struct, array_like=True, frozen=True, gc=False):
    """The leased records of one partition."""

    partition: Count
    pending: Count
    lowest: Int64  # offset; -1: nothing is leased
    highest: Int64


class Workers(Message, tag=123, frozen=True):
    request: Count
    partitions: list[PendingPartition]
    workers: list[QueueWorker]  # by name
    now_us: Int64 = 0  # log time


class SetWorker(Message, tag=125, frozen=True):
    """Remember a worker of a queue group; or forget it, and settle what it holds. Answered by Counted."""

    request: Count
    topic: TopicId
    group: str
    worker: str
    known: bool = True  # from now on
    verb: Count = Verb.RELEASE  # of a forgotten worker's records, as in Settle


class Claim(Message, tag=124, frozen=True):
    """Lease records of one partition that other workers hold to this one. Answered by Leased."""

    request: Count
    topic: TopicId
    group: str
    worker: str
    partition: Count
    max_records: Count = 0
    offsets: Listed[Count] = []  # these records; none: the leased ones from `offset` on
    offset: Count = 0
    end: Int64 = -1  # only below this offset; -1: all
    holder: str | None = None  # only what this worker holds, which may be the one that claims
    min_idle_ms: Count = 0  # only what was given to its worker at least so long ago
    attempt: Int64 = -1  # of the new lease: -1 one more than before, 0 as before, or this one
    given_us: Int64 = 0  # the time that counts as that of the lease: 0 now; below 0: so long before now
    lease_ms: Count = 0  # 0: as long as the group says
    force: bool = False  # records of `offsets` that are not leased, too
    max_bytes: Count = 1 << 20  # of the second frame, but at least one record; 0: no records


class Counted(Message, tag=88, frozen=True):
    """How many records it concerned; committed."""

    request: Count
    count: Count
    ranges: list[tuple[Count, Count, Count]] = []  # which, if asked for: (partition, first offset, how many)


# -- schedules ------------------------------------------------------------------------------------


class SetSchedule(Message, tag=89, frozen=True):
    """Append a record at stated times, each once. One of the same name is replaced. Answered by Schedules."""

    request: Count
    topic: TopicId
    name: str
    spec: str  # five fields of cron, or "every 30s"
    zone: str  # of cron fields, like "Europe/Vienna"
    value: bytes
    key: bytes | None = None
    headers: Annotated[dict[str, bytes], Meta(max_length=SETTINGS_MAX)] = {}
    priority: Count = 0
    coalesce: bool = False  # nothing is appended while the record of an earlier time waits in its queue


class DeleteSchedule(Message, tag=90, frozen=True):
    request: Count
    topic: TopicId
    name: str


class ListSchedules(Message, tag=91, frozen=True):
    """Schedules of one topic or all. Answered by Schedules."""

    request: Count
    topic: AnyTopic = b""


class Schedule(Struct, array_like=True, frozen=True, gc=False):
    """One schedule as it stands."""

    topic: TopicId
    topic_name: str
    name: str
    spec: str
    zone: str
    value: bytes
    key: bytes | None
    next_us: Int64
    last_us: Int64  # -1 before the first time
    partition: Count
    coalesce: bool = False


class Schedules(Message, tag=92, frozen=True):
    request: Count
    schedules: list[Schedule]
