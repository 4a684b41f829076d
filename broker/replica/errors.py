"""Errors of a replica, which stay inside its node: others serve meanwhile."""

from __future__ import annotations

from ...storage.errors import Corrupt, StorageError


class ReplicaDamaged(StorageError):
    """Something is gone that was durable here: this replica neither votes nor acknowledges before it has fetched it.

    `path`: the log that has lost something; "" where that is not known.
    """

    code = "replica_damaged"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class PromisesLost(ReplicaDamaged):
    """The journal of promises is gone or damaged: this node may have voted where it cannot tell, so it is no member."""

    code = "promises_lost"

    @property
    def message(self) -> str:
        """The human sentence, with the way out."""
        return f"{super().message}; start this node with an empty directory, and run penstock cluster replace"


class StateDiffers(Corrupt):
    """What a log adds up to here is something else than what a majority of the members has."""

    code = "state_differs"


class ReplicaBroken(StorageError):
    """This replica cannot go on from here: it is closed and opened anew, and nothing is repaired in place."""

    code = "replica_broken"
