"""Replay: from a snapshot and the log behind it to a ledger.

Idea: load the newest snapshot, apply every batch after it, and the ledger is where it was. Batches that are in
the log but not yet committed (a keeper has to sync them first) are put in flight, as if just appended.

Contract: an effect or a kind of batch that this version does not know stops the replay: UnknownEffect.
Damage does not: what is readable on both sides is applied, and the ledger says that it is damaged, unless somebody
accepted the loss of every batch that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ....storage.accepted import read_accepted
from ....storage.batch import Batch, Kind
from ....storage.errors import Corrupt, InvalidBatch
from ....storage.scan import Good, scan
from .ledger import Entry, Ledger, State, entry_of

if TYPE_CHECKING:
    from ....storage.log import LogWriter
    from ....storage.snapshots import Snapshot
    from ..ports import Store

CHUNK_BYTES = 1 << 20

S = TypeVar("S", bound=State)


def replay(
    log: LogWriter,
    state_type: type[S],
    store: Store,
    on_work: Callable[[Ledger[Any]], None],
    begin: Callable[[S], None] = lambda state: None,
) -> Ledger[S]:
    """The ledger of an open log. `begin` is called with the state of the snapshot, before the log is applied to it.

    Raises UnknownEffect, NewerFormat, Corrupt.
    """
    snapshot, applied = _begin(log, state_type, store)
    given_up = _given_up(log)
    for seqs in given_up:
        applied.lost(seqs)
    begin(applied)
    committed, replayed, waiting = log.committed, 0, list[Entry]()
    lost, last = list[range](), applied.seq
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
            waiting.append(entry)
            continue
        place = entry.place
        entry.apply(applied, place.time_us)
        applied.batch_applied(place)
        replayed += batch.batch_bytes
    applied.end = max(applied.end, log.end_offset_at(committed))  # records lost to damage keep their numbers
    ledger = Ledger(log, applied, on_work)
    lost.append(range(last + 1, log.written + 1))
    ledger.damaged = not _is_accepted(given_up, [seqs for seqs in lost if seqs])
    ledger.resume(waiting, 0 if snapshot is None else snapshot.seq, replayed)
    return ledger


def _begin(log: LogWriter, state_type: type[S], store: Store) -> tuple[Snapshot | None, S]:
    """The newest snapshot of which nothing is missing, and its state; None and a new one without. Raises Corrupt."""
    snapshot = store.load_snapshot(log)
    while snapshot is not None:
        try:
            return snapshot, state_type.decode(snapshot.body, lambda *name: store.runs(log).load(*name))
        except Corrupt:  # a run of it is missing or damaged: the log has what an older one does not
            snapshot = store.load_snapshot(log, below=snapshot.seq)
    return None, state_type()


def _is_accepted(given_up: list[range], lost: list[range]) -> bool:
    """Whether somebody accepted the loss of all these batches."""
    for seqs in lost:
        seq = seqs.start
        for each in given_up:
            seq = each.stop if seq in each else seq
        if seq < seqs.stop:
            return False
    return True


def _given_up(log: LogWriter) -> list[range]:
    """Batches whose loss somebody accepted, in order."""
    accepted = read_accepted(log.files, log.path)
    return sorted(
        (range(each.first_seq, each.next_seq) for each in accepted if each.next_seq), key=lambda seqs: seqs[0]
    )


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
