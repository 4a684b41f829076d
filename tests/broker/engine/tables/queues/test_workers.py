"""The workers that a group remembers, against a plain list of what was seen of them."""

from __future__ import annotations

import random

import msgspec
import pytest
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues import workers
from penstock.broker.engine.tables.queues.queue import Queue, QueueBody
from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.broker.engine.tables.queues.table import QueueTable
from penstock.broker.engine.tables.queues.voids import Voids

Row = tuple[str, int, int]


def rows(queue: Queue) -> list[Row]:
    """Name, and since and until when, from the one that is silent longest on."""
    assert [worker.name for worker in queue.workers.values()] == list(queue.workers)
    return [(worker.name, worker.first_us, worker.last_us) for worker in queue.workers.values()]


class Groups:
    """A group, made of effects; each is a microsecond later."""

    def __init__(self) -> None:
        self.table = QueueTable()
        self.time_us = 0
        self.offset = 0
        self.token = 0
        self.apply(fx.QueueSet("g", QueueSettings().named(), 0))

    @property
    def queue(self) -> Queue:
        return self.table.by_name["g"]

    def apply(self, effect: fx.QueueEffect) -> None:
        self.time_us += 1
        self.table.apply(effect, self.time_us)

    def lease(self, worker: str) -> int:
        self.token, self.offset = self.token + 1, self.offset + 1
        run = (self.offset - 1, 1, 1)
        self.apply(fx.LeaseGranted("g", self.token, worker, 1 << 40, [run], self.offset, given_us=5))
        return self.token

    def take(self, worker: str) -> None:
        self.offset += 1
        self.apply(fx.TasksTaken("g", [(self.offset - 1, 1)], self.offset, worker=worker))


def test_a_worker_is_remembered_since_it_was_made_and_since_it_last_had_something():
    group = Groups()
    group.apply(fx.WorkerMade("g", "ann"))
    assert rows(group.queue) == [("ann", 2, 0)]
    token = group.lease("ann")
    group.take("bob")
    group.apply(fx.WorkerMade("g", "ann"))
    assert rows(group.queue) == [("bob", 4, 4), ("ann", 2, 3)]
    group.lease("bob")
    group.apply(fx.LeasesExtended("g", [token, 99], 1 << 41))
    assert rows(group.queue) == [("bob", 4, 6), ("ann", 2, 7)]
    group.apply(fx.TasksFinished("g", token))
    assert rows(group.queue) == [("bob", 4, 6), ("ann", 2, 7)]


def test_who_took_records_under_no_name_is_not_remembered():
    group = Groups()
    group.take("")
    assert rows(group.queue) == []


def test_a_worker_is_forgotten_unless_it_holds_something():
    group = Groups()
    token = group.lease("ann")
    for worker in ("ann", "none"):
        group.apply(fx.WorkerForgotten("g", worker))
    assert rows(group.queue) == [("ann", 2, 2)]
    group.apply(fx.TasksFinished("g", token))
    group.apply(fx.WorkerForgotten("g", "ann"))
    assert rows(group.queue) == []
    group.lease("ann")
    assert rows(group.queue) == [("ann", 7, 7)]


def test_forgotten_workers_are_not_brought_back_by_what_they_extend(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "WORKERS_MAX", 1)
    group = Groups()
    token = group.lease("ann")
    group.lease("bob")
    assert rows(group.queue) == [("bob", 3, 3)]
    group.apply(fx.LeasesExtended("g", [token], 1 << 41))
    assert rows(group.queue) == [("bob", 3, 3)]
    assert group.queue.knows("ann")
    assert not group.queue.knows("cid")


def test_a_group_remembers_a_thousand_workers():
    group = Groups()
    for number in range(1002):
        group.apply(fx.WorkerMade("g", f"w{number}"))
    assert workers.WORKERS_MAX == len(group.queue.workers) == 1000
    assert next(iter(group.queue.workers)) == "w2"


@pytest.mark.parametrize("seed", range(60))
def test_the_one_without_records_that_is_silent_longest_goes_first(seed: int, monkeypatch: pytest.MonkeyPatch):
    """A list of rows, and a dict of leases, say the same; so do snapshots at any time."""
    dice, group = random.Random(seed), Groups()
    most = dice.choice([1, 2, 4])
    monkeypatch.setattr(workers, "WORKERS_MAX", most)
    known: list[list[int | str]] = []
    leases: dict[int, str] = {}

    def saw(name: str, *, had: bool) -> None:
        found = next((row for row in known if row[0] == name), None)
        if found is None:
            found = [name, group.time_us, 0]
            if len(known) == most:
                idle = [row for row in known if row[0] not in leases.values()]
                known.remove(idle[0] if idle else known[0])
        else:
            known.remove(found)
        if had:
            found[2] = group.time_us
        known.append(found)

    for _ in range(80):
        name, token = dice.choice("abcdefg"), dice.choice([*leases, 0])
        verb = dice.choice(["lease", "lease", "take", "make", "finish", "finish", "extend", "forget", "load"])
        if verb == "lease":
            leases[group.lease(name)] = name
            saw(name, had=True)
        elif verb == "take":
            group.take(name)
            saw(name, had=True)
        elif verb == "make":
            group.apply(fx.WorkerMade("g", name))
            saw(name, had=False)
        elif verb == "finish":
            group.apply(fx.TasksFinished("g", token))
            leases.pop(token, None)
        elif verb == "extend":
            group.apply(fx.LeasesExtended("g", [token], 1 << 41))
            if leases.get(token) in [row[0] for row in known]:
                saw(leases[token], had=True)
        elif verb == "forget":
            group.apply(fx.WorkerForgotten("g", name))
            known = [row for row in known if row[0] != name or name in leases.values()]
        else:
            body = msgspec.msgpack.encode(group.table.dump())
            group.table = QueueTable.load(msgspec.msgpack.decode(body, type=list[QueueBody]), Voids(), 0)
        assert rows(group.queue) == [tuple(row) for row in known]


def test_a_snapshot_of_before_has_no_workers():
    group = Groups()
    group.lease("ann")
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(group.queue.dump()))
    old = msgspec.convert(body[:-3], QueueBody)
    assert Queue.load(old, 0).workers == {}
    assert Queue.load(old, 0).knows("ann")


def test_effects_of_before_still_apply():
    (taken,) = fx.decode(msgspec.msgpack.encode([[40, "g", [(0, 1)], 1]]))
    assert taken == fx.TasksTaken("g", [(0, 1)], 1, worker="")
