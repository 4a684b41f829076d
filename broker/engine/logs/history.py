"""A history: one log and the state it adds up to, in any role.

Idea: every replica applies the entries of the log in order, each when it is committed. Entries in the log that are not
yet committed are in flight.

Contract: `committed` is the state up to the last applied entry. `on_applied` gets each entry when it is applied,
before any waiter hears of it. Memory: one entry per batch in flight. Must not know what effects mean, nor what is
proposed: see overlay.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from ....storage.errors import Poisoned

if TYPE_CHECKING:
    from ....storage.log import LogWriter
    from ..tables.effects import AnyEffect
    from ..tables.entry import Entry
    from ..tables.producers import Place
    from ..tables.queues.shelf_bodies import Read


class State(Protocol):
    """A log and its state."""

    seq: int
    term: int
    time_us: int
    end: int

    def apply(self, entry: Entry, time_us: int) -> None: ...
    def effect(self, effect: AnyEffect, time_us: int) -> None: ...
    def batch_applied(self, place: Place) -> None: ...
    def lost(self, seqs: range) -> None: ...
    def copy(self) -> Self: ...
    def encode(self) -> bytes: ...
    def digest(self) -> int: ...
    @classmethod
    def decode(cls, body: bytes, read: Read = ...) -> Self: ...


S = TypeVar("S", bound=State)


class History(Generic[S]):
    """One log and its state."""

    def __init__(self, log: LogWriter, committed: S) -> None:
        self.log = log
        self.committed = committed
        self.in_flight: deque[Entry] = deque()
        self.damaged = False  # something that was durable cannot be read: effects may be missing
        self.snapshot_seq = committed.seq  # of the last one taken or loaded
        self.since_snapshot_bytes = 0
        self.on_applied: Callable[[Entry], None] | None = None

    def apply(self, entry: Entry) -> None:
        """Apply one entry that is committed, the next one."""
        place = entry.place
        self.committed.apply(entry, place.time_us)
        self.committed.batch_applied(place)

    def advance(self) -> Iterator[Entry]:
        """Apply what is in flight and committed by now. Gives each entry when it is applied, and not the next one."""
        in_flight, committed_seq = self.in_flight, self.log.committed
        while in_flight and in_flight[0].place.seq <= committed_seq:
            entry = in_flight.popleft()
            self.apply(entry)
            if self.on_applied is not None:
                self.on_applied(entry)
            yield entry

    def go_back(self, seq: int) -> None:
        """Take back what is in the log behind `seq`. Raises what `LogWriter.go_back` does."""
        self.log.go_back(seq)
        while self.in_flight and self.in_flight[-1].place.seq > seq:
            self.in_flight.pop()

    def check_writable(self) -> None:
        """Raise Poisoned when nothing will ever be committed again."""
        reason = self.log.poisoned
        if reason is not None:
            raise Poisoned(f"{self.log.path} takes no more writes since a sync failed ({reason}); reads go on")

    def snapshot(self) -> tuple[int, int, bytes]:
        """Seq, term and body of a snapshot of what is committed."""
        self.snapshot_seq, self.since_snapshot_bytes = self.committed.seq, 0
        return self.committed.seq, self.committed.term, self.committed.encode()
