"""Transactions on a disk that may lose power at any operation: what was done, promised, and what must be found.

Idea: a `Story` is told to a rig over files with a journal, and writes down there what it was answered. For each place
of the journal and each way a disk may be left there, `Survivor` opens a rig on that disk, lets it come to rest, and
is asked: is each epoch there altogether or not at all, once, in order; are those there that were answered? Then the
client does what a client does that knows nothing but its own input: it asks what was committed, and does the rest
again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from penstock.transport import messages as m
from support.engine import MemoryStore, Rig
from support.files import Disk, Note, RecordingFiles
from support.transactions import Refused, answer_to, open_stages, put, send_commit, state

NAME = "etl"
HOWS = ("none", "all", "some")
"""What of the unsynced a disk has kept."""


class Place(NamedTuple):
    """Where a stage of the story goes."""

    topic: str
    partition: int


class Epoch(NamedTuple):
    """What one epoch brings to each place, in batches of two."""

    number: int
    values: dict[Place, list[bytes]]


def epoch(number: int, *places: Place, count: int = 4) -> Epoch:
    """One with values that say where they belong."""
    return Epoch(
        number, {each: [b"%d:%s/%d:%d" % (number, each.topic.encode(), each.partition, n) for n in range(count)]
                 for each in places}
    )  # fmt: skip


class Truth(NamedTuple):
    """What the client was answered so far."""

    committed: frozenset[int] = frozenset()
    topics: bool = False


class Story:
    """A rig over recorded files, two topics, and a client that commits epochs."""

    def __init__(self, files: RecordingFiles, topics: dict[str, tuple[int, str]], seed: int = 1) -> None:
        """Topics by name: (partitions, commit level)."""
        self.files = files
        store = MemoryStore(files)
        store.lazy = True
        self.rig = Rig(store, seed=seed, housekeeping_s=1.0)
        self.topics = {name: self._topic(name, *how) for name, how in topics.items()}
        self.stages = random.Random(seed)
        self.truth = Truth(topics=True)
        files.note(self.truth)

    def _topic(self, name: str, partitions: int, level: str) -> bytes:
        found = {topic.name: topic.topic for topic in self.rig.ask(m.ListTopics, []).topics}
        return found[name] if name in found else self.rig.topic(name, partitions, commit=level)

    def do(self, each: Epoch) -> None:
        """Stage and commit, as a client that has lost whatever it staged before."""
        stages = [
            put(self.rig, self.topics[place.topic], self.stages.getrandbits(60) | 1, *values, partition=place.partition)
            for place, values in each.values.items()
        ]
        request = send_commit(self.rig, NAME, each.number, *stages)
        self.rig.turn()
        for _ in range(20):
            answer = answer_to(self.rig, request)
            if answer is not None:
                break
            self.rig.pass_time(0.02, step=0.01)
        if isinstance(answer, m.Failure):
            raise Refused(answer.message)
        assert isinstance(answer, m.TransactionCommitted), answer
        self.truth = self.truth._replace(committed=self.truth.committed | {each.number})
        self.files.note(self.truth)

    def tries(self, each: Epoch) -> bool:
        """As `do`, where the disk may refuse it. Returns whether it went well."""
        try:
            self.do(each)
        except Refused:
            return False
        return True

    def read(self, place: Place) -> list[bytes]:
        return self.rig.read(self.topics[place.topic], place.partition)


def check(story: Story, epochs: list[Epoch], truth: Truth) -> None:
    """Each epoch is there or not, altogether, once, in order; those that were answered are."""
    last, finished = state(story.rig, NAME)
    assert finished, f"epoch {last} did not come to its end: {story.rig.node.stats()}"
    there = [each for each in epochs if each.number <= last]
    assert truth.committed <= {each.number for each in there}, f"{sorted(truth.committed)} answered, {last} there"
    for place in {place for each in epochs for place in each.values}:
        wanted = [value for each in there for value in each.values.get(place, [])]
        found = story.read(place)
        assert found == wanted, f"{place}: {found} instead of {wanted}"


def survive(image: dict[str, bytes], directories: set[str], topics: dict[str, tuple[int, str]], seed: int) -> Story:
    """A node on a disk that was found, at rest."""
    files = RecordingFiles(image, sorted(directories))
    story = Story(files, topics, seed)
    story.rig.turn(8)
    return story


def images(
    files: RecordingFiles, start: int, choose: random.Random, hows: tuple[str, ...] = HOWS
) -> Iterator[tuple[int, str, dict[str, bytes], Truth]]:
    """Place, way, disk and what was promised, for every operation from `start` on."""
    disk, truth = Disk(files), Truth()
    for place, operation in enumerate([*files.journal, None]):
        if place >= start:
            for how in hows:
                yield place, how, disk.image(choose, how), truth
        if operation is None:
            return
        disk.apply(operation)
        if isinstance(operation, Note) and isinstance(operation.value, Truth):
            truth = operation.value


def go_on(story: Story, epochs: list[Epoch], truth: Truth) -> None:
    """What a client does after a crash, and that it then has everything, once."""
    check(story, epochs, truth)
    last, _ = state(story.rig, NAME)
    for each in epochs:
        if each.number > last:
            story.do(each)
    check(story, epochs, story.truth)
    story.rig.pass_time(3700, step=400.0)
    assert open_stages(story.rig) == 0, "leftovers are collected"
    check(story, epochs, story.truth)
