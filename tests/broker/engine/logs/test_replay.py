"""Random lives of a node against a naive model; and replay: what the log adds up to is what the node knew.

Each step is a random command, right or wrong. The model is lists and dicts. After some steps the node is closed or
killed and opened again. At the end, and at each restart, every state is compared three ways: as it was live,
replayed from the first batch, and replayed from the newest snapshot.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from penstock.broker.engine.logs.overlay import Overlay
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.state import PartitionState, SnapshotBody
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import partition_of, publish, stage

GROUPS, MEMBERS = ["g", "h"], ["a", "b", "c"]


class NoSnapshots:
    """A store that has lost all its snapshots."""

    def load_snapshot(self, log: Any) -> None:
        return None


def bodies(rig: Rig) -> list[bytes]:
    """Every partition's state as committed."""
    return [history.committed.encode() for history in rig.node._registry.partitions]


def replayed(rig: Rig, store: Any) -> list[bytes]:
    """Every partition's state as its log gives it."""
    logs = [history.log for history in rig.node._registry.partitions]
    return [replay(log, PartitionState, store).committed.encode() for log in logs]


def timeless(body: bytes) -> SnapshotBody:
    """Without the times of producers, groups and stages, which `head` knows only about, nor where stages stand."""
    found = msgspec.msgpack.decode(body, type=SnapshotBody)
    for each in [*found.producers, *found.groups, *found.stages]:
        each.last_us = 0
    for each in found.stages:
        each.runs = []
    return found


