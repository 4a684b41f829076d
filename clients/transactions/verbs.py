"""The verbs of transactions, written once as steps: commit stages, drop stages, ask what was committed.

Contract: all of them are safe to repeat, so callers need not handle a lost connection or a restarted broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...broker.errors import LimitReached
from ...storage.errors import StorageFull
from ...transport.messages import Done, Stage
from ...transport.transaction_messages import (
    AskTransaction,
    CommitTransaction,
    DropStages,
    TransactionCommitted,
    TransactionState,
)
from ..connection.connection import Connection
from ..connection.steps import Pause, Steps
from ..errors import InvalidArgument, StillFull, TimedOut

STAGES_MAX = 24_000
"""Limit of one request: this many always fit. A commit is one request."""

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.05, 2.0
"""Between two tries of a commit for which the broker has no room now."""


class TransactionVerbs:
    """The transaction verbs of both kinds of clients, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def commit(self, name: str, epoch: int, stages: list[Stage], deadline: float) -> Steps[bool]:
        """Publish stages, all or none. Returns False if that epoch was committed with others, or a later one was.

        Raises StillFull when time is up and the broker has said that its disk is full.
        """
        if len(stages) > STAGES_MAX:
            raise LimitReached(
                f"transaction {name} has {len(stages)} stages, one for each producer and partition, and a commit takes "
                f"{STAGES_MAX}: let fewer producers stage, or each for fewer partitions"
            )
        what = (
            f"committing epoch {epoch} of transaction {name}, which may be decided by now "
            "(to commit it again is harmless, and tells)"
        )
        backoff_s, full = BACKOFF_MIN_S, None
        while True:
            try:
                answer = yield from self.connection.ask(
                    lambda request: CommitTransaction(request, name, epoch, stages),
                    TransactionCommitted,
                    deadline=deadline,
                    what=what,
                )
                return not answer.repeated
            except (StorageFull, TimedOut) as error:
                full = error if isinstance(error, StorageFull) else full
                if full is None:
                    raise
                if full is not error or self.connection.clock() + backoff_s >= deadline:
                    raise StillFull(f"timed out: {what}: {full.message}") from error
            yield from self._rest(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def drop(self, stages: Iterable[Stage], deadline: float) -> Steps[None]:
        """Drop stages; decided ones stay, missing ones are no error."""
        rest = list(stages)
        for first in range(0, len(rest), STAGES_MAX):
            part = rest[first : first + STAGES_MAX]
            yield from self.connection.ask(
                lambda request, part=part: DropStages(request, part), Done, deadline=deadline, what="dropping stages"
            )

    def epoch(self, name: str, deadline: float) -> Steps[int | None]:
        """The last decided epoch; None if none is known."""
        answer = yield from self.connection.ask(
            lambda request: AskTransaction(request, name),
            TransactionState,
            deadline=deadline,
            what=f"asking for the epoch of transaction {name}",
        )
        return None if answer.epoch < 0 else answer.epoch

    def _rest(self, seconds: float) -> Steps[None]:
        until = self.connection.clock() + seconds
        while self.connection.clock() < until:
            yield Pause(until)


def checked_name(id: Any) -> str:
    """The name of a transaction. Raises InvalidArgument; which names may be is the broker's business."""
    if not isinstance(id, str) or not id:
        raise InvalidArgument(f"id={id!r} is no name of a transaction: give a str, as for topics")
    return id


def checked_epoch(epoch: Any) -> int:
    """The number of a transaction. Raises InvalidArgument."""
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 63:
        raise InvalidArgument(f"epoch={epoch!r} is no number of a transaction: give an int from 0 on that rises")
    return epoch


def checked_stages(stages: Any) -> list[Stage]:
    """Stages of `Staging.stages`, maybe of several processes. Raises InvalidArgument."""
    found = list(stages)
    for stage in found:
        if not isinstance(stage, Stage):
            raise InvalidArgument(f"{stage!r} is no stage: give what `stages` of a staging returned")
    return found
