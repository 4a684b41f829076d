"""The queue verbs of a client: groups, tasks, dead letters, schedules.

Contract: as client.py, of which this is a part: any number of threads may call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Unpack

from ..arguments.quantities import Duration, Start
from ..arguments.settings import QueueOptions
from ..connection.driver import Driver
from .descriptions import (
    Claimed,
    DeadTask,
    PendingSummary,
    PendingTask,
    Queue,
    QueueWorker,
    Schedule,
    TaskInfo,
    pending_summary_of,
    queue_of,
    schedule_of,
    workers_of,
)
from .outcomes import Outcome
from .verbs import QueueVerbs


class QueueClient:
    """The part of `Client` that concerns queues."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._queue_verbs = QueueVerbs(driver.connection)

    # -- queue groups ----------------------------------------------------------------------------------------

    def queues(self, topic: str | None = None) -> list[Queue]:
        """All queue groups, or those of `topic`."""
        return [queue_of(found) for found in self._driver.run(self._queue_verbs.queues(topic))]

    def queue(self, topic: str, group: str) -> Queue:
        """The queue group `group` of `topic`: its settings, and its tasks by state. Raises UnknownGroup."""
        return queue_of(self._driver.run(self._queue_verbs.queue(topic, group)))

    def set_queue(
        self, topic: str, group: str, *, start: Start = "earliest", **settings: Unpack[QueueOptions]
    ) -> Queue:
        """Create the queue group `group` of `topic`, or change its settings.

        Args:
            start: where a new one begins: "earliest", "latest" or a datetime.
            settings: lease_s, lease_max_s, max_attempts, backoff_s, backoff_max_s, jitter, order="none" | "key", fair,
                key_concurrency, key_rate_per_s, rate="100/s" | "10/m", rate_burst, look_ahead, dead_retention_s,
                dead_topic, carry_after_s, keep_finished_s. Times like "30s", "14d" or timedelta.

        Raises: InvalidSettings, which names what is allowed.
        """
        return queue_of(self._driver.run(self._queue_verbs.set_queue(topic, group, start, settings)))

    def pause_queue(self, topic: str, group: str, until: datetime | None = None) -> None:
        """Lease nothing of `group` on `topic` until `until`, or until `resume_queue`.

        Workers may settle and extend what they have.
        """
        self._driver.run(self._queue_verbs.pause_queue(topic, group, until))

    def resume_queue(self, topic: str, group: str) -> None:
        """Lease records of `group` on `topic` again."""
        self._driver.run(self._queue_verbs.resume_queue(topic, group))

    def reset_queue(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None:
        """Let the queue group `group` of `topic` go on elsewhere, as if it began there.

        Tasks from there on that were finished are given again, and earlier ones that were not begun are skipped. Those
        that are leased, retrying, dead-lettered or cancelled stay as they are.

        Args:
            to: "earliest", "latest", a datetime, or offsets by partition, as in {0: 1500, 2: 0}: then the
                group goes on as before in partitions that are not named.
        """
        self._driver.run(self._queue_verbs.reset_queue(topic, group, to))

    def delete_queue(self, topic: str, group: str) -> None:
        """Delete the queue group `group` of `topic`: leases, attempts, dead letters. The records stay."""
        self._driver.run(self._queue_verbs.delete_queue(topic, group))

    # -- tasks -----------------------------------------------------------------------------------------------

    def task(self, id: str, group: str) -> TaskInfo:
        """The status of task `id` (`topic-partition-offset`) in `group`. Raises UnknownGroup, OutOfBounds."""
        return self._driver.run(self._queue_verbs.task(id, group))

    def wait_task(self, id: str, group: str, timeout: Duration | None = None) -> TaskInfo:
        """Wait until task `id` of `group` is completed, dead-lettered, discarded or cancelled.

        Args:
            timeout: how long, the client's when None.

        Raises: TimedOut, which says its state.
        """
        return self._driver.run(self._queue_verbs.wait_task(id, group, timeout))

    def cancel_task(self, id: str, group: str) -> TaskInfo:
        """Cancel task `id` of `group`: it is not leased again.

        A worker that has it sees `Task.cancelled` at its next heartbeat.
        """
        return self._driver.run(self._queue_verbs.cancel_task(id, group))

    def why(self, id: str, group: str) -> str:
        """A sentence that says what holds task `id` back in `group`, or how it ended."""
        return self._driver.run(self._queue_verbs.task(id, group)).why

    def settle(
        self,
        topic: str,
        group: str,
        ids: Iterable[str],
        verb: Outcome,
        *,
        delay: Duration | None = None,
        reason: str = "",
        result: bytes | None = None,
    ) -> int:
        """Ack, nack, reject or release tasks of `group` on `topic` by their ids, for whichever workers hold them.

        A task that is not leased stays as it is and is not counted. A worker is not asked: one that had its last task
        nacked, rejected or released so finds its lease lost. After a lost connection the request is repeated, and
        counts what it settles then.

        Args:
            ids: the tasks.
            verb: "ack", "nack", "reject" or "release".
            delay: of "nack": before the next attempt; the queue's back-off when None.
            reason: of "nack" and "reject": for the tasks' history.
            result: of "ack": stored with each task.

        Returns: how many were leased, and are settled.
        """
        return self._driver.run(self._queue_verbs.settle(topic, group, ids, verb, delay, reason, result))

    # -- leased tasks ----------------------------------------------------------------------------------------

    def pending(
        self,
        topic: str,
        group: str,
        *,
        worker: str | None = None,
        idle: Duration = 0.0,
        partition: int | None = None,
        offset: int = 0,
        end: int | None = None,
        max_records: int = 100,
    ) -> list[PendingTask]:
        """The first tasks of `group` on `topic` that workers hold, by partition and offset.

        Args:
            worker: only what the worker of this name holds.
            idle: only what was given to its worker at least so long ago.
            partition: of this one only.
            offset: where to begin in `partition`, as in going on behind the last one that was listed.
            end: only below this offset of `partition`.
            max_records: the most that it returns.
        """
        return self._driver.run(
            self._queue_verbs.pending(topic, group, worker, idle, partition, offset, end, max_records)
        )

    def pending_summary(self, topic: str, group: str) -> PendingSummary:
        """How many tasks of `group` on `topic` workers hold, in all and each. Raises UnknownGroup."""
        return pending_summary_of(topic, self._driver.run(self._queue_verbs.workers(topic, group)))

    def claim(
        self,
        topic: str,
        group: str,
        worker: str,
        ids: Iterable[str] | None = None,
        *,
        holder: str | None = None,
        idle: Duration | None = None,
        begin: str | None = None,
        attempt: int | None = None,
        given: datetime | Duration | None = None,
        lease: Duration | None = None,
        force: bool = False,
        records: bool = True,
        max_records: int = 100,
    ) -> Claimed:
        """Give leased tasks of `group` on `topic` to the worker of this name, under a new lease.

        The worker of before finds its lease lost once it holds nothing else. Nothing here extends the new lease:
        `Worker.claim` does. A task that used up its attempts is dead-lettered instead, unless `attempt` is given.

        Args (at least one of `ids`, `holder` and `idle`):
            ids: these tasks; None: the leased ones from `begin` on.
            holder: only what the worker of this name holds, which may be `worker` itself.
            idle: only what was given to its worker at least so long ago; 0 takes from workers that are at it.
            begin: the first id to look at, like `Claimed.next`.
            attempt: of the tasks from now on; 0: as before; None: one more.
            given: the time that counts as that of the lease, or how long it was ago; None: now.
            lease: how long the lease is; None: as long as the queue says.
            force: also those of `ids` that are not leased, but ready or retrying.
            records: whether their records are wanted.
            max_records: the most that is claimed without `ids`.

        Raises: InvalidArgument when nothing chooses the tasks.
        """
        return self._driver.run(
            self._queue_verbs.claim(
                topic, group, worker, ids, holder=holder, idle=idle, begin=begin, attempt=attempt, given=given,
                lease=lease, force=force, records=records, max_records=max_records,
            )
        )  # fmt: skip

    # -- workers ---------------------------------------------------------------------------------------------

    def workers(self, topic: str, group: str) -> list[QueueWorker]:
        """The workers of `group` on `topic`, by name: how many tasks each holds, and when it got some.

        The group remembers up to 1000 workers on each partition; for more, it forgets the one without tasks that has
        been silent longest. Raises UnknownGroup.
        """
        return workers_of(self._driver.run(self._queue_verbs.workers(topic, group)))

    def forget_worker(self, topic: str, group: str, worker: str, verb: Outcome = "release") -> int:
        """Forget `worker` of `group` on `topic`, by its name, and settle the tasks that it holds.

        A worker that is still there finds its leases lost, and is known again with the next task that it gets.

        Args:
            verb: "ack", "nack", "reject" or "release", for all of its tasks.

        Returns: how many it held. Raises UnknownGroup.
        """
        return self._driver.run(self._queue_verbs.forget_worker(topic, group, worker, verb))

    # -- records ---------------------------------------------------------------------------------------------

    def delete_records(self, topic: str, ids: Iterable[str]) -> int:
        """Delete records of `topic`: no queue group gets them any more, and a leased one is lost to its worker.

        Consumers, ranges and `read` still see them until the partition begins behind them; gateways hide them.

        Args:
            ids: as of tasks (`topic-partition-offset`).

        Returns: how many were there, and not deleted before. Raises LimitReached for more than a partition remembers.
        """
        return self._driver.run(self._queue_verbs.delete_records(topic, ids))

    def deleted(self, topic: str, partition: int, start: int, end: int) -> list[tuple[int, int]]:
        """Which records of `topic` are deleted.

        Args:
            partition, start, end: of this partition, from offset `start` on and before `end`.

        Returns: (first offset, how many), in order.
        """
        return self._driver.run(self._queue_verbs.deleted(topic, partition, start, end))

    # -- dead letters ----------------------------------------------------------------------------------------

    def dead_letters(
        self,
        topic: str,
        group: str,
        *,
        partition: int | None = None,
        offset: int = 0,
        reason: str = "",
        max_records: int = 100,
    ) -> list[DeadTask]:
        """The first dead-lettered tasks of `group` on `topic`, by partition and offset.

        Args:
            partition: of this one only.
            offset: where to begin in `partition`, as in going on behind the last one that was listed.
            reason: only tasks with this in their reason.
            max_records: the most that it returns.
        """
        return self._driver.run(self._queue_verbs.dead_letters(topic, group, partition, offset, reason, max_records))

    def redrive(
        self, topic: str, group: str, ids: Iterable[str] | None = None, *, reason: str = "", per_s: float = 0
    ) -> int:
        """Retry dead-lettered tasks of `group` on `topic` from attempt 1: some, or all.

        Args:
            ids: only these.
            reason: only those with this in their reason.
            per_s: how many become ready each second; 0: at once.

        Returns: how many.
        """
        return self._driver.run(self._queue_verbs.redrive(topic, group, ids, reason, per_s))

    def discard(self, topic: str, group: str, ids: Iterable[str] | None = None, *, reason: str = "") -> int:
        """Discard dead-lettered tasks of `group` on `topic`: some, or all.

        Args:
            ids: only these.
            reason: only those with this in their reason.

        Returns: how many.
        """
        return self._driver.run(self._queue_verbs.discard(topic, group, ids, reason))

    # -- schedules -------------------------------------------------------------------------------------------

    def schedule(
        self,
        topic: str,
        name: str,
        spec: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        zone: str = "UTC",
        priority: int = 0,
        coalesce: bool = False,
    ) -> Schedule:
        """Append a record to `topic` at stated times, each once.

        Args:
            name: of the schedule; one of the same name is replaced.
            spec: five fields of cron, as in "0 6 * * mon-fri", or "every 30s".
            value, key, headers, priority: of the record, as in `Producer.send`.
            zone: of the cron fields, like "Europe/Vienna".
            coalesce: append nothing while the record of an earlier time waits, for its first lease or to be retried,
                in every queue group of the topic.

        Raises: InvalidRequest for a spec or a zone that cannot be read.
        """
        return schedule_of(
            self._driver.run(
                self._queue_verbs.schedule(topic, name, spec, value, key, headers, zone, priority, coalesce)
            )
        )

    def schedules(self, topic: str | None = None) -> list[Schedule]:
        """All schedules, or those of `topic`."""
        return [schedule_of(found) for found in self._driver.run(self._queue_verbs.schedules(topic))]

    def delete_schedule(self, topic: str, name: str) -> None:
        """Delete the schedule `name` of `topic`. Raises UnknownSchedule."""
        self._driver.run(self._queue_verbs.delete_schedule(topic, name))
