"""The status of a record for a queue group, as far as the group's tables say.

Contract: reads state and changes none. A done record is COMPLETED here; the finals have its result or cancellation, if
any. A void record has the status of its replacement. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from .leases import Failure
from .queue import ShelfCursor

if TYPE_CHECKING:
    from .leases import Lease
    from .queue import Queue
    from .shelves import Shelves
    from .table import QueueTable
    from .voids import Voids

PENDING: Final = "pending"
DELAYED: Final = "delayed"
LEASED: Final = "leased"
WAITING: Final = "waiting"
COMPLETED: Final = "completed"
DEAD: Final = "dead"
DISCARDED: Final = "discarded"
CANCELLED: Final = "cancelled"

FINAL = frozenset({COMPLETED, DEAD, DISCARDED, CANCELLED})
"""Final states: a record leaves them only when redriven."""


UNLEASED = frozenset({PENDING, WAITING})
"""States of a record without a delay that no worker has, and that one is to get."""


class HasTasks(Protocol):
    """The part of a partition's state that says how its records stand."""

    first: int
    queues: QueueTable
    shelves: Shelves
    voids: Voids


class RecordStatus(Struct, frozen=True):
    """One record as a group has it; fields as in TaskState."""

    state: str
    attempt: int = 0
    worker: str = ""
    time_us: int = -1
    reason: str = ""
    progress: bytes | None = None
    cancelling: bool = False
    history: list[Failure] = []
    given_us: int = -1
    token: int = 0  # leased: under which lease


def stands_for(state: HasTasks, offset: int) -> int:
    """The record that stands for a void one; the record itself when it is not void."""
    seen: set[int] = set()
    while (other := state.voids.task_of(offset)) >= 0 and other not in seen:
        seen.add(offset)
        offset = other
    return offset


def waits(state: HasTasks, offset: int, now_us: int) -> bool:
    """Whether a record waits for its first or next lease in every queue group; without any, while the log has it."""
    if offset in state.voids:
        return False
    queues = state.queues.by_name.values()
    if not queues:
        return offset >= state.first
    return all(standing(queue, state.shelves, offset, now_us).state in UNLEASED for queue in queues)


def standing(queue: Queue, shelves: Shelves, offset: int, now_us: int) -> RecordStatus:
    """The status of a record that is not void. `now_us` is log time."""
    lease = queue.lease_of(offset)
    if lease is not None:
        return _leased(queue, lease, offset)
    dead = queue.dead_letters.get(offset)
    if dead is not None:
        return RecordStatus(DEAD, dead.attempt, "", dead.time_us, dead.reason, history=dead.history)
    retrying = queue.retrying.get(offset)
    if retrying is not None:
        reason = retrying.history[-1][2] if retrying.history else ""
        return RecordStatus(WAITING, retrying.attempt, "", retrying.ready_us, reason, history=retrying.history)
    if offset in queue.cancelled:
        return RecordStatus(CANCELLED)
    if offset in queue.apart:
        return RecordStatus(COMPLETED)
    due_us = shelves.time_of(offset)
    if offset < queue.start:
        taken = True  # skipped, or before the group began
    elif offset in shelves:
        taken = queue.cursors.get(shelves.level_of(offset), ShelfCursor()).passed(due_us, offset)
    else:
        taken = offset < max(queue.frontier, shelves.first)  # what the log has left without it was no more to be done
    if taken and offset not in queue.held:
        return RecordStatus(COMPLETED)
    return RecordStatus(DELAYED, time_us=due_us) if due_us > now_us else RecordStatus(PENDING)


def _leased(queue: Queue, lease: Lease, offset: int) -> RecordStatus:
    return RecordStatus(
        LEASED,
        lease.attempt(offset),
        lease.worker,
        lease.until_us,
        progress=queue.progress.get(offset),
        cancelling=offset in queue.cancelling,
        history=lease.history.get(offset, []),
        given_us=lease.given_us or -1,
        token=lease.token,
    )
