"""The short way of a lone record: a batch of a few plain records, for which a turn has next to nothing else to do.

Idea: a client that waits for each answer meets a node in which nothing else is under way, and most of a turn is then
asking who else might be concerned. `produce` recognises such a batch by its shape, and `commit` applies and answers
the only batch in flight, each in one step; between them it is a proposal like any other.

Contract: the log, the state and the answers are those of the general way, because its rules are called, not repeated:
`recognise_few`, `ProducerTable.judge`, `propose_records`, `History.apply`, the waiter's `committed`. Each step first
asks whether all is calm, and leaves everything to the general way, having changed nothing, where it is not. Nothing is
kept between them, so any of them may go the general way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage.few import recognise_few
from ...transport.messages import Produce
from .housekeeping import BYTES_BETWEEN
from .tables.entry import Entry
from .tables.producers import Place
from .turns.replies import ProduceReply

if TYPE_CHECKING:
    from .desk import ReadingDesk
    from .logs.history import History
    from .logs.log_agenda import LogAgenda
    from .logs.log_registry import LogRegistry
    from .logs.log_upkeep import LogUpkeep
    from .logs.partition import Partition
    from .office import Office
    from .ports import Handlers, NodeConfig, Now, Payload, Peer, Port


class LoneRecords:
    """The short way through one office."""

    def __init__(
        self,
        registry: LogRegistry,
        upkeep: LogUpkeep,
        agenda: LogAgenda,
        desk: ReadingDesk,
        office: Office,
        port: Port,
        config: NodeConfig,
    ) -> None:
        self.handlers: Handlers = {Produce: self.produce}
        self._topics = registry.topics
        self._registry = registry
        self._upkeep = upkeep
        self._agenda = agenda
        self._port = port
        self._max_bytes = config.max_frame_bytes
        self._producing = office.producing
        self._sessions = office.sessions
        self._unsettled = office.overlays.unsettled
        self._concerned = (
            agenda.advanced,
            office.queues.lines.parked.standing,
            office.queues.tasks.awaiting.parked.standing,
            desk.fetching.awaiting.parked.standing,
            desk.fetching_many.standing,
            desk.ends.by_topic,
        )
        """What else a commit may concern: partitions with more to tell, and requests that wait."""

    # -- step 1: from the message to the proposal -----------------------------------------------------

    def produce(self, peer: Peer, message: Produce, payload: Payload, now: Now) -> None:
        """Propose the next few plain records of a producer; anything else goes the general way."""
        partition, size = self._topics.partition(message.topic, message.partition), len(payload)
        found = recognise_few(payload) if self._may_have(partition, size) else None
        if found is None or not self._is_next(partition, *found):
            self._producing.produce(peer, message, payload, now)
            return
        _, count, producer_id, first_sequence, epoch = found
        entry = Entry(Place(first_sequence, count), producer_id, epoch)
        partition.overlay.propose_records(payload, entry, ProduceReply(self._port, peer, message.request))
        self._producing.count(count, size)

    def _may_have(self, partition: Partition, size: int) -> bool:
        """Whether a partition may have plain records of so many bytes, whatever they are."""
        log = partition.log
        return log.poisoned is None and size <= min(
            partition.settings.max_record_bytes, self._max_bytes, log.options.max_batch_bytes
        )

    def _is_next(
        self, partition: Partition, checksum: int, count: int, producer_id: int, first_sequence: int, epoch: int
    ) -> bool:
        """Whether records are the next ones of a producer, and no part of a transaction. Raises as `judge` does."""
        if not producer_id or first_sequence < 0:
            return False
        proposed = partition.overlay.proposed
        return not proposed.stages.by_id and proposed.producers.judge(producer_id, epoch, first_sequence, count) is None

    # -- step 2, the append, is the general one: `Overlay.flush` --------------------------------------

    # -- step 3: from the commit to the answer --------------------------------------------------------

    def commit(self) -> bool:
        """Apply and answer the only batch in flight, and tell its readers. False: nothing was changed."""
        if len(self._unsettled) != 1 or any(self._concerned):
            return False
        (overlay,) = self._unsettled
        history = overlay.history
        partition = self._registry.partitions.get(history)
        if partition is None or len(history.in_flight) != 1:
            return False
        entry = history.in_flight[0]
        place, waiters = entry.place, overlay.waiting.get(entry.place.seq, ())
        if (
            len(waiters) != 1 or type(waiters[0]) is not ProduceReply
            or entry.effects or entry.intake is not None or entry.staged is not None
            or place.seq > history.log.committed or history.committed.outbox.entries
        ):  # fmt: skip
            return False
        history.in_flight.clear()
        history.apply(entry)
        del self._unsettled[overlay], overlay.waiting[place.seq]
        waiters[0].committed(place)
        self._tell(partition, history)
        return True

    def _tell(self, partition: Partition, history: History[Any]) -> None:
        """Tell readers of a record that is committed, and the upkeep of its log if that has something to do."""
        if history.since_snapshot_bytes >= BYTES_BETWEEN or self._upkeep.concerns(history):
            self._agenda.grown[history] = None
        self._registry.told_end[partition] = history.committed.end
        self._sessions.end_moved(partition)
