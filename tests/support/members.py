"""A shard in one process: members over fake disks, a network that drops and reorders, and one source of chance.

    shard = Shard(seed=7)
    shard.until(lambda: shard.leader)
    topic = shard.topic("t")
    shard.produce(topic, b"value")

Idea: each member is the real engine, logs, order and Raft core; disks lose what was not synced at a power cut; the
network holds messages until it is told to deliver them. `step` does one thing to one member, chosen at random.
After every step the invariants of replication.md are checked (`Invariants`).

Contract: deterministic by seed. Nothing waits and no clock is read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from penstock.broker.engine import NodeConfig, Now
from penstock.broker.member.directory import KnownPeers
from penstock.broker.peers.greeting import may_be
from penstock.broker.peers.messages import TOLD_KINDS
from penstock.broker.raft.messages import ConfState, Kind, Message
from penstock.broker.raft.state import RaftOptions
from penstock.broker.replica.beginning import begin, ids_of
from penstock.broker.replica.damage import note_of, noted, why_anew
from penstock.broker.replica.errors import PromisesLost, ReplicaDamaged
from penstock.broker.replica.recovering import Recovery
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.room import UNKNOWN
from penstock.broker.replica.start import open_files, start
from penstock.storage.batch import parse
from penstock.storage.data_directory import MEMBER_FORMAT, Identity, identify, note_identity
from penstock.storage.errors import Error, Poisoned, StorageFull
from penstock.storage.log import LogOptions
from penstock.storage.memory_files import Content, MemoryFiles
from penstock.storage.promises import Promises
from penstock.transport import messages as m
from support.engine import START_US
from support.member_invariants import Invariants
from support.member_store import DATA, AnswerPort, MemberStore
from support.sightings import Sightings
from support.writeback import Killed, WritebackFiles

OPTIONS = LogOptions(segment_bytes=8 << 10, allocate_bytes=4 << 10)
ELECTION_TICKS = 10
PASSING = ("no_leader", "storage_full")
"""Failures of requests that are sent again."""
OUT, IN = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Message)


class Sent(NamedTuple):
    """A message on its way, its batches, and from the greeting of its sender `uuid`, `to_uuid` and `entry`."""

    message: Message
    bodies: dict[tuple[bytes, int, int], bytes]
    uuid: bytes
    to_uuid: bytes
    entry: int


class Member:
    """One node: its disk, and its replica while it runs. `touched`: it did something since the last check."""

    def __init__(self, shard: Shard, number: int) -> None:
        self.shard = shard
        self.number = number
        self.replica: Replica | None = None
        self.recovery: Recovery | None = None  # in its place, where it has lost something
        self.port = AnswerPort()
        self.touched = True
        self._journal = (b"", 0)  # of promises, as it is on the disk, and the term in it
        self.roles: list[tuple[int, int]] = []
        self.lag_s = shard.chance.uniform(-2.0, 2.0)  # of its wall clock
        self.room = UNKNOWN  # free bytes of its disk, as it tells the others
        self.starts = 0
        self.office = b""  # of its last turn
        self.wipe()

    def wipe(self) -> None:
        """Begin with an empty disk."""
        self.crash(power=False)
        self.files = WritebackFiles()
        shard, number = self.shard, self.number
        self.files.mkdir(f"{DATA}/topics")
        begin(self.files, DATA, shard.ids, ConfState(tuple(shard.numbers)), options=OPTIONS)
        Promises(f"{DATA}/promises", self.files).close()
        self.uuid = shard.chance.randbytes(16)
        identity = Identity(MEMBER_FORMAT, self.uuid.hex(), "", "simulated", number, shard.numbers)
        note_identity(self.files, DATA, identity)
        self.known = KnownPeers(self.files, DATA, identity)
        self.files.sync_all()

    @property
    def now(self) -> Now:
        return Now(START_US + int((self.shard.now_s + self.lag_s) * 1e6), 1000.0 + self.shard.now_s)

    def start(self) -> None:
        """Open the files, as a process that was started."""
        self.starts += 1
        self.touched = True
        identity = identify(self.files, DATA)
        assert identity is not None
        self.known = KnownPeers(self.files, DATA, identity)
        self.recovery = None
        self.port = AnswerPort()
        try:
            self._open()
        except PromisesLost:
            raise
        except ReplicaDamaged:
            self._recover()

    def _recover(self) -> None:
        self.shard.count("damage")
        found = noted(self.files, DATA)
        assert found is not None
        self.recovery = Recovery(
            self.files, DATA, self.shard.ids.order, node=self.number, damage=found,
            promises=Promises(f"{DATA}/promises", self.files), send=self._send, options=OPTIONS,
        )  # fmt: skip

    def _open(self) -> None:
        opened = open_files(self.files, DATA, self.shard.ids, OPTIONS)
        self.shard.sightings.opened(self, opened)
        promises = Promises(f"{DATA}/promises", self.files)
        chance = random.Random(f"{self.shard.seed} {self.number} {self.starts}")
        options = RaftOptions(
            node=self.number, draw_timeout=lambda: chance.randint(ELECTION_TICKS, 2 * ELECTION_TICKS),
            election_ticks=ELECTION_TICKS, asynchronous=True, max_append_bytes=64 << 10, max_inflight=8,
        )  # fmt: skip
        config = NodeConfig(members=len(self.shard.numbers), **self.shard.config)
        self.replica = start(
            opened, lambda order: MemberStore(self, promises, order), self.port, promises=promises,
            known=self.known, randomness=chance.randbytes, config=config, options=options, now=self.now,
            send=self._send, on_role=lambda leader, term: self.roles.append((leader, term)),
            checkpoint_every=self.shard.checkpoint_every, order_segments=self.shard.order_segments,
        )  # fmt: skip

    def _send(self, message: Message, bodies: list[bytes]) -> None:
        message.sender = message.sender or self.number
        if message.kind not in (Kind.PRE_VOTE, Kind.PRE_VOTE_ACK):  # those name a term that is not promised
            promised = self._promised()
            assert message.term <= promised, f"{message} left, and term {promised} is what a power cut leaves"
        self.shard.sent(message, bodies)

    def _promised(self) -> int:
        """The term that the journal has on the disk."""
        path = f"{DATA}/promises"
        data = self.files.disk(self.files.contents[path]).data
        if data != self._journal[0]:
            left = MemoryFiles()
            left.contents[path] = Content(bytes(data))
            self._journal = bytes(data), Promises(path, left).term(self.shard.ids.order)
        return self._journal[1]

    def crash(self, *, power: bool) -> None:
        """The process ends, or the machine loses what was not synced."""
        if self.starts:
            self.shard.sightings.dies(self, power=power)
        if self.is_up:
            self.replica = self.recovery = None
            self.port = AnswerPort()
        if power:
            self.files = self.files.power_cut()

    def look(self) -> None:
        """A turn is over: close the connections of clients where the lead is another one, as `Standing.look` does."""
        if self.replica is not None and self.replica.node.incarnation != self.office:
            self.office = self.replica.node.incarnation
            self.replica.node.disconnect("client")

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.replica is not None or self.recovery is not None

    @property
    def entry(self) -> int:
        """What it greets others with."""
        return 0 if (r := self.replica) is None else r.directories.entry_of(self.number, r.places.entry)

    @property
    def leads(self) -> bool:
        """Whether it takes requests."""
        return self.replica is not None and self.replica.node.leads


class Shard:
    """Members and the network between them. `config`: of each node."""

    def __init__(
        self, seed: int, *, size: int = 3, checkpoint_every: int = 8, order_segments: int = 1, **config: Any
    ) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.numbers = list(range(1, size + 1))
        self.ids = ids_of("simulated", self.numbers)
        self.checkpoint_every = checkpoint_every
        self.order_segments = order_segments
        self.config = {"snapshot_batches": 20, **config}
        self.now_s = 0.0
        self.closed: set[Member] = set()  # by an error: to be opened anew
        self.network: list[Sent] = []
        self.cut: set[tuple[int, int]] = set()  # from and to: nothing gets through
        self.members = {number: Member(self, number) for number in self.numbers}
        self.invariants = Invariants(self)
        self.request = 0
        self.syncing = True  # whether anything but promises is ever synced
        self.counts: dict[str, int] = {}
        self.sightings = Sightings(self)
        self.before_begin: Callable[[Member], None] = lambda member: None
        for member in self.members.values():
            member.start()

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- the network ----------------------------------------------------------------------------------

    def sent(self, message: Message, bodies: list[bytes]) -> None:
        found = {}
        for body in bodies:
            if body:
                batch = parse(body)
                found[batch.log_id, batch.seq, batch.header_checksum] = body
        sender = self.members[message.sender]
        uuids = sender.uuid, sender.known.uuid_of(message.to)
        self.network.append(Sent(msgpack_copy(message), found, *uuids, sender.entry))

    def deliver(self, place: int, *, keep: bool = False) -> Member:
        """Hand one message to its receiver, which is returned, or drop it where the network is cut."""
        sent = self.network[place] if keep else self.network.pop(place)
        message, member = sent.message, self.members[sent.message.to]
        if (message.sender, message.to) not in self.cut and member.is_up and self._greets(member, sent):
            bodies = self._beside(sent)
            self.guard(member, lambda replica: replica.step(msgpack_copy(message), bodies))
            self.recover(member, lambda recovery: recovery.step(msgpack_copy(message), bodies))
        return member

    def _beside(self, sent: Sent) -> dict[tuple[bytes, int, int], bytes]:
        """The batches in the frame of a message. Pieces share it with whatever else their sender has on its way."""
        if sent.message.kind is not Kind.PIECE:
            return sent.bodies
        way = sent.message.sender, sent.message.to
        others = [each.bodies for each in self.network if (each.message.sender, each.message.to) == way]
        return {key: body for bodies in (*others, sent.bodies) for key, body in bodies.items()}

    def _greets(self, member: Member, sent: Sent) -> bool:
        """Whether the receiver lets the sender in, as links do by a PeerHello."""
        known, entry = member.known.uuid_of(sent.message.sender), member.entry
        met = may_be(member.uuid, entry, sent.to_uuid, sent.entry) and may_be(sent.uuid, sent.entry, known, entry)
        if not met or (known not in (b"", sent.uuid) and sent.message.kind not in TOLD_KINDS):
            self.count("strange directory")
            return False
        if not known:
            self.guard(member, lambda replica: member.known.heard(sent.message.sender, sent.uuid))
        return member.is_up

    def guard(self, member: Member, what: Callable[[Replica], None]) -> None:
        """Do something to a member; errors of its disk close it, and it is opened anew later."""
        if member.replica is not None:
            member.touched = True
            try:
                what(replica := member.replica)
                self.sightings.step(member, replica)
            except (Error, Killed, OSError) as error:
                self._close(member, error)

    def recover(self, member: Member, what: Callable[[Recovery], None]) -> None:
        """Do something to a member that has lost something."""
        if member.recovery is not None:
            try:
                what(member.recovery)
            except (Error, Killed, OSError) as error:
                self._close(member, error)

    def _close(self, member: Member, error: Error | Killed | OSError) -> None:
        try:
            if isinstance(error, Killed):
                raise error
            assert why_anew(error), f"this closes no member: {error!r}"
            self.sightings.closed(error)
            kinds = {"is staged": "installs", "that had rotted": "mended"}
            self.count(next((kind for said, kind in kinds.items() if said in str(error)), "closed by an error"))
            if "is staged" in str(error):
                self.sightings.staged(member)
            if "adds up to" in str(error):
                self.count("alteration noticed")
            note_of(member.files, DATA, error)
            self.closed.add(member)
            member.replica = member.recovery = None
        except Killed as killed:
            self.sightings.closed(killed)
            self.count("killed in the middle")
            member.files.disarm()
            member.crash(power=self.chance.random() < 0.5)

    def tick(self, member: Member) -> None:
        """One tick of a member."""

        def tick(replica: Replica) -> None:
            replica.room.own = member.room
            replica.tick()

        self.guard(member, tick)
        self.recover(member, lambda recovery: recovery.tick())

    def begin(self, member: Member) -> None:
        """Start a member; a disk that is full or fails meanwhile leaves it down, to be opened anew."""
        self.before_begin(member)
        try:
            member.start()
        except (StorageFull, Poisoned, OSError) as error:
            self.sightings.closed(error)
            self.count("full at opening" if isinstance(error, StorageFull) else "a sync failed at opening")
            member.crash(power=False)
            self.closed.add(member)
        except Killed as error:
            self._close(member, error)

    # -- driving --------------------------------------------------------------------------------------

    def turn(self, member: Member, *, sync: bool = True) -> None:
        """One turn of a member, and a round of syncing."""
        self.guard(member, lambda replica: replica.turn(member.now))
        member.look()
        if sync:
            self.sync(member)

    def sync(self, member: Member, *, some: bool = False) -> None:
        """Sync what entries wait for: all of it, or one log."""

        def work(replica: Replica) -> None:
            logs = [replica.order.log, *replica.node.logs]
            for log in [self.chance.choice(logs)] if some else logs if self.syncing else []:
                if log.durable < log.written:
                    log.sync()
            replica.synced(member.now)

        self.guard(member, work)
        member.look()

    def rounds(self, count: int = 1, *, tick: bool = True) -> None:
        """Quiet rounds: all members tick, take turns and sync, all messages arrive in order."""
        for _ in range(count):
            self.now_s += 0.1
            for member in [each for each in self.closed if not each.is_up]:
                self.begin(member)
            self.closed = {member for member in self.closed if not member.is_up}
            for member in self.members.values():
                if tick:
                    self.tick(member)
                self.turn(member)
            while self.network:
                self.turn(self.deliver(0))
            self.invariants.check()

    def until(self, found: Callable[[], Any], rounds: int = 120) -> Any:
        """Quiet rounds until something is so."""
        for _ in range(rounds):
            if result := found():
                return result
            self.rounds()
        raise AssertionError(f"seed {self.seed}: not after {rounds} rounds; roles {self.describe()}")

    def describe(self) -> list[Any]:
        return [
            (
                member.number,
                None
                if (r := member.replica) is None
                else (r.core.role.name, r.core.term, r.order.last_index(), r.places.entry),
            )
            for member in self.members.values()
        ]

    @property
    def leader(self) -> Member | None:
        """The member with an office and the highest term."""
        leading = [member for member in self.members.values() if member.leads]
        return max(leading, key=lambda member: member.replica.core.term, default=None)  # pyright: ignore

    def others(self, member: Member) -> list[int]:
        """The numbers of the other members."""
        return [number for number in self.numbers if number != member.number]

    def heal(self) -> None:
        """No cuts, everyone runs."""
        self.cut.clear()
        for member in self.members.values():
            if not member.is_up:
                self.begin(member)

    # -- clients --------------------------------------------------------------------------------------

    def send(self, member: Member, make: Callable[[int], Any], payload: bytes = b"") -> int:
        self.request += 1
        request = self.request
        self.guard(member, lambda replica: replica.receive("client", make(request), payload, member.now))
        return request

    def answer(self, member: Member, request: int) -> Any:
        return member.port.answers.get(request, (None, b""))[0]

    def ask(self, make: Callable[[int], Any], payload: bytes = b"") -> Any:
        """Ask the leader, in quiet rounds, until there is an answer that is not PASSING."""
        for _ in range(20):
            member = self.until(lambda: self.leader)
            request = self.send(member, make, payload)
            for _ in range(10):
                self.rounds()
                answer = self.answer(member, request)
                if answer is not None:
                    break
            if answer is not None and not (isinstance(answer, m.Failure) and answer.code in PASSING):
                return answer
        raise AssertionError(f"seed {self.seed}: no answer")

    def topic(self, name: str, partitions: int = 2, **settings: Any) -> bytes:
        return self.ask(lambda request: m.CreateTopic(request, name, partitions, settings)).topics[0].topic


def msgpack_copy(message: Message) -> Message:
    """The message as the other side gets it."""
    return IN.decode(OUT.encode(message))
