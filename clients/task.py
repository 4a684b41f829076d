"""A task in the hands of a worker's application: one record of a queue, and the verbs that settle it.

Contract: the verbs wait for their commit and raise LeaseLost when another worker has the task by now; the work may
then be done twice.
"""

from __future__ import annotations

from typing import Generic

from ..storage.record import V
from ..transport.queue_messages import Verb
from .arguments.checking import checks
from .arguments.quantities import Duration
from .unpicklable import unpicklable
from .working.record import TaskRecord


@checks
@unpicklable("its `id` or its `value`: only its worker settles it")
class Task(TaskRecord[V], Generic[V], frozen=True, eq=False, gc=False):
    """One record to process: `value`, `key`, `headers`, `offset` and `timestamp` as of a `Record`. A worker with a
    serializer (`value=`) has made the value of bytes.

    `attempt` counts its leases from 1.
    """

    def ack(self, result: bytes | None = None) -> None:
        """Ack the task. `result` is returned when the task is asked for. Raises LeaseLost."""
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.ACK, result=result))

    def nack(self, *, delay: Duration | None = None, reason: str = "") -> None:
        """Fail the task: retry after `delay` (None: the group's back-off), or dead-letter after the last attempt.

        `reason` is kept and shown.
        """
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.NACK, delay=delay, reason=reason))

    def reject(self, reason: str = "") -> None:
        """Fail the task for good: dead-letter it now, with `reason`."""
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.REJECT, reason=reason))

    def release(self, *, delay: Duration | None = None) -> None:
        """Release the task untried: a worker may have it after `delay` (None: at once). The attempt does not count."""
        core = self._lease.core
        core.run(core.settle_now((self,), Verb.RELEASE, delay=delay))

    def extend(self, lease: Duration | None = None) -> None:
        """Extend the task's lease, with all records of it, to `lease` from now (None: the original length)."""
        core = self._lease.core
        core.run(core.extend(self, lease))

    def progress(self, value: bytes) -> None:
        """Store `value` as the task's progress, which `client.task` shows. Extends the lease, too."""
        core = self._lease.core
        core.run(core.extend(self, None, progress=value))
