"""Clients that read in the middle of a life: what one of them is told once is so for good.

Idea: they fetch records, at once or when some come, ask for ends, list topics, and follow a topic by a session. They
ask any node that takes itself for the leader. An answer is held against all that clients had been told when its request
was sent: ends and first offsets never go back, what was acknowledged is there, and a record is what it was at its
offset. A session's records follow one another, also over to the next leader. A delivery may come from a node that does
not lead any more, so it is only held to what is committed. At the end the logs have everything that a client was told.

Contract: chance is the life's. `collect` takes what sessions got, after each step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.storage.batch import batches
from penstock.transport import messages as m
from penstock.transport.consumer_session import REMOVED, ConsumerSession, Delivery
from support.engine import placed

if TYPE_CHECKING:
    from support.member_life import MemberLife
    from support.members import Member

Place = tuple[bytes, int]
"""Topic and partition."""

WINDOW_BYTES, WINDOW_RECORDS = 1 << 16, 20

ROUNDS = 8
"""Of those who go on without a leader: an election, the first entry of its term, and records."""


@dataclass
class Told:
    """What clients were told of a partition. Invariant: `first` and `end` never go back."""

    first: int = 0
    end: int = 0
    values: dict[int, bytes] = field(default_factory=dict)

    def moved(self, first: int, end: int, floor: tuple[int, int]) -> None:
        """An answer says where it begins and ends; `floor`: what was known of that when its request was sent."""
        assert first >= floor[0], f"the first offset was {floor[0]}, and went back to {first}"
        assert end >= floor[1], f"the end was {floor[1]}, and went back to {end}"
        self.first, self.end = max(self.first, first), max(self.end, end)

    def saw(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Records were acknowledged or read, so they are committed."""
        for offset, value in records:
            known = self.values.setdefault(offset, value)
            assert known == value, f"record {offset} was {known[:9]!r}, and is {value[:9]!r}"
            self.end = max(self.end, offset + 1)

    @property
    def floor(self) -> tuple[int, int]:
        return self.first, self.end

    def check(self, first: int, values: list[bytes]) -> None:
        """Hold it against the log at the end, which has these records from `first` on."""
        self.moved(first, first + len(values), self.floor)
        self.saw(enumerate(values, first))


@dataclass
class Following:
    """A reader that follows a topic, and its session while it has one: of one process of a member, in one term."""

    topic: bytes
    positions: dict[int, int]
    member: Member | None = None
    lead: tuple[int, int] = (0, 0)
    session: ConsumerSession | None = None
    taken: int = 0  # deliveries of the port that were looked at

    @property
    def is_lost(self) -> bool:
        return self.member is None or not self.member.leads or lead_of(self.member) != self.lead


def lead_of(member: Member) -> tuple[int, int]:
    """The start of its process, and its term."""
    return member.starts, 0 if member.replica is None else member.replica.core.term


