"""A task: one record of a queue, in the hands of this worker.

Idea: a task is the record and a reference to its lease; what is known about the lease (lost, cancelled) is asked
there, so a hundred tasks of one lease cost a hundred small objects and nothing else.

Contract: values never change. The verbs wait for their commit and raise LeaseLost when somebody else has the
task by now; what it did meanwhile may then have been done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from ..transport.queue_messages import Verb
from .arguments.checking import checks
from .arguments.quantities import Duration
from .queues.task_ids import task_id
from .working.leases import Held


class TaskRecord(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What every task is; the verbs are added by the class of its worker's kind."""

    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    offset: int
    timestamp: int
    attempt: int
    _lease: Held

    @property
    def topic(self) -> str:
        """The topic it is a record of."""
        return self._lease.core.topic.name

    @property
    def partition(self) -> int:
        """The partition it is a record of."""
        return self._lease.partition

    @property
    def id(self) -> str:
        """Names it for everybody: `client.task(id, group=...)`."""
        return task_id(self.topic, self._lease.partition, self.offset)

    @property
    def time(self) -> datetime:
        """`timestamp` as an aware datetime."""
        return datetime.fromtimestamp(self.timestamp / 1e6, UTC)

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled it, as far as the last heartbeat knew: nobody wants its result."""
        return self.offset in self._lease.cancelled

    @property
    def lost(self) -> bool:
        """Whether its lease is known to be over: somebody else may be working on it."""
        return self._lease.lost

    def __repr__(self) -> str:
        return f"<Task {self.id}, attempt {self.attempt}>"


@checks
class Task(TaskRecord, frozen=True, eq=False, gc=False):
    """One record to be worked off, with its number of the attempt, counted from 1."""

    def ack(self, result: bytes | None = None) -> None:
        """It is done. `result` is for whoever asks for the task. Raises LeaseLost."""
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.ACK, result=result))

    def nack(self, *, delay: Duration | None = None, reason: str = "") -> None:
        """It failed: to be tried again after `delay` (None: the group's back-off), or dead after its last attempt."""
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.NACK, delay=delay, reason=reason))

    def reject(self, reason: str = "") -> None:
        """It failed for good: dead now."""
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.REJECT, reason=reason))

    def release(self) -> None:
        """It was not tried: somebody else may have it at once, and this attempt does not count."""
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.RELEASE))

    def extend(self, lease: Duration | None = None) -> None:
        """Keep it, and what was leased with it, for `lease` from now on (None: as long as at first)."""
        core = self._lease.core
        core.run(core.extend(self, lease))

    def progress(self, value: bytes) -> None:
        """Say how far it is, to whoever asks for the task. Keeps it, too."""
        core = self._lease.core
        core.run(core.extend(self, None, progress=value))
