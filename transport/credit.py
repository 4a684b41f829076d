"""Credit: how much may be sent to a consumer ahead of its processing.

Idea: both sides count totals since the session began, so a lost or repeated Credit does no harm. The grant is the
finished total plus one window: pipes and queues never hold more than a window, however slow the reader.

Contract: finished <= received; a grant is due once half the window is used up. Pure.
"""

from __future__ import annotations

from .messages import Credit


class CreditWindow:
    """The consumer's side of credit, of bytes and of records at once."""

    def __init__(self, session: int, window_bytes: int, window_records: int) -> None:
        assert window_bytes > 0 < window_records, "a window without credit never receives anything"
        self._session = session
        self._window_bytes, self._window_records = window_bytes, window_records
        self._finished_bytes = self._finished_records = 0
        self._received_bytes = self._received_records = 0
        self._grant()

    @property
    def outstanding(self) -> tuple[int, int]:
        """Bytes and records received and not yet finished: what this consumer holds."""
        return self._received_bytes - self._finished_bytes, self._received_records - self._finished_records

    def received(self, size_bytes: int, records: int) -> None:
        """A delivery came in; it stays on the account until `finished`, whether it is used or dropped."""
        self._received_bytes += size_bytes
        self._received_records += records

    def finished(self, size_bytes: int, records: int) -> bool:
        """A delivery was handed out or dropped. Returns whether a grant is due."""
        self._finished_bytes += size_bytes
        self._finished_records += records
        return self._finished_bytes >= self._due_bytes or self._finished_records >= self._due_records

    def due(self) -> Credit | None:
        """The next grant, once it is worth a message. Every grant returned counts as sent."""
        if self._finished_bytes < self._due_bytes and self._finished_records < self._due_records:
            return None
        self._grant()
        return self.current()

    def current(self) -> Credit:
        """The grant as it stands, to be repeated as a heartbeat."""
        return Credit(self._session, self._granted_bytes, self._granted_records)

    def _grant(self) -> None:
        """A window beyond what is finished; the next one is due when half of it is used up."""
        self._granted_bytes = self._finished_bytes + self._window_bytes
        self._granted_records = self._finished_records + self._window_records
        self._due_bytes = self._finished_bytes + (self._window_bytes + 1) // 2
        self._due_records = self._finished_records + (self._window_records + 1) // 2
