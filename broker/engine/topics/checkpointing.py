"""A checkpoint: how far every log is applied, all at one moment.

Idea: what one log makes another one do, it does once it is applied. So the places of all logs at one moment are a state
that a crash could have left, which every start puts in order. They are taken in one step; the answer is written in
several.

Contract: reads only, in any role. Memory: one tuple per log while the answer is written. Must not know what a backup
is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....transport.messages import Checkpoint, Checkpointed, LogPlace
from ..logs.log_upkeep import needed

if TYPE_CHECKING:
    from ..logs.log_registry import LogRegistry
    from ..ports import Handlers, Now, Payload, Peer, Port, Work
    from ..tables.state import PartitionState

SLICE = 256
"""Places written in one step."""

_CATALOGUE = bytes(16)

Taken = tuple[str, bytes, int, bytes, int, int, int]
"""The fields of one place."""


class Checkpointing:
    """Handler of Checkpoint."""

    def __init__(self, registry: LogRegistry, port: Port) -> None:
        self.handlers: Handlers = {Checkpoint: self.checkpoint}
        self._registry = registry
        self._port = port

    def checkpoint(self, peer: Peer, message: Checkpoint, payload: Payload, now: Now) -> Work:
        """Take every place at once; the answer is work."""
        catalogue = self._registry.catalogue
        taken = [
            (topic.name, topic.id, partition.number, partition.log.log_id, state.seq, state.first, _needed(state))
            for topic in self._registry.topics.by_id.values()
            for partition in topic.readable
            for state in (partition.history.committed,)
        ]
        first = LogPlace("", _CATALOGUE, 0, catalogue.log.log_id, catalogue.committed.seq, 0)
        return self._told(peer, message.request, first, taken, self._registry.unavailable())

    def _told(self, peer: Peer, request: int, first: LogPlace, taken: list[Taken], unavailable: dict[str, str]) -> Work:
        places = [first]
        for start in range(0, len(taken), SLICE):
            yield
            places += (LogPlace(*each) for each in taken[start : start + SLICE])
        self._port.reply(peer, Checkpointed(request, places, unavailable))


def _needed(state: PartitionState) -> int:
    if not (state.stages or state.kept):
        return 0
    first = needed(state)
    return first if first <= state.seq else 0
