"""Commits in progress: from the request until every record of the epoch can be read.

Idea: a commit seals its stages, has its decision logged and the stages published, and logs that it is finished.
Requests for the epoch wait for it; a decision found in the log at opening has no waiter.

Contract: a stage is sealed from before its decision is proposed until the log says that it is finished, or has refused
the decision: a late duplicate of a published stage would be a stage that the next start finds decided. If the log is
poisoned with the decision in it, the outcome is unknown until the next start, and the stage stays sealed. Waiters are
told once; an error says whether the epoch is decided. Must not know messages or peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....storage.errors import Error, Poisoned, StorageFull
from ...errors import Unavailable
from ..logs.partition import Partition
from ..tables import effects as fx
from ..tables.producers import Place
from ..turns.replies import Gather

if TYPE_CHECKING:
    from ..logs.log_registry import LogRegistry
    from ..tables.decisions import StageKey
    from ..turns.alarms import Alarms
    from ..turns.roster import Roster
    from .home import Home
    from .publishing import Publisher

NOWHERE = Place(0, 0)


class Commit:
    """One epoch of one transaction."""

    __slots__ = ("_commits", "epoch", "home", "left", "name", "stages", "stuck_because", "waiters")

    def __init__(self, commits: Commits, home: Partition, name: str, epoch: int, stages: Sequence[StageKey]) -> None:
        self.home = home  # the partition of `__txn`
        self.name = name
        self.epoch = epoch
        self.stages = frozenset(stages)
        self.left = dict.fromkeys(stages)  # not published yet, in order
        self.waiters: list[Gather] = []
        self.stuck_because: Error | None = None  # nothing happens before the next start
        self._commits = commits

    def wait(self, waiter: Gather) -> None:
        """Tell it when all can be read, or why that will not be."""
        if self.stuck_because is None:
            self.waiters.append(waiter)
        else:
            waiter.failed(self.stuck_because)

    def answer(self, error: Error | None = None) -> None:
        """Tell all waiters. A repeated request waits anew."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if error is None:
                waiter.committed(NOWHERE)
            else:
                waiter.failed(error)

    # -- told by the log ----------------------------------------------------------------------------

    def committed(self, place: Place) -> None:
        """The decision is committed."""
        self._commits.stands(self)

    def failed(self, error: Error) -> None:
        """The decision failed, or its outcome is unknown."""
        self._commits.refused(self, error)

    # -- told by the publisher ----------------------------------------------------------------------

    def published(self, key: StageKey) -> None:
        """One stage can be read."""
        self.left.pop(key, None)
        if not self.left:
            self._commits.finish(self)

    def waits(self, error: Error) -> None:
        """A stage is retried later."""
        self.answer(self._but_decided(error, "its records will be published when that is possible, ask again"))

    def stuck(self, error: Error) -> None:
        """A stage is retried at the next start."""
        self.stuck_because = self._but_decided(error, "its records will be published when the broker is started again")
        self.answer(self.stuck_because)

    def _but_decided(self, error: Error, then: str) -> Error:
        kind = type(error) if isinstance(error, (Poisoned, StorageFull)) else Unavailable
        return kind(f"epoch {self.epoch} of transaction {self.name} is decided, and {then}: {error.message}")


