"""Claims: requests for records that other workers hold.

Idea: the records are found first, by their offsets or by looking through what is leased, then read, and claimed last:
only records that are in the answer change their worker.

Contract: answered by Leased once the lease is committed. A record that cannot be read stays where it is; one that the
log has no more leaves its lease and is named in the answer. Must not know how records are chosen for those who wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....storage.errors import Error
from .....transport.messages import Claim, Leased
from ....errors import InvalidRequest, LimitReached
from ...turns.replies import Gather, refusing
from ..choosing.picking import Pick
from ..claiming import NEXT, ClaimTerms, claim, drop
from ..topic_queues import check_length, check_serves, proposed
from ..verbs import log_time
from .leasing import check_worker
from .pending import EVERYTHING, PendingChoice, look

if TYPE_CHECKING:
    from ...logs.clock import LogTime
    from ...logs.partition import Partition
    from ...logs.topics import Topics
    from ...ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
    from ...tables.queues.queue import Queue
    from ..choosing.picking import Picker
    from ..wakeups import Watching

CLAIM_MAX = 100
"""Limit of the records of one claim."""

ATTEMPT_MAX = 1_000_000
"""The highest attempt that a claim may set."""


class ClaimRequest:
    """One Claim, and what was found for it so far."""

    def __init__(self, peer: Peer, message: Claim, partition: Partition, now_us: int) -> None:
        end = message.end if message.end >= 0 else EVERYTHING
        self.peer = peer
        self.message = message
        self.partition = partition
        self.choice = PendingChoice(end, message.holder, now_us - message.min_idle_ms * 1000)
        self.offsets: list[int] = []
        self.gone: list[int] = []  # leased, and not in the log
        self.following = -1
        given_us = min(message.given_us, now_us) if message.given_us > 0 else now_us + message.given_us
        self.terms = ClaimTerms(
            message.worker, message.attempt, max(given_us, 1) if message.given_us else 0, message.lease_ms,
            message.force,
        )  # fmt: skip


class ClaimRequests:
    """Handler of Claim."""

    def __init__(
        self, topics: Topics, port: Port, config: NodeConfig, time: LogTime, picker: Picker, watching: Watching
    ) -> None:
        self.handlers: Handlers = {Claim: self.claim}
        self._topics = topics
        self._port = port
        self._config = config
        self._time = time
        self._picker = picker
        self._watching = watching

    def claim(self, peer: Peer, message: Claim, payload: Payload, now: Now) -> Work:
        """Find, read and claim.

        Raises: UnknownGroup, UnknownPartition, InvalidRequest, LimitReached, Unavailable, Poisoned.
        """
        topic, group = self._topics.get(message.topic), message.group
        partition = topic.partition(message.partition)
        check_serves(partition)
        limit = proposed(partition, group).settings.max_attempts
        check_length(topic, group, message.lease_ms)
        _check(message, ATTEMPT_MAX if limit is None else limit)
        asked = ClaimRequest(peer, message, partition, log_time(partition, self._time.read(now)))
        if message.offsets:
            found = _named(proposed(partition, group), asked)
        else:
            runs, asked.following = yield from look(
                lambda: proposed(partition, group), message.offset, asked.choice, min(message.max_records, CLAIM_MAX)
            )
            found = [offset for run in runs for offset in range(run.offset, run.offset + run.many)]
        kept = partition.committed.kept
        for offset in found:
            if offset < partition.first and not kept.seq(offset):
                asked.gone.append(offset)
            elif offset < partition.end:
                asked.offsets.append(offset)
        if not message.max_bytes:
            self._finish(asked, asked.offsets, b"")
            return
        most = min(message.max_bytes, self._config.max_frame_bytes)
        self._picker.pick(Pick(partition, asked.offsets, most, lambda pick: self._read(asked, pick)))

    def _read(self, asked: ClaimRequest, pick: Pick) -> None:
        """Claim what was read."""
        read = [offset for batch in pick.batches for offset in batch.offsets().tolist()]
        if pick.next < len(asked.offsets):
            asked.following = asked.offsets[pick.next]
        if pick.missing is not None and not read:
            refusing(self._port, asked.peer, asked.message.request)(pick.missing)
            return
        self._finish(asked, read, b"".join(batch.buffer for batch in pick.batches))

    def _finish(self, asked: ClaimRequest, offsets: list[int], payload: bytes) -> None:
        message, partition, group = asked.message, asked.partition, asked.message.group
        refuse = refusing(self._port, asked.peer, message.request)
        try:
            check_serves(partition)
            gone = drop(partition, group, asked.gone, asked.choice.lease)
            granted = claim(partition, group, offsets, asked.choice.lease, asked.terms, self._time.last_us)
        except Error as error:  # its pages came late, and the group is gone
            refuse(error)
            return

        def answer() -> None:
            token, until_us, runs = granted[:3] if granted is not None else (0, 0, [])
            left_ms = max(until_us - self._time.last_us, 0) // 1000
            self._port.reply(
                asked.peer,
                Leased(message.request, partition.number, token, until_us, left_ms, runs, [], asked.following, gone),
                payload if runs else b"",
            )

        def failed(error: Error) -> None:
            self._watching.watch(partition, group)
            refuse(error)

        gather = Gather(answer, failed)
        partition.barrier(gather.one())
        self._watching.watch(partition, group)
        gather.ready()


def _named(queue: Queue, asked: ClaimRequest) -> list[int]:
    """The records of a request that are leased and may be claimed; by force, all of them."""
    leases = ((offset, queue.lease_of(offset)) for offset in sorted({*asked.message.offsets}))
    return [
        offset for offset, lease in leases if asked.message.force or (lease is not None and asked.choice.lease(lease))
    ]


def _check(message: Claim, attempt_max: int) -> None:
    check_worker(message.worker)
    if not (message.max_records or message.offsets):
        raise InvalidRequest("max_records 0 is not allowed: claim 1 or more, or name records by their offsets")
    if len(message.offsets) > CLAIM_MAX:
        raise LimitReached(f"{len(message.offsets)} records are too many: {CLAIM_MAX} at most in one claim")
    if message.force and not message.offsets:
        raise InvalidRequest("force is for records that are named by their offsets")
    if not NEXT <= message.attempt <= attempt_max:
        raise InvalidRequest(
            f"attempt {message.attempt} is not allowed: 1 to {attempt_max}, 0 for the one before, {NEXT} for the next"
        )
