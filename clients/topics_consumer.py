"""The consumer of several topics, for threads: `client.consumer(["alarms", "sensor-*"])`.

Contract: as a consumer of each topic (consumer.py), behind one `fetch`. Verbs take or tell topics.
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
from .consuming.iterating import each_batch, each_record, fetched, run_last_told
from .consuming.options import ConsumerOptions
from .consuming.together import ConsumerCores
from .descriptions import Committed
from .ranges.verbs import RangeVerbs
from .unpicklable import unpicklable

if TYPE_CHECKING:
    import pyarrow as pa


@checks
@unpicklable("the URL, the topics and the group, and make a consumer where it is needed")
class TopicsConsumer(Generic[V]):
    """Reads several topics, which take turns. Iterating waits for new records forever; `fetch` gives what is there."""

    def __init__(self, driver: Driver, core: ConsumerCores, options: ConsumerOptions, *, serialized: bool) -> None:
        """Made by `Client.consumer`."""
        self._driver = driver
        self._core = core
        self._options = options
        self._serialized = serialized

    @property
    def topics(self) -> list[str]:
        """The topics that it reads now."""
        return sorted(self._core.cores)

    @property
    def group(self) -> str | None:
        """The group's name, the same in each topic; None for a consumer that reads alone."""
        return self._options.group or None

    @property
    def member(self) -> str:
        """This consumer's name within its group."""
        return self._options.member

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
        """At most `max_records` records of any topics: available ones at once, else the first within `wait` seconds.

        Returns: [] when there are none in time. `record.topic` says where one is from.
        """
        core = self._core
        deadline = core.connection.clock() + seconds(wait, "wait")
        core.begun = {}
        try:
            return fetched(self._driver, core, max_records, deadline)
        except (KeyboardInterrupt, SystemExit):
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
        """Batches as they are stored, each of one topic.

        Args:
            format, columns, wait: as of `Consumer.batches`; the column `topic` says where records are from.
        """
        convert = converter(format, columns, serialized=self._serialized)
        patience = FOREVER if wait is None else seconds(wait, "wait")
        self._core.check_open()
        return each_batch(self._driver, self._core, convert, patience)

    # -- places -----------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[str, Mapping[int, int]] | None = None, *, note: str = "") -> None:
        """Commit the group's cursors in each topic: everything handed out so far, or `positions`.

        Topics are committed one after the other, so a crash in between leaves some committed and others not.

        Args:
            positions: next offsets by topic and partition.
            note: up to 4 KiB that stand beside the cursors it moves, until they move again.

        Raises: NoGroup; Fenced when a partition went to another member, and UnknownTopic when a named topic was
            deleted, after all others were committed.
        """
        core = self._core
        core.check_open()
        self._driver.run(core.commit(positions, note, core.connection.deadline()))

    def seek(
        self,
        to: int | datetime | Literal["earliest", "latest"],
        *,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Continue elsewhere.

        Args:
            to: an offset, a datetime, "earliest" or "latest".
            topic: in this one. None: in all; an offset needs a topic where there are several.
            partition: of this one. None: of all assigned; an offset needs a partition where there are several.

        Raises: NotAssigned for a topic or a partition that this consumer does not read.
        """
        core = self._core
        is_time = not isinstance(to, int)
        place = start_time(to, "to") if is_time else to
        self._driver.run(core.seek(place, is_time, topic, partition, core.connection.deadline()))

    def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Hand out nothing more of a topic, which stays assigned to this consumer, until `resume`.

        Args:
            topic: of this one. None: of all that it reads now.
            partition: of this one. None: of all assigned now.

        Raises: NotAssigned for a topic or a partition that this consumer does not read.
        """
        core = self._core
        self._driver.run(core.pause(topic, partition, core.connection.deadline()))

    def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        """Hand out records of what is paused again, from where they stopped.

        Args:
            topic: of this one. None: of all.
            partition: of this one. None: of all.

        Raises: NotAssigned for a topic or a partition that this consumer does not read.
        """
        core = self._core
        self._driver.run(core.resume(topic, partition, core.connection.deadline()))

    @property
    def paused(self) -> dict[str, list[int]]:
        """The partitions that are paused, by topic."""
        return {name: sorted(core.paused) for name, core in sorted(self._core.cores.items()) if core.paused}

    def committed(self) -> dict[str, dict[int, Committed]]:
        """The group's cursors as the broker has them, with notes, by topic and partition that this consumer reads.

        Those whose cursor never moved are left out. Raises NoGroup.
        """
        return self._driver.run(self._core.committed(RangeVerbs(self._core.connection).committed))

    @property
    def position(self) -> dict[str, dict[int, int]]:
        """The next offset to be handed out, by topic and partition."""
        cores = sorted(self._core.cores.items())
        return self._driver.do(lambda: {name: core.positions() for name, core in cores})

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions this consumer reads now, by topic."""
        return {name: list(positions) for name, positions in self.position.items()}

    def lags(self) -> dict[str, dict[int, int]]:
        """Records still to be handed out, by topic and partition that this consumer reads, by the broker's ends."""
        core = self._core
        return self._driver.run(core.lags(core.connection.deadline()))

    def lag(self) -> int:
        """The sum of `lags`."""
        return sum(sum(each.values()) for each in self.lags().values())

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit if that is automatic, and leave the groups. Idempotent."""
        self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        if not self._core.ended and not self._driver.closed:
            try:
                for core in list(self._core.cores.values()):  # topics of a pattern may join meanwhile
                    run_last_told(core)
            finally:
                self._driver.run(self._core.close(self._core.connection.deadline(), failed=failed))

    def __repr__(self) -> str:
        group = f", group {self.group}" if self.group else ""
        return f"<{type(self).__name__} of {self._core.chosen}{group}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(failed=kind is not None and kind is not GeneratorExit)
