"""The verbs of a client for groups of tasks with one callback.

Contract: as client.py, of which this is a part: any number of threads may call.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..connection.driver import Driver
from .descriptions import Barrier, Callback, GroupTask, barrier_of
from .verbs import BarrierVerbs


class BarrierClient:
    """The part of `Client` that concerns groups."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._barrier_verbs = BarrierVerbs(driver.connection)

    def send_group(self, members: Sequence[GroupTask], *, then: Callback) -> list[str]:
        """Send tasks, and have one record appended once all of them have ended, exactly once.

        Programs with task functions use `penstock.group`.

        Args:
            members: 1 to 1000, of any topics of this broker.
            then: the record, and for which ends it waits.

        Returns: the ids of the tasks, in their order. Nothing is sent where a topic or a queue group is missing.
        Another error may leave tasks that were sent: they are worked on, and the record never comes.

        Raises: UnknownTopic, UnknownGroup, LimitReached, RecordTooLarge, BatchTooLarge.
        """
        return self._driver.run(self._barrier_verbs.send_group(members, then))

    def barriers(self, topic: str | None = None, *, most: int = 1000) -> list[Barrier]:
        """Callbacks that wait for tasks, of all topics or `topic`: those that were sent first in front, at most `most`
        and 10,000."""
        return [barrier_of(found) for found in self._driver.run(self._barrier_verbs.barriers(topic, most))]

    def delete_barrier(self, topic: str, id: str) -> None:
        """Delete the callback with this `Barrier.id` that waits in `topic`: it never comes, and its tasks go on.

        Raises UnknownBarrier where it has come already, or its time was over.
        """
        self._driver.run(self._barrier_verbs.delete_barrier(topic, id))
