"""What keeps leases, and what administrators do to queue groups: extend, pause, cancel, redrive, discard, ask.

Contract: as the requests of workers (queue_requests.py): sent to the node, done to the model, answers expected.
"""

from __future__ import annotations

from typing import Any

from penstock.transport import messages as m
from penstock.transport.queue_messages import FOREVER_US
from support.queue_model import Group, Shelf
from support.queue_requests import GROUPS, PARTITIONS, Requests

STATES = {
    "leased": {"leased"}, "waiting": {"waiting"}, "dead": {"dead"}, "done": {"completed"}, "cancelled": {"cancelled"},
    "discarded": {"discarded"}, "untouched": {"pending", "delayed"},
}  # fmt: skip


OPEN = ("leased", "waiting", "dead", "cancelled")
"""What a group knows of records before its start."""


class Administration(Requests):
    """Requests about groups and single tasks."""

    def extend(self) -> None:
        """A heartbeat: some leases that stand, some that do not."""
        name, dice = self.dice.choice(GROUPS), self.dice
        groups = [
            (partition, shelf.groups[name]) for partition, shelf in enumerate(self.shelves) if name in shelf.groups
        ]
        tokens = [(partition, token) for partition, group in groups for token in group.tokens]
        if not tokens:
            return
        asked = sorted({dice.choice(tokens) for _ in range(dice.randint(1, 3))})
        progress = [(partition, dice.randrange(10), b"%d" % dice.randrange(100)) for partition, _ in asked]
        lease_ms = dice.choice([0, 0, 5000])
        message = m.ExtendLeases(self.rig.next_request(), self.topic, name, asked, lease_ms, progress)
        self.send(message)
        until_us = groups[0][1].lease_until(max(self.now_us(partition) for partition, _ in asked), lease_ms)
        lost: list[tuple[int, int]] = []
        cancelled: list[tuple[int, int]] = []
        for partition in sorted({partition for partition, _ in asked}):
            self._extend(partition, name, message, until_us, lost, cancelled)
        self.note(f"{name} {asked} -> lost {lost}")
        self.expect(message.request, lambda answer, _: self._check_extended(answer, message, until_us, lost, cancelled))

    def _extend(
        self, partition: int, name: str, message: m.ExtendLeases, until_us: int,
        lost: list[tuple[int, int]], cancelled: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        group = self.shelves[partition].groups[name]
        tokens = [token for number, token in message.leases if number == partition]
        lost += [(partition, token) for token in tokens if token not in group.leases and token not in group.ended]
        live = [token for token in tokens if token in group.leases]
        held = sorted(offset for token in live for offset in group.held_by(token))
        for token in live:
            if group.leases[token].until_us != until_us:
                group.saw(group.leases[token].worker, self.now_us(partition))
            group.leases[token].until_us = until_us
        for number, offset, value in message.progress:
            if number == partition and offset in held:
                group.tasks[offset].progress = value
        cancelled += [(partition, offset) for offset in held if group.tasks[offset].cancelling]

    def _check_extended(
        self, answer: Any, message: m.ExtendLeases, until_us: int, lost: list[Any], cancelled: list[Any]
    ) -> None:
        self._check_durable({partition for partition, _ in message.leases})
        assert isinstance(answer, m.Extended), answer
        assert (answer.until_us, sorted(answer.lost), answer.cancelled) == (until_us, sorted(lost), cancelled)

    # -- the group ----------------------------------------------------------------------------------

    def pause(self) -> None:
        name = self.dice.choice(GROUPS)
        until_us = self.dice.choice([0, 0, self.now_us(0) + 2_000_000, FOREVER_US])
        self._pause(name, until_us)

    def _pause(self, name: str, until_us: int) -> None:
        known = [shelf.groups[name] for shelf in self.shelves if name in shelf.groups]
        if known:
            for group in known:
                group.paused_until_us = until_us
            request = self.send(m.PauseQueue(self.rig.next_request(), self.topic, name, until_us))
            self.expect(request, lambda answer, _: self._check_type(answer, m.Done))

    def _some(self, states: tuple[str, ...]) -> tuple[int, str, Shelf, Group, list[int]] | None:
        """A group, and its committed records in one of some states."""
        name, partition = self.dice.choice(GROUPS), self.dice.randrange(PARTITIONS)
        shelf, end = self.shelves[partition], self.partition_at(partition).committed.end
        group = shelf.groups.get(name)
        if group is None or name not in self.partition_at(partition).committed.queues.by_name:
            return None
        found = [
            offset
            for offset, task in group.tasks.items()
            if task.state in states
            and not task.gone  # the broker has forgotten those, and their workers alone settle them
            and offset < end
            and (offset >= group.start or task.state in OPEN)
        ]
        return (partition, name, shelf, group, found) if found else None

    def set_worker(self) -> None:
        """A worker is made, or forgotten with what it holds; one that waits for records is left alone."""
        name, dice, request = self.dice.choice(GROUPS), self.dice, self.rig.next_request()
        groups = {number: shelf.groups[name] for number, shelf in enumerate(self.shelves) if name in shelf.groups}
        holding = {given.worker for group in groups.values() for given in group.leases.values()}
        seen = {worker for group in groups.values() for worker in group.workers}
        idle, busy = sorted(seen - holding - self.demands.keys()), sorted(holding - self.demands.keys())
        if self.rig.store.hold:
            busy = []  # may not have heard of its records: if they go with a trim before it does, it gets others
        worker = dice.choice([f"n{request}", *idle, *busy * 3])
        known, verb = dice.random() < 0.4, dice.choice([0, 0, 1, 2, 3, 3, 5 if dice.random() < 0.1 else 0])
        self.send(m.SetWorker(request, self.topic, name, worker, known, verb))
        for _ in range(12):  # it is done in portions
            self.rig.node.tick(self.rig.now)
        if verb > 3 or not groups:
            code = "invalid_request" if verb > 3 else "unknown_group"
            self.expect(request, lambda answer, _: self._check_code(answer, code))
            return
        has_it = [number for number, group in groups.items() if group.knows(worker)]
        if known and not has_it:
            first = min(groups)
            groups[first].workers[worker] = (self.now_us(first), 0)
        count = int(known and not has_it)
        for number in [] if known else has_it:
            now_us = self.now_us(number)
            settled, chance = self.shelves[number].forget_worker(name, worker, verb, now_us)
            self._adopt_times(number, name, chance, now_us)
            count += settled
        self.note(f"{name} {worker} {'known' if known else verb} -> {count}")
        self.expect(request, lambda answer, _: self._check_count(answer, count, set(has_it)))

    # -- the dead -----------------------------------------------------------------------------------

    def redrive(self) -> None:
        found = self._some(("dead",))
        if found is not None:
            partition, name, shelf, _, dead = found
            chosen = sorted({self.dice.choice(dead) for _ in range(2)})
            request = self.rig.next_request()
            self.send(m.RedriveDead(request, self.topic, name, [(partition, offset) for offset in chosen]))
            for offset in chosen:
                shelf.redrive(name, offset, self.rig.node._office.time.last_us)
            self.note(f"{name} {partition} {chosen}")
            self.expect(request, lambda answer, _: self._check_count(answer, len(chosen), {partition}))

    def discard(self) -> None:
        found = self._some(("dead",))
        if found is not None:
            partition, name, shelf, _, dead = found
            offset, request = self.dice.choice(dead), self.rig.next_request()
            self.send(m.DiscardDead(request, self.topic, name, [(partition, offset)]))
            shelf.discard(name, offset)
            self.expect(request, lambda answer, _: self._check_count(answer, 1, {partition}))

    # -- records --------------------------------------------------------------------------------------

    def trim(self) -> None:
        """A partition begins later, or all do: it counts what is committed."""
        dice, chosen = self.dice, self.dice.choice([[0], [1], range(PARTITIONS)])
        rule, value = dice.choice(
            [(m.TrimRule.RECORDS, dice.choice([0, 3, 12])), (m.TrimRule.OFFSET, dice.randrange(9))]
        )
        if self._some_are_given_unheard():
            return
        request = self.rig.next_request()
        ends = [self.partition_at(partition).committed.end for partition in range(PARTITIONS)]
        self.send(m.Trim(request, self.topic, rule, value, chosen[0] if len(chosen) == 1 else -1))
        for _ in range(2 * PARTITIONS + 1):  # it is done in portions
            self.rig.node.tick(self.rig.now)
        if rule == m.TrimRule.OFFSET and any(value > ends[partition] for partition in chosen):
            self.expect(request, lambda answer, _: self._check_refused(answer, "out_of_bounds"))
            return
        found: list[m.TrimmedPartition] = []
        for partition in chosen:
            shelf, end = self.shelves[partition], ends[partition]
            before = shelf.first
            there = [offset for offset in range(before, end) if offset not in shelf.deleted]
            keep = [end, *reversed(there)][: value + 1][-1] if len(there) > value else before
            lost = shelf.trim(max(before, keep if rule == m.TrimRule.RECORDS else value))
            found.append(m.TrimmedPartition(partition, before, shelf.first, sorted(lost.items())))
        self.note(f"{[(each.partition, each.first, each.lost) for each in found]}")
        self.expect(request, lambda answer, _: self._check_trimmed(answer, found))

    def _some_are_given_unheard(self) -> bool:
        """Whether records were given while syncs are held: they may go before their worker is answered, which then gets
        others. test_trimming.py has what becomes of that."""
        leased = any(group.leases for shelf in self.shelves for group in shelf.groups.values())
        return self.rig.store.hold and (leased or bool(self.rig.node._office.queues.leasing._taken))

    def delete_records(self) -> None:
        """Single records are deleted: some are there, some were deleted before."""
        if self._some_are_given_unheard():
            return
        places = [(self.dice.randrange(PARTITIONS), self.dice.randrange(12)) for _ in range(self.dice.choice([1, 2]))]
        request, count = self.rig.next_request(), 0
        self.send(m.DeleteRecords(request, self.topic, places))
        for _ in range(PARTITIONS + 1):  # it is done in portions
            self.rig.node.tick(self.rig.now)
        for partition, shelf in enumerate(self.shelves):
            end = self.partition_at(partition).committed.end
            count += shelf.delete({offset for number, offset in places if number == partition and offset < end})
        self.note(f"{places} -> {count}")
        self.expect(request, lambda answer, _: self._check_count(answer, count, {number for number, _ in places}))

    def move(self) -> None:
        """A group goes on elsewhere on one partition, or begins anew on all."""
        name, dice = self.dice.choice(GROUPS), self.dice
        partition = dice.randrange(PARTITIONS)
        end = self.partition_at(partition).committed.end
        if self.rig.store.hold or not all(name in shelf.groups for shelf in self.shelves):
            return
        request = self.rig.next_request()
        if dice.random() < 0.3:
            time_us = dice.choice([m.EARLIEST, m.LATEST])
            self.send(m.ResetQueue(request, self.topic, name, time_us))
            ends = [self.partition_at(number).committed.end for number in range(PARTITIONS)]
            targets = {n: shelf.first if time_us == m.EARLIEST else ends[n] for n, shelf in enumerate(self.shelves)}
        else:
            offset = dice.randrange(end + 1)
            self.send(m.ResetQueue(request, self.topic, name, 0, [(partition, offset)]))
            targets = {partition: max(offset, self.shelves[partition].first)}
        for _ in range(2 * PARTITIONS + 1):  # it is done in portions
            self.rig.node.tick(self.rig.now)
        for number, offset in targets.items():
            self.shelves[number].move(name, offset)
        self.note(f"{name} {targets}")
        self.expect(request, lambda answer, _: self._check_type(answer, m.Done))

    def _check_refused(self, answer: Any, code: str) -> None:
        assert isinstance(answer, m.Failure), answer
        assert answer.code == code

    def _check_trimmed(self, answer: Any, found: list[m.TrimmedPartition]) -> None:
        assert isinstance(answer, m.TrimmedTopic), answer
        assert answer.partitions == found
        self._check_durable({each.partition for each in found})

    # -- single tasks -------------------------------------------------------------------------------

    def cancel(self) -> None:
        found = self._some((*STATES,))
        if found is not None:
            partition, name, shelf, _, offsets = found
            offset, request = self.dice.choice(offsets), self.rig.next_request()
            self.send(m.CancelTask(request, self.topic, name, partition, offset))
            shelf.cancel(name, offset)
            self.note(f"{name} {partition} {offset}")
            self.expect(request, lambda answer, _: self._check_cancelled(answer, partition))

    def _check_cancelled(self, answer: Any, partition: int) -> None:
        assert isinstance(answer, m.TaskState), answer
        self._check_durable({partition})

    def ask_task(self) -> None:
        """How a task stands, in every state."""
        found = self._some((*STATES,))
        if found is not None and not self.rig.store.hold:
            partition, name, _, group, offsets = found
            offset, request = self.dice.choice(offsets), self.rig.next_request()
            state = group.tasks[offset].state
            self.send(m.AskTask(request, self.topic, name, partition, offset))
            self.expect(request, lambda answer, _: self._check_task(answer, state))

    def _check_task(self, answer: Any, state: str) -> None:
        assert isinstance(answer, m.TaskState), answer
        assert answer.state in STATES[state], f"{answer.state} ({answer.why}), the model says {state}"
        assert answer.why

    def read(self) -> None:
        """A stream reader sees every record, whatever groups do with them."""
        if not self.rig.store.hold:
            for partition, shelf in enumerate(self.shelves):
                values = [record.value for record in shelf.records[shelf.first :]]
                assert self.rig.read(self.topic, partition) == values
            self.rig.port.sent = [each for each in self.rig.port.sent if not isinstance(each[1], (m.Fetched, m.Topics))]
