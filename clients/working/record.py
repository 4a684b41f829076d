"""A task as a value: one record of a queue, and a reference to its lease.

Idea: the lease knows whether it is lost or cancelled, so a hundred tasks of one lease are a hundred small objects and
nothing else. The applications' classes add the verbs: `Task`, and `AsyncTask` for event loops.

Contract: values never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Generic

import msgspec

from ...storage.header_list import HeaderPair, pairs_of
from ...storage.record import V, moment
from ..queues.task_ids import task_id
from .leases import Held


class TaskRecord(msgspec.Struct, Generic[V], frozen=True, eq=False, gc=False):
    """The data of every task; the verbs are added by the class of its worker's kind."""

    value: V
    key: bytes | None
    headers: Mapping[str, bytes]
    offset: int
    timestamp: int
    attempt: int
    _lease: Held

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self._lease.core.topic.name

    @property
    def partition(self) -> int:
        """The record's partition."""
        return self._lease.partition

    @property
    def id(self) -> str:
        """The task's public name: `client.task(id, group=...)`."""
        return task_id(self.topic, self._lease.partition, self.offset)

    @property
    def header_list(self) -> list[HeaderPair]:
        """The headers as pairs, as those of a `Record`."""
        return list(pairs_of(self.headers))

    @property
    def time(self) -> datetime:
        """`timestamp` as an aware datetime."""
        return moment(self.timestamp)

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled, as of the last heartbeat: its result is not wanted."""
        return self.offset in self._lease.cancelled

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be over: another worker may have the task."""
        return self._lease.lost

    def __repr__(self) -> str:
        return f"<Task {self.id}, attempt {self.attempt}>"
