"""Chooses the core a producer sends with: its own, or that of the transaction it is in.

Contract: nothing here waits; a record that waits for room goes to the core that is sending when there is room.
"""

from __future__ import annotations

from typing import Any

from ...storage.errors import Closed
from ..connection.steps import Steps
from .core import ProducerCore


class TransactionSwitch:
    """Shared by the producers of threads and of event loops: sends through the producer or the open transaction."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._sending = core  # or the core of the transaction that stages what is sent now

    def _send(self, *record: Any) -> Steps[int]:
        """Send through the current core when there is room."""
        if self._sending.jammed is not None:
            yield from self._unjam(self._sending)
        return (yield from self._sending.send(*record))

    def _unjam(self, core: ProducerCore) -> Steps[None]:
        """Wait for room unless the transaction ends meanwhile: then the next records go elsewhere."""
        try:
            yield from core.unjam(core.connection.deadline())
        except Closed:
            if core is self._sending:
                raise
