"""Random lives of a shard: clients, faults of nodes, disks and network, in an order that a seed chooses.

After each step the invariants hold (`members.Invariants`). At the end everything heals, the shard must go on, and every
record that was acknowledged is where its answer said, on every member, unless retention took it. Every member then
frees the files of what retention took.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from penstock.broker.replica.recovering import MEND_AGAIN_TICKS
from penstock.broker.replica.room import UNKNOWN
from penstock.storage.batch import encode
from penstock.storage.errors import Corrupt
from penstock.storage.mending import look_for_rot
from penstock.storage.room import RESERVE_BYTES
from penstock.storage.scrubbing import log_paths
from penstock.transport import messages as m
from support.altered import alter, are_equal
from support.engine import START_US, records
from support.life_readers import LifeReaders
from support.members import DATA, ELECTION_TICKS, Member, Shard
from support.rot import damage, rot_everywhere
from support.sightings import next_places

FAULTS = (
    *("crash", "power", "all_power", "cut", "one_way", "drop", "duplicate", "full", "delete", "wipe", "damage"),
    *("clock", "alter", "retention", "rot", "sync", "kill", "transfer", "room"),
)
"""`retention` is no fault of a node, but a life with topics that keep little, and `transfer` hands the lead over. `rot`
is a byte on each node, in another batch of the same log. `room`: disks that are as full as a node lets them become, or
nearly. `full`, `sync`, `kill`: at the nth use of the disk, of all or in one function (`arm`)."""

DISK_FAULTS = {"full", "kill", "sync"}

KEEPS_LITTLE = {"segment_bytes": 64 << 10, "retention_records": 2}


ROOMS = (RESERVE_BYTES // 4, RESERVE_BYTES * 3 // 4, 1 << 40, 1 << 40)
"""Free bytes: no entries are taken, no records are taken, enough."""

HOUR_S, DAY_S = 3600.0, 86_400.0

MARKER = b"the end"
"""Sent last, and again where the lead is lost meanwhile."""


@dataclass
class Sent:
    """A produced batch, and what was answered; `answer` is None while nothing was."""

    member: Member
    starts: int
    request: int
    topic: bytes
    partition: int
    value: bytes
    answer: Any = None


Heard = Callable[[Any, bytes], None]
"""What is done with an answer and its records."""


@dataclass
class Asked:
    """A request whose answer is awaited."""

    member: Member
    starts: int
    request: int
    heard: Heard


@dataclass
class MemberLife:
    """One life."""

    seed: int
    steps: int = 400
    sent: list[Sent] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    CONFIG: ClassVar[dict[str, float]] = {"housekeeping_s": 0.5, "grace_s": 3600.0}

    def __post_init__(self) -> None:
        self.shard = Shard(self.seed, **self.CONFIG)
        self.chance = self.shard.chance
        self.faults = {fault for fault in FAULTS if self.chance.random() < 0.5}
        self.topics: list[bytes] = []
        self.made = 0
        self.lost: list[Member] = []  # its disk, and with it its membership
        self.off: Member | None = None  # the one member whose clock is off
        self.rotten = ""  # a log of which each member's disk has lost a byte
        self.damaged: Member | None = None  # the one member whose disk loses something: what two have lost may be gone
        self.readers = LifeReaders(self)

    @property
    def settings(self) -> dict[str, int]:
        """Of all topics."""
        return KEEPS_LITTLE if "retention" in self.faults else {}

    @property
    def readable(self) -> list[tuple[bytes, int]]:
        """Topics and partitions that clients read."""
        return [(topic, partition) for topic in self.topics for partition in range(2)]

    def run(self) -> Shard:
        shard = self.shard
        shard.before_begin = self.before_begin
        first = shard.members[self.chance.choice(shard.numbers)]
        shard.guard(first, lambda replica: replica.core.campaign())
        self.topics.append(shard.topic("t0", **self.settings))
        for _ in range(self.steps):
            self.step()
            self.collect()
            shard.invariants.check()
        self.end()
        return shard

    def step(self) -> None:
        shard, chance = self.shard, self.chance
        member = chance.choice(list(shard.members.values()))
        what = chance.random()
        if what < 0.3 and sum(each.leads for each in shard.members.values()) > 1:
            self.readers.read()  # one of two leaders has been followed by the other
            return
        if what < 0.34 and shard.network:
            for _ in range(min(len(shard.network), chance.randint(1, 3))):
                self.deliver()
        elif what < 0.53:
            shard.turn(member, sync=chance.random() < 0.3)
        elif what < 0.66:
            shard.now_s += 0.1
            shard.tick(member)
            shard.turn(member, sync=False)
        elif what < 0.75:
            shard.sync(member, some=chance.random() < 0.7)
        elif what < 0.86:
            self.produce()
        elif what < 0.89:
            self.readers.read()
        elif what < 0.9:
            self.wait()
        elif what < 0.92:
            self.topic()
        else:
            self.fault(member)

    def wait(self) -> None:
        """Nothing reaches some members for about an election timeout, more often those that do not lead."""
        shard, chance = self.shard, self.chance
        some = [each for each in shard.members.values() if chance.random() < (0.3 if each.leads else 0.8)]
        if (leader := shard.leader) is not None and "cut" in self.faults:
            self.cut_off(leader)
        for _ in range(chance.randint(ELECTION_TICKS // 2, 2 * ELECTION_TICKS)):
            shard.now_s += 0.1
            for member in some:
                shard.tick(member)
        if leader is not None and leader not in some:
            self.readers.read_outdated(leader)

    def deliver(self) -> None:
        shard, chance = self.shard, self.chance
        place = 0 if chance.random() < 0.7 else chance.randrange(len(shard.network))
        if "drop" in self.faults and chance.random() < 0.05:
            shard.network.pop(place)
            return
        shard.deliver(place, keep="duplicate" in self.faults and chance.random() < 0.05)

    def produce(self) -> None:
        shard, chance = self.shard, self.chance
        member = shard.leader
        if member is None or chance.random() < 0.05:
            member = chance.choice(list(shard.members.values()))
        topic = chance.choice(self.topics)
        self.made += 1
        value = b"%d" % self.made
        if chance.random() < (0.8 if self.settings else 0.2):
            value = value.ljust(20_000, b".")
        partition = chance.randrange(2)
        if "rot" in self.faults and chance.random() < 0.7:
            topic, partition = self.topics[0], 0  # so that one log has many batches
        request = shard.send(member, lambda number: m.Produce(number, topic, partition), bytes(encode([value])))
        self.sent.append(Sent(member, member.starts, request, topic, partition, value))

    def topic(self) -> None:
        member = self.shard.leader
        if member is not None and len(self.topics) < 4:
            self.made += 1
            make = partial(m.CreateTopic, name=f"t{self.made}", partitions=1, settings=self.settings)
            self.ask_of(member, make, partial(self._created, member))

    def _created(self, member: Member, answer: Any, _: bytes) -> None:
        if isinstance(answer, m.Topics):
            grow = partial(m.AlterTopic, topic=answer.topics[0].topic, settings={}, partitions=2)
            self.ask_of(member, grow, self._grown)

    def _grown(self, answer: Any, _: bytes) -> None:
        if isinstance(answer, m.Topics):
            self.shard.count("topic created")
            self.topics.append(answer.topics[0].topic)

    def fault(self, member: Member) -> None:
        shard, chance = self.shard, self.chance
        if chance.random() < 0.5:
            if member.replica is None:
                shard.begin(member)
            elif shard.cut:
                shard.cut.clear()
            else:
                self.make_room()
            return
        fault = chance.choice(FAULTS)
        if fault not in self.faults:
            return
        shard.count(fault)
        if fault in ("crash", "power"):
            member.crash(power=fault == "power")
        elif fault == "all_power":
            if chance.random() < 0.2:
                for each in shard.members.values():
                    each.crash(power=True)
        elif fault == "cut":
            self.cut_off(member)
        elif fault == "one_way":
            shard.cut.add((member.number, chance.choice(shard.others(member))))
        elif fault == "delete":
            self.delete()
        elif fault in DISK_FAULTS:
            self.arm(member, fault)
        elif fault == "transfer":
            self.transfer()
        elif fault == "room":
            for each in shard.members.values():
                each.room = chance.choice(ROOMS)
        elif fault == "rot":
            self.rot()
        elif self.rotten and fault in ("damage", "alter", "wipe"):
            return  # with what others have lost, more may be gone than a majority has
        elif fault == "damage" and not self.lost and self.damaged in (None, member):
            self.damaged = member
            member.crash(power=chance.random() < 0.5)
            shard.count(f"damage: {damage(member.files, chance)}")
        elif fault == "alter" and not self.lost and self.damaged in (None, member) and member.replica is not None:
            self.damaged = member
            alter(member, self.topics[0])
        elif fault == "clock" and self.off in (None, member):
            self.off = member
            member.lag_s = chance.choice((-3.0, 3.0, 0.0)) * DAY_S
        elif fault == "wipe" and not self.lost and self.damaged is None:
            self.wipe(member)
        elif fault == "wipe" and self.lost and chance.random() < 0.3:
            self.replace()

    def arm(self, member: Member, fault: str) -> None:
        """Let the disk of a member be full, fail, or see its process end: soon, or in something that it may do next."""
        files, chance = member.files, self.chance
        within = chance.choice(next_places(member)) if chance.random() < 0.7 else None
        if fault == "sync" and within and not member.is_up:  # an opening takes what it cannot sync for lost
            if self.lost or self.rotten or self.damaged not in (None, member):
                return
            self.damaged = member
        files.within = within and within.__code__
        if fault == "full":
            files.full_at = chance.randint(1, 2 if within else 6)
        elif fault == "kill":
            files.killed_at = chance.randint(2, 5 if within else 20)
        elif within:
            files.fails_at = 1
        else:
            files.fail_next(chance.choice(sorted(files.contents)))

    def before_begin(self, member: Member) -> None:
        """Let what an opening does meet a disk that fails, too."""
        faults = sorted(self.faults & DISK_FAULTS)
        if faults and self.chance.random() < 0.4:
            self.arm(member, self.chance.choice(faults))

    def cut_off(self, member: Member) -> None:
        """Nothing gets through between a member and the others."""
        for other in self.shard.others(member):
            self.shard.cut |= {(member.number, other), (other, member.number)}

    def transfer(self) -> None:
        """Have the leader hand the lead over."""
        leader = self.shard.leader
        if leader is not None:
            chosen = self.chance.choice(self.shard.others(leader))
            self.shard.guard(leader, lambda replica: replica.core.transfer(chosen))

    def make_room(self) -> None:
        """Disks are not full any more."""
        for member in self.shard.members.values():
            member.room = UNKNOWN

    def delete(self) -> None:
        """Delete a topic other than the first. Whatever became of it, it is not looked at any more."""
        member = self.shard.leader
        if member is not None and len(self.topics) > 1:
            topic = self.topics.pop()
            self.shard.send(member, lambda number: m.DeleteTopic(number, topic))

    def rot(self) -> None:
        """Let each member's disk lose a byte of one log, and some keepers notice."""
        members = list(self.shard.members.values())
        if self.rotten or self.lost or self.damaged is not None:
            return
        self.rotten = rot_everywhere([each.files for each in members], self.chance)
        self.shard.count(f"rot: {self.rotten.split('/')[1:2]}")
        for member in members:
            if self.chance.random() < 0.5:
                self.scrub(member)

    def scrub(self, member: Member) -> bool:
        """Read all logs of a member, and tell it what has rotted. Returns whether anything has."""
        files = member.files
        found = [
            path
            for path in log_paths(files, DATA)
            if any(not isinstance(each, int) for each in look_for_rot(files, path))
        ]
        for path in found:
            damage = Corrupt(f"{path} rots", path=path)
            self.shard.guard(member, lambda replica, damage=damage: replica.exchange.mend(damage))
        return bool(found)

    def wipe(self, member: Member) -> None:
        """Let it lose its disk, and begin with an empty one."""
        self.lost = [*(each for each in self.lost if each is not member), member]
        member.wipe()
        member.start()

    def replace(self) -> None:
        """Make the new directory of a lost disk that of its member."""
        leader = self.shard.leader
        for member in self.lost if leader is not None and leader.replica is not None else ():
            if leader is not member and leader.replica.directories.table.uuids[member.number] != member.uuid:
                refusal = leader.replica.replace(member.number, member.uuid)
                self.shard.count("replace refused" if refusal else "replace")

    def ask(self, make: Callable[[int], Any], heard: Heard = lambda answer, _: None, payload: bytes = b"") -> None:
        """Ask the leader, or a member that may not lead, once."""
        member = self.shard.leader
        if member is None or self.chance.random() < 0.05:
            member = self.chance.choice(list(self.shard.members.values()))
        self.ask_of(member, make, heard, payload)

    def ask_of(self, member: Member, make: Callable[[int], Any], heard: Heard, payload: bytes = b"") -> None:
        """Ask one member once."""
        starts = member.starts
        self.asked.append(Asked(member, starts, self.shard.send(member, make, payload), heard))

    def collect(self) -> None:
        """Take the answers that came. One of a member that has ended never comes."""
        waiting, self.asked = self.asked, []
        for each in waiting:
            found = each.member.port.answers.get(each.request) if each.starts == each.member.starts else None
            if found is not None:
                each.heard(*found)
            elif each.starts == each.member.starts:
                self.asked.append(each)
        for each in self.sent[-60:]:
            if each.answer is None and each.starts == each.member.starts:
                each.answer = self.shard.answer(each.member, each.request)
                if "fewer than a majority" in getattr(each.answer, "message", ""):
                    self.shard.count("records are refused since disks are full")
                if isinstance(each.answer, m.Produced):
                    self.readers.told[each.topic, each.partition].saw([(each.answer.offset, each.value)])
        self.readers.collect()

    # -- the end --------------------------------------------------------------------------------------

    def end(self) -> None:
        shard = self.shard
        self.make_room()
        for _ in range(2 if self.faults & DISK_FAULTS else 0):
            shard.heal()
            shard.rounds(8)  # in which members fetch what they lack, over disks that fail yet
        shard.before_begin = lambda _: None
        for member in shard.members.values():
            member.files.disarm()
        shard.heal()
        self.mark()
        for _ in range(20 if shard.invariants.altered else 0):
            if are_equal(shard):
                break
            for _ in range(shard.checkpoint_every):
                self.mark()
            shard.rounds(8)
        last = max(member.replica.order.last_index() for member in shard.members.values() if member.replica)
        shard.until(lambda: self.replace() or self.is_whole(last), rounds=3 * MEND_AGAIN_TICKS)
        for _ in range(30 if self.rotten else 0):
            found = [self.scrub(member) for member in shard.members.values()]
            if not any(found):
                break
            shard.rounds(10)
        assert not (self.rotten and any(map(self.scrub, shard.members.values()))), f"seed {self.seed}: rot is left"
        shard.until(lambda: self.is_whole(last))
        if shard.invariants.altered:
            assert are_equal(shard), f"seed {self.seed}: a state that was altered was not noticed"
            shard.invariants.altered = False
            shard.invariants.states.clear()
        for _ in range(60 if self.settings else 0):
            if self.is_trimmed():
                break
            self.mark()
            shard.rounds(3)  # a member that fetched a state keeps files for a while, if its last word was lost
        assert self.is_trimmed() or not self.settings, f"seed {self.seed}: files are left of what retention took"
        self.collect()
        shard.invariants.check(full=True)
        self.check()

    def mark(self) -> None:
        """Append one more record to the first partition."""
        found = self.shard.ask(lambda number: m.Produce(number, self.topics[0], 0), bytes(encode([MARKER])))
        assert isinstance(found, m.Produced), (self.seed, found)

    def is_trimmed(self) -> bool:
        """Whether all members are up, and none has segments of our topics that are below the first offset."""
        replicas, topics = [member.replica for member in self.shard.members.values()], set(map(bytes.hex, self.topics))
        return all(
            each is not None
            and not any(
                log.expired(log.committed)
                for log in each.logs()[1:]
                if len(log.names) > 1 and log.path.split("/")[-2] in topics
            )
            for each in replicas
        )

    def is_whole(self, last: int) -> bool:
        """Every member votes, and has everything."""
        replicas = [member.replica for member in self.shard.members.values()]
        return all(each is not None and each.places.entry >= last and each.directories.is_settled for each in replicas)

    def check(self) -> None:
        latest_us = START_US + int((self.shard.now_s + HOUR_S) * 1e6)
        for member in self.shard.members.values():
            assert member.replica is not None
            for log in member.replica.logs():
                assert log.last_time_us < latest_us, f"seed {self.seed}: {log.path} is of the time of a wrong clock"
        for topic in self.topics:
            for partition in range(2):
                self._check_partition(topic, partition)

    def _check_partition(self, topic: bytes, partition: int) -> None:
        first, values = self.read(topic, partition)
        self.readers.told[topic, partition].check(first, values)
        ours = [each for each in self.sent if (each.topic, each.partition) == (topic, partition)]
        known = {each.value for each in ours} | {MARKER}
        assert not [value for value in values if value not in known], f"seed {self.seed}: a phantom"
        once = [value for value in values if value != MARKER]
        assert len(set(once)) == len(once), f"seed {self.seed}: a record twice"
        for each in ours:
            if isinstance(each.answer, m.Produced):
                at = each.answer.offset - first
                found = values[at : at + 1] if at >= 0 else [each.value]
                assert found == [each.value], f"seed {self.seed}: {each.value[:9]!r} was acknowledged at {at + first}"
            elif each.answer is not None and getattr(each.answer, "code", "") == "no_leader":
                assert each.value not in values, f"seed {self.seed}: {each.value[:9]!r} was refused, and is there"

    def read(self, topic: bytes, partition: int) -> tuple[int, list[bytes]]:
        """The first offset, and the records from there on."""
        values: list[bytes] = []
        first = 0
        shard, tries = self.shard, 0
        while True:
            offset = first + len(values)
            member = shard.until(lambda: shard.leader)
            ask = partial(
                m.Fetch, topic=topic, partition=partition, offset=offset, term=-1, max_bytes=1 << 20, wait_ms=0
            )
            request = shard.send(member, ask)
            for _ in range(20):
                shard.rounds()
                if shard.answer(member, request) is not None:
                    break
            answer = shard.answer(member, request)
            if getattr(answer, "code", "") == "out_of_bounds" and self.settings:
                first, values = answer.offset, []  # retention goes on meanwhile
            if not isinstance(answer, m.Fetched):
                tries += 1
                assert tries < 20, f"seed {self.seed}: no records, {answer}"
                continue
            values += records(member.port.answers[request][1], offset)
            if answer.next_offset == answer.end:
                return first, values
