"""Committing: checks commits and logs their decisions, answers repeated ones, and drops stages.

Contract: a refused request has changed nothing. An epoch is decided against the proposed state, so that of two
requests for one epoch exactly one is decided, and answered from the committed state. No stage is decided that is
incomplete or where effects are missing. Must not know how records are published.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ....storage.errors import Error
from ....transport.messages import (
    AskTransaction,
    CommitTransaction,
    Done,
    DropStages,
    TransactionCommitted,
    TransactionState,
)  # fmt: skip
from ...errors import InvalidRequest, StageLost, Unavailable
from ..tables.decisions import FLEETING
from ..tables.names import check_name
from ..turns.portions import spread
from ..turns.replies import Gather, failure
from .staging import drop

if TYPE_CHECKING:
    from ....transport.messages import Stage
    from ...rights import Principal
    from ..guard import Guard
    from ..logs.clock import LogTime
    from ..logs.log_registry import LogRegistry
    from ..logs.partition import Partition
    from ..logs.topics import Topic
    from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
    from ..tables.decisions import StageKey
    from ..turns.alarms import Alarms
    from .commits import Commit, Commits
    from .forgetting import Forgetting
    from .home import Home


LOOKS = 32
"""Stages that are looked at in one step."""

AGAIN_US = 10_000
"""Until a request is looked at again whose records are not on the disk yet."""


M = TypeVar("M", CommitTransaction, DropStages)


class Asking(NamedTuple, Generic[M]):
    """A request that takes several turns, and the user that made it, if there are users."""

    peer: Peer
    message: M
    principal: Principal | None


class Committing:
    """Handlers of CommitTransaction, AskTransaction and DropStages."""

    def __init__(
        self,
        registry: LogRegistry,
        port: Port,
        config: NodeConfig,
        time: LogTime,
        alarms: Alarms[int],
        home: Home,
        commits: Commits,
        forgetting: Forgetting,
        guard: Guard,
    ) -> None:
        self.handlers: Handlers = {
            CommitTransaction: self.commit, AskTransaction: self.ask, DropStages: self.drop,
        }  # fmt: skip
        self.decided = 0
        self._put_off: dict[int, Asking[CommitTransaction]] = {}  # begun, and not proposed yet, by their ids
        self._registry = registry
        self._port = port
        self._config = config
        self._time = time
        self._alarms = alarms
        self._home = home
        self._commits = commits
        self._forgetting = forgetting
        self._guard = guard

    # -- requests -----------------------------------------------------------------------------------

    def commit(self, peer: Peer, message: CommitTransaction, payload: Payload, now: Now) -> Work:
        """Decide an epoch, or wait for what was decided. Raises all that PROTOCOL.md says of it."""
        return self._begin(Asking(peer, message, self._guard.principal), now)

    def _begin(self, asking: Asking[CommitTransaction], now: Now) -> Work:
        message = asking.message
        check_transaction(message.transaction)
        self._put_off[id(asking)] = asking
        try:
            keys = yield from _keys(message.stages)
        finally:
            del self._put_off[id(asking)]
        topic = self._home.topic
        if topic is not None:
            self._commit(topic, asking, keys)
        else:
            for stage in message.stages:
                self._check(stage, asking.principal)  # no topic is made for what is refused

            def refuse(error: Error) -> None:
                del self._put_off[id(asking)]
                self._port.reply(asking.peer, failure(message.request, error))

            self._home.make(now, lambda topic: self._commit_later(topic, asking, keys), refuse)
            self._put_off[id(asking)] = asking

    def ask(self, peer: Peer, message: AskTransaction, payload: Payload, now: Now) -> None:
        """The last epoch of a transaction, once it is known what became of the commits that came before.

        So a client that had no answer to its commit goes on behind it, and not beside it. Raises InvalidRequest,
        Unavailable.
        """
        name = message.transaction
        check_transaction(name)
        self._ask(peer, message, [each for each in self._put_off.values() if each.message.transaction == name])

    def _ask(self, peer: Peer, message: AskTransaction, before: Sequence[Asking[CommitTransaction]]) -> None:
        """Answer behind those commits that were put off `before`, and behind the decision that is proposed."""
        topic = self._home.topic
        again = partial(self._go_on, peer, message, lambda: self._ask(peer, message, before))
        if any(id(each) in self._put_off for each in before):
            self._look_again(again)
        elif topic is None:
            self._home.check_whole()
            self._port.reply(peer, TransactionState(message.request, -1, True, 0))
        else:
            tell = partial(self._go_on, peer, message, lambda: self._tell(peer, message, topic))
            home, name = self._settled(topic, message.transaction), message.transaction
            if home.latest.transactions.last_epoch(name) == home.committed.transactions.last_epoch(name):
                tell()
            else:
                home.barrier(Gather(tell, lambda error: again()))  # what failed may be behind the decision

    def _tell(self, peer: Peer, message: AskTransaction, topic: Topic) -> None:
        name = message.transaction
        known = self._settled(topic, name).committed.transactions.by_name.get(name)
        if known is None:
            self._port.reply(peer, TransactionState(message.request, -1, True, 0))
        else:
            finished = known.epoch not in self._commits.of(name)
            self._port.reply(peer, TransactionState(message.request, known.epoch, finished, known.time_us))

    def _settled(self, topic: Topic, name: str) -> Partition:
        """The partition with a transaction's decisions. Raises Unavailable if its last decision may be lost."""
        home = self._home.partition(topic, name)
        if home.log.poisoned is not None:
            raise Unavailable(
                f"{home!r} is poisoned, so whether the last commit of transaction {name} was decided is not known: "
                "start the broker again"
            )
        return home

    def drop(self, peer: Peer, message: DropStages, payload: Payload, now: Now) -> Work:
        """Drop undecided stages. Raises UnknownPartition, Unavailable, Poisoned, Forbidden."""
        return self._drop(Asking(peer, message, self._guard.principal))

    def _drop(self, asking: Asking[DropStages]) -> Work:
        message = asking.message
        self._home.check_whole()
        dropped: dict[Partition, list[int]] = {}
        for looks, stage in enumerate(message.stages, 1):
            if stage.topic in self._registry.topics.by_id:  # with a topic, all of its stages went
                partition = self._registry.topics.partition(stage.topic, stage.partition)
                self._check_owner(partition, stage, asking.principal)
                dropped.setdefault(partition, []).append(stage.stage)
            if looks % LOOKS == 0:
                yield
        for partition in dropped:
            partition.check_writable()
        gather = Gather.reply(self._port, asking.peer, message.request, Done(message.request))
        seals = self._commits.seals
        yield from spread(dropped.items(), gather, lambda each: drop(each[0], each[1], gather.one(), seals.of(each[0])))

    # -- deciding -----------------------------------------------------------------------------------

    def _commit_later(self, topic: Topic, asking: Asking[CommitTransaction], keys: Sequence[StageKey]) -> None:
        del self._put_off[id(asking)]
        self._go_on(asking.peer, asking.message, lambda: self._commit(topic, asking, keys))

    def _go_on(self, peer: Peer, message: CommitTransaction | AskTransaction, step: Callable[[], object]) -> None:
        """Go on with a request in a later turn; what the step raises is its answer."""
        try:
            step()
        except Error as error:
            self._port.reply(peer, failure(message.request, error))

    def _look_again(self, look: Callable[[], None]) -> None:
        self._alarms.set(object(), self._time.last_us + AGAIN_US, lambda _: look())

    def _commit(self, topic: Topic, asking: Asking[CommitTransaction], keys: Sequence[StageKey]) -> None:
        peer, message, principal = asking
        home = self._home.partition(topic, message.transaction)
        owner, resource = home.proposed.transactions.owner(message.transaction), f"transaction:{message.transaction}"
        self._guard.check_owner(principal, owner, f"transaction {message.transaction}", resource)
        if home.proposed.transactions.last_epoch(message.transaction) >= message.epoch:
            self._repeat(home, peer, message, keys)
            return
        home.check_writable()  # before the stages: where a decision may be lost, they may be sealed by that very one
        if not self._are_durable([self._check(stage, principal) for stage in message.stages]):
            self._put_off[id(asking)] = asking
            self._look_again(lambda: self._commit_later(topic, asking, keys))
            return
        self._forgetting.make_room(home, message.transaction)
        commit = self._commits.begin(
            home, message.transaction, message.epoch, keys, "" if principal is None else principal.name
        )
        self.decided += 1
        self._wait(home, peer, message, [commit], repeated=False)

    def _repeat(self, home: Partition, peer: Peer, message: CommitTransaction, keys: Sequence[StageKey]) -> None:
        """The epoch, or a later one, is decided or about to be; perhaps by this very request, sent before."""
        name, epoch = message.transaction, message.epoch
        same = self._commits.of(name).get(epoch)
        if same is not None and same.stages == frozenset(keys):
            self._wait(home, peer, message, [same], repeated=False)
        else:
            own = home.proposed.transactions.is_last(name, epoch, keys)
            self._wait(home, peer, message, self._before(home, message), repeated=not own)

    def _wait(
        self, home: Partition, peer: Peer, message: CommitTransaction, commits: Sequence[Commit], *, repeated: bool
    ) -> None:
        """Answer when these have come to their end."""

        def answer() -> TransactionCommitted:
            last = home.committed.transactions.last_epoch(message.transaction)
            return TransactionCommitted(message.request, max(last, message.epoch), repeated)

        gather = Gather.answering(self._port, peer, message.request, answer)
        for commit in commits:
            commit.wait(gather.one())
        gather.ready()

    def _before(self, home: Partition, message: CommitTransaction) -> list[Commit]:
        """Commits that a late request must await: its epoch's, earlier ones, and the decision that overtook it."""
        under_way, asked = self._commits.of(message.transaction), message.epoch
        waits = [commit for epoch, commit in under_way.items() if epoch <= asked]
        last = home.committed.transactions.last_epoch(message.transaction)
        if last < asked and asked not in under_way:
            waits.append(under_way[min(epoch for epoch in under_way if epoch > asked)])
        return waits

    def _are_durable(self, places: Sequence[tuple[Partition, int]]) -> bool:
        """Whether what is to be decided cannot be lost; if it can, hurry the syncs."""
        for partition in dict.fromkeys(partition for partition, seq in places if partition.log.safe < seq):
            self._registry.store.hurry(partition.log)
        return all(partition.log.safe >= seq for partition, seq in places)

    def _check_owner(self, partition: Partition, stage: Stage, principal: Principal | None) -> None:
        owner = partition.latest.stages.owner(stage.stage)
        self._guard.check_owner(principal, owner, f"stage {stage.stage:#x}", f"topic:{partition.topic}")

    def _check(self, stage: Stage, principal: Principal | None) -> tuple[Partition, int]:
        """Raise what keeps a stage from being decided about. Returns its partition and its last batch there."""
        partition = self._registry.topics.partition(stage.topic, stage.partition)
        partition.check_writable()
        self._check_owner(partition, stage, principal)
        if partition.state_damaged:
            raise Unavailable(f"{partition!r} is damaged and may have lost staged records: run penstock log repair")
        there, ahead = partition.committed.stages.get(stage.stage), partition.proposed.stages.get(stage.stage)
        if there is None or ahead is None:
            raise StageLost(
                f"stage {stage.stage:#x} of {partition!r} is not there: it was dropped, expired after "
                f"{self._config.stage_expiry_s} s, or never came; begin the transaction again"
            )
        if stage.stage in self._commits.seals.of(partition) or there.published:
            raise StageLost(
                f"stage {stage.stage:#x} of {partition!r} belongs to another epoch, which is decided already"
            )
        if not there.records == there.next_sequence == ahead.next_sequence == stage.records:
            raise StageLost(
                f"stage {stage.stage:#x} of {partition!r} has {there.records} records, {stage.records} are to be "
                "committed: wait for the answers to all of them before"
            )
        return partition, there.last_seq


def check_transaction(name: str) -> None:
    """Raise InvalidRequest unless `name` may name a transaction."""
    check_name("transaction", name.removeprefix(FLEETING))


def _keys(stages: Sequence[Stage]) -> Generator[int | None, None, list[StageKey]]:
    """Keys of these stages. Raises InvalidRequest."""
    keys: dict[StageKey, None] = {}
    for looks, stage in enumerate(stages, 1):
        keys[stage.topic, stage.partition, stage.stage] = None
        if not stage.records:
            raise InvalidRequest("a stage of 0 records was never begun: leave it out")
        if looks % LOOKS == 0:
            yield
    if len(keys) < len(stages):
        raise InvalidRequest("a stage is named twice: name each once, with all of its records")
    return list(keys)
