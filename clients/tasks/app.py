"""`penstock.Tasks`: functions as tasks.

    app = penstock.Tasks()                 # the broker of this user, or an address

    @app.task(queue="mail", retry=penstock.Retry(max_attempts=5))
    def send_mail(to: str) -> int: ...

    send_mail.send("a@b.c")                # and somewhere: penstock worker module:app --concurrency 8

Idea: a queue is a topic and one queue group on it; a task is a record whose value is the call and whose header names
the function. An app only knows what its module says; it connects when something is sent.

Contract: threads may share an app. After a fork the child connects anew.
"""

from __future__ import annotations

import inspect
import logging
import reprlib
import zoneinfo
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, overload

from ...storage.arguments import whole
from ...transport.url import addresses
from ..arguments.checking import check_name, checked, checks
from ..arguments.quantities import Duration, seconds, some_seconds
from ..client import Client
from ..encoding import Encoding
from ..errors import InvalidArgument
from ..queues.descriptions import Schedule
from ..unpicklable import unpicklable
from .function import AsyncTaskFunction, BaseFunction, Options, TaskFunction, home
from .job_lists import Run
from .link import Link
from .message import Message, Messages, Then
from .middleware import GivenHook, Hook, as_hook
from .queues import TaskQueue
from .retry import Retry

if TYPE_CHECKING:
    from .aio import AsyncLink

log = logging.getLogger("penstock.tasks")

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound="GivenHook")


Keep = Duration | Literal["forever"]


class Decorate(Protocol):
    """Turns a function into a task function and keeps its signature."""

    @overload  # the first one that fits is taken, and the narrower stands first
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@checks
@unpicklable("the name of its module, and import it from there")
class Tasks:
    """The task functions of an application, and their queues."""

    @checked
    def __init__(
        self,
        url: str | None,
        *,
        group: str = "tasks",
        encoding: Encoding = "json",
        partitions: int = 1,
        lease: Duration | None = None,
        keep: Keep | None = None,
        timeout: Duration = 30.0,
        zone: str = "UTC",
    ) -> None:
        """
        Args:
            url: of the broker, as in `penstock.connect`; None: what is assigned to `app.url` before something is sent.
            group: the queue group of all its queues.
            encoding: of arguments and results: "json", or "msgpack", which has bytes.
            partitions: of queues that do not exist yet.
            lease: after so long a silence of a worker its tasks go to others; None: what the queue is set to.
            keep: how long finished tasks and their results are kept, or "forever". None: a day in queues that it
                creates, and what others are set to.
            timeout: how long any verb waits for the broker.
            zone: of the cron fields of its schedules, like "Europe/Vienna".

        Raises: InvalidUrl, InvalidArgument.
        """
        self._url = None
        if url is not None:
            self.url = url
        check_name("group", group)
        self.group = group
        self.hooks: list[Hook] = []
        self.encoding: Encoding = encoding
        self.functions: dict[str, BaseFunction[..., Any]] = {}
        self.queues: dict[str, TaskQueue] = {}
        self.timeout_s = seconds(timeout, "timeout")
        self.zone = zone
        _check_zone(zone)
        self._partitions = whole("partitions", partitions, 1)
        self._settings = {**({} if lease is None else {"lease_s": some_seconds(lease, "lease")}), **_kept(keep)}
        self._link = Link(self)
        self._aio: AsyncLink | None = None

    @property
    def url(self) -> str:
        """The broker's address; looked up when first needed, where none was given. Another one is connected to by the
        next call: what was connected before is closed."""
        if self._url is None:
            self._url = self._default_url()
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        addresses(url)
        if self._url not in (None, url):
            self._link.close()
        self._url = url

    def _default_url(self) -> str:
        raise InvalidArgument("the app has no address yet: set app.url")

    def middleware(self, hook: H) -> H:
        """Put `hook` around each call of the app's functions, in workers; use it as a decorator.

        Args:
            hook: a function of the `CurrentTask` that gives a context manager, or a generator with one `yield`: what
                stands before runs before the call, the rest after it, and exceptions of the call are raised at the
                `yield`. The first one added is the outermost. An `async def` may have asynchronous ones, too.

        Raises: InvalidArgument.
        """
        self.hooks.append(as_hook(hook))
        return hook

    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...
    @overload
    def task(
        self,
        *,
        queue: str = "tasks",
        retry: Retry | None = None,
        keep: Keep | None = None,
        timeout: Duration | None = None,
        key: Callable[..., str | bytes] | None = None,
        dedup: Callable[..., str | bytes] | None = None,
        priority: int = 0,
        process: bool = False,
        name: str | None = None,
    ) -> Decorate: ...
    def task(
        self,
        function: Any = None,
        *,
        queue: str = "tasks",
        retry: Retry | None = None,
        keep: Keep | None = None,
        timeout: Duration | None = None,
        key: Callable[..., str | bytes] | None = None,
        dedup: Callable[..., str | bytes] | None = None,
        priority: int = 0,
        process: bool = False,
        name: str | None = None,
    ) -> Any:
        """Turn `function` into a task function; with options, return the decorator: `@app.task(queue="mail")`.

        Args:
            queue: the topic its tasks go to; created when it is missing.
            retry: how often, how soon and after which exceptions it is retried. None: as the queue is set, which
                is the one Retry of its other functions, or the loosest number of attempts of several.
            keep: how long finished tasks of this queue are kept, the same for all its functions. None: as the app says.
            timeout: a call that takes longer fails. An `async def` is cancelled, a process killed; a thread cannot be
                stopped and keeps its place among the worker's until it ends.
            key: a function of the arguments: tasks of one key run one at a time and in order.
            dedup: of the arguments, what makes one call the same as another: `send` of a call that was sent within the
                `dedup_window_s` of the topic gives the job of that one.
            priority: 0 to 255; higher goes first.
            process: run it in a process of its own, which a worker keeps for the next call.
            name: in the queue, where it should not be that of the module and function.
        """
        timeout_s = None if timeout is None else seconds(timeout, "timeout")
        options = Options(
            queue=queue, timeout_s=timeout_s, key=key, dedup=dedup, priority=priority, process=process, retry=retry
        )

        check_name("queue", queue)

        def decorate(function: Callable[..., Any]) -> BaseFunction[..., Any]:
            _check_function(function)
            is_async = inspect.iscoroutinefunction(function)
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise InvalidArgument(
                    f"{function.__qualname__} is a generator, and a task has one result: return a list"
                )
            if process:
                _check_process(function, is_async=is_async)
            made = (AsyncTaskFunction if is_async else TaskFunction)(self, function, name, options)
            self._add(made, _kept(keep))
            return made

        return decorate if function is None else decorate(function)

    def _add(self, function: BaseFunction[..., Any], settings: dict[str, Any]) -> None:
        if function.name in self.functions:
            raise InvalidArgument(f"there is a task function {function.name!r} already: give one of them a name=")
        known = self.queues.get(function.queue)
        if function.declared.key is not None:
            settings["order"] = "key"
        retry = function.declared.retry
        queue = TaskQueue(
            function.queue, self.group, self._partitions, settings, self._settings, () if retry is None else (retry,)
        )
        self.queues[function.queue] = queue if known is None else known.merged(queue, function.name)
        self.functions[function.name] = function
        self._warn_of_one_attempt(function.queue)

    def _warn_of_one_attempt(self, name: str) -> None:
        """A queue goes by the Retry of its functions, also for those that have none."""
        silent = [each.name for each in self.functions.values() if each.queue == name and each.declared.retry is None]
        queue = self.queues[name]
        if silent and queue.retries and queue.wanted["max_attempts"] == 1:
            log.warning(
                "%s of queue %s will not be retried: another function there has Retry(max_attempts=1), by which the "
                "queue goes; give each function a Retry, or that one a queue of its own", ", ".join(silent), name,
            )  # fmt: skip

    # -- sending ------------------------------------------------------------------------------------

    def client(self) -> Client:
        """The app's client, connected when first needed."""
        return self._link.client()

    def send(self, message: Message) -> str:
        """Commit a call, as `message`, to its queue; returns the task's id. `TaskFunction.send` uses it."""
        return self._link.send(message)

    def send_many(self, messages: Messages) -> list[Run]:
        """Commit many calls, as `messages`; returns where they are, in order. `TaskFunction.send_many` uses it."""
        return self._link.send_many(messages)

    def send_group(self, messages: Sequence[Message], then: Then) -> list[str]:
        """Commit calls, as `messages`, and one of `then` once they have ended. `penstock.group` uses it."""
        return self._link.send_group(messages, then)

    def schedule(self, message: Message, name: str, spec: str) -> Schedule:
        """Commit a call, as `message`, at stated times; `name` and `spec` as of `TaskFunction.schedule`."""
        return self._link.schedule(message, name, spec)

    @property
    def aio(self) -> AsyncLink:
        """The same for programs on an event loop: `await app.aio.client()`, `await app.aio.close()`."""
        if self._aio is None:
            from .aio import AsyncLink

            globals()["AsyncLink"] = AsyncLink  # for type hints; before, this module loads no asyncio
            self._aio = AsyncLink(self)
        return self._aio

    def close(self) -> None:
        """Close the client. Sending again reconnects. Idempotent."""
        self._link.close()

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Tasks of {self._url or 'the default broker'}: {', '.join(self.functions) or 'no functions'}>"


