"""Replay: builds a history from a snapshot and the log behind it.

Idea: load the newest snapshot and apply every batch after it. Batches that are in the log but not yet committed (a
keeper has to sync them first) are put in flight, as if just appended.

Contract: an unknown effect or kind of batch stops the replay with UnknownEffect. Damage does not: replay applies the
batches on both sides of it and marks the history as damaged, unless the loss of every missing batch was accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ....storage.accepted import accepted_losses
from ....storage.batch import Batch, Kind
from ....storage.errors import Corrupt, InvalidBatch
from ....storage.scan import Good, scan
from ..tables.entry import entry_of
from .history import History, State

if TYPE_CHECKING:
    from ....storage.log import LogWriter
    from ..ports import Store

CHUNK_BYTES = 1 << 20

S = TypeVar("S", bound=State)


def replay(
    log: LogWriter,
    state_type: type[S],
    store: Store,
    begin: Callable[[S], None] = lambda state: None,
) -> History[S]:
    """The history of an open log. `begin` is called with the state of the snapshot, before the log is applied to it.

    Raises UnknownEffect, NewerFormat, Corrupt.
    """
    applied = _begin(log, state_type, store)
    given_up = _given_up(log)
    for seqs in given_up:
        applied.lost(seqs)
    begin(applied)
    history = History(log, applied)
    committed, lost, last = log.committed, list[range](), applied.seq
    for batch in batches_after(log, applied.seq):
        if batch.kind == Kind.STAGED and any(batch.seq in seqs for seqs in given_up):
            continue  # its header can be read, and that is all
        try:
            entry = entry_of(batch)
        except InvalidBatch:
            continue
        lost.append(range(last + 1, batch.seq))
        last = batch.seq
        if batch.seq > committed:
            history.in_flight.append(entry)
            continue
        history.apply(entry)
        history.since_snapshot_bytes += batch.batch_bytes
    applied.end = max(applied.end, log.end_offset_at(committed))  # records lost to damage keep their numbers
    lost.append(range(last + 1, log.written + 1))
    history.damaged = not _is_accepted(given_up, [seqs for seqs in lost if seqs])
    return history


def _begin(log: LogWriter, state_type: type[S], store: Store) -> S:
    """The state of the newest snapshot of which nothing is missing; a new one without. Raises Corrupt."""
    snapshot = store.load_snapshot(log)
    while snapshot is not None:
        try:
            return state_type.decode(snapshot.body, lambda *name: store.runs(log).load(*name))
        except Corrupt:  # a run of it is missing or damaged: the log has what an older one does not
            snapshot = store.load_snapshot(log, below=snapshot.seq)
    return state_type()


def _is_accepted(given_up: list[range], lost: list[range]) -> bool:
    """Whether the loss of all these batches was accepted."""
    for seqs in lost:
        seq = seqs.start
        for each in given_up:
            seq = each.stop if seq in each else seq
        if seq < seqs.stop:
            return False
    return True


def _given_up(log: LogWriter) -> list[range]:
    """Batches whose loss was accepted, in order."""
    known = accepted_losses(log.files, log.path)
    return sorted((range(each.first_seq, each.next_seq) for each in known if each.next_seq), key=lambda seqs: seqs[0])


def batches_after(log: LogWriter, seq: int) -> Iterator[Batch]:
    """Every readable batch above `seq`, in order, on both sides of damage."""
    if seq >= log.written:
        return
    reader = log.reader()
    last = seq
    try:
        cursor = reader.cursor_after(seq)
        while (chunk := cursor.next(CHUNK_BYTES, log.written)) is not None:
            for batch in chunk.batches:
                yield batch
                last = batch.seq
    except Corrupt:
        for found in scan(log.files, log.path):
            if isinstance(found, Good) and last < found.batch.seq <= log.written:
                yield found.batch
    finally:
        reader.close()
