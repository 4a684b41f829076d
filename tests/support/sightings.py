"""What is rare in the lives of members, and how often the lives of `make test` meet it at least.

Idea: a life proves nothing about a situation that it never meets. The world tells what it sees from outside: a member
before and after each thing that is done to it, what closed it and where, what its opening found, what it had fetched.
Each situation stands here beside how it is recognised. `COUNTED` are those that the world or a life counts itself.

Contract: looking changes nothing, reads no disk and takes no chance. `missed` says what too few lives have met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from penstock.broker.raft.state import Role
from penstock.broker.replica import checkpoint, damage, installing, mending, opening
from penstock.broker.replica.catching_up import CatchUp
from penstock.broker.replica.errors import ReplicaBroken
from penstock.broker.replica.opening import OpenedOrder
from penstock.broker.replica.order_log import OrderLog
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replicated import Replicated
from penstock.broker.replica.staging import InstallRecord, read_record
from penstock.storage import cutting
from penstock.storage.data_directory import DAMAGED as DAMAGED_FILE
from penstock.storage.data_directory import STAGED as STAGED_FILES
from penstock.storage.errors import Poisoned, StorageError, StorageFull
from penstock.storage.promises import Promises
from support.member_store import DATA, MemberStore
from support.writeback import Killed

if TYPE_CHECKING:
    from support.members import Member, Shard

T = TypeVar("T")

Kinds = type[BaseException] | tuple[type[BaseException], ...]

FAILED = (Poisoned, OSError)
"""What a sync that fails leads to."""


@dataclass(frozen=True)
class Rare(Generic[T]):
    """A situation, the fewest times that the lives of `make test` meet it together, and whether this is one."""

    says: str
    fewest: int
    is_met: Callable[[T], bool]


class Glance(NamedTuple):
    """A member at one moment. `held`: answers that wait for proof of the lead."""

    role: Role
    term: int
    last: int
    committed: int
    generation: int  # of the order
    tail: int  # the term of its last entry
    held: int
    transferee: int


class Step(NamedTuple):
    """One thing that was done to a member."""

    member: Member
    replica: Replica
    was: Glance
    now: Glance
    called: bool
    """Whether a leader that handed over had it campaign in this term."""

    @property
    def is_elected(self) -> bool:
        return self.now.role is Role.LEADER is not self.was.role

    @property
    def is_deposed(self) -> bool:
        return self.was.role is Role.LEADER is not self.now.role

    @property
    def others(self) -> list[Replica]:
        """Those that run."""
        members = self.member.shard.members.values()
        return [each.replica for each in members if each.replica is not None and each is not self.member]

    @property
    def goes_by_others(self) -> bool:
        """Whether it goes by other members than another member does."""
        return any(each.directories.members != self.replica.directories.members for each in self.others)

    @property
    def void(self) -> int:
        """Logs that are to be cut."""
        return sum(log.must_cut for log in self.replica.node.logs)

    @property
    def is_cut(self) -> bool:
        """Whether entries that were here are not here any more."""
        was, now, order = self.was, self.now, self.replica.order
        return now.generation != was.generation and (now.last < was.last or order.term(was.last) != was.tail)


class Death(NamedTuple):
    """A process that ends, with its machine if `power`."""

    member: Member
    replica: Replica | None
    power: bool


class Opened(NamedTuple):
    """A member whose files were opened."""

    member: Member
    found: OpenedOrder


def is_late(member: Member) -> bool:
    """Whether the disk has another journal of promises than what a process reads."""
    content = member.files.contents.get(f"{DATA}/promises")
    return content is not None and content.data != member.files.disk(content).data


def within(kind: Kinds, function: Callable[..., Any]) -> Callable[[BaseException], bool]:
    """Whether an error of a kind came out of a function."""
    return lambda error: isinstance(error, kind) and function.__code__ in _codes(error)


def _codes(error: BaseException) -> Iterator[CodeType]:
    frame = error.__traceback__
    while frame is not None:
        yield frame.tb_frame.f_code
        frame = frame.tb_next


STEPS: tuple[Rare[Step], ...] = (
    Rare(
        "a leader is elected with entries that are committed nowhere", 720,
        lambda at: at.is_elected and at.was.last > at.member.shard.invariants.last,
    ),
    Rare(
        "a leader is elected beside one that does not know it", 10,
        lambda at: at.is_elected and any(each.core.role is Role.LEADER for each in at.others),
    ),
    Rare(
        "a leader is elected while another goes by other members", 40,
        lambda at: at.is_elected and at.goes_by_others,
    ),
    Rare(
        "a leader is elected whose clock is days off", 20,
        lambda at: at.is_elected and abs(at.member.lag_s) > 3600,
    ),
    Rare("the lead is handed over", 40, lambda at: at.is_elected and at.called),
    Rare(
        "a handover begins with entries that are not committed", 60,
        lambda at: bool(at.now.transferee) > bool(at.was.transferee) and at.now.last > at.now.committed,
    ),
    Rare(
        "a handover leads to nothing", 17,
        lambda at: bool(at.was.transferee) > bool(at.now.transferee) and not at.is_deposed,
    ),
    Rare(
        "a leader loses the lead with entries that are not committed", 140,
        lambda at: at.is_deposed and at.was.last > at.was.committed,
    ),
    Rare("a leader that hears no majority steps down", 110, lambda at: at.is_deposed and at.now.term == at.was.term),
    Rare("a leader begins a term for a member that has lost something", 20,
        lambda at: at.was.role is Role.LEADER and at.now.role is Role.CANDIDATE,
    ),
    Rare(
        "answers that wait for proof are dropped", 140,
        lambda at: at.now.role is not Role.LEADER and at.was.held > 0 == at.now.held,
    ),
    Rare("entries are cut", 70, lambda at: at.is_cut),
    Rare("several logs are to be cut at once", 50, lambda at: at.is_cut and at.void > 1),
)  # fmt: skip

DEATHS: tuple[Rare[Death], ...] = (
    Rare(
        "a process ends before its cut is on the disk", 50,
        lambda at: at.replica is not None and any(log.must_cut for log in at.replica.node.logs),
    ),
    Rare(
        "a leader ends with entries that are not committed", 90,
        lambda at: at.replica is not None and at.replica.core.role is Role.LEADER
        and at.replica.core.committed < at.replica.order.last_index(),
    ),
    Rare("a promise goes with the power", 2, lambda at: at.power and is_late(at.member)),
)  # fmt: skip

CLOSINGS: tuple[Rare[BaseException], ...] = (
    Rare("killed in a cut", 20, within(Killed, cutting.cut)),
    Rare("killed in a promise", 9, within(Killed, Promises.promise)),
    Rare("killed before a promise that was found is durable", 9, within(Killed, Promises.make_durable)),
    Rare("killed in an append to a log", 12, within(Killed, Replicated._all_or_none)),
    Rare("killed between the logs of an entry and the order", 12, within(Killed, OrderLog.append)),
    Rare("killed in a checkpoint", 10, within(Killed, checkpoint.save)),
    Rare("killed in an opening", 15, within(Killed, opening.open_order)),
    Rare("killed while an opening brings logs to their end", 2, within(Killed, opening._settle)),
    Rare("killed while a log gets what was fetched", 2, within(Killed, installing._extend)),
    Rare("killed in an install", 2, within(Killed, installing.install)),
    Rare("killed while damage is noted", 1, within(Killed, damage.note)),
    Rare("killed while batches are mended", 1, within(Killed, mending.Mending._write)),
    Rare("full in an append to a log", 12, within(StorageFull, Replicated.follow)),
    Rare("full in an append to the order", 13, within(StorageFull, OrderLog.append)),
    Rare("full in a cut", 10, within(StorageFull, cutting.cut)),
    Rare("full in a promise", 9, within(StorageFull, Promises.promise)),
    Rare("full in a checkpoint", 8, within(StorageFull, checkpoint.save)),
    Rare("full in an opening", 20, within(StorageFull, opening.open_order)),
    Rare("a promise fails to be synced", 30, within(FAILED, Promises._write)),
    Rare("a log cannot be cut, or takes no more writes", 2, lambda error: isinstance(error, ReplicaBroken) and (
        "could not be cut" in error.message or "takes no more writes" in error.message
    )),
    Rare("a sync fails in a checkpoint", 4, within(FAILED, checkpoint.save)),
    Rare("a sync fails in an opening", 3, within(FAILED, opening.open_order)),
)  # fmt: skip

UP = (
    *(cutting.cut, Promises.promise, Replicated._all_or_none, OrderLog.append, checkpoint.save, MemberStore.erase),
    *(cutting.cut, checkpoint.save, CatchUp.take),
)
DOWN = (opening.open_order, opening._settle, Promises.make_durable, damage.note)
DAMAGED = (mending.Mending._write, CatchUp.take, Promises.promise)
STAGING = (installing.install, installing._move, installing._extend, CatchUp.take)
"""Functions in which lives have processes end and disks fail."""


def next_places(member: Member) -> tuple[Callable[..., Any], ...]:
    """Functions that a member is likely to be in soon."""
    if member.files.exists(f"{DATA}/{STAGED_FILES}"):
        return STAGING
    if member.files.exists(f"{DATA}/{DAMAGED_FILE}"):
        return DAMAGED
    return UP if member.is_up else DOWN


OPENINGS: tuple[Rare[Opened], ...] = (
    Rare("an opening finds a promise that is not on the disk", 20, lambda at: is_late(at.member)),
    Rare("an opening appends what only the order has", 8, lambda at: at.found.appended > 0),
    Rare("an opening cuts several logs", 10, lambda at: at.found.cut_logs > 1),
    Rare("an opening cuts the order", 12, lambda at: at.found.cut_entries > 0),
    Rare("an opening sets a log aside", 16, lambda at: bool(at.found.set_aside)),
)

STAGED: tuple[Rare[InstallRecord], ...] = (
    Rare(
        "a log is fetched by difference", 30,
        lambda found: any(0 < log.behind < log.seq and not log.replaced for log in found.logs),
    ),
    Rare("a log is fetched whole", 100, lambda found: any(log.replaced for log in found.logs)),
    Rare("what is damaged is fetched", 50, lambda found: found.damaged),
)  # fmt: skip

COUNTED = {
    "freed by a leader": 310,
    "freed by a follower": 540,
    "alteration noticed": 40,
    "strange directory": 1980,
    "replace": 50,
    "records are refused since disks are full": 90,
    "a fetch is answered": 560,
    "a fetch that waits is answered": 390,
    "a delivery comes": 1630,
    "a topic is followed over to another lead": 30,
    "a leader is read that another one has followed": 3,
    "damage": 370,
    "installs": 110,
    "mended": 100,
}
"""What the world and the lives count themselves."""

FEWEST = {each.says: each.fewest for each in (*STEPS, *DEATHS, *CLOSINGS, *OPENINGS, *STAGED)} | COUNTED


def missed(counts: Mapping[str, int]) -> list[str]:
    """What was met more seldom than it has to be."""
    seldom = {says: fewest for says, fewest in FEWEST.items() if counts.get(says, 0) < fewest}
    return [f"{says}: {counts.get(says, 0)} times, not {fewest}" for says, fewest in seldom.items()]


class Sightings:
    """Tells the counts of a shard what it sees."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._seen: WeakKeyDictionary[Replica, Glance] = WeakKeyDictionary()
        self._called: set[tuple[int, int]] = set()  # members, and terms in which they campaign without having waited

    def _tell(self, rows: tuple[Rare[T], ...], what: T) -> None:
        for each in rows:
            if each.is_met(what):
                self._shard.count(each.says)

    def step(self, member: Member, replica: Replica) -> None:
        """Something was done to a member."""
        now, was = _glance(replica), self._seen.get(replica)
        if was != now:
            self._seen[replica] = now
            if was is not None:
                if was.role is Role.FOLLOWER and now.role is Role.CANDIDATE:
                    self._called.add((member.number, now.term))
                called = (member.number, now.term) in self._called
                self._tell(STEPS, Step(member, replica, was, now, called))

    def dies(self, member: Member, *, power: bool) -> None:
        """The process of a member is about to end, or, with `power`, what it left is about to go."""
        self._tell(DEATHS, Death(member, member.replica, power))

    def closed(self, error: BaseException) -> None:
        """An error closed a member, or ended its process."""
        self._tell(CLOSINGS, error)

    def staged(self, member: Member) -> None:
        """A member closed since it has fetched a state."""
        with suppress(StorageError):
            record = read_record(member.files, DATA, self._shard.ids.order)
            assert record is not None
            self._tell(STAGED, record)

    def opened(self, member: Member, found: OpenedOrder) -> None:
        """The files of a member were opened, and nothing else was done yet."""
        self._tell(OPENINGS, Opened(member, found))


def _glance(replica: Replica) -> Glance:
    state, answers, order = replica.core._state, replica._answers, replica.order.log
    return Glance(
        state.role, state.term, order.written, state.log.committed, order.generation, order.term,
        len(answers._held) + len(answers._rounds) + len(answers._confirmed), state.transferee,
    )  # fmt: skip
