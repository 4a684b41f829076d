"""The batches of a group's tasks: which partition each goes to, and under which producer's numbers.

Idea: a producer has one batch on its way at a time, so it needs no window. One that is free is taken, or made; it is
kept when its batch stands, and dropped when that is not known: its numbers may have gone on or not.

Contract: Pure: randomness is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from ...storage.batch import encode
from ...transport.messages import Topic
from ..producing.pieces import partitioner_of
from .descriptions import GroupTask

BATCH_BYTES = 1 << 20
"""Values of one batch, about; at least one record."""

Randomness = Callable[[int], bytes]


class MemberProducer:
    """A producer of one partition."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.next_sequence = 0

    def batch(self, tasks: Sequence[GroupTask]) -> bytes:
        """The next batch. Raises InvalidBatch."""
        plain = [task.priority for task in tasks], [task.not_before for task in tasks]
        return bytes(
            encode(
                [task.value for task in tasks],
                keys=[task.key for task in tasks] if any(task.key is not None for task in tasks) else None,
                headers=[task.headers or None for task in tasks],
                priorities=plain[0] if any(plain[0]) else None,
                not_before=plain[1] if any(plain[1]) else None,
                producer_id=self.producer_id,
                first_sequence=self.next_sequence,
            )
        )


class Producers:
    """The producers of one client that have nothing on its way, by topic and partition."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._free: dict[tuple[bytes, int], list[MemberProducer]] = {}

    def take(self, topic: bytes, partition: int) -> MemberProducer:
        """One that is free, or new."""
        free = self._free.get((topic, partition))
        return free.pop() if free else self.fresh()

    def fresh(self) -> MemberProducer:
        """A new one."""
        return MemberProducer(int.from_bytes(self._randomness(8), "little") or 1)

    def give_back(self, topic: bytes, partition: int, producer: MemberProducer, count: int) -> None:
        """Its batch of `count` records stands."""
        producer.next_sequence += count
        self._free.setdefault((topic, partition), []).append(producer)


class MemberBatch(Struct, frozen=True):
    """Tasks that go in one batch, by their numbers in the group."""

    topic: Topic
    partition: int
    group: str
    numbers: list[int]


def portions(tasks: Sequence[GroupTask], topics: Mapping[str, Topic], randomness: Randomness) -> Iterator[MemberBatch]:
    """The batches of a group: tasks without a key of one topic go to one partition of it."""
    drawn = {name: int.from_bytes(randomness(4), "little") % len(topic.partitions) for name, topic in topics.items()}
    places: dict[tuple[str, int, str], list[int]] = {}
    for number, task in enumerate(tasks):
        topic = topics[task.topic]
        count = len(topic.partitions)
        hashing = partitioner_of(topic)
        partition = drawn[task.topic] if task.key is None else hashing.of(task.key, count)
        places.setdefault((task.topic, partition, task.group), []).append(number)
    for (name, partition, group), numbers in places.items():
        for some in _cut(numbers, tasks):
            yield MemberBatch(topics[name], partition, group, some)


def _cut(numbers: Iterable[int], tasks: Sequence[GroupTask]) -> Iterator[list[int]]:
    some: list[int] = []
    size = 0
    for number in numbers:
        more = len(tasks[number].value)
        if some and size + more > BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(number)
        size += more
    yield some
