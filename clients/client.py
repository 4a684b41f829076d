"""The client for threads, and `connect`, where everything begins.

    with penstock.connect("unix:///run/penstock/broker.sock") as client:      # ipc://  tcp://  file://  mem://
        client.create_topic("flights", partitions=4)
        with client.producer("flights") as producer: ...
        with client.consumer("flights", group="report") as consumer: ...

Contract: the same verbs on all five schemes. Any number of threads may share a client, which works in the calling
threads (driver.py). Times are seconds or timedelta, sizes bytes or "64MB".
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from ..storage.record import Record
from ..transport.keys import KeyLike
from ..transport.messages import Stage
from .arguments.checking import check_name, checked, checks
from .arguments.quantities import Duration, Size, Start, seconds, size_bytes
from .arguments.settings import ProducerSettings, TopicOptions
from .barriers.client import BarrierClient
from .batches.client import BatchClient
from .connection.delivery import Delivery
from .connection.driver import Driver
from .connection.opened import Opened
from .consumer_client import ConsumerClient
from .descriptions import Group, Topic, TrimmedPartition, group_of, topic_of, trimmed_of
from .opening import open_connection
from .producer import Producer, Staging, Transaction
from .producing.core import ProducerCore
from .producing.direct import DirectProducer
from .producing.pending import Future
from .queues.client import QueueClient
from .ranges.client import RangeClient
from .ranges.iterating import each_batch_aside
from .serializing import Dumping, Encodings, Functions, Loading, Serializer, T
from .sql.query import run_query, table_names
from .transactions.staging_core import StagingCore, begin
from .transactions.staging_producer import StagedFuture
from .transactions.verbs import TransactionVerbs, checked_epoch, checked_name, checked_stages
from .unpicklable import unpicklable
from .verbs import Verbs
from .worker import Worker
from .working.options import WorkerSettings, worker_options

if TYPE_CHECKING:
    import pyarrow as pa


@checked
def connect(
    url: str, *, timeout: Duration = 30.0, name: str | None = None, delivery: Delivery = "auto", key: KeyLike = None
) -> Client:
    """Connect to a broker, or open a data directory or a broker in memory.

    Args:
        url: unix:///path, ipc:///path or tcp://host:port of a broker, file:///directory (embedded), or mem://name
            (shared in this process).
            Several nodes of a cluster stand behind one another, as in tcp://a:7070,b:7070,c:7070: the client finds the
            one that leads, and goes on with the next leader by itself.
        timeout: default of all verbs: seconds to wait for the broker.
        name: of this client, for people.
        delivery: how consumers get their records: "push" (own endpoint), "control" (the same connection),
            "mapped" (read the broker's files directly), or "auto": mapped where the broker runs on this machine and
            lets us, else push, and control when that does not get through. Over unix://, "push" means control. An
            event loop maps only when told to, because it would wait for the disk.
        key: over tcp://, a Key or the path of a key file. None: the file that PENSTOCK_KEY names, or none.

    Raises: InvalidUrl; InvalidKey; Unauthenticated when the broker does not let it in; TimedOut when none answers;
        AlreadyOpen, ForeignDirectory, NewerFormat for file://.
    """
    patience = seconds(timeout, "timeout")
    client = Client(Driver(open_connection(url, timeout=patience, name=name, clock=time.monotonic, key=key)), delivery)
    try:
        client.ping()
    except BaseException:
        client.close()
        raise
    return client


@checks
@unpicklable("its `url`, and connect to that where it is needed")
class Client(ConsumerClient, QueueClient, RangeClient, BatchClient, BarrierClient):
    """One connection to one broker. Made by `connect`."""

    def __init__(self, driver: Driver, delivery: Delivery = "auto") -> None:
        self._open = Opened()
        ConsumerClient.__init__(self, driver, delivery, self._open)
        QueueClient.__init__(self, driver)
        RangeClient.__init__(self, driver, delivery)
        BatchClient.__init__(self, driver)
        BarrierClient.__init__(self, driver)
        self._connection = driver.connection
        self._verbs = Verbs(driver.connection)
        self._transaction_verbs = TransactionVerbs(driver.connection)

    @property
    def url(self) -> str:
        """The broker's address."""
        return self._connection.url

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._driver.closed

    @property
    def now_us(self) -> int:
        """The clock by which delays count, in microseconds UTC: this machine's, or that of a broker in memory."""
        return self._connection.channel.now_us()

    # -- producing and consuming ------------------------------------------------------------------------

    @overload
    def producer(self, topic: str, *, value: None = None, **options: Unpack[ProducerSettings]) -> Producer: ...
    @overload
    def producer(self, topic: str, *, value: Encodings, **options: Unpack[ProducerSettings]) -> Producer[Any]: ...
    @overload
    def producer(self, topic: str, *, value: Functions[T], **options: Unpack[ProducerSettings]) -> Producer[T]: ...

    def producer(
        self,
        topic: str,
        *,
        value: Serializer | None = None,
        name: str | None = None,
        codec: str | None = None,
        window_bytes: Size = "8MB",
        direct: bool = False,
    ) -> Producer[Any]:
        """A producer for one topic.

        Args:
            topic: name of the topic.
            value: how values become bytes: "json", "msgpack", or the functions (dumps, loads); None: they are bytes.
            name: claims this name: an older producer under it is fenced, and its sequence goes on.
            codec: "none", "lz4" or "zstd" instead of the topic's setting.
            window_bytes: how much may be on its way to each partition before sending waits.
            direct: append to the broker's files without asking it for each record, which takes a third of the time:
                with threads, over unix:// on x86-64, to partitions of commit="written" topics that have no other
                producer, queue group or schedule. Records go through the broker where and while that cannot be:
                `Producer.direct` says why. What an acknowledgement means is the same either way.
        """
        self._driver.check_open()
        window, dump = size_bytes(window_bytes, "window_bytes"), None if value is None else Dumping(topic, value)
        if name:
            check_name("name", name)
        found = self._driver.run(self._connection.find_topic(topic, self._connection.deadline()))
        now_us = self._connection.channel.now_us
        core = (DirectProducer if direct else ProducerCore)(
            self._driver, found, name=name or "", window_bytes=window, codec=codec, now_us=now_us, future=Future
        )
        return self._open.add(Producer(self._driver, core, dump))

    @overload
    def worker(self, topic: str, *, group: str, value: None = None, **options: Unpack[WorkerSettings]) -> Worker: ...
    @overload
    def worker(self, topic: str, *, group: str, value: Encodings, **options: Unpack[WorkerSettings]) -> Worker[Any]: ...
    @overload
    def worker(
        self, topic: str, *, group: str, value: Functions[T], **options: Unpack[WorkerSettings]
    ) -> Worker[T]: ...

    def worker(
        self,
        topic: str,
        *,
        group: str,
        value: Serializer | None = None,
        lease: Duration | None = None,
        prefetch: int = 1,
        lease_records: int = 1,
        start: Start = "earliest",
        name: str | None = None,
        max_bytes: Size = "1MB",
        max_processing: Duration = 300.0,
        at_most_once: bool = False,
    ) -> Worker[Any]:
        """A worker of one topic, which leases records of a queue group and settles them.

        Args:
            topic: name of the topic.
            group: the queue group; created by the first worker, with default settings (see `set_queue`).
            value: how bytes become values, as of `producer`. A null stays None. A task whose value cannot be read is
                dead-lettered with the reason, and none is returned of it.
            lease: the visibility timeout: other workers get the task after it; None: the group's. The worker extends
                leases while the application works on their tasks.
            prefetch: how many leases are asked for ahead, while the application works on what it has. 0: none.
            lease_records: tasks that one lease holds when iterating; `fetch` asks for as many as it is told.
            start: where a new group begins: "earliest", "latest" or a datetime.
            name: of this worker, for people; made up when None.
            max_bytes: the most that one lease brings, but at least one task.
            max_processing: after so long without a call the application counts as hung, and its leases run out.
            at_most_once: tasks count as done when the broker gives them, without a lease: what this worker loses is
                lost. Acking them changes nothing, they cannot be settled otherwise, and none are prefetched, so `lease`
                and `prefetch` are not given with it. A value that cannot be read raises CannotDeserialize once.
        """
        self._driver.check_open()
        options = worker_options(
            group=group, lease=lease, prefetch=prefetch, lease_records=lease_records, start=start, name=name,
            max_bytes=max_bytes, max_processing=max_processing, at_most_once=at_most_once,
        )  # fmt: skip
        load = None if value is None else Loading(value)
        found = self._driver.run(self._connection.find_topic(topic, self._connection.deadline()))
        return self._open.add(Worker[Any](self._driver, found, options, load))

    def read(
        self, topic: str, partition: int, offset: int, *, max_records: int = 500, wait: Duration = 0.0
    ) -> list[Record]:
        """Read one partition from `offset` on, without a consumer; stops before damage.

        Args:
            topic, partition: which partition.
            max_records: the most that it returns.
            wait: at most so long for the first record; 0: return what is there.

        Raises: OutOfBounds with the valid range; Corrupt for a damaged place, with `next_offset` behind it.
        """
        return self._driver.run(self._verbs.read(topic, partition, offset, max_records, wait))

    # -- topics -----------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, *, partitions: int = 1, if_missing: bool = False, **settings: Unpack[TopicOptions]
    ) -> Topic:
        """Create a topic.

        Args:
            name: 1 to 200 characters out of A-Z a-z 0-9 . _ - and no dot at the start.
            partitions: how many.
            if_missing: a topic of this name that is there already is no error, unless what is given differs from it.
            settings: commit="durable" | "written", segment_bytes, retention_s, retention_bytes, retention_records,
                retain_unread, codec="none" | "lz4" | "zstd", max_record_bytes, dedup="drop" | "replace" | "extend"
                (what a second record of a dedup key does), dedup_window_s, partitioner="xxh3" | "murmur2" (the hash by
                which keys choose partitions). Sizes like "64MB", times like "7d" or timedelta.

        Raises: TopicExists, InvalidTopic, InvalidSettings.
        """
        return topic_of(self._driver.run(self._verbs.create_topic(name, partitions, if_missing, settings)))

    def topics(self) -> list[Topic]:
        """All topics, with their partitions."""
        return [topic_of(found) for found in self._driver.run(self._verbs.topics([]))]

    def topic(self, name: str) -> Topic:
        """The topic `name`. Raises UnknownTopic."""
        return topic_of(self._driver.run(self._verbs.topics([name]))[0])

    def alter_topic(self, name: str, *, partitions: int | None = None, **settings: Unpack[TopicOptions]) -> Topic:
        """Change the topic `name`.

        Args:
            partitions: grow to so many. From then on keys may go to other partitions than before.
            settings: as of `create_topic`; `commit` cannot change.

        Raises: UnknownTopic, InvalidSettings.
        """
        return topic_of(self._driver.run(self._verbs.alter_topic(name, partitions or 0, settings)))

    def delete_topic(self, name: str) -> None:
        """Delete the topic `name` with all its records and groups. Raises UnknownTopic."""
        self._driver.run(self._verbs.delete_topic(name))

    def trim(
        self,
        topic: str,
        partition: int | None = None,
        *,
        records: int | None = None,
        before: int | datetime | Literal["earliest", "latest"] | None = None,
    ) -> list[TrimmedPartition]:
        """Remove the oldest records of `topic`, whatever groups still have to do with them; give one rule.

        Each partition then begins at an exact record, and its files go segment by segment.

        Args:
            partition: of this one; None: of each.
            records: so many stay, per partition.
            before: those before an offset go, or those appended before a datetime; "latest": all that are there. An
                offset needs a partition where there are several.

        Returns: where each partition begins, and what its groups lost.

        Raises: UnknownTopic; OutOfBounds for an offset behind the end, and nothing is removed then.
        """
        found = self._driver.run(self._verbs.trim(topic, partition, records, before))
        return [trimmed_of(each) for each in found]

    def offsets(self, topic: str, at: Start) -> dict[int, int]:
        """The first offset appended at or after a time, or an end, for each partition of `topic`.

        Args:
            at: a datetime, "earliest" or "latest".
        """
        return self._driver.run(self._verbs.offsets(topic, at))

    # -- groups -----------------------------------------------------------------------------------------

    def groups(self, topic: str | None = None) -> list[Group]:
        """All groups, or those of `topic`."""
        return [group_of(found) for found in self._driver.run(self._verbs.groups(topic))]

    def group(self, topic: str, name: str) -> Group:
        """The group `name` of `topic`. Raises UnknownGroup."""
        return group_of(self._driver.run(self._verbs.group(topic, name)))

    def reset_group(self, topic: str, name: str, to: Start | Mapping[int, int]) -> None:
        """Move the cursors of the group `name` of `topic`.

        Args:
            to: "earliest", "latest", a datetime, or offsets by partition.

        Raises: GroupActive while it has members.
        """
        self._driver.run(self._verbs.reset_group(topic, name, to))

    def delete_group(self, topic: str, name: str) -> None:
        """Delete the group `name` of `topic`. Raises GroupActive while it has members."""
        self._driver.run(self._verbs.delete_group(topic, name))

    # -- transactions -----------------------------------------------------------------------------------

    def transaction(self, id: str | None = None, epoch: int | None = None) -> Transaction:
        """Publish records of many partitions and topics together: a `with` block that commits.

        Args:
            id, epoch: a name, and a number that rises with each transaction under it. Each epoch
                commits at most once, however often it is retried. Lower epochs are rejected. Without them, a single
                transaction under a name of its own.
        """
        self._driver.check_open()
        core = begin(self._driver, id, epoch, now_us=self._connection.channel.now_us, future=StagedFuture)
        return self._open.add(Transaction(self._driver, core))

    def staging(self) -> Staging:
        """Stage records for a transaction that another process commits, for example one that collects many stages."""
        self._driver.check_open()
        core = StagingCore(self._driver, now_us=self._connection.channel.now_us, future=StagedFuture)
        return self._open.add(Staging(self._driver, core))

    def commit_stages(self, id: str, epoch: int, stages: Iterable[Stage], timeout: Duration | None = None) -> bool:
        """Publish staged records of any number of processes, all or none.

        Args:
            id, epoch: as in `transaction`.
            stages: from all processes that staged for it; others are not published. None: an epoch without records.
            timeout: how long to wait, the client's when None.

        Returns and raises: as `Transaction.commit`.
        """
        name, number, found = checked_name(id), checked_epoch(epoch), checked_stages(stages)
        return self._driver.run(self._transaction_verbs.commit(name, number, found, self._until(timeout)))

    def drop_stages(self, stages: Iterable[Stage], timeout: Duration | None = None) -> None:
        """Have the broker drop stages that will not be committed; it does so itself an hour after their last record.

        Args:
            stages: which. Committed ones stay, and unknown ones are no error.
            timeout: how long to wait, the client's when None.
        """
        self._driver.run(self._transaction_verbs.drop(checked_stages(stages), self._until(timeout)))

    def transaction_epoch(self, id: str) -> int | None:
        """The last epoch that was committed under the name `id`; None when the broker knows of none.

        Waits for commits that are under way: one that had no answer is known then.
        """
        return self._driver.run(self._transaction_verbs.epoch(checked_name(id), self._until(None)))

    def _until(self, timeout: Duration | None) -> float:
        return self._driver.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))

    def sql(self, query: str) -> pa.Table:
        """Run SQL over topics, by DuckDB: `select key, count(*) from flights group by key`.

        Args:
            query: tables are topics, with columns `offset`, `timestamp`, `partition`, `key`, `value`, `headers` and
                `topic`; quote those that are words of SQL, as in `"offset" >= 100`, and topics as in `"my-topic"`.

        Only the columns, partitions and offsets that the query needs are read, directly from the broker's files where
        they can be mapped; batches without times of their own are passed over by their time. A query sees what was
        committed when it began, has no access to other files, and its time zone is UTC.

        Raises: InvalidQuery, with DuckDB's message; UnknownTopic; MissingLibrary without the extra `sql`; what `range`
        raises.
        """
        names = table_names(query)
        found = [topic_of(each) for each in self._driver.run(self._verbs.topics(names))] if names else []
        reading = partial(each_batch_aside, self._driver, self._known_topics, self._delivery)
        return self._driver.run_aside(partial(run_query, query, found, reading))

    # -- the broker ---------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counters and sizes of the broker, by dotted name."""
        return self._driver.run(self._verbs.stats())

    def ping(self) -> float:
        """Time one round trip, in seconds."""
        return self._driver.run(self._verbs.ping())

    def close(self) -> None:
        """Close its producers (flushing them), transactions (dropping them) and consumers, then the connection.

        All of them together wait no longer than one verb. Repeating it finishes what an interrupt left.
        """
        self._connection.ends_at = self._connection.deadline()
        with ExitStack() as closing:  # close all of them, even if closing one raises
            closing.callback(self._driver.close)
            closing.callback(self._open.clear)
            for opened in self._open.newest_first():
                closing.callback(opened.close)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
