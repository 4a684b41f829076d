"""Records in flight, and the futures of single ones.

Idea: records gather in plain lists until they are worth a batch, and settle together: one `Pending` holds the lists,
the outcome and the waiters. A future is a reference to it and an index, so a million of them are a million small
objects and settling costs nothing per record. A record with a callback has no future: `Telling` calls those of a batch.

Contract: an outcome is set once, under the client's lock; reading it needs no lock.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...storage.batch import Kind
from ...storage.errors import Error
from ...storage.header_list import copied
from ...transport.naming_messages import REQUEST_IDS_MAX
from ..connection.steps import Once
from ..connection.unseen import keep
from ..errors import InvalidArgument
from ..unpicklable import unpicklable
from .queued import PLAIN

if TYPE_CHECKING:
    from ..connection.connection import Connection
    from ..connection.steps import Steps
    from .queued import Queued


NONE: Mapping[int, int] = MappingProxyType({})
"""No record of a batch repeats another."""


class Owner(Protocol):
    """The producer of records, as their futures see it."""

    connection: Connection
    lock: Any
    kind: int
    run: Callable[[Steps[Any]], Any]
    failed: list[Pending]

    def settled(self, pending: Pending, deadline: float) -> Steps[None]:
        """Wait until a batch is settled."""
        ...

    def call_when_settled(self, pending: Pending, callback: Callable[[], None]) -> bool:
        """Have `callback` called once `pending` is settled. False when it is already."""
        ...


class Pending(msgspec.Struct, eq=False):
    """Records of one partition that become one batch. Columns beside the values are None until a record has any.

    Records of a refused batch become two, its `parts`, and so on. Then these have the outcomes, and `settled` says that
    all of them are known.
    """

    owner: Owner
    partition: int
    values: list[bytes | None] = []
    keys: list[bytes | None] | None = None
    headers: list[Mapping[str, bytes] | None] | None = None
    times: list[int] | None = None
    queued: list[Queued] | None = None
    size: int = 0
    has_columns: bool = False
    count: int = 0
    settled: bool = False
    offset: int = -1
    time_us: int = 0
    repeats: Mapping[int, int] = NONE
    error: Error | None = None
    seen: bool = False  # the error was raised or read
    callbacks: list[Callable[[], None]] | None = None
    dones: list[Done | None] = []  # of records by number; of those behind its end: None
    parts: tuple[Pending, Pending] | None = None
    whole: Pending | None = None
    ids: tuple[str, ...] = ()  # of requests that some of the records are part of

    def append_columns(
        self,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        timestamp: int | None,
        queued: Queued | None,
        now_us: Callable[[], int],
    ) -> None:
        """Store what stands beside the value that is appended next. A column begins with the first record that has it,
        and then has a value for each; of times, `now_us()` where none was given."""
        index = len(self.values)
        self.has_columns = True
        try:
            if key is not None and self.keys is None:
                self.keys = list(repeat(None, index))
            if headers is not None and self.headers is None:
                self.headers = list(repeat(None, index))
            if timestamp is not None and self.times is None:
                self.times = [now_us()] * index
            if queued is not None and self.queued is None:
                self.queued = [PLAIN] * index
            if self.keys is not None:
                self.keys.append(key)
            if self.headers is not None:
                self.headers.append(None if headers is None else copied(headers))
            if self.times is not None:
                self.times.append(now_us() if timestamp is None else timestamp)
            if self.queued is not None:
                self.queued.append(PLAIN if queued is None else queued)
        except BaseException:  # Ctrl-C in the middle: the columns of the records before it stay as long as these
            for column in (self.keys, self.headers, self.times, self.queued):
                if column is not None:
                    del column[index:]
            raise

    def extend_columns(
        self,
        count: int,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[dict[str, bytes] | None] | None,
        now_us: Callable[[], int],
    ) -> None:
        """As `append_columns`, for the `count` values that are appended next."""
        self.has_columns = True
        extras: tuple[tuple[str, Any, Any], ...] = (
            ("keys", keys, None), ("headers", headers, None), ("times", None, now_us()), ("queued", None, PLAIN),
        )  # fmt: skip
        for name, given, missing in extras:
            column: Any = getattr(self, name)
            if column is None and given is not None:
                column = [missing] * len(self.values)
                setattr(self, name, column)
            if column is not None:
                column += repeat(missing, count) if given is None else given

    def name(self, ids: tuple[str, ...]) -> None:
        """Some of the records are part of these requests. Of many, the first `REQUEST_IDS_MAX` are told the broker."""
        if ids and not set(ids) <= set(self.ids):
            self.ids = tuple(dict.fromkeys((*self.ids, *ids)))[:REQUEST_IDS_MAX]

    def halve(self) -> tuple[Pending, Pending]:
        """Have its records go in two batches. They must be several."""
        if self.parts is None:
            middle = len(self.values) // 2
            self.parts = self._cut(slice(middle)), self._cut(slice(middle, None))
        return self.parts

    def _cut(self, where: slice) -> Pending:
        part = Pending(self.owner, self.partition, ids=self.ids)
        part.values, part.whole, part.has_columns = self.values[where], self, self.has_columns
        part.count = len(part.values)
        for column in ("keys", "headers", "times", "queued"):
            records = getattr(self, column)
            setattr(part, column, None if records is None else records[where])
        return part

    def place_of(self, index: int) -> tuple[Pending, int]:
        """What has the outcome of a record, and the record's number there."""
        if self.parts is None:
            return self, index
        first, second = self.parts
        count = first.count
        return first.place_of(index) if index < count else second.place_of(index - count)

    def settle(self, offset: int, time_us: int, error: Error | None, repeats: Mapping[int, int] = NONE) -> None:
        """Set the outcome and drop the records. The connection runs the callbacks.

        `repeats`: by number of a record here, the offset of the task that it repeats.
        """
        self.offset, self.time_us, self.error, self.repeats = offset, time_us, error, repeats
        if error is not None:
            keep(self.owner.failed, self)
        if self.dones:
            self.callbacks = [*(self.callbacks or ()), Telling(self, self.dones[: len(self.values)])]
            self.dones = []
        self.values, self.keys, self.headers, self.times, self.queued = [], None, None, None, None
        whole, connection = self.whole, self.owner.connection
        connection.ended.append(self)
        if self.callbacks is not None:
            connection.finished, self.callbacks = connection.finished + self.callbacks, None
        if whole is not None and [part for part in whole.parts or () if not part.settled] == [self]:
            whole.settle(-1, 0, None)
        self.settled = True  # last: it is told again when Ctrl-C came with the return of a call before

    def call_when_done(self, index: int, done: Done | None) -> None:
        """Have `done` called with the outcome of record `index`, which is about to become the last."""
        dones = self.dones
        if len(dones) != index:
            del dones[index:]  # of a record that was interrupted on its way in
            dones += [None] * (index - len(dones))
        if done is not None:
            dones.append(done)

    def outcome(self, index: int) -> Posted | Error:
        """The outcome of a settled record, for its callback."""
        pending, index = self.place_of(index)
        if pending.error is not None:
            return pending.error
        offset = -1 if self.owner.kind == Kind.STAGED else pending.offset + index
        return Posted(pending.partition, offset, pending.time_us, pending.repeats.get(index))

    def raise_error(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            self.seen = True
            raise self.error


class Posted(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands: what the `on_done` of `Producer.post` gets.

    `partition` and `offset`: its place; the offset is -1 in a transaction. `time_us`: when its batch was appended, in
    microseconds UTC. `repeats`: for a record whose `dedup` key came before, the offset of the task that stands for it.
    """

    partition: int
    offset: int
    time_us: int
    repeats: int | None = None


Done = Callable[[Posted | Error], object]


def not_callable(name: str, given: object) -> InvalidArgument:
    """The error about a callback that is none."""
    return InvalidArgument(f"{name}={given!r} is not a function to call")


class Telling:
    """Calls the callbacks of a settled batch, in the order of its records.

    What they raise is raised once all were called, as an ExceptionGroup. Where Ctrl-C interrupts it, it is to be called
    again, for those that are left.
    """

    def __init__(self, pending: Pending, dones: list[Done | None]) -> None:
        self._pending = pending
        self._dones = dones
        self._next = 0  # of them, to be called
        if pending.error is not None or pending.parts is not None:
            for index, done in enumerate(dones):
                if done is not None:
                    pending.place_of(index)[0].seen = True  # `flush` raises what no callback hears
        self._raised: list[Exception] = []

    def __call__(self) -> None:
        """Call those that are left."""
        for index in range(self._next, len(self._dones)):
            done = self._dones[index]
            if done is not None:
                self._tell(index, done)
        if self._raised:
            raise ExceptionGroup("callbacks of post raised", self._raised)

    def _tell(self, index: int, done: Done) -> None:
        outcome = self._pending.outcome(index)
        try:
            self._next = index + 1  # Ctrl-C comes with a call: before this, or in the callback
            done(outcome)
        except Exception as error:
            self._raised.append(error)


@unpicklable("its `result()`")
class Future(msgspec.Struct, eq=False, gc=False):
    """The offset of a record that was sent without waiting. Made by `Producer.send_nowait`.

    Not tracked by the garbage collector, so that a million of them cost no passes over them.
    """

    _pending: Pending
    _index: int

    @property
    def partition(self) -> int:
        """The partition the record goes to."""
        return self._pending.partition

    @property
    def repeats(self) -> int | None:
        """For a record whose `dedup` key came before: the offset of the task that stands for it, in the same partition.
        None if the record is its own task or the outcome is not known yet.
        """
        pending, index = self._pending.place_of(self._index)
        return pending.repeats.get(index)

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._pending.settled

    def result(self, timeout: float | None = None) -> int:
        """Wait for the commit, at most `timeout` seconds; returns the record's offset.

        Raises what prevented it, or TimedOut (None: after the client's timeout).
        """
        pending, index = self._pending, self._index
        if not pending.settled:
            self._wait(timeout)
        if pending.parts is not None:
            pending, index = pending.place_of(index)
        if pending.error is not None:
            pending.raise_error()
        return pending.offset + index

    def exception(self, timeout: float | None = None) -> Error | None:
        """Wait like `result`, at most `timeout` seconds; returns the error, None if the record is committed."""
        pending = self._pending
        if not pending.settled:
            self._wait(timeout)
        pending, _ = pending.place_of(self._index)
        pending.seen = True
        return pending.error

    def _wait(self, timeout: float | None) -> None:
        owner = self._pending.owner
        owner.run(owner.settled(self._pending, owner.connection.deadline(timeout)))

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback(self)` once the outcome is known, in whichever thread learns of it; at once if it is.

        What it raises then goes to threading.excepthook (on a loop: to the loop's exception handler).
        """
        if not self._pending.owner.call_when_settled(self._pending, Once(callback, self)):
            callback(self)

    def as_concurrent(self) -> concurrent.futures.Future[int]:
        """The same outcome as a future of the standard library, for `concurrent.futures.wait` or `asyncio.wrap_future`.

        It cannot be cancelled: the record is on its way.
        """
        found: concurrent.futures.Future[int] = concurrent.futures.Future()
        found.set_running_or_notify_cancel()
        self.add_done_callback(lambda known: _copy(known, found))
        return found

    def __repr__(self) -> str:
        pending, _ = self._pending.place_of(self._index)
        state = "pending" if not pending.settled else repr(pending.error) if pending.error else "committed"
        return f"<Future of partition {pending.partition}: {state}>"


def _copy(known: Future, found: concurrent.futures.Future[int]) -> None:
    error = known.exception()
    if error is None:
        found.set_result(known.result())
    else:
        found.set_exception(error)
