"""A producer whose records are staged: the broker hides them until a transaction publishes them.

Idea: like any other producer, except that its batches are of kind STAGED and that each partition's sequence is a
stage, complete from its first record to its last. An ordinary producer whose sequence broke goes on under another id;
a broken stage has lost records, so its sender ends, and its commit raises StageLost.

Contract: records have no offset before they are published: sends and futures say -1.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ...broker.errors import StageLost
from ...storage.batch import Kind
from ...storage.errors import Error
from ...transport.messages import Failure, Stage
from ...transport.producer_session import GAPS, InFlight, ProducerSession
from ..errors import InvalidArgument
from ..producing.core import ProducerCore
from ..producing.partition_sender import PartitionSender
from ..producing.pending import Future, Pending

if TYPE_CHECKING:
    from ..arguments.quantities import Duration
    from ..producing.queued import Queued

NO_OFFSET = -1


class StagedFuture(Future, eq=False, gc=False):
    """The future of a staged record; its result is -1."""

    def result(self, timeout: float | None = None) -> int:
        """Wait until the record is staged; returns -1. Raises what prevented it, or TimedOut."""
        super().result(timeout)
        return NO_OFFSET


class StagingLane(PartitionSender):
    """The records of one stage in flight. A broken stage never continues."""

    def refusal(self, failure: Failure) -> Error:
        """See PartitionSender; a stage that the broker no longer has is lost."""
        return self._lost(failure) if failure.code in GAPS else super().refusal(failure)

    def halves(self, records: Pending) -> bool:
        """See PartitionSender; a stage is complete or lost."""
        return False

    def _take_back(self, ending: list[InFlight], code: str) -> None:
        """See PartitionSender and `halves`."""

    def _failed(self, session: ProducerSession, failure: Failure) -> None:
        super()._failed(session, failure)
        if session.broken is not None and self.ended is None:
            self.ended = self._lost(failure)

    def _lost(self, failure: Failure) -> StageLost:
        core = self._core
        return StageLost(
            f"what was staged in partition {self.partition} of topic {core.topic.name} is not complete "
            f"({failure.message}): the transaction has to be begun again"
        )

    def stage(self) -> Stage | None:
        """All records sent to this partition, whether known to have arrived or not."""
        session = self.session
        if session is None or not session.next_sequence:
            return None
        return Stage(self._topic, self.partition, session.producer_id, session.next_sequence)


class StagingProducer(ProducerCore):
    """See the module."""

    kind: int = Kind.STAGED

    def new_lane(self, partition: int) -> PartitionSender:
        """See ProducerCore."""
        return StagingLane(self, partition)

    def stages(self) -> list[Stage]:
        """Its stages, including records in flight."""
        found = [sender.stage() for sender in self.senders if isinstance(sender, StagingLane)]
        return [stage for stage in found if stage is not None]

    def check_whole(self) -> None:
        """Raise what ended a sender: its stage lost records."""
        for sender in self.senders:
            if sender.ended is not None:
                raise sender.ended

    def as_task(
        self, delay: Duration | None, at: datetime | None, priority: int | None, dedup: bytes | None
    ) -> Queued | None:
        """See ProducerCore. Dedup keys are refused: a repeat is decided with the offset."""
        if dedup is not None:
            raise InvalidArgument("dedup= and a transaction do not go together: a commit is all or nothing, and once")
        return super().as_task(delay, at, priority, None)
