"""Random lives of a shard in which programs commit transactions over several partitions.

Idea: a life as `member_life` has it, where each third step is one of the transactions' clients. Under the names of
CHAINS, programs turn an input that never ends into results: an attempt asks which epoch was committed last, reads up
to which position that was, stages the results of the next positions and its own position beside them, as a consumer's
offset that goes with its transaction, and commits them as the next epoch. Attempts at one epoch race. What was not
answered is sent again, and a client may give up anywhere. Attempts under LOOSE have no position; some name stages that
another one commits, too.

At the end the positions of a name follow one another, so no epoch is there twice and a fenced attempt has added
nothing. Of an attempt whose position stands, every record does, once, in order; of any other none. What a reader saw
has stayed, and it saw no record that was not to be committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import msgspec
from penstock.broker.engine.logs.grace import BACK_S
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import records
from support.member_life import Heard, MemberLife
from support.members import Shard
from support.staging import staged

CHAINS = ("x", "y")
LOOSE = "z"
RESULTS, POSITIONS = 0, 1
PLACES = ((RESULTS, 0), (RESULTS, 1), (POSITIONS, 0))
"""Topic and partition."""

EPOCH_STEP = 0.33
OPEN = 8
"""Attempts that clients go on with at once."""

EXPIRY_S = 5.0
"""Of stages; this long does a life stand still now and then."""

TRIES = 40
"""Of what has to be answered in the end: publishing rests up to 10 s after a full disk."""

HOPELESS = {"stage_lost", "invalid_request", "limit_reached"}
"""Failures that mean that nothing was decided, and never will be with these stages."""

GAPS = {"sequence_gap", "unknown_producer"}

Place = tuple[int, int]


@dataclass
class Staging:
    """One stage: its batches, how many of them were sent, and how many were answered, the first ones each."""

    place: Place
    number: int
    batches: list[list[bytes]]
    sent: int = 0
    answered: int = 0

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]

    def payload(self, at: int) -> bytes:
        """One of its batches."""
        return staged(self.batches[at], self.number, sum(map(len, self.batches[:at])))


@dataclass
class Attempt:
    """One client's try to commit an epoch. `first`, `end`: positions of the input that it takes along."""

    name: str
    epoch: int
    stagings: list[Staging]
    first: int = 0
    end: int = 0
    commits: int = 0  # requests to commit it
    done: bool = False  # answered as committed now
    refused: bool = False  # answered so that it never can be
    ended: bool = False  # its client does not go on

    @property
    def is_staged(self) -> bool:
        return all(each.answered == len(each.batches) for each in self.stagings)

    def stages(self, topics: tuple[bytes, bytes], more: int = 0) -> list[m.Stage]:
        """As a commit names them; `more`: than there are in the first one."""
        found = [m.Stage(topics[s.place[0]], s.place[1], s.number, len(s.values)) for s in self.stagings]
        topic, partition, number, count = msgspec.structs.astuple(found[0])
        return [m.Stage(topic, partition, number, count + more or count + 1), *found[1:]]


