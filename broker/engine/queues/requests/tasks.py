"""Requests about tasks by id: status, waiting for the end, and cancelling.

Idea: the tables have the status of open records. For a finished record with more to tell, the finals name the batch
that says it, and that batch is read. A question with `wait_ms` waits at its partition until the record is final.

Contract: exactly one answer per question, as committed. Reads never wait for the disk: a question on cold pages
continues when they are warm. Memory: one small entry per waiting question, up to a limit. Must not know how records
are chosen.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, count, repeat
from typing import TYPE_CHECKING

from .....storage.batch import Kind
from .....storage.errors import Error, OutOfBounds
from .....storage.finals import Final, Outcome
from .....transport.queue_messages import AskTask, CancelTask, TaskState
from ....errors import TaskForgotten, Unavailable, UnknownTask
from ...ports import COLD, Handlers, NodeConfig, Now, Payload, Peer, Port
from ...tables import effects as fx
from ...tables.entry import entry_of
from ...tables.queues.keys import UNKNOWN, hash_of
from ...tables.queues.status import CANCELLED, COMPLETED, DISCARDED, FINAL, PENDING, RecordStatus, standing, stands_for
from ...turns.awaiting import AwaitingRequests
from ...turns.replies import Gather
from ..choosing.keyed import looks_at_keys
from ..topic_queues import check_serves, committed, proposed
from .why import Facts, key_of, why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .....storage.batch import Batch
    from .....storage.reader import Cursor
    from ...logs.clock import LogTime
    from ...logs.partition import Partition
    from ...logs.topics import Topics
    from ...tables.queues.queue import Queue
    from ...tables.ties import TieBody
    from ...turns.alarms import Alarms
    from ...turns.portions import Portions
    from ..choosing.key_scheduler import KeySchedulers
    from ..group_rates import GroupRates
    from ..lines import Lines
    from ..wakeups import Watching

LOOKS = 8
"""Questions that are looked at in one step when something is committed."""

READ_BYTES = 64 << 10
"""Bytes read at once; a longer batch is read whole."""

STATES = {Outcome.RESULT: COMPLETED, Outcome.DISCARDED: DISCARDED, Outcome.CANCELLED: CANCELLED}
SENTENCES = {
    Outcome.RESULT: "completed with a result",
    Outcome.DISCARDED: "discarded after it was dead-lettered",
    Outcome.CANCELLED: "cancelled",
}


class TaskQuestion:
    """One AskTask or CancelTask that was not answered yet."""

    __slots__ = ("batch", "cold", "cursor", "deadline_s", "message", "number", "partition", "peer", "token", "waits")

    def __init__(self, number: int, peer: Peer, message: AskTask | CancelTask, partition: Partition) -> None:
        self.number = number
        self.peer = peer
        self.message = message
        self.partition = partition
        self.deadline_s = 0.0
        self.waits = False  # for a final state
        self.token = 0  # of the lease that holds the record
        self.cold = False
        self.cursor: Cursor | None = None
        self.batch: Batch | None = None


class TaskRequests:
    """Handlers of AskTask and CancelTask, and the questions that wait."""

    def __init__(
        self,
        topics: Topics,
        port: Port,
        config: NodeConfig,
        time: LogTime,
        schedulers: KeySchedulers,
        group_rates: GroupRates,
        lines: Lines,
        watching: Watching,
        wakes: Portions,
        deadlines: Alarms[float],
    ) -> None:
        """`wakes` answers questions that wait, in portions."""
        self.handlers: Handlers = {AskTask: self.ask, CancelTask: self.cancel}
        self._topics = topics
        self._port = port
        self._config = config
        self._time = time
        self._schedulers = schedulers
        self._group_rates = group_rates
        self._lines = lines
        self._watching = watching
        self._numbers = count(1)
        self.awaiting = AwaitingRequests[TaskQuestion](
            "questions after tasks", port, wakes, deadlines, answer=self._answer, overdue=self._give_up, looks=LOOKS
        )

    # -- requests -----------------------------------------------------------------------------------

    def ask(self, peer: Peer, message: AskTask, payload: Payload, now: Now) -> None:
        """Answer, or wait. Raises UnknownGroup, UnknownTask, OutOfBounds, LimitReached, Unavailable."""
        question = self._question(peer, message)
        self._time.read(now)
        if message.wait_ms:
            self.awaiting.parked.check(peer)
        question.waits = message.wait_ms > 0
        question.deadline_s = now.monotonic_s + min(message.wait_ms / 1000, self._config.wait_max_s)
        self._begin(question)

    def cancel(self, peer: Peer, message: CancelTask, payload: Payload, now: Now) -> None:
        """Cancel a task that is not final; answer its state. Raises as `ask` does, and Poisoned."""
        question = self._question(peer, message)
        partition, group = question.partition, message.group
        check_serves(partition)
        queue, now_us = proposed(partition, group), self._time.read(now)
        offset = self._offset(question, queue)

        gather = Gather(lambda: self._begin(question), lambda error: self.awaiting.fail(question, error))
        found = standing(queue, partition.proposed.shelves, offset, now_us)
        if found.state not in FINAL and not found.cancelling:
            partition.propose(fx.TasksCancelled(group, [offset]))
            self._watching.watch(partition, group)
        partition.barrier(gather.one())
        gather.ready()

    def _question(self, peer: Peer, message: AskTask | CancelTask) -> TaskQuestion:
        partition = self._topics.partition(message.topic, message.partition)
        if partition.state_damaged:
            check_serves(partition)
        question = TaskQuestion(next(self._numbers), peer, message, partition)
        self._offset(question, committed(partition, message.group))
        return question

    # -- waiting ------------------------------------------------------------------------------------

    def _begin(self, question: TaskQuestion) -> None:
        """Answer, or let it wait."""
        if not self.awaiting.attempt(question):
            self.awaiting.add(question)

    def advanced(self, partition: Partition) -> None:
        """Answer questions about records that are final now."""
        self.awaiting.more(partition)

    def _still_leased(self, question: TaskQuestion) -> bool:
        """Whether the lease of before still holds the record: the usual case, and cheap to see."""
        if not question.token:
            return False
        message = question.message
        queue = question.partition.committed.queues.by_name.get(message.group)
        lease = None if queue is None else queue.leases.get(question.token)
        return lease is not None and lease.attempt(message.offset) > 0

    def warmed(self, question: TaskQuestion) -> None:
        """Pages are in memory now."""
        self.awaiting.warmed(question)

    def _give_up(self, question: TaskQuestion) -> None:
        """Answer a question whose time is up with the present state."""
        question.waits = False
        if not question.cold and self.awaiting.attempt(question):
            self.awaiting.forget(question)

    @property
    def waiting(self) -> int:
        """The number of waiting questions."""
        return len(self.awaiting.parked.standing)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        self.awaiting.disconnect(peer)

    def topic_deleted(self, partition: Partition, error: Error) -> None:
        """Fail the questions about a partition that is gone."""
        self.awaiting.close(partition, error)

    # -- the answer ---------------------------------------------------------------------------------

    def _answer(self, question: TaskQuestion) -> bool:
        if question.waits and self._still_leased(question):
            return False
        partition, now_us = question.partition, self._time.last_us
        queue = committed(partition, question.message.group)
        offset = self._offset(question, queue)
        found = standing(queue, partition.committed.shelves, offset, now_us)
        question.token = found.token
        if question.waits and found.state not in FINAL:
            return False
        final = _final(partition, queue.group, offset, found) if found.state in (COMPLETED, CANCELLED) else None
        if final is not None and final.seq < partition.log.names[0].base_seq:
            raise _forgotten(partition, offset)  # it was carried forward, and ended before the log begins
        if not self._read(question, queue, offset, found, final):
            question.cold = True
            return False
        self._reply(question, queue, offset, found, final)
        return True

    def _offset(self, question: TaskQuestion, queue: Queue) -> int:
        """The record that is asked after, or the one that stands for it. Raises OutOfBounds, UnknownTask."""
        partition, offset = question.partition, question.message.offset
        if offset >= partition.end:
            raise OutOfBounds(f"record {offset} of {partition!r} is not there yet: it ends at {partition.end}")
        offset = stands_for(partition.committed, offset)
        if partition.committed.voids.task_of(offset) == offset:
            raise TaskForgotten(f"record {offset} of {partition!r} was deleted")
        if offset < partition.first and not partition.committed.kept.seq(offset):
            raise _forgotten(partition, offset)
        if offset < queue.start and not queue.has(offset):
            raise UnknownTask(
                f"record {offset} of {partition!r} is no task of group {queue.group}, which began at {queue.start}"
            )
        return offset

    # -- reading ------------------------------------------------------------------------------------

    def _read(
        self, question: TaskQuestion, queue: Queue, offset: int, found: RecordStatus, final: Final | None
    ) -> bool:
        """Have the batch at hand that tells more, where there is one. False: its pages are on their way."""
        if final is not None:
            return self._read_batch(question, final.seq)
        if found.state == PENDING and looks_at_keys(queue.settings) and offset not in queue.held:
            kept = question.partition.committed.kept.seq(offset)
            return self._read_batch(question, kept or question.partition.cursor(offset).seq)
        question.batch = None
        return True

    def _read_batch(self, question: TaskQuestion, seq: int) -> bool:
        if question.batch is not None and question.batch.seq == seq:
            return True
        if question.cursor is None or question.cursor.seq != seq:
            question.cursor = question.partition.reader.cursor_after(seq - 1)
        chunk = self._port.read(question.cursor, READ_BYTES, seq, question)
        if chunk is COLD:
            return False
        question.batch = None if chunk is None else chunk.batches[0]
        return True

    # -- what it says -------------------------------------------------------------------------------

    def _reply(
        self, question: TaskQuestion, queue: Queue, offset: int, found: RecordStatus, final: Final | None
    ) -> None:
        message, partition, batch = question.message, question.partition, question.batch
        asking = int(self._lines.wanted(partition, queue.group))
        shelves = partition.committed.shelves
        facts = Facts(shelves.time_of(offset), shelves.level_of(offset), asking=asking)
        state, attempt, time_us, result = found.state, found.attempt, found.time_us, None
        if state == COMPLETED:
            facts = Facts(final=COMPLETED)
        if final is not None and batch is not None and _agrees(batch, queue.group, offset, final):
            state, time_us = STATES[final.outcome], batch.append_time_us
            result, attempt = _result(batch, queue.group, offset)
            facts = Facts(final="completed" if result == b"" else SENTENCES[final.outcome], final_us=time_us)
        elif state == PENDING and batch is not None:
            facts = facts._replace(key=_key(batch, offset))
        now_us, key = self._time.last_us, key_of(queue, offset, facts)
        facts = facts._replace(
            rate_us=self._schedulers.again_us(partition, queue, key, now_us),
            group_rate_us=self._group_rates.again_us(partition, queue, now_us),
        )
        sentence = why(queue, offset, now_us, facts)
        tie = partition.committed.ties.open.get(offset)
        if tie is not None and tie.group == queue.group and self._stands(tie):
            sentence = f"{sentence}; barrier {tie.barrier.hex()} waits for it, as for task {tie.member}"
        if offset != message.offset:
            sentence = f"record {offset} stands for it: {sentence}"
        self._port.reply(
            question.peer,
            TaskState(
                message.request, state, attempt, sentence, found.worker, time_us, found.reason, result,
                found.progress, found.cancelling, list(found.history), found.given_us,
            ),
        )  # fmt: skip

    def _stands(self, tie: TieBody) -> bool:
        """Whether the barrier of a member is there. One in a partition that cannot be opened counts."""
        home = self._topics.by_id.get(tie.topic)
        if home is None:
            return False
        with suppress(Unavailable):
            return tie.barrier in home.partition(tie.partition).committed.barriers.by_id
        return True


def _forgotten(partition: Partition, offset: int) -> TaskForgotten:
    return TaskForgotten(
        f"record {offset} of {partition!r} was finished and is forgotten, its result too: retention "
        f"(keep_finished_s of the queue, or the topic's) removed all below {partition.first}"
    )


def _final(partition: Partition, group: str, offset: int, found: RecordStatus) -> Final | None:
    """The word of a record; not one of a batch that the log has lost since."""
    final = partition.finals.look(group, offset)
    if final is None or final.seq > partition.seq:
        return None
    in_vain = final.outcome is Outcome.CANCELLED and found.state == COMPLETED  # its worker had it and finished
    return None if in_vain else final


def _effects(batch: Batch) -> Sequence[fx.AnyEffect]:
    return entry_of(batch).effects if batch.kind == Kind.STATE else ()


def _agrees(batch: Batch, group: str, offset: int, final: Final) -> bool:
    """Whether a batch says of a record what its word says."""
    for effect in _effects(batch):
        match effect:
            case fx.TasksFinished() if final.outcome is Outcome.RESULT and effect.group == group:
                if any(known == offset for known, _ in effect.results):
                    return True
            case fx.TasksDiscarded() if final.outcome is Outcome.DISCARDED and effect.group == group:
                if any(first <= offset < first + many for first, many in effect.ranges):
                    return True
            case fx.TasksCancelled() if final.outcome is Outcome.CANCELLED and effect.group == group:
                if offset in effect.offsets:
                    return True
            case _:
                pass
    return False


def _result(batch: Batch, group: str, offset: int) -> tuple[bytes | None, int]:
    """The result of a record, and the attempt that reached it; None and 0 where there is none."""
    for effect in _effects(batch):
        if isinstance(effect, fx.TasksFinished) and effect.group == group:
            for (known, result), attempt in zip(effect.results, chain(effect.attempts, repeat(0)), strict=False):
                if known == offset:
                    return result, attempt
    return None, 0


def _key(batch: Batch, offset: int) -> int:
    """The hash of a record's key."""
    at = batch.first_at(offset)
    if at >= batch.record_count:
        return UNKNOWN
    keys = batch.keys()
    return hash_of(None if keys is None else keys[at])
