"""Opening consumers: the part of `Client` that makes them, of one topic or of several.

Contract: as client.py, of which this is a part: any number of threads may call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack, overload

from .arguments.quantities import Duration, Size, Start
from .connection.delivery import Delivery
from .connection.driver import Driver
from .connection.opened import Opened
from .consumer import Consumer
from .consuming.chosen import WILD, Chosen
from .consuming.options import ConsumerSettings, consumer_options
from .consuming.together import ConsumerCores, opened_core
from .descriptions import AssignmentChange
from .errors import InvalidArgument
from .serializing import Encodings, Functions, Loading, Serializer, T
from .topics_consumer import TopicsConsumer

Names = list[str] | tuple[str, ...]
"""Of topics, and patterns."""


class ConsumerClient:
    """See the module."""

    def __init__(self, driver: Driver, delivery: Delivery, opened: Opened) -> None:
        self._driver = driver
        self._delivery: Delivery = delivery
        self._open = opened

    @overload
    def consumer(self, topic: str, *, value: None = None, **options: Unpack[ConsumerSettings]) -> Consumer: ...
    @overload
    def consumer(self, topic: str, *, value: Encodings, **options: Unpack[ConsumerSettings]) -> Consumer[Any]: ...
    @overload
    def consumer(self, topic: str, *, value: Functions[T], **options: Unpack[ConsumerSettings]) -> Consumer[T]: ...
    @overload
    def consumer(self, topic: Names, *, value: None = None, **options: Unpack[ConsumerSettings]) -> TopicsConsumer: ...
    @overload
    def consumer(
        self, topic: Names, *, value: Encodings, **options: Unpack[ConsumerSettings]
    ) -> TopicsConsumer[Any]: ...
    @overload
    def consumer(
        self, topic: Names, *, value: Functions[T], **options: Unpack[ConsumerSettings]
    ) -> TopicsConsumer[T]: ...

    def consumer(
        self,
        topic: str | Names,
        *,
        value: Serializer | None = None,
        group: str | None = None,
        member: str | None = None,
        start: Start = "earliest",
        positions: Mapping[int, int] | None = None,
        delivery: Delivery | None = None,
        auto_commit: Duration | None = None,
        session_timeout: Duration = 10.0,
        max_processing: Duration = 300.0,
        window_bytes: Size = "4MB",
        window_records: int = 1 << 18,
        verify: bool = True,
        on_assignment: Callable[[AssignmentChange], object] | None = None,
    ) -> Consumer[Any] | TopicsConsumer[Any]:
        """A consumer of one topic, or of several; it has joined when this returns.

        Args:
            topic: name of the topic; or a list of names and patterns, as in ["alarms", "sensor-*"], for a
                `TopicsConsumer`. Topics that a pattern chooses join and leave as they are created and deleted.
            value: how bytes become values, as of `producer`. A null stays None. A value that cannot be read raises
                CannotDeserialize once, in the call that would have returned its record, and the next goes on behind it.
            group: share the partitions with its other members, from the group's cursor on. None reads all alone.
            member: name within the group; made up when None. Joining again under it replaces the older one.
            start: "earliest", "latest" or a datetime, for partitions without a cursor.
            positions: offsets by partition to start at instead (without a group).
            delivery: as in `connect`, for this consumer. Several topics are not mapped: one connection brings all.
            auto_commit: commit every so many seconds what the application is done with; None leaves it to `commit`.
            session_timeout: after so long a silence of this process, five minutes at most, the broker gives its
                partitions to others.
            max_processing: after so long without a call the application counts as hung, and heartbeats end.
            window_bytes, window_records: what may be on its way; the most that is read again after a loss.
            verify: check every column against its checksum before it is handed out. False trusts memory and disks
                for speed (a third, for mapped Arrow); batch headers are verified all the same.
            on_assignment: called with the partitions that this consumer was given and that are taken, in its reading
                calls: before a record of the former is handed out, and while the latter may still be committed.
        """
        self._driver.check_open()
        connection, wanted, several = self._driver.connection, delivery or self._delivery, not isinstance(topic, str)
        if isinstance(topic, str) and WILD.search(topic):
            raise InvalidArgument(f"topic={topic!r} is a pattern: give it in a list, as in consumer([{topic!r}])")
        if several and (positions or delivery == "mapped"):
            raise InvalidArgument("positions= and delivery='mapped' are for one topic: make a consumer of each")
        options = consumer_options(
            connection, group=group, member=member, start=start, positions=positions,
            delivery="auto" if several and wanted == "mapped" else wanted,
            may_map=self._driver.may_map and not several, auto_commit=auto_commit, session_timeout=session_timeout,
            max_processing=max_processing, window_bytes=window_bytes, window_records=window_records, verify=verify,
        )  # fmt: skip
        load = None if value is None else Loading(value)
        opened = partial(opened_core, connection, options, load, on_assignment)
        deadline = connection.deadline()
        if isinstance(topic, str):
            core = opened(self._driver.run(connection.find_topic(topic, deadline)))
            consumer = Consumer[Any](self._driver, core)
        else:
            core = ConsumerCores(connection, Chosen(topic), opened)
            consumer = TopicsConsumer[Any](self._driver, core, options, serialized=load is not None)
        try:
            self._driver.run_on(core.joined(deadline))
        except BaseException:
            consumer.close()
            raise
        return self._open.add(consumer)
