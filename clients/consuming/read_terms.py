"""The terms of what was read: whether other records may have its offsets after a restart of the broker.

Idea: with `commit="written"` a power cut at the broker may cost records that were read here, and new ones get their
offsets, under a higher term. The terms of the last two runs of a partition tell them apart.

Contract: memory is two entries per partition, and none for a group, which goes on from its cursors. Must not know
sessions' lives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ...storage.errors import Diverged
from ...transport.consumer_session import ConsumerSession
from ...transport.messages import Topic


class ReadTerms:
    """See the module."""

    def __init__(self, topic: Topic, group: str) -> None:
        self._topic = topic.name
        self._may_shrink = topic.settings.get("commit") == "written"
        self.noted = self._may_shrink and not group
        """Whether `note` is to be called."""
        self._terms: dict[int, deque[tuple[int, int]]] = {}  # offset and term of the last runs, by partition
        self._incarnation = 0

    def note(self, partition: int, offset: int, term: int) -> None:
        """Remember the term of a run, and keep that of the run before: the new one may not be begun."""
        self._terms.setdefault(partition, deque(maxlen=2)).append((offset, term))

    def may_differ(self, incarnation: int) -> bool:
        """Whether the broker was restarted since the last call, and may have recovered less than was read."""
        before, self._incarnation = self._incarnation, incarnation
        return self._may_shrink and before not in (0, incarnation)

    def difference(self, session: ConsumerSession, positions: Mapping[int, int]) -> Diverged | None:
        """The error of a partition whose records below our position are others now."""
        for partition, position in positions.items():
            known = [term for offset, term in self._terms.get(partition, ()) if offset < position]
            view = session.partitions.get(partition)
            if view is not None and view.term and known and known[-1] != view.term:
                return Diverged(
                    f"topic {self._topic} lost records of partition {partition} below {position} that were read "
                    "here, and has others there now: read them from where you need them with another consumer"
                )
        return None
