"""Files below the first offset go on a node that does not lead, without anything being proposed."""

from __future__ import annotations

from errno import EIO
from typing import Any

import pytest
from penstock.broker.engine import Node, Now
from penstock.broker.engine.logs.history import History
from penstock.broker.engine.logs.partition import Partition
from penstock.transport import messages as m
from support.engine import MemoryStore, Rig

PASS_S = 5.0


class OneSnapshot(MemoryStore):
    """As the store of a member: one snapshot is enough. `is_full` keeps segments."""

    is_full = False

    def removable_to(self, log):
        return self._of(log).newest

    def retire(self, log, segments):
        if not self.is_full:
            super().retire(log, segments)


class Following:
    """A node that does not lead, over a topic that was trimmed to its last record while it led."""

    def __init__(self, records: int = 6) -> None:
        rig = Rig(OneSnapshot(), housekeeping_s=PASS_S)
        self.store = rig.store
        rig.store.is_full = True
        topic = rig.topic(segment_bytes=65536)
        for number in range(records):
            rig.produce(topic, [b"%d" % number + bytes(40_000)])
        trimmed = rig.ask(m.Trim, topic, m.TrimRule.RECORDS, 1, -1)
        assert trimmed.partitions[0].first == records - 1
        rig.store.is_full = False
        self.now = rig.now
        self.node = Node(
            rig.store, rig.port, randomness=rig.random.randbytes, config=rig.config, now=rig.now, may_lead=lambda: False
        )
        self.registry = self.node._registry
        ((self.history, self.partition),) = self.registry.partitions.items()
        self.first = self.segments
        self.store.snapshots.clear()

    history: History
    partition: Partition

    @property
    def segments(self) -> int:
        return len(self.history.log.names)

    def look(self, passes: int = 1) -> None:
        for _ in range(passes):
            self.node.tick(self.now)  # begins a pass
            self.node.tick(self.now)
            self.now = Now(self.now.wall_us, self.now.monotonic_s + PASS_S)


def test_a_pass_takes_the_snapshot_that_removal_waits_for_and_the_next_one_removes():
    following = Following()
    assert following.first >= 5
    following.look()
    assert following.segments == following.first
    assert following.store.snapshots == [(following.history.log.path, following.history.committed.seq)]
    following.look()
    assert following.segments == 1
    written = following.history.log.written
    following.look(3)
    assert following.registry.trimmed == {}
    assert len(following.store.snapshots) == 1
    assert following.history.log.written == written


def test_passes_pause():
    following = Following()
    following.look()
    following.now = Now(following.now.wall_us, following.now.monotonic_s - 0.1)
    for _ in range(5):
        following.node.tick(following.now)
    assert following.segments == following.first


def test_files_that_are_kept_are_looked_at_again():
    following, hurried = Following(), list[object]()
    following.store.hurry = hurried.append
    following.store.is_full = True
    following.look(4)
    assert hurried == [], "it is durable"
    assert following.segments == following.first
    assert len(following.store.snapshots) == 1, "another one would not help"
    following.store.is_full = False
    following.look(2)
    assert following.segments == 1


def test_a_log_that_cannot_be_read_is_looked_at_again():
    following = Following()
    log, failures = following.history.log, [OSError(EIO, "input/output error")] * 3
    expired = log.expired

    def failing(covered_seq: int) -> Any:
        if failures:
            raise failures.pop()
        return expired(covered_seq)

    log.expired = failing
    following.history.since_snapshot_bytes = 2 * 65536
    following.node._removal.hold_to_limit(following.history)
    following.look(2)
    assert (failures, following.segments) == ([], following.first)
    assert following.node.stats()["retention.failed"] == 3
    following.look(2)
    assert following.segments == 1


def test_a_log_that_grows_fast_does_not_wait_for_a_pass():
    following = Following()
    removal, history = following.node._removal, following.history
    history.since_snapshot_bytes = 2 * 65536 - 1
    removal.hold_to_limit(history)
    assert following.store.snapshots == []
    history.since_snapshot_bytes = 2 * 65536
    removal.hold_to_limit(history)
    assert following.segments == 1
    assert len(following.store.snapshots) == 1
    following.look(2)
    assert following.registry.trimmed == {}
    history.since_snapshot_bytes = 2 * 65536
    removal.hold_to_limit(history)
    assert len(following.store.snapshots) == 1, "it is not trimmed"


def test_what_is_needed_besides_holds_files_and_no_snapshot_is_taken_for_it(monkeypatch: pytest.MonkeyPatch):
    following = Following()
    monkeypatch.setattr(following.node._upkeep, "needed", lambda partition: 1)
    following.look(3)
    assert (following.segments, following.store.snapshots) == (following.first, [])
    monkeypatch.undo()
    following.look(2)
    assert following.segments == 1


def test_what_is_not_durable_is_looked_at_again(monkeypatch: pytest.MonkeyPatch):
    following = Following()
    log, hurried = following.history.log, list[object]()
    monkeypatch.setattr(following.store, "hurry", hurried.append)
    monkeypatch.setattr(log, "durable", 0)
    following.look(2)
    assert following.registry.trimmed == {following.partition: None}
    assert following.segments == following.first
    assert hurried == [log, log]


def test_a_snapshot_that_waits_for_its_log_hurries_the_sync(monkeypatch: pytest.MonkeyPatch):
    following = Following()
    log, hurried = following.history.log, list[object]()
    monkeypatch.setattr(following.store, "hurry", hurried.append)
    with monkeypatch.context() as patched:
        patched.setattr(log, "durable", 0)
        following.node._upkeep.snapshot(following.history)
    assert hurried == [log]
    assert following.store.snapshots == []
    following.look()
    assert len(following.store.snapshots) == 1, "a pass saves what waited"


def test_a_poisoned_log_keeps_its_files(monkeypatch: pytest.MonkeyPatch):
    following = Following()
    monkeypatch.setattr(following.history.log, "poisoned", "a sync failed")
    following.look(3)
    assert (following.segments, following.store.snapshots) == (following.first, [])


def test_partitions_that_are_closed_meanwhile_are_left_out():
    following = Following()
    following.node.tick(following.now)
    following.registry.close(following.partition, keep=False)
    assert following.registry.trimmed == {}
    following.node.tick(following.now)
    assert following.store.snapshots == []
