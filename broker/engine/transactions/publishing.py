"""Publishing: appends the records of decided stages once more, as ordinary records.

Idea: each partition has a line of decided stages, in the order of their decisions. A portion is read and proposed; its
commit starts the next one. The partition's own state says how far a stage is published, so publishing resumes there
after a crash or a failure, and appends nothing twice.

Contract: one portion of a partition at a time, a few partitions at once, and one full portion per turn of the broker,
so that others wait less and the disk writes one portion while the next is read. The commit that waits for a stage is
told of each failure, and once that it is published. Appends that fail (a full disk) are retried after a pause; they
leave as much of the disk as all records do. On a poisoned log nothing is tried before the next start. A stage unknown
to its partition counts as published, as does every stage of a deleted topic. Must not know decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ....storage.errors import Error
from ...errors import Unavailable
from ..tables import effects as fx
from ..turns.replies import Gather
from .stage_reader import Portion, StageReader
from .staging import publish

if TYPE_CHECKING:
    from ....storage.batch import Batch
    from ..logs.clock import LogTime
    from ..logs.log_registry import LogRegistry
    from ..logs.partition import Partition
    from ..logs.topics import Topic
    from ..tables.decisions import StageKey
    from ..turns.alarms import Alarms

PORTION_BYTES = 4 << 20
"""Appended at once to one partition; one batch at least."""

PORTION_BATCHES = 256
"""In one portion: each takes steps of its own, however small it is."""

STAGES_MAX = 64
"""Small stages that are published together."""

AT_ONCE = 4
"""Partitions that have a portion under way."""

RETRY_S = 0.25
RETRY_MOST_S = 10.0
"""Delay before failed publishing is retried; doubles each time."""


class Awaiting(Protocol):
    """The commit that decided about a stage."""

    def published(self, key: StageKey) -> None:
        """All of its records can be read. Told once."""
        ...

    def waits(self, error: Error) -> None:
        """Handle a stage that cannot go on now and is retried."""
        ...

    def stuck(self, error: Error) -> None:
        """Handle a stage that cannot go on before the next start."""
        ...


class DecidedStage(NamedTuple):
    """A decided stage, and the commit that waits for it."""

    key: StageKey
    awaiting: Awaiting


class Doing(Enum):
    """The state of a line."""

    NOTHING = "nothing"
    WAITS = "waits for its turn"
    WORKS = "reads or appends a portion"
    RESTS = "could not go on, and will try again"
    STOPPED = "is poisoned"
    GONE = "was deleted"


class PublishingLine:
    """The decided stages of one partition, the first one first."""

    __slots__ = ("because", "doing", "jobs", "partition", "wait_s")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.jobs: deque[DecidedStage] = deque()
        self.doing = Doing.NOTHING
        self.because: Error | None = None
        self.wait_s = 0.0

    def take_published(self) -> list[DecidedStage]:
        """Jobs at the head of the line whose stages the partition has no more."""
        stages, taken = self.partition.committed.stages, list[DecidedStage]()
        while self.jobs and self.jobs[0].key[2] not in stages:
            taken.append(self.jobs.popleft())
        return taken

    @property
    def unsettled(self) -> bool:
        """Whether something of the next stage is in the log and not yet committed."""
        stage_id, partition = self.jobs[0].key[2], self.partition
        applied, head = partition.committed.stages.get(stage_id), partition.proposed.stages.get(stage_id)
        if head is None or applied is None:
            return True
        return (applied.next_sequence, applied.published) != (head.next_sequence, head.published)


class Load:
    """A portion read for a line: of its first stages, in their order."""

    __slots__ = ("batches", "error", "line", "size", "stages")

    def __init__(self, line: PublishingLine) -> None:
        self.line = line
        self.stages = 0  # how many of them were asked for
        self.batches: list[Batch] = []
        self.size = 0
        self.error: Error | None = None

    def next_portion(self, done: Callable[[Portion], None]) -> Portion:
        """The batches to read of the next stage."""
        stage_id = self.line.jobs[self.stages].key[2]
        self.stages += 1
        room_bytes, room = PORTION_BYTES - self.size, PORTION_BATCHES - len(self.batches)
        return Portion(self.line.partition, stage_id, room_bytes, room, done)

    def take(self, portion: Portion) -> bool:
        """Take what was read. Returns whether there is room for the stage behind it."""
        self.batches += portion.batches
        self.size += portion.size
        self.error = portion.error
        if portion.error is not None or portion.left or self.size >= PORTION_BYTES:
            return False
        return self.stages < min(len(self.line.jobs), STAGES_MAX)


class Publisher:
    """Publishes the stages of all partitions of a node."""

    def __init__(self, registry: LogRegistry, reader: StageReader, alarms: Alarms[int], time: LogTime) -> None:
        self._registry = registry
        self._reader = reader
        self._alarms = alarms
        self._time = time
        self._lines: dict[Partition, PublishingLine] = {}
        self._turns: deque[PublishingLine] = deque()
        self._at_work = 0
        self._begun_bytes = 0  # in this turn
        self._going_on = False

    def publish(self, keys: Sequence[StageKey], awaiting: Awaiting) -> None:
        """Publish decided stages after those decided before."""
        self.line_up(keys, awaiting)
        self.go_on()

    def line_up(self, keys: Sequence[StageKey], awaiting: Awaiting) -> None:
        """As `publish`, but nothing is read before `go_on` is called."""
        for key in keys:
            self._line_up(key, awaiting)

    def _line_up(self, key: StageKey, awaiting: Awaiting) -> None:
        topic, number = self._registry.topics.by_id.get(key[0]), key[1]
        found = topic.partitions[number] if topic is not None and number < len(topic.partitions) else None
        if found is None:
            awaiting.published(key)
        elif isinstance(found, Error):
            awaiting.stuck(Unavailable(f"partition {number} of a topic in it cannot be opened: {found.message}"))
        else:
            line = self._lines.get(found) or self._lines.setdefault(found, PublishingLine(found))
            line.jobs.append(DecidedStage(key, awaiting))
            if line.doing == Doing.STOPPED and line.because is not None:
                awaiting.stuck(line.because)
            elif line.doing == Doing.NOTHING:
                self._queue(line)

    def topic_deleted(self, topic: Topic) -> None:
        """Stages of a deleted topic count as published."""
        for partition in topic.readable:
            line = self._lines.pop(partition, None)
            if line is not None:
                self._at_work -= line.doing == Doing.WORKS
                line.doing = Doing.GONE
                for job in line.jobs:
                    job.awaiting.published(job.key)
        self.go_on()

    def end(self) -> None:
        """The node is being closed: tell the waiting commits. Publishing goes on at the next start."""
        self._turns.clear()
        for line in self._lines.values():
            for job in line.jobs:
                job.awaiting.waits(Unavailable("the broker is ending"))

    def stats(self) -> dict[str, Any]:
        """Numbers for people, and why something is not published."""
        held = [line for line in self._lines.values() if line.because is not None]
        return {
            "stages.publishing": sum(len(line.jobs) for line in self._lines.values()),
            "stages.stuck": sum(len(line.jobs) for line in held),
            "stages.stuck_because": held[0].because.message if held and held[0].because is not None else "",
        }

    # -- turns --------------------------------------------------------------------------------------

    def _queue(self, line: PublishingLine) -> None:
        line.doing = Doing.WAITS
        self._turns.append(line)

    def go_on(self) -> None:
        """Begin portions while there is room. What one of them leads to at once comes back here, and is let pass."""
        if self._going_on:
            return
        self._going_on = True
        while self._turns and self._at_work < AT_ONCE and self._begun_bytes < PORTION_BYTES:
            line = self._turns.popleft()
            if line.doing == Doing.WAITS:
                line.doing = Doing.WORKS
                self._at_work += 1
                self._work(line)
        self._going_on = False

    def _next_turn(self, _: int) -> None:
        self._begun_bytes = 0
        self.go_on()

    def _work(self, line: PublishingLine) -> None:
        """One portion, unless there is nothing left."""
        partition = line.partition
        if not self._registry.holds(partition):  # the node is being closed
            self._leave(line, Doing.GONE)
            return
        if partition.state_damaged:  # then the state says neither what is there nor what is published
            self._rest(line, Unavailable(f"{partition!r} is damaged: run penstock log repair"))
            return
        self._tell_published(line)
        if not line.jobs:
            self._leave(line, Doing.NOTHING)
        elif line.unsettled:
            partition.barrier(self._portion(line))
        else:
            self._read(Load(line))

    def _leave(self, line: PublishingLine, doing: Doing) -> None:
        """A line does not work any more."""
        if line.doing == Doing.WORKS:
            self._at_work -= 1
            line.doing = doing
        if not line.jobs and self._lines.get(line.partition) is line:
            del self._lines[line.partition]

    # -- one portion --------------------------------------------------------------------------------

    def _read(self, load: Load) -> None:
        self._reader.read(load.next_portion(lambda portion: self._loaded(load, portion)))

    def _loaded(self, load: Load, portion: Portion) -> None:
        """Go on with the next stage, or propose what is read."""
        line = load.line
        if line.doing != Doing.WORKS:
            return
        if load.take(portion):
            self._read(load)
        elif load.batches:
            self._append(line, load.batches)
        elif load.error is not None:
            self._rest(line, load.error)
        else:
            self._end(line)

    def _end(self, line: PublishingLine) -> None:
        """Pass a stage of which nothing is left: it was damaged, and its loss accepted."""
        partition = line.partition
        try:
            partition.check_writable()
            partition.propose_in_order(fx.StagesDropped([line.jobs[0].key[2]]), self._portion(line))
        except Error as error:
            self._rest(line, error)

    def _portion(self, line: PublishingLine) -> Gather:
        """Waits for a proposal of a line."""
        return Gather(lambda: self._over(line), lambda error: self._refused(line, error))

    def _append(self, line: PublishingLine, batches: list[Batch]) -> None:
        size = sum(batch.batch_bytes for batch in batches)
        try:
            self._registry.take_room(size, self._time.monotonic_s)
        except Error as error:
            self._rest(line, error)
            return
        self._begun_bytes += max(size, PORTION_BYTES * len(batches) // PORTION_BATCHES)
        if self._begun_bytes >= PORTION_BYTES:
            self._alarms.set(self, 0, self._next_turn)
        portion = self._portion(line)
        for batch in batches:
            try:
                publish(line.partition, batch, portion.one())
            except Error as error:
                portion.failed(error)
                break
        portion.ready()

    def _over(self, line: PublishingLine) -> None:
        """A portion is committed; the others have their turn first."""
        if line.doing != Doing.WORKS:
            return
        line.wait_s, line.because = 0.0, None
        self._tell_published(line)
        self._leave(line, Doing.NOTHING)
        if line.jobs and line.doing == Doing.NOTHING:
            self._queue(line)
        self.go_on()

    def _refused(self, line: PublishingLine, error: Error) -> None:
        """A portion, or a part of it, is not in the log."""
        if line.doing == Doing.WORKS:
            self._tell_published(line)
            self._rest(line, error)

    def _tell_published(self, line: PublishingLine) -> None:
        for job in line.take_published():
            job.awaiting.published(job.key)

    def _rest(self, line: PublishingLine, error: Error) -> None:
        """Try again after a while; but a poisoned log takes nothing any more."""
        partition = line.partition
        stopped = partition.log.poisoned is not None
        line.because = error
        self._leave(line, Doing.STOPPED if stopped else Doing.RESTS)
        if not stopped:
            line.wait_s = min(2 * line.wait_s, RETRY_MOST_S) if line.wait_s else RETRY_S
            until_us = self._time.last_us + round(line.wait_s * 1e6)
            self._alarms.set((self, partition), until_us, lambda _: self._ring(line))
        for job in list(line.jobs):
            if stopped:
                job.awaiting.stuck(error)
            else:
                job.awaiting.waits(error)
        self.go_on()

    def _ring(self, line: PublishingLine) -> None:
        if line.doing == Doing.RESTS:
            self._queue(line)
            self.go_on()
