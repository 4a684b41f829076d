"""The consumer for threads: `client.consumer(topic)`.

Contract: records of one partition come in order. In a group, one member at a time reads a partition, from the group's
cursor on; records that a lost member had not committed are read again by another. One thread at a time reads from a
consumer; others may call `close` and `commit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, overload

from ..storage.record import Record, V
from .arguments.checking import checks
from .arguments.quantities import Duration, seconds, start_time
from .connection.driver import Driver
from .connection.steps import FOREVER
from .consuming.columnar import Columns, Format, converter
from .consuming.core import ConsumerCore
from .consuming.iterating import each_batch, each_record, fetched, run_last_told
from .consuming.lags import lag, lags
from .consuming.leaving import leave
from .consuming.moving import pause, resume, seek
from .descriptions import Committed
from .ranges.verbs import RangeVerbs
from .unpicklable import unpicklable

if TYPE_CHECKING:
    import pyarrow as pa


@checks
@unpicklable("the URL, the topic and the group, and make a consumer where it is needed")
class Consumer(Generic[V]):
    """Reads one topic. Iterating waits for new records forever; `fetch` returns available ones."""

    def __init__(self, driver: Driver, core: ConsumerCore) -> None:
        """Made by `Client.consumer`."""
        self._driver = driver
        self._core = core

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def group(self) -> str | None:
        """The group's name, None for a consumer that reads alone."""
        return self._core.options.group or None

    @property
    def member(self) -> str:
        """This consumer's name within its group."""
        return self._core.options.member

    @property
    def delivery(self) -> str:
        """How records travel now: push, control or mapped."""
        return self._core.life.delivery

    @property
    def closed(self) -> bool:
        """Whether the consumer was closed."""
        return self._core.closed

    # -- reading ----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record[V]]:
        """Every record, waiting for those to come; ends when the consumer is closed by another thread."""
        self._core.check_open()
        return each_record(self._driver, self._core)

    def fetch(self, max_records: int = 500, wait: Duration = 1.0) -> list[Record[V]]:
        """At most `max_records` records: available ones at once, else the first that come within `wait` seconds.

        Returns: [] when there are none in time.

        Records of a call that Ctrl-C interrupts come again with the next call. An interrupt between its return and the
        caller's own next step cannot be told from one in the application: those records count as handed out. To get
        them again without restarting, `seek` behind the last record that was processed.
        """
        core = self._core
        deadline = core.connection.clock() + seconds(wait, "wait")
        core.begun = {}
        try:
            if core.telling is None and core.load is None:
                return self._driver.run(core.fetch(max_records, deadline))
            return fetched(self._driver, core, max_records, deadline)
        except (KeyboardInterrupt, SystemExit):
            if core.begun:  # no call before this is noted: a second Ctrl-C may come with its return
                core.back_to = core.begun
            raise

    @overload
    def batches(
        self, format: Literal["records"] = "records", *, wait: Duration | None = None
    ) -> Iterator[list[Record[V]]]: ...
    @overload
    def batches(
        self, format: Literal["arrow"], *, columns: Sequence[str] | None = None, wait: Duration | None = None
    ) -> Iterator[pa.RecordBatch]: ...
    @overload
    def batches(self, format: Literal["numpy"], *, wait: Duration | None = None) -> Iterator[Columns]: ...

    def batches(
        self, format: Format = "records", *, columns: Sequence[str] | None = None, wait: Duration | None = None
    ) -> Iterator[Any]:
        """Batches as they are stored: lists of records, Arrow record batches, or numpy columns.

        Args:
            format: "records", "arrow" or "numpy".
            columns: of Arrow batches, any of value, key, offset, timestamp, headers (a list of structs `key` and
                `value`, null where a record has none), topic and partition; the first five when None.
            wait: end after so many seconds without a record; None waits for ever.

        A consumer with a serializer (`value=`) makes lists of records, which end before one that it cannot read.
        """
        convert = converter(format, columns, serialized=self._core.load is not None)
        patience = FOREVER if wait is None else seconds(wait, "wait")
        self._core.check_open()
        return each_batch(self._driver, self._core, convert, patience)

    # -- places -----------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[int, int] | None = None, *, note: str = "") -> None:
        """Commit the group's cursor, at the topic's level: everything handed out so far, or `positions`.

        Args:
            positions: next offsets by partition.
            note: up to 4 KiB that stand beside the cursors it moves, until they move again (`Client.committed`).

        Raises: NoGroup; Fenced when a partition went to another member, who reads those records again.
        """
        core = self._core
        core.check_open()
        self._driver.run(core.commit(positions, note, core.connection.deadline()))

    def seek(self, to: int | datetime | Literal["earliest", "latest"], *, partition: int | None = None) -> None:
        """Continue elsewhere.

        Args:
            to: an offset, a datetime, "earliest" or "latest".
            partition: of this one. None: of all assigned; an offset needs a partition where there are several.

        Raises: NotAssigned for a partition that this consumer does not read.
        """
        core = self._core
        core.check_open()
        is_time = not isinstance(to, int)
        place = start_time(to, "to") if is_time else to
        self._driver.run(seek(core, place, is_time, partition, core.connection.deadline()))

    def pause(self, partition: int | None = None) -> None:
        """Hand out nothing more of a partition, which stays assigned to this consumer, until `resume`.

        The others go on, and so do heartbeats. The broker sends nothing of it. Pausing twice is no error. A pause ends
        when the partition is taken from this consumer.

        Args:
            partition: of this one. None: of all assigned now.

        Raises: NotAssigned for a partition that this consumer does not read.
        """
        core = self._core
        core.check_open()
        self._driver.run(pause(core, partition, core.connection.deadline()))

    def resume(self, partition: int | None = None) -> None:
        """Hand out records of a paused partition again, from where they stopped.

        Args:
            partition: of this one. None: of all.

        Raises: NotAssigned for a partition that this consumer does not read.
        """
        core = self._core
        core.check_open()
        self._driver.run(resume(core, partition, core.connection.deadline()))

    @property
    def paused(self) -> list[int]:
        """The partitions that are paused."""
        return sorted(self._core.paused)

    def committed(self) -> dict[int, Committed]:
        """The group's cursors as the broker has them, with notes, for the partitions that this consumer reads.

        Those whose cursor never moved are left out. Raises NoGroup.
        """
        self._core.check_group()
        found = self._driver.run(RangeVerbs(self._core.connection).committed(self.topic, self._core.options.group))
        mine = set(self.assignment)
        return {partition: Committed(offset, note) for partition, offset, note in found if partition in mine}

    @property
    def position(self) -> dict[int, int]:
        """The next offset to be handed out, by partition."""
        return self._driver.do(self._core.positions)

    @property
    def assignment(self) -> list[int]:
        """The partitions this consumer reads now."""
        return list(self.position)

    def lags(self) -> dict[int, int]:
        """Records still to be handed out, for each partition this consumer reads, by the broker's present ends."""
        core = self._core
        core.check_open()
        return self._driver.run(lags(core, core.connection.deadline()))

    def lag(self) -> int:
        """The sum of `lags`. Raises Unavailable while a partition of the topic cannot be opened."""
        core = self._core
        core.check_open()
        return self._driver.run(lag(core, core.connection.deadline()))

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit if that is automatic, and leave the group. Idempotent."""
        self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        if not self._core.ended and not self._driver.closed:
            try:
                run_last_told(self._core)
            finally:
                self._driver.run(leave(self._core, self._core.connection.deadline(), failed=failed))

    def __repr__(self) -> str:
        group = f", group {self.group}" if self.group else ""
        return f"<{type(self).__name__} of topic {self.topic}{group}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(failed=kind is not None and kind is not GeneratorExit)
