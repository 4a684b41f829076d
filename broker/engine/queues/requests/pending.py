"""Leased records, listed by offset.

Idea: the table of leases gives what is leased block by block, in order. A list looks at a block or a few at a time and
goes on from an offset, so leases may come and go meanwhile.

Contract: as committed; decides nothing. Cost: the leases that a list passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .....transport import messages as m
from .....transport.queue_messages import ListPending
from ....errors import InvalidRequest
from ...tables.queues.lease_table import PendingRun
from ..topic_queues import committed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ...logs.clock import LogTime
    from ...logs.topics import Topics
    from ...ports import Handlers, Now, Payload, Peer, Port, Work
    from ...tables.queues.leases import Lease
    from ...tables.queues.queue import Queue

LIST_MAX = 1000
"""Limit of the runs of one answer."""

LOOKS = 16
"""Leases or records that are looked at in one step."""

EVERYTHING = 1 << 62
"""An offset beyond all others."""


class PendingChoice(NamedTuple):
    """The leased records that a request is about."""

    end: int = EVERYTHING  # only below this offset
    worker: str | None = None  # only of this one; None: of all
    given_by_us: int = EVERYTHING  # only if given to the worker by this time

    def lease(self, lease: Lease) -> bool:
        """Whether the records of a lease are among them."""
        return (self.worker is None or lease.worker == self.worker) and lease.given_us <= self.given_by_us


def look(
    queue: Callable[[], Queue], offset: int, choice: PendingChoice, most: int
) -> Generator[int | None, None, tuple[list[PendingRun], int]]:
    """The chosen records from `offset` on, at most `most`, and the offset of the next page; -1 at the end.

    Args:
        queue: the group as it is at each step.
    """
    found: list[PendingRun] = []
    weight = 0
    while offset >= 0:
        runs, beyond = queue().leases.from_offset(offset)
        for run in runs:
            if run.offset >= choice.end:
                return found, -1
            if not most or len(found) == LIST_MAX:
                return found, run.offset
            if choice.lease(run.lease):
                count = min(run.many, most, choice.end - run.offset)
                _add(found, run._replace(many=count))
                most -= count
                if count < run.many:
                    return found, run.offset + count if run.offset + count < choice.end else -1
        offset = beyond
        weight += 1 + len(runs)
        if weight >= LOOKS:
            yield weight // LOOKS
            weight = 0
    return found, -1


def _add(found: list[PendingRun], run: PendingRun) -> None:
    """One more run, as part of the last one where it goes on with that."""
    last = found[-1] if found else None
    if last is not None and (last.offset + last.many, last.attempt, last.lease) == (
        run.offset,
        run.attempt,
        run.lease,
    ):
        found[-1] = last._replace(many=last.many + run.many)
    else:
        found.append(run)


class PendingRequests:
    """Handler of ListPending."""

    def __init__(self, topics: Topics, port: Port, time: LogTime) -> None:
        self.handlers: Handlers = {ListPending: self.list}
        self._topics = topics
        self._port = port
        self._time = time

    def list(self, peer: Peer, message: ListPending, payload: Payload, now: Now) -> Work:
        """List one page of the leased records of a partition. Raises UnknownGroup, UnknownPartition, InvalidRequest."""
        if message.max_records == 0:
            raise InvalidRequest("max_records=0 lists nothing: ask for one at least")
        partition = self._topics.get(message.topic).partition(message.partition)
        now_us = self._time.read(now)
        end = message.end if message.end >= 0 else EVERYTHING
        choice = PendingChoice(end, message.worker, now_us - message.min_idle_ms * 1000)
        found, following = yield from look(
            lambda: committed(partition, message.group), message.offset, choice, message.max_records
        )
        runs = [
            m.PendingRun(
                run.offset, run.many, run.attempt, run.lease.worker, run.lease.given_us or -1, run.lease.until_us,
                run.lease.token,
            )
            for run in found
        ]  # fmt: skip
        self._port.reply(peer, m.PendingRecords(message.request, following, now_us, runs))