class Life:
    """A node, its model, and random commands."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.rig = Rig(seed=seed, session_timeout_min_s=1.0, snapshot_batches=25, handover_s=2.0)
        self.topic = self.rig.topic(partitions=2, **settings)
        self.values: list[list[bytes]] = [[], []]
        self.sequences: dict[tuple[int, int], int] = {}
        self.sent: list[tuple[int, bytes, int]] = []  # partition, payload, offset
        self.cursors: dict[tuple[str, int], int] = {}
        self.notes: dict[tuple[str, int], str] = {}
        self.sessions: dict[tuple[str, str], m.Joined] = {}
        self.staged: dict[tuple[int, int], list[bytes]] = {}  # by partition and stage, what is not published
        self.published: dict[tuple[int, int], int] = {}  # of those that are not published completely
        self.made = 0

    def step(self) -> None:
        commands = [self.produce] * 6 + [self.resend, self.gap] + [self.commit] * 5
        commands += [self.stage] * 4 + [self.publish, self.drop]
        commands += [self.join] * 2 + [self.leave, self.release, self.seek, self.reset, self.wait, self.restart]
        self.random.choice(commands)()

    # -- producing --------------------------------------------------------------------------------

    def produce(self) -> None:
        partition, producer = self.random.randrange(2), self.random.randint(1, 3)
        first = self.sequences.get((partition, producer), 0)
        values = [b"%d" % (self.made + n) for n in range(self.random.randint(1, 3))]
        self.made += len(values)
        payload = bytes(encode(values, producer_id=producer, first_sequence=first))
        answer = self.rig.ask(m.Produce, self.topic, partition, payload=payload)
        assert answer.offset == len(self.values[partition])
        self.sent.append((partition, payload, answer.offset))
        self.values[partition] += values
        self.sequences[partition, producer] = first + len(values)

    def resend(self) -> None:
        if self.sent:
            partition, payload, offset = self.random.choice(self.sent[-20:])
            assert self.rig.ask(m.Produce, self.topic, partition, payload=payload).offset == offset

    def gap(self) -> None:
        partition, producer = self.random.randrange(2), self.random.randint(1, 4)
        first = self.sequences.get((partition, producer), 0) + self.random.randint(1, 3)
        answer = self.rig.produce(self.topic, [b"never"], partition, producer_id=producer, first_sequence=first)
        assert answer.code in ("sequence_gap", "unknown_producer")

    # -- staging ----------------------------------------------------------------------------------

    def stage(self) -> None:
        key = partition, stage_id = self.random.randrange(2), self.random.randint(11, 13)
        values = [b"%d" % (self.made + n) for n in range(self.random.randint(1, 3))]
        self.made += len(values)
        if key not in self.published:
            before = self.staged.setdefault(key, [])
            answer = stage(self.rig, self.topic, values, stage_id, len(before), partition)
            assert isinstance(answer, m.Produced), answer
            before += values

    def publish(self) -> None:
        """A portion of a stage; nothing is staged into it any more."""
        if not self.staged:
            return
        key = partition, stage_id = self.random.choice(sorted(self.staged))
        places = publish(self.rig, self.topic, stage_id, self.random.choice([1, 700, 1 << 20]), partition)
        count = sum(place.count for place in places)
        self.values[partition] += self.staged[key][:count]
        del self.staged[key][:count]
        self.published[key] = self.published.get(key, 0) + count
        if not self.staged[key]:
            del self.staged[key], self.published[key]

    def drop(self) -> None:
        open_ = sorted(set(self.staged) - set(self.published))
        if open_:
            partition, stage_id = self.random.choice(open_)
            del self.staged[partition, stage_id]
            partition_of(self.rig, self.topic, partition).propose_in_order(fx.StagesDropped([stage_id]))
            self.rig.turn()

    # -- groups -----------------------------------------------------------------------------------

    def join(self) -> None:
        name, member = self.random.choice(GROUPS), self.random.choice(MEMBERS)
        joined = self.rig.join(self.topic, name, member, timeout_ms=60_000)
        self.sessions[name, member] = joined
        self._check_assignments(joined, name)

    def _check_assignments(self, joined: m.Joined, name: str) -> None:
        for partition, (_, offset) in self.rig.assigned(joined).items():
            assert offset == self.cursors.get((name, partition), 0)

    def leave(self) -> None:
        if self.sessions:
            key = self.random.choice(sorted(self.sessions))
            self.rig.ask(m.Leave, self.sessions.pop(key).session)

    def release(self) -> None:
        if self.sessions:
            key = self.random.choice(sorted(self.sessions))
            self.rig.send(m.Release(self.sessions[key].session, [0, 1]))
            self.rig.turn()

    def commit(self) -> None:
        name, partition = self.random.choice(GROUPS), self.random.randrange(2)
        offset = self.random.randint(0, len(self.values[partition]) + 1)
        owners = self._owners(name, partition)
        member = self.random.choice(MEMBERS)
        joined = self.sessions.get((name, member))
        note = self.random.choice(["", "", "nächste", "x" * 4096])
        if joined is None:
            answer = self.rig.ask(m.Commit, 0, self.topic, name, [m.Position(partition, offset, 0, note)])
            allowed = not any(group == name for group, _ in self.sessions)
        else:
            epoch = owners.get(member, self.random.randint(0, 3))
            answer = self.rig.ask(
                m.Commit, joined.session, self.topic, name, [m.Position(partition, offset, epoch, note)]
            )
            allowed = member in owners
        if allowed and offset <= len(self.values[partition]):
            assert isinstance(answer, m.Done), answer
            self.cursors[name, partition] = offset
            self.notes[name, partition] = note
        else:
            assert isinstance(answer, m.Failure), (member, owners)
        self.check_notes(name)

    def check_notes(self, name: str) -> None:
        """The cursors stand where they were moved, with the notes of the last commits."""
        found = {
            number: (offset, note) for number, offset, note in self.rig.ask(m.AskCursors, self.topic, name).cursors
        }
        wanted = {number: offset for (group, number), offset in self.cursors.items() if group == name}
        assert found == {number: (offset, self.notes.get((name, number), "")) for number, offset in wanted.items()}

    def _owners(self, name: str, partition: int) -> dict[str, int]:
        """Who may commit, by what the node says of the group: at most one."""
        found: dict[str, int] = {}
        for group in self.rig.ask(m.ListGroups, self.topic).groups:
            for each in group.partitions:
                if group.group == name and each.partition == partition and each.member:
                    found[each.member] = each.epoch
        return found

    def seek(self) -> None:
        if self.sessions:
            name, member = self.random.choice(sorted(self.sessions))
            joined, partition = self.sessions[name, member], self.random.randrange(2)
            offset = self.random.randint(0, len(self.values[partition]))
            before = self._owners(name, partition)
            answer = self.rig.ask(m.SeekTo, joined.session, partition, offset)
            after = self._owners(name, partition)
            assert (after.get(member, 0) > before.get(member, 0)) is isinstance(answer, m.Done)

    def reset(self) -> None:
        name = self.random.choice(GROUPS)
        answer = self.rig.ask(m.ResetGroup, self.topic, name, m.LATEST, [])
        if isinstance(answer, m.Done):
            for partition in range(2):
                self.cursors[name, partition] = len(self.values[partition])
                self.notes[name, partition] = ""

    def wait(self) -> None:
        for joined in self.sessions.values():
            self.rig.ask(m.Ping, joined.session)
        self.rig.pass_time(self.random.choice([0.1, 3.0]))

    # -- restarts ---------------------------------------------------------------------------------

    def restart(self) -> None:
        before = bodies(self.rig)
        self.rig.restart(clean=self.random.random() < 0.5)
        self.sessions.clear()
        assert bodies(self.rig) == before

    def check(self) -> None:
        rig = self.rig
        assert [rig.read(self.topic, partition) for partition in range(2)] == self.values
        stages = {
            (number, each.stage): each.next_sequence - each.published
            for number in range(2)
            for each in partition_of(rig, self.topic, number).committed.stages
        }
        assert stages == {key: len(values) for key, values in self.staged.items()}
        live = bodies(rig)
        assert replayed(rig, rig.store) == live
        assert replayed(rig, NoSnapshots()) == live
        heads = [timeless(each.proposed.encode()) for each in rig.node._registry.partitions.values()]
        assert heads == [timeless(body) for body in live]
        for group in rig.ask(m.ListGroups, self.topic).groups:
            for each in group.partitions:
                cursor = self.cursors.get((group.group, each.partition), -1)
                assert (each.cursor, each.lag) == (cursor, len(self.values[each.partition]) - max(cursor, 0))


@pytest.mark.parametrize("seed", range(12))
def test_a_random_life_is_what_the_model_says_and_what_the_log_adds_up_to(seed: int):
    life = Life(seed, commit="written" if seed % 3 == 0 else "durable")
    for _ in range(120):
        life.step()
    life.check()
    assert life.rig.store.snapshots, "the life was long enough for snapshots"


def test_equal_arguments_give_equal_answers():
    def run() -> list[Any]:
        life = Life(99)
        for _ in range(60):
            life.step()
        return life.rig.port.sent

    assert run() == run()


def test_batches_that_were_never_synced_are_in_flight_after_opening_and_seen_only_when_synced():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    history = next(iter(rig.node._registry.partitions))
    rig.store.hold = True
    rig.produce(topic, [b"b"], producer_id=9)
    again = replay(history.log, PartitionState, NoSnapshots())
    proposed = Overlay(again, lambda _: None).proposed
    assert (again.committed.end, proposed.end, len(again.in_flight)) == (1, 2, 1)
    assert list(proposed.producers.by_id) == [9]
    history.log.sync()
    assert [entry.place.seq for entry in again.advance()] == [2]
    assert (again.committed.end, list(again.committed.producers.by_id)) == (2, [9])


def test_staged_batches_that_were_never_synced_are_in_flight_after_opening_and_stand_when_synced():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"a"], 9)
    history = next(iter(rig.node._registry.partitions))
    rig.store.hold = True
    stage(rig, topic, [b"b", b"c"], 9, first=1)
    again = replay(history.log, PartitionState, NoSnapshots())
    proposed = Overlay(again, lambda _: None).proposed
    found = [(each.next_sequence, each.runs) for state in (again.committed, proposed) for each in state.stages]
    assert (found, len(again.in_flight)) == ([(1, [(1, 1)]), (3, [])], 1)
    history.log.sync()
    assert [entry.place.seq for entry in again.advance()] == [2]
    assert [(each.next_sequence, each.runs) for each in again.committed.stages] == [(3, [(1, 2)])]
