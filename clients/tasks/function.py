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
import reprlib
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from msgspec import Struct

from ...storage.encoding import PRIORITY_MAX
from ..arguments.checking import checks
from ..arguments.quantities import Duration
from ..errors import InvalidArgument
from ..queues.descriptions import Schedule
from .arguments import Arguments
from .bulk_arguments import pack_many
from .call import Call, CallbackFunction
from .job_lists import JobList
from .jobs import Job
from .message import ENCODING_HEADER, NAME_HEADER, RETRY_HEADER, How, Message, Messages, Then
from .retry import Retry
from .sends import AS_DECLARED, AsyncSends, CallOptions, SendingApp, Sends, call_options

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
    retry: Retry | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= PRIORITY_MAX:
            raise InvalidArgument(f"priority={self.priority!r} is not from 0 to {PRIORITY_MAX}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InvalidArgument(f"timeout={self.timeout_s!r} leaves a task no time: give seconds above 0, or None")


class BaseFunction(Generic[P, R]):
    """The common base of both kinds of functions."""

    def __init__(self, app: SendingApp, function: Callable[P, Any], name: str | None, options: Options) -> None:
        """Made by `Tasks.task`."""
        functools.update_wrapper(cast(Any, self), function)
        self.app = app
        self.function = function
        self.name = name or f"{home(function)}.{function.__qualname__}"
        self.declared = options
        self.arguments = Arguments(function, self.name)

    @property
    def queue(self) -> str:
        """The topic its tasks go to."""
        return self.declared.queue

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Have a worker call it with these arguments. Returns when the task is committed.

        `then=` is as in `options`, where the function has no such argument itself.

        Raises: InvalidArgument, which names the argument that cannot be sent; what `Producer.send` raises.
        """
        return Sends(self).send(*args, **kwargs)

    def send_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `send`; not delivered before `delay` is over."""
        return Sends(self).send_in(delay, *args, **kwargs)

    def send_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `send`; not delivered before `when`."""
        return Sends(self).send_at(when, *args, **kwargs)

    def send_many(self, calls: Iterable[object]) -> JobList[Job[R]]:
        """Have workers call it with each of many arguments. Returns when all tasks are committed, in large batches.

        Args:
            calls: for each call a tuple of its positional arguments, or its only argument where that is no tuple.

        Returns: the jobs, in the order of `calls`.

        Raises: as `send`. An argument that cannot be sent is found before anything is sent. An error of the broker
        stops it, and what was sent before stays sent.
        """
        return Sends(self).send_many(calls)

    def options(
        self,
        *,
        retry: Retry | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        expires: Duration | datetime | None = None,
        coalesce: bool = False,
        then: CallbackFunction | None = None,
    ) -> Sends[P, R]:
        """The verbs that send, for calls with options of their own: `notify.options(expires="1h").send("UA 1545")`.

        Args:
            retry: instead of the function's. It cannot allow more attempts than the queue's `max_attempts`.
            delay: not delivered before.
            priority: instead of the function's.
            expires: a duration from the moment of sending, or a datetime with a zone: what no worker has begun by
                then is dead-lettered and not called, also a retry.
            coalesce: for `schedule` alone: no task is added while that of an earlier time waits for a worker.
            then: a task function of the same app that is called with the result, once, when the task has completed;
                for `send`, `send_in` and `send_at`. A dead-lettered task holds it up until it is redriven. It takes
                neither key= nor dedup=. For several tasks there is `penstock.group`.

        Raises: InvalidArgument.
        """
        return Sends(self, call_options(retry, delay, priority, expires, coalesce, then))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The call with these arguments, to be sent with a group: `penstock.group([f.call(1), f.call(2)], then=g)`."""
        return Sends(self).call(*args, **kwargs)

    def schedule(self, name: str, spec: str, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """Have it sent with these arguments at stated times, each once. A schedule of the same name is replaced.

        Args:
            name: of the schedule in the function's queue; `Client.delete_schedule` forgets it.
            spec: five fields of cron in the app's zone, as in "0 6 * * mon-fri", or "every 30s".

        Raises: InvalidRequest for a spec or a zone that cannot be read; InvalidArgument as `send`, and for a function
        with dedup=, because a schedule knows no dedup keys.
        """
        return Sends(self).schedule(name, spec, *args, **kwargs)

    def job(self, id: str) -> Job[R]:
        """The task `id`, sent before, here or in another process."""
        return Job(self, id)

    @property
    def aio(self) -> AsyncSends[P, R]:
        """The same verbs, awaited."""
        return AsyncSends(self)

    def message(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: CallOptions = AS_DECLARED) -> Message:
        """A call as sent to the queue, by its `options`. Raises InvalidArgument."""
        value = self.arguments.pack(self.app.encoding, args, kwargs)
        key = self._said(self.declared.key, "key", args, kwargs)
        dedup = self._said(self.declared.dedup, "dedup", args, kwargs)
        return Message(
            self.queue, value, key, self._headers(options), self._priority(options), options.delay_s, options.at, dedup,
            options.expires, _attempts(options), options.coalesce,
            None if options.then is None else options.then.as_then("one", self.app),
        )  # fmt: skip

    def messages(self, calls: Iterable[object], options: CallOptions = AS_DECLARED) -> Messages:
        """Many `calls` as sent to the queue, by their `options`. Raises InvalidArgument."""
        if options.then is not None:
            raise InvalidArgument("then= is of one call: for one callback of many there is penstock.group")
        if isinstance(calls, (str, bytes, bytearray, Mapping)) or not isinstance(calls, Iterable):
            raise InvalidArgument(f"calls={reprlib.repr(calls)} is not a list: send_many takes arguments of many calls")
        given: list[Any] = list(calls)
        if set(map(type, given)) != {tuple}:
            given = [call if isinstance(call, tuple) else (call,) for call in given]
        key, dedup = self.declared.key, self.declared.dedup
        return Messages(
            self.queue,
            len(given),
            pack_many(self.arguments, self.app.encoding, given),
            None if key is None else [self._said(key, "key", call, {}) for call in given],
            None if dedup is None else [self._said(dedup, "dedup", call, {}) for call in given],
            self._headers(options),
            self._priority(options),
            options.delay_s,
            options.expires,
            _attempts(options),
        )

    def as_then(self, how: How, app: object) -> Then:
        """What is sent of it once calls of `app` have ended; `how` says with what it is called.

        Raises InvalidArgument.
        """
        declared = self.declared
        if self.app is not app:
            raise InvalidArgument(f"then={self!r} is of another app: a callback is of the app of what it waits for")
        for what, given in (("key", declared.key), ("dedup", declared.dedup)):
            if given is not None:
                raise InvalidArgument(
                    f"then={self!r} has {what}=, which is made of its arguments, and those are not known yet: give a "
                    "function without it"
                )
        if self.arguments.positional_hints(1) is None:
            raise InvalidArgument(f"then={self!r} cannot be called with one argument, which is all that it gets")
        return Then(self.queue, self._headers(AS_DECLARED), declared.priority, how)

    def _headers(self, options: CallOptions) -> dict[str, bytes]:
        headers = {NAME_HEADER: self.name.encode(), ENCODING_HEADER: self.app.encoding.encode()}
        if options.retry is not None:
            headers[RETRY_HEADER] = options.retry.rule().encoded()
        return headers

    def _priority(self, options: CallOptions) -> int:
        return self.declared.priority if options.priority is None else options.priority

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


def _attempts(options: CallOptions) -> int | None:
    """The attempts that the options of calls allow; 0 when they say nothing of them."""
    return 0 if options.retry is None else options.retry.max_attempts


def home(function: Callable[..., Any]) -> str:
    """The module of a function, as workers import it: a program's main module has another name elsewhere."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name
    return Path(getattr(main, "__file__", None) or "__main__").stem
