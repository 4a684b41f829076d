"""What a task function raises to say what becomes of its task: `penstock.Reject` and `penstock.Again`.

Idea: they are no errors of the library but the function's own decision, so they are not in the tree of penstock.Error.
They pass through middleware as exceptions do.
"""

from __future__ import annotations

from ..arguments.quantities import Duration, seconds


class Reject(Exception):
    """Raised by a task function: the task is dead-lettered now, with this reason, whatever its Retry says."""

    def __init__(self, reason: str = "") -> None:
        """
        Args:
            reason: kept and shown with the dead letter.
        """
        super().__init__(reason)
        self.reason = str(reason)  # an exception is given easily


class Again(Exception):
    """Raised by a task function: run the task again after `delay`, as where a service says "in ten minutes".

    It is no failure: the attempt does not count, and the task comes back as often as the function raises it, until
    `expires`. The delay counts from when the broker hears of it.
    """

    def __init__(self, reason: str = "", *, delay: Duration = 0.0) -> None:
        """
        Args:
            reason: for the worker's log.
            delay: seconds, a timedelta or text as in "10m". Of more than 366 days, the task is dead-lettered.

        Raises: InvalidArgument.
        """
        self.delay_s = seconds(delay, "delay")
        super().__init__(reason)
        self.reason = str(reason)  # an exception is given easily
