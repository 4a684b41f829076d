"""The short way of what comes alone: a batch of a few plain records, a lease, an ack, in a turn with nothing else.

Idea: a client that waits for each answer meets a node in which nothing else is under way, and most of a turn is then
asking who else might be concerned. `produce` recognises such a batch by its shape, and `commit` applies and answers
the only batch in flight, of records or of effects, each in one step; between them it is a proposal like any other.

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
    from collections.abc import Sequence

    from .desk import ReadingDesk
    from .logs.history import History
    from .logs.log_agenda import LogAgenda
    from .logs.log_registry import LogRegistry
    from .logs.log_upkeep import LogUpkeep
    from .logs.overlay import Waiter
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
        self._queues = office.queues
        self._unsettled = office.overlays.unsettled
        self._concerned = (
            agenda.advanced,
            office.lending.active,
            office.queues.lines.parked.standing,
            office.queues.tasks.awaiting.parked.standing,
            desk.fetching.awaiting.parked.standing,
            desk.fetching_many.standing,
            desk.ends.by_topic,
        )
        """What else a commit may concern: partitions with more to tell, logs that are lent, and requests that wait."""

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
        if partition is None or len(history.in_flight) != 1 or history.in_flight[0].place.seq > history.log.committed:
            return False
        entry = history.in_flight[0]
        place, waiters = entry.place, overlay.waiting.get(entry.place.seq, [])
        if not (_is_plain(entry, waiters) or _has_no_records(entry)):
            return False
        history.in_flight.clear()
        history.apply(entry)
        overlay.waiting.pop(place.seq, None)
        for waiter in waiters:
            waiter.committed(place)
        del self._unsettled[overlay]
        self._go_on(partition, history)
        return True

    def _go_on(self, partition: Partition, history: History[Any]) -> None:
        """What follows from a commit: for readers, when the end has moved; for the log and what is left to be done."""
        partition.applied()
        self._queues.advanced(history)
        if history.since_snapshot_bytes >= BYTES_BETWEEN or self._upkeep.concerns(history):
            self._agenda.grown[history] = None
        told_end, end = self._registry.told_end, history.committed.end
        if told_end[partition] != end:
            told_end[partition] = end
            self._sessions.end_moved(partition)


def _is_plain(entry: Entry, waiters: Sequence[Waiter]) -> bool:
    """Whether it has records and nothing else, and one producer waits for them."""
    is_awaited = len(waiters) == 1 and type(waiters[0]) is ProduceReply
    return is_awaited and entry.place.count > 0 and not entry.effects and entry.intake is None


def _has_no_records(entry: Entry) -> bool:
    """Whether it has effects alone, as a lease and an ack have: no reader has to hear of it."""
    return not entry.place.count and entry.kept is None and entry.staged is None
