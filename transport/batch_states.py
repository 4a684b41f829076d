"""The states of a batch on its way to the broker, and the transitions between them.

Idea: one table drives `producer_session.py` and is printed in PROTOCOL.md (section 5); a test compares the two.

Contract: a transition that is not in the table raises AssertionError. Pure: names and a table.
"""

from __future__ import annotations

from enum import StrEnum


class BatchState(StrEnum):
    """The state of a batch."""

    WAITING = "waiting"  # to be sent, or sent again
    HELD = "held"  # refused for a gap: not sent again before the batch before it is answered
    IN_FLIGHT = "in flight"
    ANSWERED = "answered"  # it stands in the log; batches before it are not answered yet
    APPENDED = "appended"
    REFUSED = "refused"


class BatchEvent(StrEnum):
    """An event of a batch."""

    SENT = "sent"
    PRODUCED = "Produced"
    RETRY = "retry"  # Failure with `retry` for it or one before it, or the connection was lost
    GAP = "gap"  # refused for a gap while one before it has no answer
    SETTLED = "settled"  # it is answered, and so are all before it
    BROKEN = "broken"  # Failure without `retry` for it or one before it, or it is abandoned


class After(dict[BatchState, BatchState]):
    """State to the next state, for one event."""

    def __init__(self, event: BatchEvent, following: dict[BatchState, BatchState]) -> None:
        super().__init__(following)
        self._event = event

    def __missing__(self, state: BatchState) -> BatchState:
        raise AssertionError(f"a batch that is {state} cannot be {self._event}")


WAITING, HELD, IN_FLIGHT, ANSWERED, APPENDED, REFUSED = BatchState

AFTER_SENT = After(BatchEvent.SENT, {WAITING: IN_FLIGHT, HELD: IN_FLIGHT})
AFTER_PRODUCED = After(BatchEvent.PRODUCED, {IN_FLIGHT: ANSWERED, ANSWERED: ANSWERED})
AFTER_RETRY = After(BatchEvent.RETRY, {WAITING: WAITING, HELD: WAITING, IN_FLIGHT: WAITING, ANSWERED: ANSWERED})
AFTER_GAP = After(BatchEvent.GAP, {IN_FLIGHT: HELD, ANSWERED: ANSWERED})
AFTER_SETTLED = After(BatchEvent.SETTLED, {ANSWERED: APPENDED})
AFTER_BROKEN = After(BatchEvent.BROKEN, {WAITING: REFUSED, HELD: REFUSED, IN_FLIGHT: REFUSED, ANSWERED: APPENDED})

TABLE = {
    BatchEvent.SENT: AFTER_SENT,
    BatchEvent.PRODUCED: AFTER_PRODUCED,
    BatchEvent.RETRY: AFTER_RETRY,
    BatchEvent.GAP: AFTER_GAP,
    BatchEvent.SETTLED: AFTER_SETTLED,
    BatchEvent.BROKEN: AFTER_BROKEN,
}
"""One column for each event; APPENDED and REFUSED are the ends."""
