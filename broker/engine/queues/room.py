"""The queues of a node: their handlers, put together, and what the node passes on to them.

Contract: as the node's: `before_flush` may propose more, `end_moved` follows a commit, `tick` says when it is needed
again. The rules live in the modules of each area.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .alarms import Alarms
from .answering import Answering
from .dead import DeadRecords
from .leasing import Leasing
from .picking import Picker
from .queue_admin import QueueAdmin
from .settling import Settling
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..clock import LogTime
    from ..house import House
    from ..ledger import Ledger
    from ..partition import Partition
    from ..ports import Handlers, NodeConfig, Now, Port, Randomness


class Queues:
    """Everything about queue groups in one node."""

    def __init__(self, house: House, port: Port, config: NodeConfig, time: LogTime, randomness: Randomness) -> None:
        """Sets the alarms of what the logs say."""
        topics = house.topics
        self.alarms = Alarms()
        self.leasing = Leasing(topics, port, config, time, Answering(port))
        watching = Watching(house, self.alarms, time, self.leasing.wanted, self.leasing.offer)
        settling = Settling(topics, port, time, randomness, watching)
        self.leasing.watching, self.leasing.settling = watching, settling
        self.admin = QueueAdmin(topics, port, time, self.leasing, watching)
        self.picker = Picker(port)
        dead = DeadRecords(topics, port, self.picker, time, watching)
        self.handlers: Handlers = {
            **self.leasing.handlers, **settling.handlers, **self.admin.handlers, **dead.handlers,
        }  # fmt: skip
        self._house = house
        self._time = time
        for partition in house.partitions.values():
            watching.watch_all(partition)

    def before_flush(self, dirty: Iterable[Ledger[Any]], time_us: int) -> None:
        """These have proposals to append: whoever waits for what they bring gets it in the same write."""
        if not self.leasing.waiting:
            return
        for ledger in dirty:
            partition = self._house.partitions.get(ledger)
            if partition is not None:
                self.leasing.offer(partition, time_us)

    def end_moved(self, partition: Partition) -> None:
        """There are new records."""
        self.leasing.offer(partition, self._time.last_us)

    def tick(self, now: Now) -> float:
        """Do what is due. Returns in how many seconds that is needed again."""
        now_us = self._time.read(now)
        self.alarms.ring(now_us)
        due_s, due_us = self.leasing.tick(now), self.alarms.next_us()
        wait = math.inf if due_s is None else due_s - now.monotonic_s
        return wait if due_us is None else min(wait, max(0.0, (due_us - now_us) / 1e6))
