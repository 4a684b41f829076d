"""A fleet of members that come, go, hang and lag: every record is read, and no member commits partitions of another.

The members here follow the protocol as a client does: they read what is delivered under the epoch they were told,
commit, and release what is asked back. Some hang (never release, never speak again), some leave, some are replaced.
At the end every record was read, every partition went on exactly from its last accepted commit, and no
two sessions were ever told to own a partition under the same epoch.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig, records

PARTITIONS = 3


class Member:
    """A well-behaved reader until it hangs."""

    def __init__(self, name: str, joined: m.Joined) -> None:
        self.name = name
        self.session = joined.session
        self.owned: dict[int, tuple[int, int]] = {}  # epoch, next offset
        self.hanging = False
        self.over = False

    def assigned(self, assignments: list[m.Assignment]) -> None:
        for each in assignments:
            self.owned[each.partition] = (each.epoch, each.offset)

    def take(self, message: m.Deliver, payload: bytes) -> list[bytes]:
        """The values, if they are under the current epoch and next in line."""
        epoch, offset = self.owned.get(message.partition, (-1, -1))
        if epoch != message.epoch:
            return []
        assert message.offset == offset, "a stream has no holes and no repeats"
        self.owned[message.partition] = (epoch, message.next_offset)
        return records(payload, message.offset, message.next_offset)


class Fleet:
    """The node, its members and what is known of their commits."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rig = Rig(seed=seed, handover_s=2.0, chunk_bytes=600, snapshot_batches=40)
        self.topic = self.rig.topic(partitions=PARTITIONS)
        self.members: list[Member] = []
        self.made: set[bytes] = set()
        self.read: set[bytes] = set()
        self.commits: dict[int, tuple[int, int]] = {}  # request -> partition and offset, not answered yet
        self.cursor = dict.fromkeys(range(PARTITIONS), 0)
        self.owners: dict[tuple[int, int], int] = {}  # partition and epoch -> session

    def step(self) -> None:
        chance, rig = self.chance, self.rig
        rig.store.hold = chance.random() < 0.3
        command = chance.choice([self.produce, self.produce, self.commit, self.commit, self.join, self.part, self.wait])
        command()
        rig.turn(2)
        self.look()

    def produce(self) -> None:
        value = b"%d" % len(self.made)
        self.made.add(value)
        partition = self.chance.randrange(PARTITIONS)
        self.rig.send(m.Produce(self.rig.next_request(), self.topic, partition), bytes(encode([value])))

    def join(self) -> None:
        if sum(not member.over for member in self.members) < 4:
            request, name = self.rig.next_request(), self.chance.choice("abcde")
            self.rig.send(m.Join(request, self.topic, "g", name, "push", -1, [], 1500, 1 << 40, 1 << 40))
            self.joining = (request, name)
            self.rig.store.hold = False
            self.rig.sync()
            (joined,) = self.rig.answers(request)
            member = Member(name, joined)
            self.members.append(member)
            self.own(member, joined.assignments)

    def own(self, member: Member, assignments: list[m.Assignment]) -> None:
        for each in assignments:
            assert self.owners.setdefault((each.partition, each.epoch), member.session) == member.session
            possible = {self.cursor[each.partition]}
            possible |= {offset for partition, offset in self.commits.values() if partition == each.partition}
            assert each.offset in possible, "reading goes on from the last commit"
        member.assigned(assignments)

    def commit(self) -> None:
        for member in self.members:
            if not member.over and not member.hanging:
                for partition, (epoch, offset) in member.owned.items():
                    self._commit(member, partition, offset, epoch)

    def _commit(self, member: Member, partition: int, offset: int, epoch: int) -> None:
        request = self.rig.next_request()
        self.commits[request] = (partition, offset)
        position = m.Position(partition, offset, epoch)
        self.rig.send(m.Commit(request, member.session, self.topic, "g", [position]))

    def part(self) -> None:
        live = [member for member in self.members if not member.over]
        if live:
            member = self.chance.choice(live)
            if self.chance.random() < 0.5:
                member.hanging = True
            else:
                member.over = True
                self.rig.send(m.Leave(self.rig.next_request(), member.session))

    def wait(self) -> None:
        for member in self.members:
            if not member.over and not member.hanging:
                self.rig.send(m.Ping(self.rig.next_request(), member.session))
        self.rig.store.hold = False
        self.rig.pass_time(self.chance.choice([0.3, 1.0]))

    def look(self) -> None:
        """Take everything the node sent since the last look, in order."""
        port = self.rig.port
        sent, port.sent = port.sent, []
        for _, message, _ in sent:
            self._heard(message)
        delivered, port.delivered = port.delivered, []
        by_session = {member.session: member for member in self.members}
        for session, message, payload in delivered:
            member = by_session.get(session)
            if member is not None and not member.over and not member.hanging:
                self.read.update(member.take(message, payload))

    def _heard(self, message: Any) -> None:
        member = next((each for each in self.members if each.session == getattr(message, "session", 0)), None)
        if isinstance(message, m.Assigned) and member is not None:
            self.own(member, message.assignments)
            if not member.hanging:
                for partition in message.revoked:
                    epoch, offset = member.owned[partition]
                    self._commit(member, partition, offset, epoch)
                    del member.owned[partition]
                self.rig.send(m.Release(member.session, list(message.revoked)))
        elif isinstance(message, m.Evicted) and member is not None:
            member.over = True
        elif isinstance(message, m.Done | m.Failure) and message.request in self.commits:
            partition, offset = self.commits.pop(message.request)
            if isinstance(message, m.Done):
                self.cursor[partition] = offset
            else:
                assert message.code in ("fenced", "unknown_session"), message


@pytest.mark.parametrize("seed", range(15))
def test_every_record_is_read_and_every_hand_over_goes_on_from_the_last_commit(seed: int):
    fleet = Fleet(seed)
    for _ in range(150):
        fleet.step()
    fleet.rig.store.hold = False
    fleet.rig.sync()
    for member in fleet.members:
        member.hanging = member.hanging or member.name == "a"
    for _ in range(16):
        fleet.wait()
        fleet.rig.turn()
        fleet.look()
    if all(member.over or member.hanging for member in fleet.members):
        fleet.join()
        for _ in range(6):
            fleet.rig.turn()
            fleet.look()
    assert fleet.read == fleet.made
    assert len(fleet.rig.port.open) == sum(not member.over for member in fleet.members)
