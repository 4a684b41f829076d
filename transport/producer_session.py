"""The producer's side of one partition: its batches in flight, and their outcomes.

    add -> to_send -> sent -> produced -> settled, in order
             ^          |
             |          +-- failed (retry) --+
             +---------- lost ---------------+     the same bytes, the same sequences, a new request id

The states of a batch are a table, `batch_states.py`.

Idea: every batch carries (producer id, epoch, first sequence), so resends are deduplicated and order is kept. A
failure that a retry can help resends that batch and all later ones (the broker refused those for the gap; that refusal
may even arrive first). Any other failure breaks the session: later batches cannot be appended any more.

Contract: batches settle in the order they were added, each exactly once. They stay in `settled` until the caller takes
them off, and `lost` recomputes a step that was interrupted half-way, so no outcome is lost. In flight are at most
`window_batches`, and `window_bytes` (a single batch may be larger). Pure: makes no batches and no requests, knows no
clock: the caller decides when to retry.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .batch_states import (
    AFTER_BROKEN,
    AFTER_GAP,
    AFTER_PRODUCED,
    AFTER_RETRY,
    AFTER_SENT,
    AFTER_SETTLED,
    ANSWERED,
    APPENDED,
    HELD,
    IN_FLIGHT,
    REFUSED,
    WAITING,
    After,
    BatchState,
)  # fmt: skip
from .errors import SessionBroken
from .messages import Failure, Produced

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

WINDOW_BATCHES_MAX = 64
"""What a partition remembers of each producer's batches; more in flight could not be told from duplicates."""

GAPS = frozenset({"sequence_gap", "unknown_producer"})
"""Failures whose meaning depends on the batches before: a broker that never got the first one does not know the
producer, which happens when the others are sent over a new connection that was not noticed yet."""

FINAL = frozenset({APPENDED, REFUSED})

TARGET_BYTES = 256 << 10
"""Size at which records are worth a batch while others are in flight; with none in flight, any size is."""


class InFlight(Struct, eq=False):
    """One batch on its way. `handle` is the caller's.

    Once it is settled, `produced` says where it stands, or `failure` why it could not be appended.
    """

    batch: Buffer
    first_sequence: int
    count: int
    handle: Any
    request: int = 0  # of its latest sending, 0 while it waits to be sent
    produced: Produced | None = None
    failure: Failure | None = None
    state: BatchState = WAITING
    copied: bool = False  # a sending without an answer may still reach the broker


