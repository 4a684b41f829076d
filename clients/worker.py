"""The worker for threads: `client.worker(topic, group=...)`.

Contract: a record goes to one worker of its group at a time, until it is acked or rejected: at least once. It is done
twice when a worker, or its lease, is lost between the work and the ack. Threads may share a worker: one fetches, any
settles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, Self

from ..storage.record import V
from ..transport.messages import Topic
from ..transport.queue_messages import Verb
from .arguments.checking import checks
from .arguments.quantities import Duration, seconds
from .connection.driver import Driver
from .serializing import Loading
from .task import Task
from .unpicklable import unpicklable
from .working.core import WorkerCore
from .working.iterating import each_task, fetched_tasks
from .working.leases import SettleFuture
from .working.loading import loaded
from .working.options import WorkerOptions


@checks
@unpicklable("the URL, the topic and the group, and make a worker where it is needed")
class Worker(Generic[V]):
    """Works off one topic's records. Iterating waits for ever; leaving its `with` block releases the rest."""

    def __init__(self, driver: Driver, topic: Topic, options: WorkerOptions, load: Loading | None = None) -> None:
        """Made by `Client.worker`."""
        self._driver = driver
        self._core = WorkerCore(driver, topic, options, task=Task, future=SettleFuture, load=load)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def group(self) -> str:
        """The queue group's name."""
        return self._core.options.group

    @property
    def name(self) -> str:
        """This worker's name, for people who look at the queue."""
        return self._core.options.name

    @property
    def closed(self) -> bool:
        """Whether the worker was closed."""
        return self._core.closed

    # -- fetching ---------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Task[V]]:
        """Every task; waits for new ones; ends when another thread closes the worker."""
        self._core.check_open()
        return each_task(self._driver, self._core)

    def fetch(self, max_records: int = 100, wait: Duration = 1.0) -> list[Task[V]]:
        """At most `max_records` tasks: available ones at once, else the first that come within `wait` seconds.

        Returns: [] when there are none in time.

        Raises: what the broker says when it gives no leases, like InvalidRequest for a lease over the group's maximum;
        TimedOut where it is connected and says nothing for the client's timeout longer.
        """
        core = self._core
        deadline = core.connection.clock() + seconds(wait, "wait")
        if core.load is None:
            return self._driver.run_on(core.fetch(max_records, deadline))
        fetch = partial(core.fetch, max_records, deadline)
        return fetched_tasks(self._driver, core, fetch(), fetch)

    def ack_and_fetch(self, tasks: Sequence[Task[Any]], max_records: int = 100, wait: Duration = 1.0) -> list[Task[V]]:
        """Ack `tasks` with the request that asks for the next ones.

        Args:
            max_records, wait: as in `fetch`.

        With `prefetch`, the next batch is mostly here already and no call waits for the commit: a refused ack of this
        call is raised by the next one, or by `flush`.

        Raises: LeaseLost when another worker has one of these tasks, or of those before, by now.
        """
        core = self._core
        deadline = core.connection.clock() + seconds(wait, "wait")
        begun = core.ack_and_fetch(tasks, max_records, deadline)
        if core.load is None:
            return self._driver.run_on(begun)
        return fetched_tasks(self._driver, core, begun, partial(core.fetch, max_records, deadline))

    def claim(
        self,
        ids: Iterable[str] | None = None,
        *,
        holder: str | None = None,
        idle: Duration | None = None,
        begin: str | None = None,
        attempt: int | None = None,
        force: bool = False,
        max_records: int = 100,
    ) -> list[Task[V]]:
        """Take tasks that other workers hold, as `Client.claim` does; this worker extends their leases.

        `worker.claim(holder=worker.name, attempt=0)` reads the tasks again that a worker of this name holds, as after a
        crash, without counting an attempt.

        Args (at least one of `ids`, `holder` and `idle`):
            ids: these tasks; None: the leased ones from `begin` on.
            holder, idle, begin, attempt, force, max_records: as of `Client.claim`.
        """
        core = self._core
        claimed = core.claim(
            ids, holder=holder, idle=idle, begin=begin, attempt=attempt, force=force, max_records=max_records
        )
        return loaded(core, self._driver.run_on(claimed))

    # -- settling ---------------------------------------------------------------------------------------

    def ack(self, tasks: Sequence[Task[Any]]) -> None:
        """Ack `tasks` and wait for the commit. Raises LeaseLost if another worker has one; the others are acked."""
        self._driver.run(self._core.settle_now(tasks, Verb.ACK))

    def ack_nowait(self, task: Task[Any], result: bytes | None = None) -> SettleFuture:
        """Ack `task` soon, with others; `result` as of `Task.ack`. Ask the future, or `flush`; closing flushes."""
        return self._driver.run_on(self._core.ack_later(task, result))

    def nack(self, tasks: Sequence[Task[Any]], *, delay: Duration | None = None, reason: str = "") -> None:
        """Fail `tasks`: retry after `delay` (None: the group's back-off), or dead-letter after the last attempt.

        `reason` is kept and shown.
        """
        self._driver.run(self._core.settle_now(tasks, Verb.NACK, delay=delay, reason=reason))

    def reject(self, tasks: Sequence[Task[Any]], reason: str = "") -> None:
        """Fail `tasks` for good: dead-letter them now, with `reason`."""
        self._driver.run(self._core.settle_now(tasks, Verb.REJECT, reason=reason))

    def release(self, tasks: Sequence[Task[Any]]) -> None:
        """Release `tasks` untried: another worker may have them at once, and this attempt does not count."""
        self._driver.run(self._core.settle_now(tasks, Verb.RELEASE))

    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until all settles are committed, at most `timeout`. Raises the first error not raised yet."""
        limit = self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        self._driver.run(self._core.flush(limit))

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, and release the tasks in hand without counting an attempt. Idempotent."""
        if not self._core.ended and not self._driver.closed:
            self._driver.run(self._core.close())

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name} of topic {self.topic}, group {self.group}{closed}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
