"""The state of a record follows from the tables of its group."""

from __future__ import annotations

import msgspec
import numpy as np
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.leases import Lease, LeaseBody
from penstock.broker.engine.tables.queues.placing import Placed
from penstock.broker.engine.tables.queues.queue import Queue
from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.broker.engine.tables.queues.shelves import Shelves
from penstock.broker.engine.tables.queues.status import standing, stands_for
from penstock.broker.engine.tables.state import PartitionState

NOW = 1_000


def group() -> Queue:
    """Record 0 acked, 1 leased, 2 waiting, 3 dead, 4 held, 5 cancelled, 6 and 7 untouched."""
    queue = Queue("g", QueueSettings(), 0)
    queue.granted(fx.LeaseGranted("g", 1, "w", 2_000, [(0, 4, 1)], 5, held=[(4, 7)]), NOW)
    queue.finished(1, [(0, 1)], 0)
    queue.returned(fx.TasksReturned("g", 1, [(2, 1, 1, 3_000)], "slow"), NOW)
    queue.died(fx.TasksDied("g", 1, [(3, 1, 1)], "bad"), NOW)
    queue.cancel([5], 0)
    return queue


def test_every_place_of_a_record_is_a_state_of_its_own():
    states = [standing(group(), Shelves(), offset, NOW).state for offset in range(8)]
    assert states == ["completed", "leased", "waiting", "dead", "pending", "cancelled", "pending", "pending"]


def test_a_record_of_a_shelf_is_delayed_until_it_is_due_and_pending_until_it_is_taken():
    queue, shelves = group(), Shelves()
    queue.frontier = 20  # which passed them by
    shelves.add(Placed(np.array([10, 11, 12, 13]), np.array([0, 3, 3, 3], np.uint8), np.array([NOW + 5, 0, 0, NOW])))

    def states() -> list[str]:
        return [standing(queue, shelves, offset, NOW).state for offset in range(10, 14)]

    assert states() == ["delayed", "pending", "pending", "pending"]
    assert standing(queue, shelves, 10, NOW).time_us == NOW + 5
    queue.granted(fx.LeaseGranted("g", 2, "w", 2_000, [(11, 1, 1)], 20, [(3, 12, 0, -1)]), NOW)
    assert states() == ["delayed", "leased", "pending", "pending"]
    queue.granted(fx.LeaseGranted("g", 3, "w", 2_000, [(13, 1, 1)], 20, [(3, 12, NOW, 13)]), NOW)
    queue.finished(2, [], 0)
    queue.finished(3, [], 0)
    assert states() == ["delayed", "completed", "pending", "completed"]


def test_what_failed_before_is_told_while_it_is_leased_again():
    queue = group()
    queue.granted(fx.LeaseGranted("g", 2, "other", 9_000, [(2, 1, 2)], 5), 900)
    queue.extended(fx.LeasesExtended("g", [2], 9_500, [(2, b"half")]), 0)
    queue.cancel([2], 0)
    found = standing(queue, Shelves(), 2, NOW)
    assert (found.worker, found.attempt, found.time_us, found.progress) == ("other", 2, 9_500, b"half")
    assert (found.cancelling, found.token, found.history) == (True, 2, [(NOW, "w", "slow")])
    assert found.given_us == 900, "an extension does not change it"


def test_a_lease_of_a_snapshot_that_does_not_say_when_it_was_given_has_no_such_time():
    queue = group()
    old = msgspec.json.decode(msgspec.json.encode(queue.leases[1].dump()))[:-1]
    queue.leases[1] = Lease.load(msgspec.convert(old, LeaseBody))
    assert (standing(queue, Shelves(), 1, NOW).given_us, standing(group(), Shelves(), 1, NOW).given_us) == (-1, NOW)


def test_a_void_record_stands_where_the_last_of_its_successors_does():
    state = PartitionState()
    state.voids.add([(1, 4), (4, 6)])
    assert [stands_for(state, offset) for offset in (1, 4, 5, 6)] == [6, 6, 5, 6]
