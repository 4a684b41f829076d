"""Effects: decisions as the log stores them. STATE.md describes them in words.

Idea: the leader decides and the log holds decisions. An effect carries everything needed to apply it and is never
judged again, so replay needs no configuration, clock or randomness.

Contract: tags never change their meaning; fields are only added at the end, with a default. An unknown tag raises
UnknownEffect, because applying the rest without it would be guessing. One EFFECTS column holds a msgpack list of
effects, each [tag, field, ...], applied in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import UnknownEffect


class Effect(Struct, array_like=True, frozen=True, gc=False):
    """Base of all effects."""


# -- in the log of a partition ---------------------------------------------------------------------


class FirstOffset(Effect, tag=1, frozen=True):
    """Retention: offsets below `offset` are gone, for every reader."""

    offset: int


class ProducerOpened(Effect, tag=2, frozen=True):
    """`name` is claimed: `producer_id` goes on under `epoch`, older epochs are fenced.

    `owner` is the user that claimed it; "" where there are no users, and in logs of before.
    """

    name: str
    producer_id: int
    epoch: int
    owner: str = ""


class ProducersExpired(Effect, tag=3, frozen=True):
    """Producers expired: their sequences are forgotten."""

    producer_ids: list[int]


class ProducerOwned(Effect, tag=46, frozen=True):
    """`owner` alone goes on with a producer; one that is new here begins under `epoch`, at sequence 0."""

    producer_id: int
    epoch: int
    owner: str


class CursorMoved(Effect, tag=4, frozen=True):
    """`group` has finished everything below `offset`."""

    group: str
    offset: int


class CursorNoted(Effect, tag=43, frozen=True):
    """As CursorMoved, and `note` stands beside the cursor until it moves again."""

    group: str
    offset: int
    note: str


class OwnerSet(Effect, tag=5, frozen=True):
    """`member` reads this partition for `group` under `epoch` from here on; commits of older epochs are refused.

    `start` is where reading begins while the group has no cursor.
    """

    group: str
    member: str
    epoch: int
    start: int


class GroupDeleted(Effect, tag=6, frozen=True):
    """Deletes `group` here: cursor, owner and epoch."""

    group: str


# -- of queues, in the log of a partition ----------------------------------------------------------


class QueueEffect(Effect, frozen=True):
    """Base of those that concern one queue group; STATE.md says what each does to it."""

    group: str


class QueueSet(QueueEffect, tag=16, frozen=True):
    """A queue group stands, with all its settings. Records below `start`, which counts when it is new, are not its."""

    settings: dict[str, Any]
    start: int


class QueueDeleted(QueueEffect, tag=17, frozen=True):
    """A queue group is deleted."""


class LeaseGranted(QueueEffect, tag=18, frozen=True):
    """`worker` has these records until `until_us`, under `token`.

    `runs` are (first offset, how many, attempt). `frontier` and `cursors` (level, offset, time of timer, offset of
    timer) are where the group is afterwards; `held` are (offset, key hash) that the frontier passed and left for later;
    `keys` are the key hashes of the leased records, in order, where the group looks at keys. `given_us` is when
    the worker got them, or a time that counts as that; 0 in logs of before: the time of the batch. `full_us` is when
    the bucket of the group's rate is full again; 0 without a rate.
    """

    token: int
    worker: str
    until_us: int
    runs: list[tuple[int, int, int]]
    frontier: int
    cursors: list[tuple[int, int, int, int]] = []
    held: list[tuple[int, int]] = []
    keys: list[int] = []
    given_us: int = 0
    full_us: int = 0


class LeasesExtended(QueueEffect, tag=19, frozen=True):
    """Leases extended to `until_us`. `progress` is (offset, value) of records that they hold."""

    tokens: list[int]
    until_us: int
    progress: list[tuple[int, bytes]] = []


class TasksFinished(QueueEffect, tag=20, frozen=True):
    """Acked: `ranges` (first offset, how many) of a lease are done, all it holds when there are none.

    `attempts`: under which one each of `results` was reached, in the same order; none in logs of before.
    """

    token: int
    ranges: list[tuple[int, int]] = []
    results: list[tuple[int, bytes]] = []
    attempts: list[int] = []


class TasksReturned(QueueEffect, tag=21, frozen=True):
    """Returned from a lease to be retried: `runs` are (first offset, how many, attempts so far, ready at).

    `ended`: the worker settled the lease itself; else it was lost. Without a `reason` it is in no history. Token 0:
    they were taken without a lease, and did not reach their worker. `released`: no attempt, so nothing failed; False in
    logs of before.
    """

    token: int
    runs: list[tuple[int, int, int, int]]
    reason: str = ""
    ended: bool = True
    released: bool = False


class TasksDied(QueueEffect, tag=22, frozen=True):
    """Dead-lettered: `runs` are (first offset, how many, attempts). Token 0: they were retrying, or taken."""

    token: int
    runs: list[tuple[int, int, int]]
    reason: str
    ended: bool = True


class TasksRedriven(QueueEffect, tag=23, frozen=True):
    """Redriven: retrying from attempt 1. `runs` are (first offset, how many, ready at)."""

    runs: list[tuple[int, int, int]]


class TasksDiscarded(QueueEffect, tag=24, frozen=True):
    """Dead letters discarded: `ranges` are (first offset, how many)."""

    ranges: list[tuple[int, int]]


class TasksCancelled(QueueEffect, tag=25, frozen=True):
    """Records not to be leased again. Leased ones end with their lease, whatever their worker reports."""

    offsets: list[int]


class QueuePaused(QueueEffect, tag=26, frozen=True):
    """Paused: nothing is leased until `until_us`; 0 resumes."""

    until_us: int


class KeysSeen(Effect, tag=27, frozen=True):
    """The effect of dedup keys on a records batch, beside it.

    `digests` are 16 bytes of hash of each key that stands for the task at the same place of `offsets`, until
    `until_us`. `void` are (offset, offset of the task that stands for it): queue groups skip these.
    """

    offsets: list[int]
    digests: list[bytes]
    until_us: int
    void: list[tuple[int, int]] = []


class ScheduleSet(Effect, tag=28, frozen=True):
    """A schedule was set: `spec` and `zone` as given; its record; when it is due next."""

    name: str
    spec: str
    zone: str
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    priority: int
    next_us: int
    coalesce: bool = False


class ScheduleDeleted(Effect, tag=29, frozen=True):
    """A schedule is deleted."""

    name: str


class ScheduleFired(Effect, tag=30, frozen=True):
    """A schedule fired; in the batch of the record that it appended. One that coalesces says which that is."""

    name: str
    fired_us: int
    next_us: int
    offset: int = -1


class ScheduleCoalesced(Effect, tag=48, frozen=True):
    """A schedule was due and appended nothing, because its last record still waits."""

    name: str
    next_us: int


class OutboxMoved(Effect, tag=31, frozen=True):
    """Copies that stand where they should: `ranges` of their numbers are (first, how many)."""

    ranges: list[tuple[int, int]]


class OutboxRouted(Effect, tag=32, frozen=True):
    """Copies with numbers in `ranges` go to this partition of this topic."""

    topic: bytes
    partition: int
    ranges: list[tuple[int, int]]


class FrontierMoved(QueueEffect, tag=33, frozen=True):
    """A group skipped void or cancelled records without a lease. `frontier` and `cursors` as in LeaseGranted."""

    frontier: int
    cursors: list[tuple[int, int, int, int]] = []


class Trimmed(Effect, tag=39, frozen=True):
    """On request: offsets below `offset` are gone, for every reader and from every queue group and outbox."""

    offset: int


class QueueMoved(QueueEffect, tag=44, frozen=True):
    """The group goes on at `offset`, as if it began there. What is leased, retrying or dead-lettered stays so."""

    offset: int


class TasksTaken(QueueEffect, tag=40, frozen=True):
    """Given to a worker without a lease: done. `ranges` are (first offset, how many), the rest as in LeaseGranted.

    `worker` is "" in logs of before.
    """

    ranges: list[tuple[int, int]]
    frontier: int
    cursors: list[tuple[int, int, int, int]] = []
    held: list[tuple[int, int]] = []
    worker: str = ""
    full_us: int = 0


class WorkerMade(QueueEffect, tag=41, frozen=True):
    """A worker is remembered, though it was not given anything yet."""

    worker: str


class WorkerForgotten(QueueEffect, tag=42, frozen=True):
    """A worker is forgotten, unless it holds records."""

    worker: str


class RecordsDeleted(Effect, tag=45, frozen=True):
    """Deleted on request: no queue group has these records any more. `ranges` are (first offset, how many)."""

    ranges: list[tuple[int, int]]


# -- of barriers, in the log of a partition -----------------------------------------------------------


class BarrierSet(Effect, tag=49, frozen=True):
    """A barrier stands: the record of a callback is appended here once `members` tasks elsewhere have ended.

    `ended`: in whichever way; else once all have completed. `headers` and `priority` are of that record. `until_us`:
    then it is forgotten. `owner` is the user that set it; "" where there are no users.
    """

    barrier: bytes
    members: int
    ended: bool
    headers: dict[str, bytes]
    priority: int
    until_us: int
    owner: str = ""


class BarrierTold(Effect, tag=50, frozen=True):
    """Members of a barrier have ended. `words` are (member, state, result, reason).

    `tasks` are the records of which they are, in the same order: (topic, partition, offset). The offset is -1 where it
    is not known, and there are none in logs of before.
    """

    barrier: bytes
    words: list[tuple[int, str, bytes, str]]
    tasks: list[tuple[bytes, int, int]] = []


class BarrierFired(Effect, tag=51, frozen=True):
    """A barrier is over; in the batch of the record that it appended."""

    barrier: bytes


class BarriersForgotten(Effect, tag=52, frozen=True):
    """Barriers are forgotten with what they were told: they append nothing."""

    barriers: list[bytes]


class MembersTied(Effect, tag=53, frozen=True):
    """The records from `offset` on, beside which it stands, are `members` of a barrier: one for each record.

    The barrier is in this partition of this topic, and is told how each ends as a task of `group`.
    """

    offset: int
    group: str
    topic: bytes
    partition: int
    barrier: bytes
    members: list[int]


class MembersTold(Effect, tag=54, frozen=True):
    """Barriers were told: `ranges` of the numbers of tellings are (first, how many)."""

    ranges: list[tuple[int, int]]


# -- of transactions, in the log of a partition ------------------------------------------------------


class StageOwned(Effect, tag=47, frozen=True):
    """`owner` alone goes on with a stage, which may be new here."""

    stage: int
    owner: str


class StagesDropped(Effect, tag=34, frozen=True):
    """Stages dropped; they will not be published."""

    stages: list[int]


class TransactionDecided(Effect, tag=35, frozen=True):
    """In a partition of `__txn`: decides that stages (topic, partition, stage) will be published. Final.

    `owner` is the user that committed it; "" where there are no users, and in logs of before.
    """

    transaction: str
    epoch: int
    stages: list[tuple[bytes, int, int]]
    owner: str = ""


class TransactionFinished(Effect, tag=36, frozen=True):
    """In a partition of `__txn`: all stages of an epoch are published."""

    transaction: str
    epoch: int


class TransactionsForgotten(Effect, tag=37, frozen=True):
    """In a partition of `__txn`: names forgotten with their epochs."""

    transactions: list[str]


# -- in the metadata log ---------------------------------------------------------------------------


class TopicCreated(Effect, tag=64, frozen=True):
    """A topic exists, with `partitions` logs that were made before this was written."""

    name: str
    topic: bytes
    partitions: int
    settings: dict[str, Any]
    time_us: int


class TopicAltered(Effect, tag=65, frozen=True):
    """All settings of a topic, and how many partitions it has now."""

    topic: bytes
    partitions: int
    settings: dict[str, Any]


class TopicDeleted(Effect, tag=66, frozen=True):
    """The tombstone: only this allows a topic's files to be removed."""

    topic: bytes