class LifeReaders:
    """See the module."""

    def __init__(self, life: MemberLife) -> None:
        self._life = life
        self.told: defaultdict[Place, Told] = defaultdict(Told)
        self._following: Following | None = None

    def read(self) -> None:
        """One of them asks for something."""
        ask = self._life.chance.choice((self.fetch, self.fetch, self.fetch, self.ends, self.list, self.follow))
        ask()

    def read_outdated(self, leader: Member) -> None:
        """The others go on without a leader that stands still, if they can; then it is read, unless it has heard."""
        life, shard = self._life, self._life.shard
        others = [shard.members[number] for number in shard.others(leader)]
        for _ in range(ROUNDS):
            for sent in [each for each in shard.network if shard.members[each.message.to] in others]:
                shard.deliver(shard.network.index(sent))
            for member in others:
                shard.turn(member)
            life.produce()
        life.collect()
        self.read()

    def leading(self) -> Member:
        """Some node that takes itself for the leader, best one that another one has followed."""
        life, members = self._life, list(self._life.shard.members.values())
        outdated = self._outdated()
        if outdated:
            life.shard.count("a leader is read that another one has followed")
        return life.chance.choice(outdated or [each for each in members if each.leads] or members)

    def _outdated(self) -> list[Member]:
        shard = self._life.shard
        return [each for each in shard.members.values() if each.leads and each is not shard.leader]

    def _floors(self) -> dict[Place, tuple[int, int]]:
        return {place: self.told[place].floor for place in self._life.readable}

    # -- requests -------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Read from somewhere on, or wait for what comes."""
        life, chance = self._life, self._life.chance
        place = chance.choice(life.readable)
        told, floor = self.told[place], self.told[place].floor
        offset, wait_ms = (floor[1], 3000) if chance.random() < 0.4 else (chance.randint(*floor), 0)
        most = chance.choice((1, 1 << 20))

        def heard(answer: Any, payload: bytes) -> None:
            if isinstance(answer, m.Fetched):
                life.shard.count("a fetch is answered" if not wait_ms else "a fetch that waits is answered")
                told.moved(answer.first, answer.end, floor)
                assert answer.next_offset <= answer.end
                told.saw(_records(payload, offset, answer.next_offset))
            else:
                self._check_refused(answer, offset)

        life.ask_of(self.leading(), lambda number: m.Fetch(number, *place, offset, -1, most, wait_ms), heard)

    def _check_refused(self, failure: m.Failure, offset: int) -> None:
        """Only retention takes a place away that was there."""
        is_gone = failure.code == "out_of_bounds"
        assert not is_gone or (self._life.settings and failure.offset > offset), f"offset {offset}: {failure}"

    def ends(self) -> None:
        """Ask where all partitions begin and end."""
        life, floors = self._life, self._floors()
        topics = sorted({topic for topic, _ in floors})

        def heard(answer: Any, _: bytes) -> None:
            for topic, ends in zip(topics, answer.topics if isinstance(answer, m.Ends) else (), strict=False):
                for partition, found in enumerate(ends):
                    self.told[topic, partition].moved(found.first, found.end, floors[topic, partition])

        life.ask_of(self.leading(), lambda number: m.AskEnds(number, [m.Known(each) for each in topics]), heard)

    def list(self) -> None:
        """List all topics."""
        life, floors = self._life, self._floors()

        def heard(answer: Any, _: bytes) -> None:
            if isinstance(answer, m.Topics):
                listed = {each.topic: each.partitions for each in answer.topics}
                missing = [topic for topic, _ in floors if topic not in listed and (topic, 0) in life.readable]
                assert not missing, f"topics {missing} are not there any more"
                for (topic, partition), floor in floors.items():
                    if topic in listed:
                        found = listed[topic][partition]
                        self.told[topic, partition].moved(found.first, found.end, floor)

        life.ask_of(self.leading(), lambda number: m.ListTopics(number, []), heard)

    # -- following a topic ----------------------------------------------------------------------------

    def follow(self) -> None:
        """Go on following a topic: join where the session is lost."""
        life, following = self._life, self._following
        if following is None or (following.topic, 0) not in life.readable:
            topic = life.chance.choice(life.topics)
            following = self._following = Following(topic, {0: 0, 1: 0})
        if following.is_lost:
            self._join(following)

    def _join(self, following: Following) -> None:
        life, member = self._life, self.leading()
        if following.session is not None:
            life.shard.count("a topic is followed over to another lead")
        following.member, following.lead, following.session, following.taken = member, lead_of(member), None, 0
        lead, positions = following.lead, sorted(following.positions.items())

        def heard(answer: Any, _: bytes) -> None:
            if isinstance(answer, m.Joined) and following.lead == lead:
                following.session = ConsumerSession(answer, window_bytes=WINDOW_BYTES, window_records=WINDOW_RECORDS)
            elif isinstance(answer, m.Failure):
                assert answer.code != "out_of_bounds", f"positions {positions}: {answer}"
                following.member = None

        topic, credit = following.topic, (WINDOW_BYTES, WINDOW_RECORDS)
        life.ask_of(
            member,
            lambda number: m.Join(number, topic, "", "r", "push", m.EARLIEST, positions, 300_000, *credit),
            heard,
        )

    def collect(self) -> None:
        """Take what came to the session."""
        following = self._following
        if following is None or following.session is None or following.is_lost:
            return
        member, session = following.member, following.session
        assert member is not None
        delivered = member.port.delivered
        while following.taken < len(delivered):
            number, message, payload = delivered[following.taken]
            following.taken += 1
            for delivery in session.receive(message, payload) if number == session.session else ():
                self._take(following, session, delivery)
        if (credit := session.credit_due()) is not None:
            self._life.shard.send(member, lambda _: credit)

    def _take(self, following: Following, session: ConsumerSession, delivery: Delivery) -> None:
        life, partition = self._life, delivery.partition
        position = following.positions[partition]
        assert delivery.offset == position, f"record {position} was to be delivered, and {delivery.offset} came"
        if delivery.missing:
            may_lack = life.settings if delivery.missing == REMOVED else life.rotten or life.damaged
            assert may_lack, f"records {position} to {delivery.next_offset} did not come: {delivery.missing}"
        else:
            life.shard.count("a delivery comes")
            self.told[following.topic, partition].saw(_records(delivery.payload, delivery.offset, delivery.next_offset))
        following.positions[partition] = delivery.next_offset
        session.handed_out(delivery)
        session.finished(delivery)


def _records(payload: Any, offset: int, end: int) -> list[tuple[int, bytes]]:
    """The records from `offset` on, below `end`, of which none is missing."""
    found = [(at, bytes(value)) for batch in batches(payload) for at, value in placed(batch) if offset <= at < end]
    assert [at for at, _ in found] == list(range(offset, end)), f"{offset} to {end}: {[at for at, _ in found]} came"
    return found
