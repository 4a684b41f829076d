"""A handout: the run of records that the application is iterating over.

Idea: iteration hands out plain list iterators, chained in C, so a record costs no Python call. The application's
position is still exact, because a list iterator knows how many items it has left.

Where values are to be deserialized, a LoadingRun stands in place of that iterator: it deserializes each record when it
is handed out, so one that cannot be keeps none before it from the application.

Contract: offsets of a run are contiguous. `position` is exact at any moment and from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint
from typing import Any

from msgspec import Struct

from ...storage.batch import Batch
from ...storage.record import Record
from ...transport.consumer_session import Delivery
from ..errors import CannotDeserialize

Load = Callable[[Record], Record[Any]]
"""Makes a record of one with bytes. Raises CannotDeserialize."""


class Handout(Struct, eq=False):
    """One run of records of one partition, handed out through `iterator`; `end` is the offset behind it."""

    delivery: Delivery
    batch: Batch
    iterator: Iterator[Record[Any]]
    end: int

    @property
    def left(self) -> int:
        """Records not handed out yet."""
        return length_hint(self.iterator)

    @property
    def position(self) -> int:
        """The next offset to be handed out."""
        return self.end - length_hint(self.iterator)

    def take(self, count: int) -> list[Record[Any]]:
        """Hand out at most `count` records."""
        return list(islice(self.iterator, count))

    def drop(self) -> None:
        """Hand out no more records, also through iterators that still exist."""
        self.end -= self.left  # first: Ctrl-C may come with the return of the next call, and `position` never skips one
        run = self.iterator
        if isinstance(run, LoadingRun):
            run.drop()
        else:
            deque(run, maxlen=0)


class LoadingRun(Iterator[Record[Any]]):
    """An iterator over a list of records that loads each when it is asked for it."""

    def __init__(self, run: list[Record], load: Load) -> None:
        self._run = run
        self._load = load
        self._at = 0  # moves when a record is loaded or refused: an interrupt in the middle loses none
        self._lock = threading.Lock()  # of several threads that ask, each gets other records

    def __length_hint__(self) -> int:
        return max(len(self._run) - self._at, 0)

    def __next__(self) -> Record[Any]:
        with self._lock:
            at = self._at
            if at >= len(self._run):
                raise StopIteration
            try:
                found = self._load(self._run[at])
            except CannotDeserialize:
                self._at = at + 1
                raise
            self._at = at + 1
            return found

    def drop(self) -> None:
        """End, also while another thread is in the middle of loading a record."""
        self._run = []

    def back(self) -> None:
        """The last record was not handed out."""
        self._at -= 1
