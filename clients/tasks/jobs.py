"""Jobs: the sender's handles of tasks.

Contract: a job is an id and the function that decodes its result, so it may be kept, recreated elsewhere from its id,
and asked again after a restart, for as long as the record is retained.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from ..arguments.checking import checks
from ..arguments.quantities import Duration
from ..encoding import Encoding, decode
from ..errors import ClientError, TaskCancelled, TaskFailed, TimedOut

if TYPE_CHECKING:
    from ..client import Client
    from ..queues.descriptions import TaskInfo
    from .aio import AsyncLink
    from .arguments import Arguments

R = TypeVar("R")


class JobApp(Protocol):
    """A job's app, as the job sees it."""

    group: str
    encoding: Encoding

    def client(self) -> Client:
        """The client for threads."""
        ...

    @property
    def aio(self) -> AsyncLink:
        """The client for event loops."""
        ...


class JobFunction(Protocol[R]):
    """The function behind a job."""

    name: str
    arguments: Arguments

    @property
    def app(self) -> JobApp:
        """The application that defines the function."""
        ...

    def job(self, id: str) -> Job[R]:
        """A task sent before, by its id."""
        ...


class JobStatus(Struct, frozen=True):
    """The status of a job.

    `state` is pending, delayed, leased, retrying, completed, dead-lettered, discarded or cancelled. `why` says in a
    sentence what holds the job back, or what became of it. `attempt` is that of the latest lease, or of the one that
    completed it, and 0 before the first, and once cancelled or discarded. `reason` is that of the latest failure.
    `progress` is what the function reported last. `time` is the moment until which the job is delayed, retrying or
    leased, or since which it is final.
    """

    state: str
    attempt: int
    why: str
    reason: str
    progress: Any
    time: datetime | None = None


class _Base(Generic[R]):
    """The common base of both kinds of jobs."""

    def __init__(self, function: JobFunction[R], id: str) -> None:
        """Made by `TaskFunction.send` and `TaskFunction.job`."""
        self.id = id
        self._function = function

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._function.name}>"


@checks
class Job(_Base[R]):
    """One sent task. Its `id` names it: `TaskFunction.job(id)` is the job again, in any process."""

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the function's result, at most `timeout` (None: the app's).

        Raises: TaskFailed with the reason, when it is dead-lettered; TaskCancelled; TimedOut; TaskForgotten when it
            finished longer ago than its queue keeps results.
        """
        app = self._function.app
        info = app.client().wait_task(self.id, group=app.group, timeout=timeout)
        return result_of(self._function, self.id, info)

    def status(self) -> JobStatus:
        """Its status. Raises TaskForgotten once it finished longer ago than its queue keeps results."""
        app = self._function.app
        return status_of(self._function, app.client().task(self.id, group=app.group))

    def cancel(self) -> JobStatus:
        """Cancel the task: a worker running it is told and may stop. Returns its status afterwards."""
        app = self._function.app
        return status_of(self._function, app.client().cancel_task(self.id, group=app.group))


@checks
class AsyncJob(_Base[R]):
    """One sent task; its verbs are awaited."""

    async def result(self, timeout: Duration | None = None) -> R:
        """As `Job.result`."""
        app = self._function.app
        client = await app.aio.client()
        info = await client.wait_task(self.id, group=app.group, timeout=timeout)
        return result_of(self._function, self.id, info)

    async def status(self) -> JobStatus:
        """As `Job.status`."""
        app = self._function.app
        client = await app.aio.client()
        return status_of(self._function, await client.task(self.id, group=app.group))

    async def cancel(self) -> JobStatus:
        """As `Job.cancel`."""
        app = self._function.app
        client = await app.aio.client()
        return status_of(self._function, await client.cancel_task(self.id, group=app.group))


def result_of(function: JobFunction[R], id: str, info: TaskInfo) -> R:
    """The result of a final task. Raises what `Job.result` raises."""
    name = f"task {id} ({function.name})"
    if info.state == "dead-lettered":
        raise TaskFailed(f"{name} failed in attempt {info.attempt}: {info.reason}")
    if info.state == "discarded":
        raise TaskFailed(f"{name} had failed and was discarded; its reason is not kept")
    if info.state == "cancelled":
        raise TaskCancelled(f"{name} was cancelled")
    if info.state != "completed":
        raise TimedOut(f"{name} is not done yet: {info.why}")
    try:
        return function.arguments.unpack_result(function.app.encoding, info.result)
    except ValueError as error:
        raise ClientError(f"the result of {name} cannot be read: {error}") from error


def status_of(function: JobFunction[Any], info: TaskInfo) -> JobStatus:
    """A task as its application sees it."""
    progress = None if info.progress is None else decode(function.app.encoding, info.progress)
    return JobStatus(info.state, info.attempt, info.why, info.reason, progress, info.time)
