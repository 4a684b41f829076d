"""Credit: how much may be sent to a consumer before it has worked off what it was sent.

Idea: both sides count totals since the session began, so a lost or repeated Credit does no harm. Granted is
what was finished plus one window: never more than a window is in pipes and queues, however slow the reader.

Contract: finished <= received; a grant is due once half the window is used up. Pure.
"""

from __future__ import annotations

from .messages import Credit


class CreditWindow:
    """The consumer's side of credit, of bytes and of records at once."""

    def __init__(self, session: int, window_bytes: int, window_records: int) -> None:
        assert window_bytes > 0 < window_records, "a window without credit never receives anything"
        self._session = session
        self._window = (window_bytes, window_records)
        self._granted = self._window
        self._finished = (0, 0)
        self._received = (0, 0)

    @property
    def outstanding(self) -> tuple[int, int]:
        """Bytes and records received and not yet finished: what this consumer holds."""
        return self._received[0] - self._finished[0], self._received[1] - self._finished[1]

    def received(self, size_bytes: int, records: int) -> None:
        """A delivery came in; it stays on the account until `finished`, whether it is used or dropped."""
        self._received = (self._received[0] + size_bytes, self._received[1] + records)

    def finished(self, size_bytes: int, records: int) -> None:
        """A delivery was handed out or dropped."""
        self._finished = (self._finished[0] + size_bytes, self._finished[1] + records)

    def due(self) -> Credit | None:
        """The next grant, once it is worth a message. Every grant returned counts as sent."""
        window_bytes, window_records = self._window
        granted_bytes, granted_records = self._granted
        total_bytes, total_records = self._finished[0] + window_bytes, self._finished[1] + window_records
        if 2 * (total_bytes - granted_bytes) < window_bytes and 2 * (total_records - granted_records) < window_records:
            return None
        return self._grant((total_bytes, total_records))

    def current(self) -> Credit:
        """The grant as it stands, to be repeated as a sign of life."""
        return Credit(self._session, *self._granted)

    def _grant(self, totals: tuple[int, int]) -> Credit:
        self._granted = totals
        return self.current()
