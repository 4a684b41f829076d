"""Finals: the outcomes of records that are no longer in any table.

Idea: a queue's tables hold open records. For a record that ended with a result, a cancellation or a discard, a file
beside the log has the seq of the batch that says so (storage/finals.py); a query reads that batch. A plain ack leaves
no word: a record below the frontier and in no table is completed.

Contract: receives every committed batch in order, also during replay. Words may be written twice; the latest wins.
After a failed write, look-ups raise Unavailable until the log is reopened, which rewrites all words from the log. A
word is only a hint: the reader trusts the batch it names. Pure: files are an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....storage.batch import Kind
from ....storage.errors import Corrupt, InvalidBatch, StorageError, is_damage
from ....storage.finals import EVERYTHING, Final, FinalFiles, word
from ...errors import Unavailable
from ..tables import effects as fx
from ..tables.entry import entry_of
from ..tables.queues.table import Ended, ended

if TYPE_CHECKING:
    from ....storage.log import LogWriter


class Finals:
    """The finals of one partition's groups."""

    def __init__(self, files: FinalFiles) -> None:
        self._files = files
        self._noted: dict[str, list[Ended]] = {}  # by group, of the batch that is being applied
        self._unsettled: set[str] = set()  # groups with words that may not be durable
        self._failed: dict[str, str] = {}  # groups with words missing, and why

    # -- applying -----------------------------------------------------------------------------------

    def noted(self, group: str, found: Iterable[Ended]) -> None:
        """Records ended."""
        self._noted.setdefault(group, []).extend(found)

    def batch_applied(self, seq: int) -> None:
        """All that was noted stands in batch `seq`."""
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        for group, found in noted.items():
            self._unsettled.add(group)
            self._attempt(group, lambda group=group, found=found: self._files.write(group, in_rows(found, seq)))

    def dropped(self, group: str) -> None:
        """Remove the finals of a deleted group."""
        for known in (self._noted, self._failed):
            known.pop(group, None)
        self._unsettled.discard(group)
        self._attempt(group, lambda: self._files.drop(group))

    def trimmed(self, groups: Iterable[str], first: int) -> None:
        """Offsets below `first` are gone."""
        for group in groups:
            self._attempt(group, lambda group=group: self._files.trim(group, first))

    def _attempt(self, group: str, action: Callable[[], None]) -> None:
        """Run `action` unless words of this group are missing already. If it fails, they are."""
        if group in self._failed:
            return
        try:
            action()
        except (OSError, StorageError) as error:
            self._failed[group] = str(error)
            self._distrust(group)

    def _distrust(self, group: str) -> None:
        try:
            self._files.distrust(group)
        except (OSError, StorageError) as error:
            self._failed[group] += f"; {error}"

    # -- asking -------------------------------------------------------------------------------------

    def look(self, group: str, offset: int) -> Final | None:
        """The final of a record that is in no table, if it has one. Raises Unavailable."""
        if group in self._failed:
            raise Unavailable(
                f"what became of the finished tasks of group {group} is not known since it could not be written or "
                f"read ({self._failed[group]}): make room or see what is gone, and start the broker again, which finds "
                "it in the log"
            )
        try:
            return self._files.read(group, offset)
        except (Corrupt, OSError) as error:
            if not is_damage(error):
                raise
            self._failed[group] = str(error)
            self._distrust(group)
            return self.look(group, offset)

    # -- opening and closing ------------------------------------------------------------------------

    def recover(self, log: LogWriter, groups: Iterable[str], seq: int) -> None:
        """Before a replay goes on behind `seq`: see to it that the words of these groups up to there are all written.

        Raises NewerFormat.
        """
        known = {group: self._files.covered(group) for group in groups}
        for group, covered in known.items():
            if covered != EVERYTHING:
                self._attempt(group, lambda group=group, covered=covered: self._files.stand(group, covered))
        missing = {group: covered for group, covered in known.items() if covered < seq}
        if not missing:
            return
        for at, effects in state_effects(log, min(missing.values()), seq):
            for effect in effects:
                if isinstance(effect, fx.QueueEffect) and effect.group in missing and (found := ended(effect)):
                    self.noted(effect.group, found)
            self.batch_applied(at)

    def settle(self, seq: int) -> None:
        """Make durable what was written: words of batches up to `seq`."""
        for group in list(self._unsettled):
            self._attempt(group, lambda group=group: self._files.settle(group, seq))
        self._unsettled.clear()


def in_rows(found: Iterable[Ended], seq: int) -> Iterator[tuple[int, np.ndarray]]:
    """Words of records that follow each other, as (first offset, words), so that each row is written at once."""
    words: list[np.ndarray] = []
    start = end = -1
    for outcome, first, count in sorted(found, key=lambda each: each[1]):
        if first != end and words:
            yield start, np.concatenate(words)
            words = []
        if not words:
            start = end = first
        words.append(np.full(count, word(Final(outcome, seq)), np.int64))
        end += count
    if words:
        yield start, np.concatenate(words)


def state_effects(log: LogWriter, after: int, through: int) -> Iterator[tuple[int, Sequence[fx.AnyEffect]]]:
    """Seq and effects of each readable STATE batch in a range. The index says which they are; others are not read."""
    reader = log.reader()
    try:
        for seq in range(max(after + 1, reader.names[0].base_seq), through + 1):
            try:
                row = reader.row(seq)
                if row is not None and row.kind == Kind.STATE:
                    yield seq, entry_of(reader.segment_of(seq).batch(row.position)).effects
            except (Corrupt, InvalidBatch):
                continue  # the partition says that it is damaged; its queues refuse until that is settled
    finally:
        reader.close()
