"""Appends wait until the logs that they name are made and open, some in each turn.

Idea: making a log takes milliseconds, and so does opening one that rests, as all do after a start. A topic may have a
thousand. Meanwhile the leader is to hear of this member, so appends wait here in order, and everything else is taken
at once. Logs that went back behind another leader's entries rest, too, until they are cut.

Contract: an append of an earlier term does not wait: the core refuses it. Nothing is made for an entry that is applied,
as when an append comes twice: its topic may be deleted by now. What waits is bounded; more is dropped, as if
lost. Raises what making or opening a log does. Must not know Raft beyond its messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...storage.batch import parse
from ...storage.errors import InvalidBatch
from .entries import batches_of
from .errors import ReplicaBroken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage.batch import Batch
    from ..engine.node import Node
    from ..raft.messages import Message
    from .replicated import Replicated

    Bodies = Mapping[tuple[bytes, int, int], bytes]

MADE_AT_ONCE = 8
"""Logs that are made in one turn, or opened."""

HELD_MAX = 1000
"""Appends that wait."""


class Preparing:
    """See the module."""

    def __init__(self, node: Node, replicated: Replicated) -> None:
        self._node = node
        self._replicated = replicated
        catalogue = node.history_of(node.logs[0].log_id)
        assert catalogue is not None
        self._catalogue = catalogue
        self._held: deque[tuple[Message, Bodies]] = deque()
        self._left = MADE_AT_ONCE  # logs that this turn may open

    def __bool__(self) -> bool:
        """Whether appends wait."""
        return bool(self._held)

    def holds(self, message: Message, bodies: Bodies, term: int) -> bool:
        """Whether an append waits here from now on, or is dropped. `term`: of this member."""
        if not self._held and self._prepares(message, bodies, term):
            return False
        if len(self._held) < HELD_MAX:
            self._held.append((message, bodies))
        return True

    def take(self, term: int) -> Iterator[tuple[Message, Bodies]]:
        """Make and open more logs. Gives the appends that need not wait any more."""
        self._left = MADE_AT_ONCE
        while self._held and self._prepares(*self._held[0], term):
            yield self._held.popleft()

    def _prepares(self, message: Message, bodies: Bodies, term: int) -> bool:
        """Make and open some of the logs that an append names. Returns whether all of them may be appended to."""
        for entry in message.entries if message.term >= term else ():
            for flush, row in batches_of(entry.kind, entry.data):
                history = self._node.history_of(row.log_id)
                if history is not None and history.log.rests:
                    if not self._left:
                        return False
                    self._left -= 1
                    self._replicated.open(history.log)
                if row.log_id == self._catalogue.log.log_id and row.seq > self._catalogue.committed.seq:
                    body = flush.inlined(row) or bodies.get((row.log_id, row.seq, row.checksum))
                    if body is not None and not self._node.prepare(_verified(body), MADE_AT_ONCE):
                        return False
        return True


def _verified(body: bytes | memoryview) -> Batch:
    """A batch that came from another node. Raises ReplicaBroken."""
    try:
        batch = parse(body)
        batch.check()
    except InvalidBatch as error:
        raise ReplicaBroken(f"a batch of the catalogue came that does not verify: {error.message}") from error
    return batch
