"""What a Raft core reads of a replica: its order log, the configuration, and its promises in the journal.

Idea: a promise is the newest entry of the journal of promises for the order log; a vote is the id of a node in 16
bytes. `keep` returns once it is durable, so whatever leaves after it may name that term.

Contract: as `raft.storage.Storage`. A journal that is damaged before its end, that ends below a term of which there are
entries, or that is missing where a shard has begun, is damage: this node may have voted, and must not vote again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..raft.messages import ConfState, Entry, Promise, Snapshot
from ..raft.node import opening_promise
from .beginning import FIRST_TERM
from .errors import PromisesLost

if TYPE_CHECKING:
    from ...storage.promises import Promises
    from .checkpoint import Checkpoint
    from .order_log import OrderLog


def check(promises: Promises, order_id: bytes, term: int) -> None:
    """Raise PromisesLost unless the journal has all that this node promised, as far as can be told.

    `term`: of entries that are here, which was promised before they were written, but for the first term of all.
    """
    promised = promises.term(order_id)
    if promises.damage:
        raise PromisesLost(f"{promises.path} is damaged: this node may have voted where it cannot tell any more")
    if promised < term > FIRST_TERM:
        raise PromisesLost(
            f"{promises.path} ends at term {promised}, and entries of term {term} are here: this node may have voted "
            "where it cannot tell any more"
        )


class GroupStorage:
    """See the module."""

    def __init__(self, order: OrderLog, promises: Promises, checkpoint: Checkpoint, members: ConfState) -> None:
        """`checkpoint`: the newest; `members`: those at the last applied entry. Raises PromisesLost, Poisoned."""
        check(promises, order.log.log_id, order.log.term)
        promises.make_durable()
        self._order = order
        self._promises = promises
        self.checkpoint = checkpoint
        self.floor = 0
        """The last entry of which batches are gone that it only names, with the logs of a topic that was deleted."""
        self._configuration = members

    def initial_state(self) -> tuple[Promise, ConfState]:
        """Its term is no lower than that of the last entry."""
        order, promises = self._order, self._promises
        log_id = order.log.log_id
        vote = int.from_bytes(promises.vote(log_id), "little")
        kept = Promise(promises.term(log_id), vote, order.commit)
        return opening_promise(kept, order.log.term, order.commit), self._configuration

    @property
    def promised(self) -> int:
        """The term that is promised durably."""
        return self._promises.term(self._order.log.log_id)

    def keep(self, promise: Promise) -> None:
        """Promise term and vote, durably, unless they are promised. Raises StorageFull, Poisoned."""
        promises, log_id, vote = self._promises, self._order.log.log_id, promise.vote.to_bytes(16, "little")
        if (promises.term(log_id), promises.vote(log_id)) != (promise.term, vote):
            promises.promise(log_id, promise.term, vote)

    def first_index(self) -> int:
        return self._order.first_index()

    def last_index(self) -> int:
        return self._order.last_index()

    def term(self, index: int) -> int | None:
        return self._order.term(index)

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry] | None:
        return None if low <= self.floor else self._order.entries(low, high, max_bytes)

    def needs_checkpoint(self, applied: int) -> bool:
        """Whether batches are gone that only one at `applied` adds up: a member that needs them is stuck until then."""
        return self.checkpoint.entry < self.floor <= applied

    def snapshot(self, at_least: int) -> Snapshot | None:
        """The newest checkpoint: a member that needs entries from before it is offered what it adds up to."""
        found = self.checkpoint
        if found.entry < max(at_least, self.floor):
            return None
        return Snapshot(found.entry, found.term, found.members().configuration)