class ProducerSession:
    """See the module. `next_sequence` is what the next batch must carry as its first sequence.

    Invariant: `unsent` of the batches `in_flight` have no request; the others are known by theirs.
    """

    def __init__(
        self,
        producer_id: int,
        *,
        epoch: int = 0,
        next_sequence: int = 0,
        window_bytes: int = 8 << 20,
        window_batches: int = 32,
    ) -> None:
        assert 0 < window_batches <= WINDOW_BATCHES_MAX, f"a window is 1 to {WINDOW_BATCHES_MAX} batches"
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.broken: Failure | None = None
        self.free_sequence: int | None = None
        """Once broken: the sequence of the refused batch, if the broker cannot get that batch or a later one any more.
        The next records may have it, if the broker did nothing when it refused the batch."""
        self.bytes_in_flight = 0
        self.in_flight: deque[InFlight] = deque()
        self.settled: deque[InFlight] = deque()
        """Settled batches, which the caller takes off."""
        self.unsent = 0
        self._window_bytes = window_bytes
        self._window_batches = window_batches
        self._by_request: dict[int, InFlight] = {}

    def __len__(self) -> int:
        """Batches in flight."""
        return len(self.in_flight)

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes fits into the window now. A batch that is alone always does."""
        if not self.in_flight:
            return True
        return len(self.in_flight) < self._window_batches and self.bytes_in_flight + size <= self._window_bytes

    def add(self, batch: Buffer, count: int, handle: Any = None) -> InFlight:
        """Take a batch of `count` records that was encoded with `next_sequence`. Raises SessionBroken."""
        if self.broken is not None:
            raise SessionBroken(f"the producer cannot go on after {self.broken.code}: {self.broken.message}")
        added, size = InFlight(batch, self.next_sequence, count, handle), len(batch)
        self.next_sequence += count
        self.bytes_in_flight += size
        self.unsent += 1
        self.in_flight.append(added)  # last: Ctrl-C comes with the return of a call, and finds all of it or nothing
        return added

    def to_send(self) -> InFlight | None:
        """The next batch to send, in order; None when all are sent."""
        if not self.unsent:
            return None
        newest = self.in_flight[-1]
        if self.unsent == 1 and newest.state is WAITING:
            return newest
        before: InFlight | None = None
        for batch in self.in_flight:
            if batch.state is WAITING:
                return batch
            if batch.state is HELD:
                return batch if before is None or before.state is ANSWERED else None
            before = batch
        return None

    def sent(self, batch: InFlight, request: int) -> None:
        """`batch`, which `to_send` gave, was sent as `request` (above 0, never used before)."""
        assert request > 0, "0 marks messages that answer no request"
        batch.state = AFTER_SENT[batch.state]
        batch.request = request
        self._by_request[request] = batch
        self.unsent -= 1

    def produced(self, answer: Produced) -> None:
        """The broker's yes. Answers to older sendings settle nothing."""
        batch = self._by_request.get(answer.request)
        if batch is not None:
            batch.state, batch.produced = AFTER_PRODUCED[batch.state], answer
            self._settle_answered()

    def failed(self, failure: Failure) -> None:
        """The broker's no. With `retry` the batch and all after it wait to be sent again, without it they end here."""
        batch = self._by_request.get(failure.request)
        if batch is None:
            return
        index = self.in_flight.index(batch)
        if failure.retry:
            self._take_back(batch, AFTER_RETRY)
            self._send_again_from(index + 1)
        elif failure.code in GAPS and any(each.state is not ANSWERED for each in list(self.in_flight)[:index]):
            self._take_back(batch, AFTER_GAP)
            self._send_again_from(index + 1)
        else:
            self._break(failure, index)

    def lost(self) -> None:
        """The connection was lost, the broker started anew, or a call was interrupted: all in flight is sent again."""
        for batch in self.in_flight:
            batch.copied = batch.copied or batch.state is IN_FLIGHT
            if batch.state not in FINAL:
                batch.state = AFTER_RETRY[batch.state]
            if batch.state is WAITING:
                batch.request = 0
        self.in_flight = deque(batch for batch in self.in_flight if batch.state not in FINAL)
        self._by_request = {batch.request: batch for batch in self.in_flight if batch.request}
        self.unsent = len(self.in_flight) - len(self._by_request)
        self.bytes_in_flight = sum(len(batch.batch) for batch in self.in_flight)
        self._settle_answered()

    def abandon(self, failure: Failure) -> None:
        """Abandon everything in flight (a time-out, a close). It may or may not have been appended."""
        self._break(failure, 0)

    def restart(self, producer_id: int, *, epoch: int = 0, next_sequence: int = 0) -> None:
        """Go on as another producer after being broken; nothing may be in flight."""
        assert not self.in_flight, "batches of the old producer are still in flight"
        self.producer_id, self.epoch, self.next_sequence = producer_id, epoch, next_sequence
        self.broken = None

    def _settle_answered(self) -> None:
        """Settle what is answered, up to the first that is not."""
        in_flight = self.in_flight
        while in_flight and in_flight[0].state is ANSWERED:
            first = in_flight[0]
            self.settled.append(first)  # before it leaves: Ctrl-C may come with the return of any call
            first.state = AFTER_SETTLED[first.state]
            in_flight.popleft()
            self.bytes_in_flight -= len(first.batch)
            self._by_request.pop(first.request, None)

    def _send_again_from(self, index: int) -> None:
        for batch in list(self.in_flight)[index:]:
            batch.copied = batch.copied or batch.state is IN_FLIGHT
            self._take_back(batch, AFTER_RETRY)

    def _take_back(self, batch: InFlight, after: After) -> None:
        batch.state = after[batch.state]
        if batch.request and batch.state is not ANSWERED:
            del self._by_request[batch.request]
            batch.request = 0
            self.unsent += 1

    def _break(self, failure: Failure, index: int) -> None:
        self.broken = failure
        ending = list(self.in_flight)[index:]
        alone = len(ending) == 1 and not ending[0].copied
        self.free_sequence = ending[0].first_sequence if alone else None
        for batch in ending:
            state = AFTER_BROKEN[batch.state]
            if state is REFUSED:
                batch.failure = failure
            self.settled.append(batch)
            batch.state = state
        while len(self.in_flight) > index:
            self._drop(self.in_flight.pop())

    def _drop(self, batch: InFlight) -> None:
        self.bytes_in_flight -= len(batch.batch)
        if self._by_request.pop(batch.request, None) is None:
            self.unsent -= 1
