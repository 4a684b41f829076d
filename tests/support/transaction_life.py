"""The life of a node with transactions: random clients, full disks, crashes, and what has to hold whatever they do.

Idea: each step is a random request or misfortune; a few turns are made, and answers are taken note of. Every value
that is ever sent is different, so what can be read says which requests were decided. When all is at rest: each commit
is there to its last record or not at all, no epoch twice, nothing twice, in the order of stages and of epochs; what
was answered is so; what was refused is not. `lose_power` builds a disk from what was synced and some of what was not.
`resign` drops the office of the leader between any two phases of a turn, with some logs synced and some cut.

`Life(seed).run(steps)` raises with the seed and the steps so far in its message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import MemoryStore, Rig
from support.files import Disk, RecordingFiles
from support.staging import staged
from support.transactions import TXN, state

PLACES = [("a", 0), ("a", 1), ("w", 0)]
LEVELS = {"a": "durable", "w": "written"}
NAMES = ["x", "y", "z"]
NOT_DECIDED = ("invalid_request", "stage_lost", "limit_reached", "unknown_topic", "unknown_partition")

Place = tuple[str, int]


@dataclass
class Staging:
    """What one client has put into one stage."""

    place: Place
    number: int
    sent: list[bytes] = field(default_factory=list)
    answered: int = 0
    broken: bool = False  # nothing more is staged
    used: bool = False  # a commit was requested


@dataclass
class Wish:
    """One epoch with the requests to commit it, one or more."""

    name: str
    epoch: int
    stages: list[m.Stage]
    values: dict[Place, list[list[bytes]]]
    done: bool = False  # answered as committed now
    refused: bool = False  # answered as not decided
    sent: int = 0
    passed: bool = False  # a client that asked behind it was told of an epoch before it

    def __str__(self) -> str:
        return f"{self.name} {self.epoch} {self.values}"


class Life:
    """A node, what was asked of it, and what it said."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.steps: list[str] = []
        self.made = 0
        self.stagings: dict[int, Staging] = {}
        self.wishes: list[Wish] = []
        self.epochs = dict.fromkeys(NAMES, 0)
        self.plain: dict[Place, list[bytes]] = {place: [] for place in PLACES}  # answered, and durable
        self.expected: dict[int, Callable[[Any], None]] = {}
        self.full: list[tuple[Any, Any]] = []
        self.snapshots = self.dice.choice([3, 20, 1000])
        self._open(RecordingFiles())
        for name, level in LEVELS.items():
            self.rig.topic(name, sum(place[0] == name for place in PLACES), commit=level)
        self.rig.port.sent.clear()

    def _open(self, files: RecordingFiles) -> None:
        store = MemoryStore(files)
        store.lazy = True
        self.files = files
        seed = self.dice.getrandbits(32)
        self.rig = Rig(store, seed=seed, snapshot_batches=self.snapshots, housekeeping_s=5.0, stage_expiry_s=3000.0)
        self.full.clear()
        self.expected.clear()

    # -- running ------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """So many random steps, and then all comes to rest."""
        try:
            for _ in range(steps):
                command = self.dice.choice(COMMANDS)
                self.steps.append(command.__name__)
                command(self)
                self.rig.answers_ahead = not self.rig.answers_ahead
                self.rig.turn(self.dice.choice([0, 1, 1, 2, 5]))
                self._hear()
            self.rest()
            self.restart()
            self.rest()
        except Exception as error:
            told = "\n  ".join(self.steps[-40:])
            raise AssertionError(f"seed {self.seed}, step {len(self.steps)}: {error!r}\n  {told}") from error

    def note(self, text: str) -> None:
        self.steps[-1] += f" {text}"

    def _topic(self, name: str) -> bytes:
        return self.rig.node._registry.topics.by_name[name].id

    def _send(self, make: Callable[[int], Any], payload: bytes, then: Callable[[Any], None]) -> None:
        request = self.rig.next_request()
        self.expected[request] = then
        self.rig.send(make(request), payload)

    def _hear(self) -> None:
        sent, self.rig.port.sent = self.rig.port.sent, []
        for _, answer, _ in sent:
            then = self.expected.pop(getattr(answer, "request", 0), None)
            assert then is not None, f"unsolicited: {answer}"
            then(answer)

    # -- clients ------------------------------------------------------------------------------------

    def _value(self) -> bytes:
        self.made += 1
        return b"%d" % self.made

    def stage(self) -> None:
        """More of a stage, or a new one; or a batch of it once more."""
        some = [each for each in self.stagings.values() if not each.broken]
        if not some or self.dice.random() < 0.4:
            number = self.dice.getrandbits(62) | 1
            some = [Staging(self.dice.choice(PLACES), number)]
            self.stagings[number] = some[0]
        staging = self.dice.choice(some)
        first = len(staging.sent)
        if first and self.dice.random() < 0.2:
            first = self.dice.randrange(first)
        else:
            staging.sent += [self._value() for _ in range(self.dice.choice([1, 1, 2, 5]))]
        self._stage(staging, first)

    def _stage(self, staging: Staging, first: int) -> None:
        values, (name, partition) = staging.sent[first:], staging.place
        end = len(staging.sent)

        def answered(answer: Any) -> None:
            if isinstance(answer, m.Produced):
                staging.answered = max(staging.answered, end)
            else:
                staging.broken = True

        payload = staged(values, staging.number, first)
        self._send(lambda request: m.Produce(request, self._topic(name), partition), payload, answered)

    def stage_late(self) -> None:
        """A batch that comes once more when its stage is committed or dropped, as from a network that was slow."""
        some = [each for each in self.stagings.values() if each.broken and each.sent]
        if some:
            staging = self.dice.choice(some)
            end = self.dice.randint(1, len(staging.sent))
            name, partition = staging.place
            payload = staged(staging.sent[:end], staging.number, 0)
            self._send(lambda request: m.Produce(request, self._topic(name), partition), payload, lambda answer: None)

    def commit(self) -> None:
        """Some stages that are whole, or not; an epoch that rises, mostly."""
        name = self.dice.choice(NAMES)
        epoch = max(0, self.epochs[name] + self.dice.choice([1, 1, 1, 1, 2, 0, -1]))
        self.epochs[name] = max(self.epochs[name], epoch)
        whole = [each for each in self.stagings.values() if each.answered == len(each.sent) and not each.broken]
        if self.dice.random() < 0.05:
            whole = [each for each in self.stagings.values() if not each.used]
        some = self.dice.sample(whole, min(len(whole), self.dice.choice([0, 1, 1, 2, 2, 3])))
        stages, values = list[m.Stage](), dict[Place, list[list[bytes]]]()
        for each in some:
            each.broken = each.used = True
            count = len(each.sent) + self.dice.choice([0] * 20 + [1, -1])
            stages.append(m.Stage(self._topic(each.place[0]), each.place[1], each.number, max(count, 1)))
            values.setdefault(each.place, []).append(each.sent[: max(count, 1)])  # the rest may be lost by now
        self.wishes.append(Wish(name, epoch, stages, values))
        self._commit(self.wishes[-1])

    def commit_again(self) -> None:
        """The same request, as after a lost answer."""
        if self.wishes:
            self._commit(self.dice.choice(self.wishes[-4:]))

    def _commit(self, wish: Wish) -> None:
        self.note(str(wish))
        wish.refused = wish.passed = False  # what was not whole before may be now
        wish.sent += 1

        def answered(answer: Any) -> None:
            if isinstance(answer, m.TransactionCommitted):
                assert answer.epoch >= wish.epoch, f"{wish}: {answer}"
                wish.done = wish.done or not answer.repeated
            elif answer.code in NOT_DECIDED:
                wish.refused = wish.refused or not wish.done

        self._send(lambda request: m.CommitTransaction(request, wish.name, wish.epoch, wish.stages), b"", answered)

    def drop(self) -> None:
        """Something that may be committed by now, or may not."""
        some = list(self.stagings.values())
        for each in self.dice.sample(some, min(len(some), self.dice.choice([1, 3]))):
            each.broken = True
            stage = m.Stage(self._topic(each.place[0]), each.place[1], each.number, 0)
            self._send(lambda request, stage=stage: m.DropStages(request, [stage]), b"", lambda answer: None)

    def produce(self) -> None:
        """An ordinary record."""
        place, value = self.dice.choice(PLACES), self._value()

        def answered(answer: Any) -> None:
            if isinstance(answer, m.Produced) and LEVELS[place[0]] == "durable":
                self.plain[place].append(value)

        self._send(
            lambda request: m.Produce(request, self._topic(place[0]), place[1]), bytes(encode([value])), answered
        )

    def ask(self) -> None:
        """What is said is committed, so it never goes back; and what was asked for before is known."""
        name = self.dice.choice(NAMES)
        least = max((wish.epoch for wish in self.wishes if wish.done and wish.name == name), default=-1)
        before = [(wish, wish.sent) for wish in self.wishes if wish.name == name]

        def answered(answer: Any) -> None:
            if isinstance(answer, m.Failure):
                assert answer.code in ("unavailable", "no_leader"), answer  # poisoned, or not certain yet
                return
            assert answer.epoch >= least, f"{answer.epoch} of {name} was decided last, {least} was answered"
            for wish, sent in before:
                wish.passed = wish.passed or (wish.sent == sent and wish.epoch > answer.epoch)

        self._send(lambda request: m.AskTransaction(request, name), b"", answered)

    # -- misfortunes --------------------------------------------------------------------------------

    def hold(self) -> None:
        """From here on nothing is synced."""
        self.rig.store.hold = True

    def sync(self) -> None:
        self.rig.store.hold = False
        for log in self.rig.node.logs:
            if log.poisoned is None:
                log.sync()
        self.rig.turn()

    def pass_time(self) -> None:
        seconds = self.dice.choice([0.3, 3.0, 30.0, 30.0, 4000.0])
        self.note(f"{seconds} s")
        self.rig.pass_time(seconds, step=seconds / 4)

    def fill(self) -> None:
        """One log has no room from now on."""
        log = self.dice.choice(self.rig.node.logs)
        if log in (each for each, _ in self.full):
            return
        self.full.append((log, log.append))

        def full(batches: Any, now_us: int) -> Any:
            raise StorageFull("no space left")

        log.append = full
        self.note(log.path)

    def empty(self) -> None:
        """There is room."""
        for log, append in self.full:
            log.append = append
        self.full.clear()

    def fail_sync(self) -> None:
        """A sync fails: that log is poisoned until the node is opened anew."""
        log = self.dice.choice(self.rig.node.logs[1:])
        log.poison("fdatasync: I/O error")
        self.note(log.path)

    def cool(self) -> None:
        """Pages are not in memory."""
        if self.rig.port.cold is None:
            self.rig.port.cold = []

    def warm(self) -> None:
        tokens, self.rig.port.cold = self.rig.port.cold, None
        for token in tokens or []:
            self.rig.node.warmed(token)

    def restart(self) -> None:
        """The node ends, well or not; what was written is there."""
        self.steps.append("restart")
        clean = self.dice.random() < 0.5
        if clean:
            self.empty()
            self.rig.node.close(self.rig.now)
            self._hear()
        self._reopen("all")

    def lose_power(self) -> None:
        """Of what was not synced, the disk has kept some."""
        how = self.dice.choice(["none", "some", "some", "all"])
        self.note(how)
        self._reopen(how)

    def resign(self) -> None:
        """Another leader takes over; a node with a poisoned log is opened anew instead."""
        if any(log.poisoned for log in self.rig.node.logs):
            self._reopen("all")
            return
        node, now = self.rig.node, self.rig.now
        phases = [lambda: node.flush(now), self._sync_some, lambda: node.advance(now), lambda: node.tick(now)]
        for ask in self.dice.choices([Life.stage, Life.commit, Life.commit_again], k=3):
            ask(self)
        for phase in (phases * 6)[: self.dice.randrange(6 * len(phases) + 1)]:
            phase()
        self._hear()
        if self.dice.random() < 0.5:
            self._cut_some()
        self.rig.resign()
        self.expected.clear()
        self.rig.port.sent.clear()
        self._give_up()

    def _sync_some(self) -> None:
        for log in self.rig.node.logs:
            if log.durable < log.written and self.dice.random() < 0.5:
                log.sync()

    def _cut_some(self) -> None:
        """The new leader's logs are shorter: some lose what is neither durable nor committed."""
        for history in self.rig.node._registry.histories():
            log = history.log
            least = max(log.safe, log.committed)
            if least < log.written and self.dice.random() < 0.5:
                seq = self.dice.randint(least, log.written)
                self.note(f"cut {log.path} to {seq}")
                history.go_back(seq)
                log.cut(seq)  # on the disk, too: no order says where the log ends

    def _give_up(self) -> None:
        """Clients whose connection is lost do not go on with what was not answered."""
        for staging in self.stagings.values():
            staging.broken = staging.broken or staging.answered < len(staging.sent)

    def _reopen(self, how: str) -> None:
        disk = Disk(self.files)
        for operation in self.files.journal:
            disk.apply(operation)
        now = self.rig.now
        self._open(RecordingFiles(disk.image(self.dice, how), sorted(self.files.directories)))
        self.rig.now = now
        self._give_up()

    # -- at rest ------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Everything is well again, for long enough; then all of it is looked at."""
        self.steps.append("rest")
        if any(log.poisoned for log in self.rig.node.logs):
            self._reopen("all")
        self.empty()
        self.warm()
        self.sync()
        self.rig.pass_time(30, step=1.0)
        self._hear()
        assert not self.expected, f"not answered: {sorted(self.expected)}"
        stats = self.rig.node.stats()
        assert (stats["transactions.unfinished"], stats["stages.stuck"]) == (0, 0), stats
        self.check()

    def check(self) -> None:
        """What has to hold."""
        there = {place: self.rig.read(self._topic(place[0]), place[1]) for place in PLACES}
        for place, found in there.items():
            assert len(set(found)) == len(found), f"{place} has something twice: {found}"
            assert [value for value in found if value in set(self.plain[place])] == self.plain[place]
        last = {name: state(self.rig, name) if self._decided_once() else (-1, True) for name in NAMES}
        self.rig.port.sent.clear()
        decided = [wish for wish in self.wishes if self._is_there(wish, there)]
        for wish in self.wishes:
            epoch, finished = last[wish.name]
            assert finished
            assert wish in decided or not wish.done or not wish.values, f"{wish} was answered and is not there"
            assert not (wish in decided and wish.values and wish.refused), f"{wish} was refused and is there"
            assert not (wish in decided and wish.values and wish.passed), f"{wish} was decided behind a question"
            assert wish.epoch <= epoch or not (wish.done or (wish in decided and wish.values)), f"{wish}: {epoch}"
        self._check_order([wish for wish in decided if wish.values], there)
        published = {value for wish in decided for lists in wish.values.values() for each in lists for value in each}
        staged_ever = {value for staging in self.stagings.values() for value in staging.sent}
        for place, found in there.items():
            strays = set(found) & staged_ever - published
            assert not strays, f"{place} has {strays}, which were never committed"

    def _decided_once(self) -> bool:
        return TXN in self.rig.node._registry.topics.by_name

    def _is_there(self, wish: Wish, there: dict[Place, list[bytes]]) -> bool:
        """Whether a wish was granted. Raises when it was in part, or in another order."""
        wanted = [(place, value) for place, lists in wish.values.items() for each in lists for value in each]
        have = [value in there[place] for place, value in wanted]
        assert all(have) or not any(have), f"{wish} is there in part: {there}"
        if not any(have):
            return False
        for place, lists in wish.values.items():
            for each in lists:
                assert [value for value in there[place] if value in each] == each, f"{wish} is in another order"
        return True

    def _check_order(self, decided: list[Wish], there: dict[Place, list[bytes]]) -> None:
        """Of a transaction: one wish for each epoch, and in each partition the lower epochs before the higher."""
        for name in NAMES:
            own = sorted((wish for wish in decided if wish.name == name), key=lambda wish: wish.epoch)
            assert len({wish.epoch for wish in own}) == len(own), f"an epoch twice: {[str(wish) for wish in own]}"
            for place, found in there.items():
                wanted = [value for wish in own for each in wish.values.get(place, []) for value in each]
                assert [value for value in found if value in wanted] == wanted, f"epochs of {name} at {place}: {found}"


COMMANDS: list[Callable[[Life], None]] = [
    *[Life.stage] * 10, *[Life.stage_late] * 2, *[Life.commit] * 8, *[Life.commit_again] * 3, Life.drop,
    *[Life.produce] * 2, Life.ask,
    Life.hold, *[Life.sync] * 3, Life.pass_time, Life.fill, *[Life.empty] * 3, Life.cool, *[Life.warm] * 3,
    Life.restart, *[Life.resign] * 2, Life.lose_power, Life.fail_sync,
]  # fmt: skip