@dataclass
class EpochLife(MemberLife):
    """One life."""

    attempts: list[Attempt] = field(default_factory=list)
    plain: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))  # by partition and offset

    CONFIG: ClassVar[dict[str, float]] = {**MemberLife.CONFIG, "stage_expiry_s": EXPIRY_S}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: dict[Place, list[bytes]] = {place: [] for place in PLACES}
        self.to = (b"", b"")
        self.loose = 0

    def run(self) -> Shard:
        self.to = self.shard.topic("results", 2, segment_bytes=64 << 10), self.shard.topic("positions", 1)
        return super().run()

    def step(self) -> None:
        if self.chance.random() >= EPOCH_STEP:
            super().step()
            return
        what = self.chance.random()
        if what < 0.25:
            self.shard.rounds()  # a commit takes many messages
        elif what < 0.35:
            self.begin()
        elif what < 0.6:
            for _ in range(self.chance.randint(1, 4)):
                self.stage()
        elif what < 0.8:
            self.commit()
        elif what < 0.84:
            self.drop()
        elif what < 0.9:
            self.come_late()
        elif what < 0.93:
            self.produce_plain()
        elif what < 0.98:
            self.look(self.chance.choice(PLACES))
        else:
            self.shard.now_s += EXPIRY_S

    # -- what clients do -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin an attempt behind what is committed, or one without a position."""
        if sum(not each.ended for each in self.attempts) >= OPEN:
            return
        name = self.chance.choice((*CHAINS, LOOSE))
        if name == LOOSE:
            self.loose += 1
            self.attempts.append(Attempt(LOOSE, self.loose, self._stagings(LOOSE, range(self.chance.randint(1, 4)))))
            return

        def heard(answer: Any, _: bytes) -> None:
            if isinstance(answer, m.TransactionState) and answer.finished:
                self.fetch((POSITIONS, 0), 0, lambda values: self._begin(name, answer.epoch, values))

        self.ask(lambda number: m.AskTransaction(number, name), heard)

    def _begin(self, name: str, epoch: int, positions: list[bytes]) -> Attempt:
        """Go on from the position that was committed last."""
        known = {attempt.stagings[-1].values[0]: attempt for attempt in self.attempts if attempt.name == name}
        last = next((known[value] for value in reversed(positions) if value in known), None)
        assert last is not None or epoch < 0, f"epoch {epoch} of {name} was said to be readable, and has no position"
        assert last is None or last.epoch >= epoch, f"epoch {epoch} of {name} was said to be readable, not {last}"
        first = 0 if last is None else last.end
        end = first + self.chance.randint(1, 5)
        stagings = self._stagings(name, range(first, end))
        position = f"{name}/{len(self.attempts)}/{first}-{end}".encode()
        stagings.append(Staging((POSITIONS, 0), self._number(), [[position]]))
        self.attempts.append(Attempt(name, epoch + 1, stagings, first, end))
        return self.attempts[-1]

    def _stagings(self, name: str, positions: range) -> list[Staging]:
        """The results of some positions, in batches."""
        chance, found = self.chance, []
        for partition in range(2):
            values = [f"{name}/{len(self.attempts)}/{each}".encode() for each in positions if each % 2 == partition]
            if chance.random() < 0.15:
                values = [value.ljust(20_000, b".") for value in values]
            many = chance.choice((1, 2, 5))
            batches = [values[at : at + many] for at in range(0, len(values), many)]
            if batches:
                found.append(Staging((RESULTS, partition), self._number(), batches))
        return found

    def _number(self) -> int:
        return self.chance.getrandbits(60) | 1

    def stage(self) -> None:
        """Send the next batch of a stage; or those behind one that is not answered, or that one again."""
        open_ = [each for each in self.attempts if not each.ended and not each.is_staged]
        if not open_:
            return
        attempt = self.chance.choice(open_)
        staging = self.chance.choice([each for each in attempt.stagings if each.answered < len(each.batches)])
        at = staging.answered
        if staging.sent < len(staging.batches) and self.chance.random() < 0.6:
            at = staging.sent
            staging.sent += 1

        def heard(answer: Any, _: bytes) -> None:
            if isinstance(answer, m.Produced):
                staging.answered = max(staging.answered, at + 1)
            elif answer.code in GAPS and at == staging.answered > 0:
                self.shard.count("stage lost")
                attempt.ended = True

        self.ask(self._produces(staging), heard, staging.payload(at))

    def _produces(self, staging: Staging) -> Callable[[int], Any]:
        return partial(m.Produce, topic=self.to[staging.place[0]], partition=staging.place[1])

    def commit(self) -> None:
        """Commit what is staged, or commit it again; some clients do not wait for all of it, or cannot count."""
        eager = CHAINS if self.chance.random() < 0.1 else ()
        ready = [
            each for each in self.attempts if not each.ended and (each.name in eager or each.commits or each.is_staged)
        ]
        if not ready:
            return
        attempt = self.chance.choice(ready)
        if attempt.name == LOOSE and self.chance.random() < 0.3:
            self.loose += 1
            self.attempts.append(replace(attempt, epoch=self.loose, commits=0))
        if self.chance.random() < 0.2 and attempt.is_staged and attempt.name != LOOSE:
            self._miscount(attempt, self.chance.choice((-1, 1)))
            return
        self.ask(self._commits(attempt), self._sends(attempt))

    def _commits(self, attempt: Attempt, more: int = 0) -> Callable[[int], Any]:
        stages = attempt.stages(self.to, more)
        return lambda number: m.CommitTransaction(number, attempt.name, attempt.epoch, stages)

    def _miscount(self, attempt: Attempt, more: int) -> None:
        """Commit a stage with one record more, or fewer, than it has."""

        def heard(answer: Any, _: bytes) -> None:
            taken = isinstance(answer, m.TransactionCommitted) and not answer.repeated
            assert not taken or attempt.commits, f"seed {self.seed}: {attempt} was committed with {more} records more"

        self.ask(self._commits(attempt, more), heard)

    def _sends(self, attempt: Attempt) -> Heard:
        """Note that a commit is requested. What its answer says goes for that request alone."""
        attempt.commits += 1
        number, attempt.refused = attempt.commits, False

        def heard(answer: Any, _: bytes) -> None:
            self._heard(attempt, answer, number == attempt.commits, number == 1)

        return heard

    def _heard(self, attempt: Attempt, answer: Any, is_last: bool, is_first: bool) -> None:
        if isinstance(answer, m.TransactionCommitted):
            assert answer.epoch >= attempt.epoch
            attempt.ended = True
            attempt.done = attempt.done or not answer.repeated
            if answer.repeated:
                self.shard.count("fenced")
                attempt.refused = answer.epoch == attempt.epoch or (is_first and is_last)
                self.ask(lambda number: m.DropStages(number, attempt.stages(self.to)))
            else:
                for staging in attempt.stagings:
                    self._must_see(staging)
        elif answer.code in HOPELESS and is_last and not attempt.done:
            self.shard.count("refused")
            attempt.refused = attempt.ended = True

    def _must_see(self, staging: Staging) -> None:
        """What was answered as committed can be read."""

        def heard(values: list[bytes]) -> None:
            wanted = set(staging.values)
            missing = wanted.difference(values)
            assert not missing, f"{missing} was said to be committed, and cannot be read"

        self.fetch(staging.place, 0, heard)

    def drop(self) -> None:
        """A client gives up before it commits, or drops what it does not know to be committed."""
        if not self.attempts:
            return
        attempt = self.chance.choice(self.attempts)
        if not attempt.commits or attempt.name == LOOSE:
            attempt.ended = True
        self.ask(lambda number: m.DropStages(number, attempt.stages(self.to)))

    def come_late(self) -> None:
        """A request comes once more from a network that was slow: a batch, or a commit that was answered."""
        ended = [each for each in self.attempts if each.ended and each.name != LOOSE]
        if not ended:
            return
        attempt = self.chance.choice(ended)
        staging = self.chance.choice(attempt.stagings)
        if attempt.done and self.chance.random() < 0.3:
            self.ask(self._commits(attempt))
        elif staging.sent:
            self.ask(self._produces(staging), payload=staging.payload(self.chance.randrange(staging.sent)))

    def produce_plain(self) -> None:
        """A record of no transaction, between those of some."""
        self.made += 1
        value, partition = f"plain/{self.made}".encode(), self.chance.randrange(2)

        def heard(answer: Any, _: bytes) -> None:
            if isinstance(answer, m.Produced):
                self.plain[partition][answer.offset] = value

        self.ask(lambda number: m.Produce(number, self.to[RESULTS], partition), heard, bytes(encode([value])))

    def look(self, place: Place) -> None:
        """A reader goes on, perhaps with records that it has read before."""
        self.fetch(place, self.chance.randint(0, len(self.seen[place])), lambda values: None)

    def fetch(self, place: Place, offset: int, heard: Callable[[list[bytes]], None]) -> None:
        """Read from an offset up to the end. Everything that is read has to stay as it is."""
        topic, partition = self.to[place[0]], place[1]

        def fetched(answer: Any, payload: bytes) -> None:
            if isinstance(answer, m.Fetched):
                values = records(payload, offset)
                self._see(place, offset, values)
                if answer.next_offset == answer.end:
                    heard(values)

        self.ask(lambda number: m.Fetch(number, topic, partition, offset, -1, 1 << 24, 0), fetched)

    def _see(self, place: Place, offset: int, values: list[bytes]) -> None:
        seen = self.seen[place]
        both = min(len(seen) - offset, len(values))
        assert seen[offset : offset + both] == values[:both], f"seed {self.seed}: what was read at {place} has changed"
        seen += values[both:]

    # -- the end ---------------------------------------------------------------------------------------

    def end(self) -> None:
        super().end()
        self.asked.clear()
        for attempt in list(self.attempts):
            self._finish(attempt)
        for name in CHAINS:
            attempt = self._begin(name, *self._last(name))
            self._finish(attempt)
            assert attempt.done, f"seed {self.seed}: {attempt} does not go on"
        for _ in range(20):  # in small steps: a node that time leaps for has stood still, and gives a grace
            self.shard.now_s += (EXPIRY_S + BACK_S) / 20
            self.shard.rounds()
        self.shard.invariants.check(full=True)
        self.look_at_all()

    def _last(self, name: str) -> tuple[int, list[bytes]]:
        """The last epoch of a name, and all positions."""
        for _ in range(TRIES):
            answer = self.shard.ask(lambda number: m.AskTransaction(number, name))
            if answer.finished:
                return answer.epoch, self.read(self.to[POSITIONS], 0)[1]
            self.shard.rounds(3)
        raise AssertionError(f"seed {self.seed}: {name} is never finished: {answer}")

    def _finish(self, attempt: Attempt) -> None:
        """Send what is left of an attempt whose client has not ended."""
        for staging in attempt.stagings if not attempt.commits else ():
            for at in range(staging.answered, len(staging.batches)):
                if attempt.ended:
                    return
                answer = self.shard.ask(self._produces(staging), staging.payload(at))
                staging.answered += isinstance(answer, m.Produced)
                attempt.ended = not isinstance(answer, m.Produced)
        for _ in range(TRIES):
            if attempt.ended:
                return
            heard = self._sends(attempt)
            heard(self.shard.ask(self._commits(attempt)), b"")
            self.shard.rounds(3)
        raise AssertionError(f"seed {self.seed}: no answer ends {attempt}")

    def look_at_all(self) -> None:
        shard = self.shard
        there = {place: self.read(self.to[place[0]], place[1])[1] for place in PLACES}
        for place, values in there.items():
            self._see(place, 0, values)
            assert len(set(values)) == len(values), f"seed {self.seed}: {place} has a record twice"
        for partition, plain in self.plain.items():
            assert all(there[RESULTS, partition][at] == value for at, value in plain.items()), f"seed {self.seed}"
        stands = [each for each in self.attempts if self._is_there(each, there)]
        for name in CHAINS:
            self._check_chain(name, stands, there)
        self._check_loose([each for each in stands if each.name == LOOSE])
        known = {value for each in stands for staging in each.stagings for value in staging.values}
        for place, values in there.items():
            strays = [value for value in values if value not in known and not value.startswith(b"plain/")]
            assert not strays, f"seed {self.seed}: {place} has {strays}"
        assert shard.leader is not None
        assert shard.leader.replica is not None
        stats = shard.leader.replica.node.stats()
        left = {name: stats[name] for name in ("stages.open", "stages.stuck", "transactions.unfinished")}
        assert not any(left.values()), f"seed {self.seed}: {left}"

    def _is_there(self, attempt: Attempt, there: dict[Place, list[bytes]]) -> bool:
        """Whether its records can be read: all of them, in order, or none."""
        of = {staging.place: staging.values for staging in attempt.stagings}
        found = {place: [value for value in there[place] if value in values] for place, values in of.items()}
        if not any(found.values()):
            assert not attempt.done, f"seed {self.seed}: {attempt} was answered, and is not there"
            return False
        self.shard.count("committed")
        assert found == of, f"seed {self.seed}: {attempt} is there in part, or in another order"
        sharing = [each for each in self.attempts if each.stagings is attempt.stagings]
        assert any(each.commits for each in sharing), f"seed {self.seed}: {attempt} was never to be committed"
        assert not all(each.refused for each in sharing), f"seed {self.seed}: {attempt} was refused, and is there"
        assert sum(each.done for each in sharing) <= 1, f"seed {self.seed}: {attempt} was committed twice"
        return True

    def _check_chain(self, name: str, stands: list[Attempt], there: dict[Place, list[bytes]]) -> None:
        """Epochs begin where the one before ends, and results stand in their order."""
        by_position = {each.stagings[-1].values[0]: each for each in stands if each.name == name}
        chain = [by_position[value] for value in there[POSITIONS, 0] if value in by_position]
        ends = [0, *(each.end for each in chain)]
        assert [each.first for each in chain] == ends[:-1], f"seed {self.seed}: positions of {name}: {chain}"
        assert [each.epoch for each in chain] == list(range(len(chain))), f"seed {self.seed}: epochs of {name}: {chain}"
        for place in PLACES:
            wanted = [
                v for each in chain for staging in each.stagings if staging.place == place for v in staging.values
            ]
            found = [value for value in there[place] if value.startswith(f"{name}/".encode())]
            assert found == wanted, f"seed {self.seed}: {place} has other results of {name}, or in another order"

    def _check_loose(self, stands: list[Attempt]) -> None:
        epochs = [each.epoch for each in stands if each.done]
        assert len(set(epochs)) == len(epochs), f"seed {self.seed}: an epoch twice: {stands}"
