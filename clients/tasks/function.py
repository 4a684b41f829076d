"""Task functions: the result of `@app.task`.

    @app.task(queue="mail", retry=Retry(max_attempts=5), key=lambda to, text: to)
    def send_mail(to: str, text: str) -> int: ...

    send_mail("a@b.c", "hi")                    # runs it here
    job = send_mail.send("a@b.c", "hi")         # Job[int]; a worker runs it
    job = send_mail.send_in(60, "a@b.c", "hi")
    job = await send_mail.aio.send("a@b.c", "hi")
    send_mail.schedule("greeting", "0 6 * * mon-fri", "a@b.c", "hi")

Contract: the decorated function keeps its signature, for type checkers and at run time: `send` takes the same
arguments, and the job's result has the return type.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from msgspec import Struct

from ...storage.encoding import PRIORITY_MAX
from ..arguments.checking import checks
from ..arguments.quantities import Duration, seconds
from ..errors import InvalidArgument
from ..queues.descriptions import Schedule
from .arguments import Arguments
from .jobs import AsyncJob, Job, JobApp
from .message import ENCODING_HEADER, NAME_HEADER, Message

ELSEWHERE = {
    "delay": ": to have a worker call it, use .send(...)",
    "apply_async": ": to have a worker call it, use .send(...), .send_in(...) or .send_at(...)",
}
"""The names of these verbs in other task queues."""

P = ParamSpec("P")
R = TypeVar("R")


class Options(Struct, frozen=True, kw_only=True):
    """The options of one function."""

    queue: str
    timeout_s: float | None
    key: Callable[..., str | bytes] | None
    dedup: Callable[..., str | bytes] | None
    priority: int
    process: bool

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= PRIORITY_MAX:
            raise InvalidArgument(f"priority={self.priority!r} is not from 0 to {PRIORITY_MAX}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InvalidArgument(f"timeout={self.timeout_s!r} leaves a task no time: give seconds above 0, or None")


class SendingApp(JobApp, Protocol):
    """A function's app, as the function sees it."""

    def send(self, message: Message) -> str:
        """Commit a call to its queue; returns the task's id."""
        ...

    def schedule(self, message: Message, name: str, spec: str) -> Schedule:
        """Commit a call to its queue at stated times."""
        ...


class BaseFunction(Generic[P, R]):
    """The common base of both kinds of functions."""

    def __init__(self, app: SendingApp, function: Callable[P, Any], name: str | None, options: Options) -> None:
        """Made by `Tasks.task`."""
        functools.update_wrapper(cast(Any, self), function)
        self.app = app
        self.function = function
        self.name = name or f"{home(function)}.{function.__qualname__}"
        self.options = options
        self.arguments = Arguments(function, self.name)

    @property
    def queue(self) -> str:
        """The topic its tasks go to."""
        return self.options.queue

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Have a worker call it with these arguments. Returns when the task is committed.

        Raises: InvalidArgument, which names the argument that cannot be sent; what `Producer.send` raises.
        """
        return Job(self, self.app.send(self.message(args, kwargs)))

    def send_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `send`; not delivered before `delay` is over."""
        return Job(self, self.app.send(self.message(args, kwargs, delay_s=seconds(delay, "delay"))))

    def send_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `send`; not delivered before `when`."""
        return Job(self, self.app.send(self.message(args, kwargs, at=when)))

    def schedule(self, name: str, spec: str, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """Have it sent with these arguments at stated times, each once. A schedule of the same name is replaced.

        Args:
            name: of the schedule in the function's queue; `Client.delete_schedule` forgets it.
            spec: five fields of cron in the app's zone, as in "0 6 * * mon-fri", or "every 30s".

        Raises: InvalidRequest for a spec or a zone that cannot be read; InvalidArgument as `send`, and for a function
        with dedup=, because a schedule knows no dedup keys.
        """
        return self.app.schedule(self.message(args, kwargs), name, spec)

    def job(self, id: str) -> Job[R]:
        """The task `id`, sent before, here or in another process."""
        return Job(self, id)

    @property
    def aio(self) -> AsyncSends[P, R]:
        """The same verbs, awaited."""
        return AsyncSends(self)

    def message(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, delay_s: float | None = None, at: datetime | None = None
    ) -> Message:
        """A call as sent to the queue, not before `delay_s` is over or `at`. Raises InvalidArgument."""
        encoding = self.app.encoding
        headers = {NAME_HEADER: self.name.encode(), ENCODING_HEADER: encoding.encode()}
        value = self.arguments.pack(encoding, args, kwargs)
        key = self._said(self.options.key, "key", args, kwargs)
        dedup = self._said(self.options.dedup, "dedup", args, kwargs)
        return Message(self.queue, value, key, headers, self.options.priority, delay_s, at, dedup)

    def _said(
        self, of: Callable[..., str | bytes] | None, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bytes | None:
        """The value of an option for the arguments."""
        if of is None:
            return None
        found = of(*args, **kwargs)
        if isinstance(found, str):
            return found.encode()
        if isinstance(found, bytes):
            return found
        raise InvalidArgument(f"the {what} of {self.name} is {found!r}: it is to be text or bytes")

    def __reduce__(self) -> str:
        """Pickled by name, as functions are: it is imported where it is used. A copy is the function itself."""
        return self.function.__qualname__

    if not TYPE_CHECKING:  # to a type checker nothing is here that is not written down

        def __getattr__(self, name: str) -> Any:
            instead = ELSEWHERE.get(name, "")
            raise AttributeError(f"a {type(self).__name__} has no {name!r}{instead}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<task function {self.name}, queue {self.queue}>"


@checks
class TaskFunction(BaseFunction[P, R]):
    """A `def`; workers call it in a thread, or in a process of its own."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here, without a queue."""
        return self.function(*args, **kwargs)


@checks
class AsyncTaskFunction(BaseFunction[P, R]):
    """An `async def`; workers run it on their loop."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function here, without a queue."""
        return self.function(*args, **kwargs)


class AsyncSends(Generic[P, R]):
    """The verbs of a task function, awaited."""

    def __init__(self, function: BaseFunction[P, R]) -> None:
        """Made by `TaskFunction.aio`."""
        self._function = function

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """As `TaskFunction.send`."""
        function = self._function
        return AsyncJob(function, await function.app.aio.send(function.message(args, kwargs)))

    async def send_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """As `TaskFunction.send_in`."""
        function, delay_s = self._function, seconds(delay, "delay")
        return AsyncJob(function, await function.app.aio.send(function.message(args, kwargs, delay_s=delay_s)))

    async def send_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """As `TaskFunction.send_at`."""
        function = self._function
        return AsyncJob(function, await function.app.aio.send(function.message(args, kwargs, at=when)))

    async def schedule(self, name: str, spec: str, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """As `TaskFunction.schedule`."""
        return await self._function.app.aio.schedule(self._function.message(args, kwargs), name, spec)

    def job(self, id: str) -> AsyncJob[R]:
        """As `TaskFunction.job`."""
        return AsyncJob(self._function, id)


def home(function: Callable[..., Any]) -> str:
    """The module of a function, as workers import it: a program's main module has another name elsewhere."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name
    return Path(getattr(main, "__file__", None) or "__main__").stem
