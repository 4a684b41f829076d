"""The verbs that send calls of a task function: as its options say, or as `options()` says of some calls.

    job = send_mail.send("a@b.c", "hi")
    job = send_mail.options(retry=Retry(3), expires="1h").send("a@b.c", "hi")
    jobs = send_mail.options(priority=5).send_many([("a@b.c", "hi"), ("d@e.f", "hi")])

Contract: `Sends` for threads and `AsyncSends` for event loops have the same verbs; both take the function's arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from msgspec import Struct, structs

from ...storage.encoding import PRIORITY_MAX
from ..arguments.checking import checks
from ..arguments.quantities import Duration, microseconds, seconds
from ..errors import InvalidArgument
from ..queues.descriptions import Schedule
from .call import Call, CallbackFunction, GroupApp, callback
from .job_lists import JobList
from .jobs import AsyncJob, Job, JobFunction
from .retry import Retry

if TYPE_CHECKING:
    from .job_lists import Run
    from .message import Message, Messages

P = ParamSpec("P")
R = TypeVar("R")


class SendingApp(GroupApp, Protocol):
    """A function's app, as its verbs see it."""

    def send(self, message: Message) -> str:
        """Commit a call to its queue; returns the task's id."""
        ...

    def send_many(self, messages: Messages) -> list[Run]:
        """Commit many calls to their queue; returns where they are, in their order."""
        ...

    def schedule(self, message: Message, name: str, spec: str) -> Schedule:
        """Commit a call to its queue at stated times."""
        ...


class SentFunction(JobFunction[R], Protocol[R]):
    """The function behind the verbs."""

    @property
    def app(self) -> SendingApp:
        """The application that defines the function."""
        ...

    def message(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: CallOptions) -> Message:
        """A call as sent to the queue."""
        ...

    def messages(self, calls: Iterable[object], options: CallOptions) -> Messages:
        """Many calls as sent to the queue."""
        ...


class CallOptions(Struct, frozen=True, kw_only=True):
    """What is special about some calls; None: as the function says."""

    retry: Retry | None = None
    delay_s: float | None = None
    at: datetime | None = None
    priority: int | None = None
    expires: float | datetime | None = None  # seconds from now, or a moment
    coalesce: bool = False  # of schedules
    then: CallbackFunction | None = None


AS_DECLARED = CallOptions()
"""Calls that are sent as the function's options say."""


def call_options(
    retry: Retry | None,
    delay: Duration | None,
    priority: int | None,
    expires: Duration | datetime | None,
    coalesce: bool,
    then: object = None,
) -> CallOptions:
    """The options of calls, checked. Raises InvalidArgument."""
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument(f"retry={retry!r} is not a penstock.Retry")
    if priority is not None and (type(priority) is not int or not 0 <= priority <= PRIORITY_MAX):
        raise InvalidArgument(f"priority={priority!r} is not a number from 0 to {PRIORITY_MAX}; higher goes first")
    if isinstance(expires, datetime):
        microseconds(expires, "expires")
    elif expires is not None:
        expires = seconds(expires, "expires")
    delay_s = None if delay is None else seconds(delay, "delay")
    last = None if then is None else callback(then)
    return CallOptions(
        retry=retry, delay_s=delay_s, priority=priority, expires=expires, coalesce=coalesce, then=last
    )  # fmt: skip


