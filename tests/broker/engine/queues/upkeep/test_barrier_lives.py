"""Random lives of barriers: whatever crashes, each callback comes once, when all have ended, with what they said."""

from __future__ import annotations

import random

import pytest
from penstock.storage.batch import encode
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.barriers import GROUP, Scene, code
from support.engine import Rig

# -- crashes ----------------------------------------------------------------------------------------


def kill(rig: Rig, when: str) -> None:
    """The broker dies with what is proposed, written or synced."""
    if when != "proposed":
        logs = rig.node.flush(rig.now)
        for log in logs if when == "synced" else ():
            log.sync()
    rig.restart(clean=False)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_crashes_each_callback_comes_once_with_all_ends(seed: int, ended: bool):
    """Barriers over two queues' partitions; workers ack, reject and lose leases; the broker is killed at each step."""
    life = Life(seed, ended)
    for _ in range(150):
        life.step()
        life.scene.counts()
    life.rest()
    life.look()


class Life:
    """A node with barriers, and what its clients know."""

    def __init__(self, seed: int, ended: bool) -> None:
        self.dice = random.Random(seed)
        self.ended = ended
        self.scene = Scene(Rig(seed=seed, snapshot_batches=self.dice.choice([5, 50])), partitions=2, lease_s=2.0)
        self.rig = self.scene.rig
        self.made = 0
        self.want: dict[bytes, int] = {}  # members of each barrier that was set and not deleted
        self.unsent: list[tuple[bytes, list[int]]] = []

    def step(self) -> None:
        chance = self.dice.random()
        if chance < 0.2:
            self.begin()
        elif chance < 0.35 and self.unsent:
            self.send()
        elif chance < 0.6:
            self.work()
        elif chance < 0.62:
            self.delete()
        elif chance < 0.66:
            place = (self.dice.randrange(2), self.dice.randrange(20))
            self.rig.ask(m.CancelTask, self.scene.work, GROUP, *place)
        elif chance < 0.75:
            self.rig.ask(m.RedriveDead, self.scene.work, GROUP, [])
        elif chance < 0.85:
            self.rig.pass_time(self.dice.choice([0.1, 1.0, 2.5]), step=0.5)
        elif chance < 0.95:
            for _ in range(self.dice.randrange(4)):
                self.half_a_turn()
            if self.dice.random() < 0.3:
                self.rig.resign()  # another node leads, and then this one again
                self.rig.turn()
            else:
                kill(self.rig, self.dice.choice(["proposed", "written", "synced"]))

    def half_a_turn(self) -> None:
        for log in self.rig.node.flush(self.rig.now):
            log.sync()
        self.rig.node.advance(self.rig.now)

    def begin(self) -> None:
        name = b"%d" % self.made
        self.made += 1
        self.want[name] = members = self.dice.randint(1, 4)
        answer = self.scene.set(name, members, ended=self.ended)
        assert isinstance(answer, m.Done), answer
        numbers = list(range(members))
        self.dice.shuffle(numbers)
        middle = self.dice.randint(0, members)
        self.unsent += [(name, some) for some in (numbers[:middle], numbers[middle:]) if some]

    def delete(self) -> None:
        listed = self.scene.listed()
        if listed:
            name = self.dice.choice(listed).barrier.rstrip(b".")
            answer = self.scene.delete(name)
            if isinstance(answer, m.Done):
                del self.want[name]
                self.unsent = [each for each in self.unsent if each[0] != name]
            else:
                assert code(answer) == "unknown_barrier"  # its record is on its way

    def send(self) -> None:
        name, members = self.unsent.pop(self.dice.randrange(len(self.unsent)))
        self.scene.producers += 1
        payload = bytes(encode([name + b"/%d" % each for each in members], producer_id=self.scene.producers))
        partition = self.dice.randrange(2)
        for _ in range(self.dice.choice([1, 1, 2])):
            assert isinstance(self.scene.produce(payload, members, name, partition), m.Produced)

    def work(self) -> None:
        leased = self.scene.lease(self.dice.randint(1, 3))
        verb = self.dice.choice([Verb.ACK, Verb.ACK, Verb.NACK, Verb.REJECT, None])
        if leased.runs and verb is not None:
            self.scene.settle(leased, verb, b"r", "no")

    def rest(self) -> None:
        """Everything is sent and worked off."""
        while self.unsent:
            self.send()
        for _ in range(300):
            self.rig.ask(m.RedriveDead, self.scene.work, GROUP, [])
            self.rig.pass_time(0.5)
            leased = self.scene.lease(50)
            if not leased.runs:
                stands = self.rig.ask(m.ListQueues, self.scene.work, GROUP).queues[0].partitions
                if not any(each.ready + each.in_flight + each.delayed + each.waiting + each.dead for each in stands):
                    break
                continue
            self.scene.settle(leased, result=b"r")

    def look(self) -> None:
        fired = self.scene.fired()
        left = {each.barrier: each for each in self.scene.listed()}
        assert len(fired) + len(left) == len(self.want)
        for words in fired:
            assert self.ended or all(word[0] == "completed" for word in words)
            assert all(word[1] == (b"r" if word[0] == "completed" else b"") for word in words)
        sizes = [len(words) for words in fired] + [each.members for each in left.values()]
        assert sorted(sizes) == sorted(self.want.values())
        for each in left.values():
            assert not self.ended
            assert not each.waiting
            assert {state for _, state, _ in each.holding} == {"cancelled"}
            for (member, _, _), (topic, partition, offset) in zip(each.holding, each.tasks, strict=True):
                sent = self.rig.read(self.scene.work, partition)[offset]
                assert (topic, sent) == ("work", each.barrier.rstrip(b".") + b"/%d" % member)
        for number in range(2):
            ties = self.scene.state(self.scene.work, number).ties
            assert not ties.open
            assert not ties.tellings
        self.scene.replays()
