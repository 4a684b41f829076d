"""What workers, producers and administrators ask of a life, right and wrong: told to the node, and to the model.

Contract: a request that was sent is in `demands` (a Lease, by the name of its worker) or in `expected` (any other, with
a check of its answer), and the model has done what it means.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.broker.engine.tables.queues.settings import QueueSettings, altered
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig
from support.queue_model import NACK, Record, Refused, Shelf

PARTITIONS = 2
GROUPS = ("g", "h")


def refusals(answer: m.Leased | m.Settled) -> list[tuple[int, str]]:
    return [(each.index, each.code) for each in answer.refused]


KEYED: list[dict[str, Any]] = [
    {"order": "key"},
    {"order": "key", "fair": True},
    {"order": "none", "fair": True},
    {"order": "none", "fair": False, "key_concurrency": 2},
    {"key_rate_per_s": 0.5},
    {"order": "key", "look_ahead": 2},
    {"order": "none", "fair": False, "key_concurrency": None, "key_rate_per_s": None, "look_ahead": 1000},
]

RATED: list[dict[str, Any]] = [{"rate": "1/s"}, {"rate": "90/m", "rate_burst": 4}, {"rate": None, "rate_burst": None}]


class Demand(NamedTuple):
    """A Lease that is not answered yet."""

    request: int
    message: m.Lease
    until_s: float  # of waiting
    refused: list[tuple[int, str]]  # settles of it


class Requests:
    """The requests of a life."""

    dice: random.Random
    rig: Rig
    topic: bytes
    keyed: bool
    made: int
    shelves: list[Shelf]
    demands: dict[str, Demand]
    remembering: list[m.Lease]
    expected: dict[int, Callable[[Any, bytes], None]]
    sent: list[m.SettleTasks]
    steps: list[str]

    def note(self, text: str) -> None:
        """Something of this step that a reader of a failure wants to know."""
        self.steps[-1] += f" {text}"

    def partition_at(self, partition: int) -> Any:
        return self.rig.node._registry.topics.by_id[self.topic].readable[partition]

    def now_us(self, partition: int) -> int:
        """Log time there."""
        return max(self.rig.node._office.time.last_us, self.partition_at(partition).proposed.time_us)

    def send(self, message: Any, payload: bytes = b"", peer: str = "c") -> int:
        self.rig.send(message, payload, peer=peer)
        return message.request

    def expect(self, request: int, check: Callable[[Any, bytes], None]) -> None:
        self.expected[request] = check

    def produce(self) -> None:
        partition, dice = self.dice.randrange(PARTITIONS), self.dice
        records = [self._record() for _ in range(dice.randint(1, 4))]
        keys = [record.key for record in records]
        payload = encode(
            [record.value for record in records],
            keys=keys if any(keys) else None,
            priorities=[record.priority for record in records],
            not_before=[record.not_before_us for record in records],
        )
        for record in records:  # a time that has come already is no delay
            record.not_before_us *= record.not_before_us > self.rig.node._office.time.read(self.rig.now)
        shelf = self.shelves[partition]
        first = len(shelf.records)
        shelf.produce(records)
        request = self.send(m.Produce(self.rig.next_request(), self.topic, partition), bytes(payload))
        self.expect(request, lambda answer, _: self._check_produced(answer, first))

    def _record(self) -> Record:
        self.made += 1
        key = self.dice.choice([b"a", b"b", b"c", None]) if self.keyed else None
        if self.dice.random() < 0.8:
            return Record(b"%d" % self.made, key)
        delay_us = self.dice.choice([0, -1_000_000, 800_000, 20_000_000])
        not_before_us = self.now_us(0) + delay_us if delay_us else 0
        return Record(b"%d" % self.made, key, self.dice.choice([0, 0, 1, 200]), not_before_us)

    def _check_produced(self, answer: Any, offset: int) -> None:
        assert isinstance(answer, m.Produced), answer
        assert answer.offset == offset

    def set_queue(self) -> None:
        name, dice = self.dice.choice(GROUPS), self.dice
        given: dict[str, Any] = {
            "lease_s": dice.choice([1.0, 4.0, 30.0, None]),
            "max_attempts": dice.choice([1, 2, 3, 20, None]),
            "backoff_s": dice.choice([0.0, 0.5, 2.0]),
            "jitter": dice.choice([0.0, 0.5]),
        }
        if self.keyed:
            given |= dice.choice(KEYED)
        if dice.random() < 0.3:
            given |= dice.choice(RATED)
        message = m.SetQueue(self.rig.next_request(), self.topic, name, given)
        settings = altered(self._settings(name), given)
        for shelf in self.shelves:
            if name in shelf.groups:
                shelf.set(name, settings)
            else:
                shelf.create(name, settings, shelf.first)
        self.expect(self.send(message), lambda answer, _: self._check_type(answer, m.Queues))

    def _settings(self, name: str) -> QueueSettings:
        """As a new partition of a group gets them: those of the first that has it."""
        return next((s.groups[name].settings for s in self.shelves if name in s.groups), QueueSettings())

    def _check_type(self, answer: Any, type_: type) -> None:
        assert isinstance(answer, type_), answer

    def lease(self) -> None:
        self._lease(self.dice.choice(GROUPS), self.dice.choice([[], [], self._settles()]))

    def ack_and_lease(self) -> None:
        self._lease(self.dice.choice(GROUPS), self._settles())

    def _lease(self, name: str, settles: list[m.Settle]) -> None:
        dice = self.dice
        self._ask(
            name, settles, max_records=dice.choice([1, 2, 5, 50]), partition=dice.choice([-1, 0, 1]),
            lease_ms=dice.choice([0, 0, 1500]), wait_ms=dice.choice([0, 0, 1000, 20_000]),
            takes=dice.random() < 0.15, remember=dice.random() < 0.3,
        )  # fmt: skip

    def worker(self, new: str) -> str:
        """A new worker's name, or that of one which neither holds nor waits for anything."""
        groups = [group for shelf in self.shelves for group in shelf.groups.values()]
        busy = {given.worker for group in groups for given in group.leases.values()} | self.demands.keys()
        idle = sorted({worker for group in groups for worker in group.workers} - busy)
        return self.dice.choice(idle) if idle and self.dice.random() < 0.3 else new

    def _ask(self, name: str, settles: list[m.Settle], **how: int) -> None:
        request = self.rig.next_request()
        worker = self.worker(f"w{request}")
        message = m.Lease(request, self.topic, name, worker, settles=settles, **how)
        settings = self._settings(name)
        for shelf in self.shelves:
            if name not in shelf.groups:
                shelf.create(name, settings, shelf.first)
        self.send(message, peer=worker)
        refused = self._settle(name, settles)
        if message.remember:
            self.remembering.append(message)
        self.demands[worker] = Demand(request, message, self.rig.now.monotonic_s + message.wait_ms / 1000, refused)

    def settle(self) -> None:
        settles = self._settles()
        if settles:
            self._send_settles(m.SettleTasks(self.rig.next_request(), self.topic, self.dice.choice(GROUPS), settles))

    def settle_again(self) -> None:
        """A request that was sent before: lost answers are asked for again."""
        if self.sent:
            before = self.dice.choice(self.sent[-10:])
            again = m.SettleTasks(self.rig.next_request(), before.topic, before.group, before.settles)
            self._send_settles(again)

    def _send_settles(self, message: m.SettleTasks) -> None:
        self.sent.append(message)
        self.send(message)
        refused = self._settle(message.group, message.settles)
        accepted = {each.partition for each in message.settles} - {message.settles[at].partition for at, _ in refused}
        self.expect(message.request, lambda answer, _: self._check_settled(answer, refused, accepted))

    def _check_settled(self, answer: Any, refused: list[tuple[int, str]], accepted: set[int]) -> None:
        assert isinstance(answer, m.Settled), answer
        assert refusals(answer) == refused
        self._check_durable(accepted)

    def _check_durable(self, partitions: set[int]) -> None:
        """An answer about these partitions came: everything that was proposed to them before is durable."""
        for partition in partitions:
            assert not self.partition_at(partition).history.in_flight, "answered before it was durable"

    def _settles(self) -> list[m.Settle]:
        """What workers say, mostly under leases that stand."""
        settles: list[m.Settle] = []
        for _ in range(self.dice.choice([1, 1, 1, 2])):
            partition = self.dice.randrange(PARTITIONS)
            tokens = [t for group in self.shelves[partition].groups.values() for t in group.tokens]
            live = [t for group in self.shelves[partition].groups.values() for t in group.leases]
            choice = self.dice.random()
            pool = live if choice < 0.75 and live else tokens
            token = self.dice.choice(pool) if pool and choice < 0.95 else self.dice.choice([1, 1 << 40 | 999])
            settles.append(self._one_settle(partition, token))
        return settles

    def _one_settle(self, partition: int, token: int) -> m.Settle:
        dice = self.dice
        given = [g.leases[token].records for g in self.shelves[partition].groups.values() if token in g.leases]
        verb = dice.choice([0, 0, 0, 1, 1, 2, 3, 3, 7 if dice.random() < 0.1 else 0])
        ranges: list[tuple[int, int]] = []
        if dice.random() < 0.5 and given:
            ranges = [(offset, 1) for offset in sorted(given[0]) if dice.random() < 0.6]
            if dice.random() < 0.1:
                ranges.append((dice.randrange(30), dice.randrange(3)))
        delay_ms = dice.choice([-1, 0, 700, 5000, -2 if dice.random() < 0.1 else 0]) if verb == NACK else -1
        return m.Settle(partition, token, verb, ranges, delay_ms, dice.choice(["", "no", "bad luck"]))

    def _settle(self, name: str, settles: list[m.Settle]) -> list[tuple[int, str]]:
        """Tell the model. Returns which are refused, and why."""
        refused: list[tuple[int, str]] = []
        for index, each in enumerate(settles):
            shelf, now_us = self.shelves[each.partition], self.now_us(each.partition)
            try:
                chance = shelf.settle(
                    name, each.token, each.verb, list(each.ranges), each.delay_ms, each.reason, now_us
                )
            except Refused as error:
                refused.append((index, str(error)))
                continue
            self._adopt_times(each.partition, name, chance, now_us)
        if settles:
            self.note(f"{name} {[(e.partition, e.token, e.verb, e.ranges, e.delay_ms) for e in settles]} -> {refused}")
        return refused

    def settle_records(self) -> None:
        """What is said of records without knowing their leases: some are leased, some not, some are none."""
        name, dice = self.dice.choice(GROUPS), self.dice
        places = [(dice.randrange(PARTITIONS), dice.randrange(25)) for _ in range(dice.choice([1, 2, 9, 40]))]
        verb = dice.choice([0, 0, 1, 1, 2, 3, 3, 5 if dice.random() < 0.1 else 0])
        delay_ms, reason = (dice.choice([-1, 0, 700]) if verb == NACK else -1), dice.choice(["", "no", "bad luck"])
        results = [(*place, b"{}") for place in places if verb == 0 and dice.random() < 0.3]
        ranges = [(*place, dice.choice([1, 3, 12])) for place in places if dice.random() < 0.2]
        request = self.rig.next_request()
        known = any(name in shelf.groups for shelf in self.shelves)
        self.send(m.SettleRecords(request, self.topic, name, verb, places, delay_ms, reason, results, ranges))
        places += [(number, first + more) for number, first, count in ranges for more in range(count)]
        for _ in range(len(places) + 2):  # it is done in portions
            self.rig.node.tick(self.rig.now)
        if verb > 3 or not known:
            code = "unknown_group" if verb <= 3 else "invalid_request"
            self.expect(request, lambda answer, _: self._check_code(answer, code))
            return
        count = 0
        for partition, shelf in enumerate(self.shelves):
            offsets, now_us = {offset for number, offset in places if number == partition}, self.now_us(partition)
            settled, chance = shelf.settle_records(name, offsets, verb, delay_ms, reason, now_us)
            if chance:
                self._adopt_times(partition, name, chance, now_us)
            count += settled
        self.note(f"{name} {verb} {places} -> {count}")
        self.expect(request, lambda answer, _: self._check_count(answer, count, {number for number, _ in places}))

    def _check_code(self, answer: Any, code: str) -> None:
        assert isinstance(answer, m.Failure), answer
        assert answer.code == code

    def _check_count(self, answer: Any, count: int, partitions: set[int]) -> None:
        assert isinstance(answer, m.Counted), answer
        assert answer.count == count
        self._check_durable(partitions)

    def _adopt_times(self, partition: int, name: str, chance: list[int], now_us: int) -> None:
        """Back-off is partly chance: within its bounds, what the engine chose stands."""
        group = self.shelves[partition].groups[name]
        queue = self.partition_at(partition).proposed.queues.by_name[name]
        settings = group.settings
        for offset in chance:
            task, waiting = group.tasks[offset], queue.retrying.get(offset)
            pause_us = min(settings.backoff_max_s, settings.backoff_s * 2 ** (task.attempt - 1)) * 1e6
            if waiting is None:  # given out again within this request: it had no pause to wait for
                assert pause_us == 0, f"record {offset} was given out again without its pause"
                task.ready_us = now_us
                continue
            low = now_us + pause_us * (1 - settings.jitter)
            assert low - 1 <= waiting.ready_us <= now_us + pause_us + 1, (
                f"record {offset} waits until {waiting.ready_us}"
            )
            task.ready_us = waiting.ready_us
