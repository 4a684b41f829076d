"""Chooses the core a producer sends with: its own, or that of the transaction it is in.

Contract: nothing here waits; a record that waits for room goes to the core that is sending when there is room.
"""

from __future__ import annotations

from typing import Any, Generic

from ...storage.errors import Closed
from ..connection.request_ids import current_ids
from ..connection.steps import Steps
from ..serializing import Dumping, Sent
from .core import ProducerCore


class TransactionSwitch(Generic[Sent]):
    """Shared by the producers of threads and of event loops: sends through the producer or the open transaction."""

    def __init__(self, core: ProducerCore, dump: Dumping | None) -> None:
        self._core = core
        self._dump = dump  # what makes bytes of values, None where they are bytes
        self._sending = core  # or the core of the transaction that stages what is sent now

    def _send(self, value: Any, *record: Any, timeout: float | None) -> Steps[int]:
        """Send one record, serialized, through the current core when there is room, and wait until it is committed.

        Returns its offset, or that of the task it repeats.
        """
        connection = self._core.connection
        deadline = connection.clock() + (connection.timeout if timeout is None else timeout)
        while (core := self._sending).jammed is not None:
            yield from self._unjam(core, deadline)
        if core.closed:
            core.check_open()
        future = core.append(value, *record, ids=current_ids())
        pending = future._pending
        while (pause := core.awaited(pending, deadline)) is not None:
            yield pause
            if pending.settled:
                break
        offset = future.result()
        repeats = future.repeats if pending.repeats or pending.parts else None
        return offset if repeats is None else repeats

    def _unjam(self, core: ProducerCore, deadline: float | None = None) -> Steps[None]:
        """Wait for room unless the transaction ends meanwhile: then the next records go elsewhere."""
        try:
            yield from core.unjam(core.connection.deadline() if deadline is None else deadline)
        except Closed:
            if core is self._sending:
                raise
