"""Proposes a batch of a few plain records without judging it: its shape says all that judging would find.

Idea: most clients send one record and wait. A batch that the shortest encoding could have made (storage/few.py) has
values and nothing else, all verified when it is recognised; what is left to ask is its size and its place in the
producer's sequence.

Contract: proposes what judging.py and proposing.py would, by their rules, and leaves to them, unchanged, whatever is
not the next batch of a producer, or would be refused. Must not know peers or messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.few import recognise_few
from ..tables.entry import Entry
from ..tables.producers import Place

if TYPE_CHECKING:
    from ..logs.overlay import Waiter
    from ..logs.partition import Partition
    from ..ports import Payload


def propose_few(
    partition: Partition, batch: Payload, max_frame_bytes: int, waiter: Waiter, owner: str | None = None
) -> int:
    """Propose the next few plain records of a producer. Returns how many; 0: nothing was changed.

    `owner`: the only one whose producers these may be; None where there are no users.

    Raises BatchTooLarge, SequenceGap, UnknownProducer, Fenced.
    """
    found = recognise_few(batch) if len(batch) <= min(partition.settings.max_record_bytes, max_frame_bytes) else None
    if found is None or partition.log.poisoned is not None:
        return 0
    _, count, producer_id, first_sequence, epoch = found
    if not producer_id or first_sequence < 0:
        return 0
    overlay = partition.overlay
    latest = overlay.latest
    if owner is not None and latest.producers.owner(producer_id) != owner:
        return 0  # before it is judged: an error says what the producer has sent
    if latest.stages.by_id or latest.producers.judge(producer_id, epoch, first_sequence, count) is not None:
        return 0
    overlay.propose_records(batch, Entry(Place(first_sequence, count), producer_id, epoch), waiter)
    return count