class TopicErased(Effect, tag=67, frozen=True):
    """The files of a deleted topic are gone, and so is its tombstone."""

    topic: bytes


PartitionEffect = (
    FirstOffset | ProducerOpened | ProducerOwned | ProducersExpired | CursorMoved | CursorNoted | OwnerSet
    | GroupDeleted | QueueSet | QueueDeleted | LeaseGranted | LeasesExtended | TasksFinished | TasksReturned | TasksDied
    | TasksRedriven | TasksDiscarded | TasksCancelled | QueuePaused | FrontierMoved | TasksTaken | QueueMoved
    | WorkerMade | WorkerForgotten
    | Trimmed | RecordsDeleted | KeysSeen | ScheduleSet | ScheduleDeleted | ScheduleFired
    | ScheduleCoalesced | OutboxMoved | OutboxRouted
    | BarrierSet | BarrierTold | BarrierFired | BarriersForgotten | MembersTied | MembersTold
    | StageOwned | StagesDropped | TransactionDecided | TransactionFinished | TransactionsForgotten
)  # fmt: skip
MetadataEffect = TopicCreated | TopicAltered | TopicDeleted | TopicErased
AnyEffect = PartitionEffect | MetadataEffect

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyEffect])


def encode(effects: Sequence[AnyEffect]) -> bytes:
    """The bytes of an EFFECTS column."""
    return _encoder.encode(effects)


def decode(column: bytes) -> list[AnyEffect]:
    """The effects of a column. Raises UnknownEffect for a tag this version does not know, or other bytes."""
    try:
        return _decoder.decode(column)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownEffect(
            f"an effect in the log is unknown to this version of penstock: {error}; upgrade it"
        ) from None