class _Verbs(Generic[P, R]):
    """The common base of both kinds."""

    def __init__(self, function: SentFunction[R], options: CallOptions = AS_DECLARED) -> None:
        """Made by `TaskFunction.options` and `TaskFunction.aio`."""
        self._function = function
        self._options = options

    def _message(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
        return self._function.message(args, kwargs, self._with_then(self._of_sending, kwargs))

    def _with_then(self, options: CallOptions, kwargs: dict[str, Any]) -> CallOptions:
        """The options of a call that may name `then` among its arguments, from which it is taken."""
        if "then" not in kwargs or self._function.arguments.takes("then"):
            return options
        return structs.replace(options, then=callback(kwargs.pop("then")))

    def _scheduled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
        return self._function.message(args, kwargs, self._options)

    @property
    def _of_sending(self) -> CallOptions:
        """The options of calls that are sent now. Raises InvalidArgument for one that schedules alone have."""
        if self._options.coalesce:
            raise InvalidArgument("coalesce=True is of schedules: have it for schedule(), and send without it")
        return self._options

    def _message_in(self, delay: Duration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
        options = structs.replace(self._of_sending, delay_s=seconds(delay, "delay"))
        return self._function.message(args, kwargs, self._with_then(options, kwargs))

    def _message_at(self, when: datetime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
        options = structs.replace(self._of_sending, delay_s=None, at=when)
        return self._function.message(args, kwargs, self._with_then(options, kwargs))

    def _messages(self, calls: Iterable[object]) -> Messages:
        return self._function.messages(calls, self._of_sending)


@checks
class Sends(_Verbs[P, R]):
    """Sends calls of a task function with options of their own: `notify.options(priority=5)`."""

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `TaskFunction.send`."""
        function = self._function
        return Job(function, function.app.send(self._message(args, kwargs)))

    def send_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `TaskFunction.send_in`."""
        function = self._function
        return Job(function, function.app.send(self._message_in(delay, args, kwargs)))

    def send_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `TaskFunction.send_at`."""
        function = self._function
        return Job(function, function.app.send(self._message_at(when, args, kwargs)))

    def send_many(self, calls: Iterable[object]) -> JobList[Job[R]]:
        """As `TaskFunction.send_many`."""
        function, messages = self._function, self._messages(calls)
        return JobList(messages.queue, function.app.send_many(messages), lambda id: Job(function, id))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """As `TaskFunction.call`."""
        return Call(self._function, self._message(args, kwargs))

    def schedule(self, name: str, spec: str, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """As `TaskFunction.schedule`."""
        return self._function.app.schedule(self._scheduled(args, kwargs), name, spec)

    @property
    def aio(self) -> AsyncSends[P, R]:
        """The same verbs, awaited."""
        return AsyncSends(self._function, self._options)

    def __repr__(self) -> str:
        return f"<{self._function!r} with {self._options}>"


class AsyncSends(_Verbs[P, R]):
    """The verbs of a task function, awaited."""

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """As `TaskFunction.send`."""
        function = self._function
        return AsyncJob(function, await function.app.aio.send(self._message(args, kwargs)))

    async def send_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """As `TaskFunction.send_in`."""
        function = self._function
        return AsyncJob(function, await function.app.aio.send(self._message_in(delay, args, kwargs)))

    async def send_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """As `TaskFunction.send_at`."""
        function = self._function
        return AsyncJob(function, await function.app.aio.send(self._message_at(when, args, kwargs)))

    async def send_many(self, calls: Iterable[object]) -> JobList[AsyncJob[R]]:
        """As `TaskFunction.send_many`."""
        function, messages = self._function, self._messages(calls)
        return JobList(messages.queue, await function.app.aio.send_many(messages), lambda id: AsyncJob(function, id))

    async def schedule(self, name: str, spec: str, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """As `TaskFunction.schedule`."""
        return await self._function.app.aio.schedule(self._scheduled(args, kwargs), name, spec)

    def options(
        self,
        *,
        retry: Retry | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        expires: Duration | datetime | None = None,
        coalesce: bool = False,
        then: CallbackFunction | None = None,
    ) -> AsyncSends[P, R]:
        """As `TaskFunction.options`."""
        return AsyncSends(self._function, call_options(retry, delay, priority, expires, coalesce, then))

    def job(self, id: str) -> AsyncJob[R]:
        """As `TaskFunction.job`."""
        return AsyncJob(self._function, id)
