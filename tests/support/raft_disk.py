"""A disk that forgets: the log behind a simulated Raft node, as it is written and as it is synced."""

from __future__ import annotations

import random
from copy import copy

from penstock.broker.raft.messages import ConfState, Entry, Promise, Snapshot
from penstock.broker.raft.node import opening_promise
from support.raft_log import MemoryLog


class Image(MemoryLog):
    """One state of a log, with its checkpoint: the applied state that the log may be compacted to."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        super().__init__(snapshot)
        self.checkpoint = self.base
        self.wanted = 0  # the core asked for a checkpoint at least here

    def initial_state(self) -> tuple[Promise, ConfState]:
        last_term = self.term(self.last_index())
        assert last_term is not None
        return opening_promise(self.promise, last_term, self.checkpoint.index), self.checkpoint.configuration

    def snapshot(self, at_least: int) -> Snapshot | None:
        if self.checkpoint.index < max(at_least, 1):
            self.wanted = max(self.wanted, at_least)
            return None
        return self.checkpoint

    def write(self, promise: Promise | None, entries: list[Entry], snapshot: Snapshot | None) -> None:
        if snapshot and snapshot.index > self.base.index:
            self.install(snapshot)
            self.checkpoint = snapshot
        self.append(entries)
        if promise:
            self.promise = promise

    def copied(self) -> Image:
        found = copy(self)
        found.stored = self.stored[:]
        found.snapshots = []
        return found


class Disk:
    """What a node sees, and what a crash leaves: the synced image, and a random part of what came after, in order."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.seen = Image(snapshot)
        self.synced = self.seen.copied()
        self._unsynced: list[tuple[Promise | None, list[Entry], Snapshot | None]] = []

    def write(self, promise: Promise | None, entries: list[Entry], snapshot: Snapshot | None) -> None:
        self.seen.write(promise, entries, snapshot)
        self._unsynced.append((promise, entries, snapshot))

    def sync(self) -> None:
        self.synced = self.seen.copied()
        self._unsynced = []

    def checkpoint(self, snapshot: Snapshot, keep: int) -> None:
        """Make a checkpoint of what is applied, synced at once, and drop entries more than `keep` below it."""
        self.sync()
        if snapshot.index > self.seen.checkpoint.index:
            self.seen.checkpoint = snapshot
        if snapshot.index - keep > self.seen.base.index:
            self.seen.compact(snapshot.index - keep)
        self.sync()

    def crash(self, rng: random.Random) -> None:
        left = self.synced.copied()
        for promise, entries, snapshot in self._unsynced[: rng.randint(0, len(self._unsynced))]:
            cut = rng.randint(0, len(entries))
            left.write(promise if cut == len(entries) else None, entries[:cut], snapshot)
            if cut < len(entries):
                break
        self.seen = left
        self.sync()