def _check_zone(zone: str) -> None:
    """Raise InvalidArgument for an unknown zone; without a tz database here, the broker judges."""
    try:
        zoneinfo.ZoneInfo(zone or "UTC")
    except (LookupError, ValueError, OSError):
        if zoneinfo.available_timezones():
            raise InvalidArgument(
                f"zone={reprlib.repr(zone)} is unknown: give a name of the tz database, as in Europe/Vienna, or UTC"
            ) from None


def _kept(keep: Keep | None) -> dict[str, Any]:
    """The queue setting for how long finished tasks are kept; empty to leave it."""
    if keep is None:
        return {}
    return {"keep_finished_s": None if keep == "forever" else some_seconds(keep, "keep")}


def _check_function(function: Any) -> None:
    """Require a named function, whose result can be sent."""
    if inspect.isclass(function):
        raise InvalidArgument(f"{function.__qualname__} is a class: make a task of a function that uses one")
    if not callable(function) or not hasattr(function, "__qualname__"):
        raise InvalidArgument(f"{reprlib.repr(function)} is not a function with a name of its own, as a def has one")


def _check_process(function: Callable[..., Any], *, is_async: bool) -> None:
    """Require that another process can import it by name, and that it needs no loop."""
    if is_async:
        raise InvalidArgument(f"{function.__qualname__} is an async def: process=True is for a def")
    if "<" in function.__qualname__:
        raise InvalidArgument(
            f"{home(function)}.{function.__qualname__} cannot be found by a process of its own: "
            "process=True is for functions at the top of a module or class"
        )
