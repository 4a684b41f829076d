"""Positions in partitions: the target of a seek, the cursors of a commit, the application's progress.

Contract: reads a session, and changes nothing.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping

from msgspec import structs

from ...transport.consumer_session import ConsumerSession
from ...transport.messages import Position, SeekTo
from ..errors import InvalidArgument, NotAssigned
from .handout import Handout


def targets(session: ConsumerSession, place: int, offsets: list[int] | None, partition: int | None) -> dict[int, int]:
    """The target of a seek, by partition."""
    chosen = some_assigned(session, partition)
    if offsets is not None:
        return {number: offsets[number] for number in chosen if number < len(offsets)}
    if len(chosen) > 1:
        raise InvalidArgument(f"an offset is of one partition: say which of {chosen} with partition=")
    return dict.fromkeys(chosen, place)


def seek_to(session: int, partition: int, offset: int, paused: bool, request: int) -> SeekTo:
    """The message of a seek, a pause or a resume."""
    return SeekTo(request, session, partition, offset, paused)


def some_assigned(session: ConsumerSession, partition: int | None) -> list[int]:
    """One partition, or all of the session. Raises NotAssigned."""
    if partition is not None and partition not in session.partitions:
        raise NotAssigned(_not_assigned([partition], session))
    return sorted(session.partitions) if partition is None else [partition]


def noted(positions: list[Position], note: str) -> list[Position]:
    """The same positions with a note."""
    return [structs.replace(position, note=note) for position in positions] if note else positions


def explicit(session: ConsumerSession, positions: Mapping[int, int]) -> list[Position]:
    """The application's next offsets, as a commit message has them."""
    missing = [partition for partition in positions if partition not in session.partitions]
    if missing:
        raise NotAssigned(_not_assigned(missing, session))
    return [Position(p, offset, session.partitions[p].epoch) for p, offset in positions.items()]


def done_with(session: ConsumerSession, safe: Mapping[int, tuple[int, int]], in_hand: Handout | None) -> list[Position]:
    """The cursors to commit: `safe` (epoch and position by partition), and of the run `in_hand` all but one record."""
    done = dict(safe)
    if in_hand is not None:
        partition, position = in_hand.delivery.partition, in_hand.position - 1
        epoch, before = done.get(partition, (in_hand.delivery.epoch, -1))
        if epoch == in_hand.delivery.epoch:
            done[partition] = (epoch, max(before, position))
    return [
        Position(view.partition, done[view.partition][1], view.epoch)
        for view in session.partitions.values()
        if done.get(view.partition, (0, -1))[0] == view.epoch and done[view.partition][1] > view.committed
    ]


def _not_assigned(partitions: list[int], session: ConsumerSession) -> str:
    wanted, read = reprlib.repr(partitions), sorted(session.partitions)
    return f"partitions {wanted} are not assigned to this consumer, which reads {read}"