class Commits:
    """The commits of one node."""

    def __init__(
        self,
        registry: LogRegistry,
        home: Home,
        publisher: Publisher,
        alarms: Alarms[int],
        seals: Roster[Partition, int, None],
    ) -> None:
        """Takes up what the logs say is decided and not published. Nothing is handled before it is sealed."""
        self.seals = seals
        self._registry = registry
        self._home = home
        self._publisher = publisher
        self._alarms = alarms
        self._under_way: dict[str, dict[int, Commit]] = {}
        self._published: dict[tuple[str, int], list[tuple[Partition, int]]] = {}  # up to where; not known to the log
        self._take_up()

    def __len__(self) -> int:
        return sum(map(len, self._under_way.values()))

    def of(self, name: str) -> dict[int, Commit]:
        """The commits of a transaction, by epoch."""
        return self._under_way.get(name, {})

    def begin(self, home: Partition, name: str, epoch: int, stages: Sequence[StageKey], owner: str = "") -> Commit:
        """Have an epoch decided, whose stages were looked at, for the owner of the transaction."""
        commit = self._sealed(home, name, epoch, stages)
        home.propose(fx.TransactionDecided(name, epoch, list(stages), owner), commit)
        return commit

    def _sealed(self, home: Partition, name: str, epoch: int, stages: Sequence[StageKey]) -> Commit:
        commit = Commit(self, home, name, epoch, stages)
        self._under_way.setdefault(name, {})[epoch] = commit
        for key in stages:
            partition = self._partition(key)
            if partition is not None:
                self.seals.add(partition, key[2], None)
        return commit

    def unseal(self, keys: Sequence[StageKey]) -> None:
        """Unseal these stages."""
        for key in keys:
            partition = self._partition(key)
            if partition is not None:
                self.seals.remove(partition, key[2])

    def _partition(self, key: StageKey) -> Partition | None:
        topic = self._registry.topics.by_id.get(key[0])
        found = topic.partitions[key[1]] if topic is not None and key[1] < len(topic.partitions) else None
        return found if isinstance(found, Partition) else None

    # -- steps --------------------------------------------------------------------------------------

    def stands(self, commit: Commit) -> None:
        """Publish a commit whose decision is committed."""
        if not commit.left:
            self._forget(commit)
            commit.answer()
        else:
            self._publisher.publish(list(commit.left), commit)

    def refused(self, commit: Commit, error: Error) -> None:
        """Fail a commit whose decision could not be logged."""
        self._forget(commit)
        if commit.home.log.poisoned is None:
            self.unseal(list(commit.left))
        commit.answer(error)

    def finish(self, commit: Commit) -> None:
        """All records can be read. Log that, for the next opening, once they are safe; no request waits for it."""
        self._forget(commit)
        partitions = {self._partition(key) for key in commit.stages} - {None}
        self._published[commit.name, commit.epoch] = [(each, each.seq) for each in partitions if each is not None]
        self._log_finished(commit.home, commit.name, commit.epoch, list(commit.stages))
        commit.answer()

    def log_finished(self, home: Partition) -> None:
        """Say what could not be said before: a disk was full, or nothing for good."""
        for name, decision in home.proposed.transactions.unfinished():
            if decision.epoch not in self.of(name):
                self._log_finished(home, name, decision.epoch, decision.stages)

    def _log_finished(self, home: Partition, name: str, epoch: int, stages: Sequence[StageKey]) -> None:
        if home.log.poisoned is None and all(map(self._is_for_good, self._published.get((name, epoch), []))):
            self._published.pop((name, epoch), None)
            # No start publishes them again then; if it fails, a later pass says it.
            home.propose(fx.TransactionFinished(name, epoch), Gather(lambda: self.unseal(stages), lambda error: None))

    def _is_for_good(self, place: tuple[Partition, int]) -> bool:
        """Whether a power cut cannot take it: on topics with commit=written that comes after it can be read."""
        partition, seq = place
        return partition.log.safe >= seq or not self._registry.holds(partition)

    def _forget(self, commit: Commit) -> None:
        epochs = self._under_way[commit.name]
        del epochs[commit.epoch]
        if not epochs:
            del self._under_way[commit.name]

    # -- at the start -------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Seal decided stages and queue them for publishing before any request; reading begins with the first tick."""
        found = [
            (decision.time_us, home, name, decision)
            for home in ([] if self._home.topic is None else self._home.topic.readable)
            for name, decision in home.committed.transactions.unfinished()
        ]
        for _, home, name, decision in sorted(found, key=lambda each: each[0]):
            self._publisher.line_up(decision.stages, self._sealed(home, name, decision.epoch, decision.stages))
        if found:
            self._alarms.set(self, 0, lambda _: self._publisher.go_on())
