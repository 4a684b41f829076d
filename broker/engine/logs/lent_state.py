"""What is said of lending with a partition: to which producer it is lent now, and what came of its grants before.

Contract: for people. Lending keeps it; it counts from when the partition was opened. Must not know: grants.
"""

from __future__ import annotations


class LentState:
    """Of one partition. `to`: the producer's name, else its id in hexadecimal; "" while it is not lent."""

    def __init__(self) -> None:
        self.to = ""
        self.process = 0  # that the producer named; 0: none
        self.borrowed = 0  # the broker appended between its producer's appends
        self.recalled = 0  # grants that ended

    def begin(self, to: str, process: int) -> None:
        """A grant is given."""
        self.to, self.process = to, process

    def over(self) -> None:
        """It ended."""
        self.to, self.process = "", 0
        self.recalled += 1
