"""The verbs of a client for ready batches: for programs that carry batches of others, like bridges and gateways.

Contract: as client.py, of which this is a part: any number of threads may call. A batch goes as it is: nothing is
gathered, split, compressed or numbered here.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..arguments.quantities import Duration, Size
from ..connection.driver import Driver
from ..descriptions import Appended, OpenedProducer
from .fetched import FetchedBatches
from .verbs import BatchVerbs


class BatchClient:
    """The part of `Client` that concerns ready batches."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._batch_verbs = BatchVerbs(driver.connection)

    def open_producer(self, topic: str, partition: int, name: str, *, id: str | None = None) -> OpenedProducer:
        """Claim the producer `name` on one partition, for `append_batch`. Its id stays, its epoch is a new one.

        Args:
            topic, partition: which partition.
            name: what was opened under it before is fenced.
            id: of the topic; one that was deleted and made again is UnknownTopic.

        A producer without a name needs no opening: it has a random id above 0, below 2**64, epoch 0 and first
        sequence 0.

        Raises: UnknownTopic, UnknownPartition, LimitReached.
        """
        return self._driver.run(self._batch_verbs.open_producer(topic, partition, name, id))

    def append_batch(self, topic: str, partition: int, batch: bytes, *, id: str | None = None) -> Appended:
        """Append a batch as it is, under the producer id, epoch and first sequence in its header.

        Args:
            topic, partition: which partition.
            batch: a batch of records as `penstock.storage.batch.encode` makes it, with a producer id.
            id: of the topic; one that was deleted and made again is UnknownTopic. With it the broker is not asked for
                the topic's id first.

        Returns: where it stands, once the topic's commit level is reached. For a batch that the broker has already,
        of the last 64 of this producer, that is the place of the first one: repeating a call is safe after any error.

        Raises: SequenceGap when its first sequence is not the next one; UnknownProducer for a first batch that does
        not begin at 0; Fenced for an older epoch; BatchTooLarge, RecordTooLarge; BadChecksum and InvalidBatch for one
        that is damaged, or that a producer may not send.
        """
        return self._driver.run(self._batch_verbs.append_batch(topic, partition, batch, id))

    def fetch_batches(
        self,
        places: Iterable[tuple[str, int, int]],
        *,
        max_bytes: Size = "4MB",
        partition_max_bytes: Size = "1MB",
        min_bytes: Size = 1,
        wait: Duration = 0.0,
        verify: bool = True,
    ) -> list[FetchedBatches]:
        """The next batches of many partitions, as they are stored, in one request.

        Args:
            places: (topic id, partition, offset) of each, up to 4096, and each partition once. They are read in this
                order until `max_bytes` are full, so name first what came short in the last call.
            max_bytes: of all together, 4 MiB at most. One batch comes though it is longer.
            partition_max_bytes: of each partition, but for one batch that is longer.
            min_bytes: wait while there is less.
            wait: at most so long; 0: return what is there.
            verify: check every column against its checksum.

        Returns: what there is of each place, in order. An error of one, like UnknownTopic, OutOfBounds or Corrupt,
        stands with it and ends the wait.

        Raises: InvalidRequest when a partition is named twice; LimitReached.
        """
        return self._driver.run(
            self._batch_verbs.fetch_batches(places, max_bytes, partition_max_bytes, min_bytes, wait, verify)
        )
