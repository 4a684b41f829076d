"""A task's messages to the driver about its rows. Pickled: plain values only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from ...clients import Stage


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """`rows` were sent: all of them staged under the stages named, or readable at once when there are none.

    `repeated`: the epoch was committed before this task began, which therefore staged nothing.
    """

    rows: int
    transaction: str = ""
    stages: tuple[Stage, ...] = ()
    repeated: bool = False


def written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """The messages of the tasks that have one: one that failed has none."""
    return [message for message in messages if isinstance(message, Written)]


def stages_of(messages: Iterable[Written]) -> list[Stage]:
    """All that was staged."""
    return [stage for message in messages for stage in message.stages]
