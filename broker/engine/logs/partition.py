"""A partition: one log of a topic, what it adds up to, what is proposed to it, and positions in it.

Idea: every request about a partition comes through here. Changes are proposed to its overlay; reads stay below `end`,
the committed end. The meaning of a batch or an effect is its proposer's.

Contract: a method that raises, raises an error of the tree and has changed nothing. Returned offsets are committed.
Must not know peers, messages or sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import AcceptedLoss, Corrupt, Diverged, OutOfBounds, StorageError
from ...errors import InvalidRequest
from ..tables import effects as fx
from .lent_state import LentState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....storage.batch import Batch
    from ....storage.log import LogWriter
    from ....storage.reader import Cursor, LogReader
    from ..ports import Payload
    from ..tables.entry import Entry
    from ..tables.groups import GroupState
    from ..tables.producers import Place
    from ..tables.settings import TopicSettings
    from ..tables.state import PartitionState
    from .finals import Finals
    from .history import History
    from .overlay import Overlay, Waiter

EARLIEST, LATEST = -1, -2
"""As in transport/messages.py."""

FIND_STEPS = 4
"""Steps of a portion that one `find` counts as: a file may have to be opened."""


def check_time(what: str, time_us: int) -> None:
    """Raise InvalidRequest unless `find` knows what `time_us` means; `what` names the field."""
    if time_us < LATEST:
        raise InvalidRequest(f"{what} {time_us} is neither a time nor {EARLIEST} (earliest) nor {LATEST} (latest)")


class Partition:
    """One partition of one topic."""

    def __init__(
        self, topic: str, number: int, settings: TopicSettings, history: History[PartitionState], finals: Finals
    ) -> None:
        self.topic = topic
        self.number = number
        self.settings = settings
        self.overlay: Overlay[PartitionState]  # of the office: see `lead`
        self.history = history
        self.finals = finals
        self.log: LogWriter = history.log
        self._reader: LogReader | None = None
        self._told_first = self.first
        if self._told_first:
            self.log.set_first(self._told_first)
        self.damaged = self.history.damaged or bool(self.log.damage)  # something of it cannot be read
        self.unreadable: set[object] = set()  # readers that failed and try again
        self.lent = LentState()
        self.on_damage: Callable[[Corrupt], StorageError] = lambda damage: damage

    def __repr__(self) -> str:
        return f"partition {self.number} of topic {self.topic}"

    def lead(self, overlay: Overlay[PartitionState]) -> None:
        """An office has opened, which proposes to `overlay` from now on. The readers of the last one are gone."""
        self.unreadable.clear()
        self.overlay = overlay

    # -- what stands ------------------------------------------------------------------------------

    @property
    def reader(self) -> LogReader:
        """Opened when first asked for: most partitions of a large node are idle."""
        if self._reader is None:
            self._reader = self.log.reader()
        return self._reader

    def close(self, *, clean: bool) -> None:
        """Close the log and what reads it."""
        if clean:
            self.finals.settle(self.seq)
        if self._reader is not None:
            self._reader.close()
        self.log.close(clean)

    @property
    def first(self) -> int:
        """The first offset that can be read."""
        return self.history.committed.first

    @property
    def end(self) -> int:
        """The first offset that is not committed."""
        return self.history.committed.end

    @property
    def readable_end(self) -> int:
        """The first offset that no reader can have seen: boards show what is committed before it is applied here."""
        end, committed = self.end, self.log.committed
        for entry in self.history.in_flight:
            if entry.place.seq > committed:
                break
            end = max(end, entry.place.offset + entry.place.count)
        return end

    @property
    def end_term(self) -> int:
        """The term of the record before `end`; 0 without one."""
        applied = self.committed
        if applied.end_term < 0:  # no record came since a snapshot was loaded
            applied.end_term = self.term_at(applied.end)
        return applied.end_term if applied.end > applied.first else 0

    @property
    def seq(self) -> int:
        """The last batch that is committed: no reader passes it."""
        return self.history.committed.seq

    @property
    def state(self) -> str:
        """The state for people: ok, poisoned or damaged."""
        if self.log.poisoned is not None:
            return "poisoned"
        damaged = self.damaged or self.unreadable or (self._reader is not None and self._reader.met_damage)
        return "damaged" if damaged else "ok"

    def group(self, name: str) -> GroupState:
        """The committed state of a group."""
        return self.committed.groups.get(name)

    # -- its state, and what is proposed to it ------------------------------------------------------

    @property
    def committed(self) -> PartitionState:
        """The committed state."""
        return self.history.committed

    @property
    def proposed(self) -> PartitionState:
        """The state as if all proposals were committed."""
        return self.overlay.proposed

    @property
    def latest(self) -> PartitionState:
        """The same for one look, by a caller that proposes nothing meanwhile; see Overlay.latest."""
        return self.overlay.latest

    @property
    def state_damaged(self) -> bool:
        """Whether something that was durable cannot be read, so that effects may be missing."""
        return self.history.damaged

    @property
    def idle(self) -> bool:
        """Whether everything that was proposed is committed, or failed."""
        return self.overlay.idle

    @property
    def predicted_end(self) -> int:
        """The offset that the next record proposed will have."""
        return self.overlay.predicted_end

    @property
    def decided_end(self) -> int:
        """The offset behind the last queued records with effects beside them; 0 without any."""
        return self.overlay.decided_end

    @property
    def unshelved(self) -> int:
        """The count of uncommitted batches with a priority or a delay."""
        return self.overlay.unshelved

    def next_token(self) -> int:
        """A unique number; see Overlay.next_token."""
        return self.overlay.next_token()

    def check_writable(self) -> None:
        """Raise Poisoned when nothing will ever be committed again."""
        self.history.check_writable()

    def propose(
        self, effect: fx.AnyEffect, waiter: Waiter | None = None, *, replaces: object = None, above: int = 0
    ) -> None:
        """Propose an effect that commutes with records; see Overlay.propose."""
        self.overlay.propose(effect, waiter, replaces=replaces, above=above)

    def propose_in_order(self, effect: fx.AnyEffect, waiter: Waiter | None = None) -> None:
        """Propose an effect that keeps its place between records."""
        self.overlay.propose_in_order(effect, waiter)

    def propose_records(self, batch: Payload, entry: Entry, waiter: Waiter, before: fx.AnyEffect | None = None) -> None:
        """Propose a batch of records, with effects beside and perhaps before them; see Overlay.propose_records."""
        self.overlay.propose_records(batch, entry, waiter, before)

    def attach(self, place: Place, waiter: Waiter) -> None:
        """Let `waiter` wait for a batch that is proposed and not yet committed."""
        self.overlay.attach(place, waiter)

    def propose_kept(self, batch: Batch, waiter: Waiter) -> None:
        """Propose records that are carried forward."""
        self.overlay.propose_kept(batch, waiter)

    def propose_nothing(self) -> None:
        """Propose an empty state batch: the log gets a new seq and means the same."""
        self.overlay.propose_nothing()

    def barrier(self, waiter: Waiter) -> None:
        """Tell `waiter` once everything that is proposed so far is committed."""
        self.overlay.barrier(waiter)

    @property
    def lacks_beginning(self) -> bool:
        """Whether segments are gone that no retention took, in a store whose files go only once that is durable.

        Raises Corrupt.
        """
        base_seq = self.log.names[0].base_seq
        if base_seq == 1:
            return False
        begins = self.log.place_behind(base_seq - 1)[0].offset
        return begins > self.first or base_seq > self.committed.stages.first_seq

    # -- groups -----------------------------------------------------------------------------------

    def check_cursor(self, offset: int) -> None:
        """Raise OutOfBounds unless a cursor may stand at `offset`, Poisoned when none can be moved."""
        self.check_writable()
        if not 0 <= offset <= self.end and not self.end < offset <= self.readable_end:
            raise OutOfBounds(f"offset {offset} of {self!r} cannot be committed: 0 to its end {self.end} can")

    def move_cursor(self, group: str, offset: int, waiter: Waiter | None = None, note: str = "") -> None:
        """Propose a group's cursor, which was checked."""
        effect = fx.CursorNoted(group, offset, note) if note else fx.CursorMoved(group, offset)
        self.propose(effect, waiter, replaces=("cursor", group))

    def set_owner(self, group: str, member: str, start: int, waiter: Waiter) -> int:
        """Propose a new owner. `start` counts while the group has neither cursor nor start. Returns the epoch.

        Raises Poisoned, Corrupt.
        """
        self.check_writable()
        known = self.proposed.groups.get(group)
        begin = known.start if known.start >= 0 else self.find(start)
        epoch = known.epoch + 1
        self.propose(fx.OwnerSet(group, member, epoch, begin), waiter)
        return epoch

    def delete_group(self, group: str, waiter: Waiter | None = None) -> None:
        """Propose to delete a group. Raises Poisoned."""
        self.check_writable()
        self.propose(fx.GroupDeleted(group), waiter)

    def set_first(self, offset: int) -> None:
        """Propose that offsets below are gone. Raises Poisoned."""
        self.check_writable()
        self.propose(fx.FirstOffset(offset))

    def trim(self, offset: int, waiter: Waiter) -> None:
        """Propose that offsets below are gone, whatever is open there. Raises Poisoned."""
        self.check_writable()
        self.propose(fx.Trimmed(offset), waiter)

    def applied(self) -> bool:
        """More of the log is applied: where it begins later now, tell the log and the finals beside it.

        Returns whether it does.
        """
        first = self.history.committed.first
        if first <= self._told_first:
            return False
        self._told_first = first
        self.log.set_first(first)
        groups = [queue.group for queue in self.committed.queues.by_name.values() if queue.finals]
        self.finals.trimmed(groups, first)
        return True

    # -- positions --------------------------------------------------------------------------------

    def check_offset(self, offset: int) -> None:
        """Raise OutOfBounds unless reading may start at `offset`."""
        if not self.first <= offset <= self.end:
            error = OutOfBounds(
                f"offset {offset} of {self!r} is out of range: {self.first} to {self.end} are valid "
                f"({self.end} waits for the next record)"
            )
            error.offset = self.first if offset < self.first else self.end
            raise error

    def check_place(self, offset: int) -> None:
        """As `check_offset`, for where a reader is: see `readable_end`."""
        if not self.end < offset <= self.readable_end:
            self.check_offset(offset)

    def check_position(self, offset: int, term: int) -> None:
        """Raise Diverged or OutOfBounds unless the record before `offset` is of `term` (-1: not known)."""
        known = term > 0 and offset > self.first
        if known and (offset > self.end or self._term_at(offset) != term):
            valid = min(self.reader.end_of_term(term, self.first, self.end), offset)
            error = Diverged(
                f"position {offset} of term {term} is not in {self!r}, whose records up to that term end at "
                f"{valid}: what was read after that was lost, go on from there"
            )
            error.offset = valid
            raise error
        self.check_offset(offset)

    def term_at(self, offset: int) -> int:
        """The term of the record before `offset`; 0 when there is none, or when it cannot be read."""
        try:
            return self._term_at(offset)
        except (StorageError, OSError):
            return 0  # a reader of that place meets the error, and says so

    def _term_at(self, offset: int) -> int:
        if offset <= self.first:
            return 0
        try:
            return self.reader.term_at(min(offset, self.end) - 1)
        except Corrupt as error:
            self.met(error)
            return 0

    def time_at(self, offset: int) -> int:
        """When the record at `offset` was appended. Raises OutOfBounds, Corrupt."""
        return self.reader.time_at(offset)

    def appended_us(self, offset: int) -> int:
        """As `time_at`; -1 where retention or damage took it, or it cannot be read now."""
        try:
            return self.time_at(offset)
        except (StorageError, OSError):
            return -1

    def find(self, time_us: int) -> int:
        """The first offset whose append time is >= `time_us`; EARLIEST or LATEST for the ends."""
        if time_us == EARLIEST:
            return self.first
        if time_us == LATEST:
            return self.end
        return min(max(self.reader.offset_at(time_us), self.first), self.end)

    def cursor(self, offset: int) -> Cursor:
        """A cursor over the log from the batch that holds `offset`. Raises what `met` returns."""
        try:
            return self.reader.cursor(offset)
        except Corrupt as error:
            raise self.met(error) from error

    def met(self, damage: Corrupt) -> StorageError:
        """Say from now on that this partition is damaged, unless the loss was accepted.

        Returns what readers are told: it, or that they ask again, as other nodes may have what is damaged.
        """
        if not isinstance(damage, AcceptedLoss):
            self.damaged = True
            return self.on_damage(damage)
        return damage

    def around(self, damage: Corrupt, position: int) -> int | None:
        """The offset where reading continues after damage at `position`; None if nothing behind it can be read."""
        self.met(damage)
        beyond = damage.next_offset
        return beyond if beyond is not None and beyond > position else None
