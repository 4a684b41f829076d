"""Claims of records that other workers hold, right and wrong: told to the node, and to the model.

Contract: as the requests of workers (queue_requests.py). The worker of a claim holds nothing else, so its lease is
found by its name.
"""

from __future__ import annotations

from typing import Any

from penstock.storage.batch import batches
from penstock.transport import messages as m
from support.queue_administration import Administration
from support.queue_model import Group, Shelf
from support.queue_requests import GROUPS, PARTITIONS


class Claims(Administration):
    """Requests for what others hold."""

    def claim(self) -> None:
        name, partition, dice = self.dice.choice(GROUPS), self.dice.randrange(PARTITIONS), self.dice
        shelf, request = self.shelves[partition], self.rig.next_request()
        workers = [given.worker for given in shelf.groups[name].leases.values()] if name in shelf.groups else []
        named = [dice.randrange(25) for _ in range(dice.choice([1, 3, 9]))] if dice.random() < 0.5 else []
        asked = m.Claim(
            request, self.topic, name, self.worker(f"c{request}"), partition, max_records=dice.choice([1, 2, 9, 50]),
            offsets=named, offset=dice.choice([0, 0, 3, 8]), end=dice.choice([-1, -1, 9]),
            holder=dice.choice([None, None, "none", *workers]), min_idle_ms=dice.choice([0, 0, 0, 400, 3000]),
            attempt=dice.choice([-1, -1, 0, 1, 2]), given_us=dice.choice([0, 0, -1_500_000, self.now_us(0), 1 << 62]),
            lease_ms=dice.choice([0, 0, 1500]), force=bool(named) and dice.random() < 0.5,
            max_bytes=dice.choice([0, 1, 1 << 20]),
        )  # fmt: skip
        self.send(asked)
        for _ in range(4):
            self.rig.node.tick(self.rig.now)
        if name not in shelf.groups or asked.attempt > shelf.groups[name].most:
            code = "unknown_group" if name not in shelf.groups else "invalid_request"
            self.expect(request, lambda answer, _: self._check_code(answer, code))
            return
        self._claim(asked, shelf, shelf.groups[name])

    def _claim(self, asked: m.Claim, shelf: Shelf, group: Group) -> None:
        now_us, committed = self.now_us(asked.partition), self.partition_at(asked.partition).committed
        first, end = committed.first, committed.end
        given_by_us = now_us - asked.min_idle_ms * 1000
        following = -1
        if asked.offsets:
            found = [
                offset
                for offset in sorted({*asked.offsets})
                if asked.force
                or (
                    offset in group.tasks
                    and group.tasks[offset].state == "leased"
                    and shelf.is_wanted(group, offset, asked.holder, given_by_us)
                )
            ]
        else:
            leased = [at for at, task in sorted(group.tasks.items()) if task.state == "leased" and at >= asked.offset]
            leased = [at for at in leased if asked.end < 0 or at < asked.end]
            found = [at for at in leased if shelf.is_wanted(group, at, asked.holder, given_by_us)]
            found = found[: asked.max_records]
            if len(found) == asked.max_records:
                following = next((at for at in leased if at > found[-1]), -1)
        gone = shelf.drop_gone(group, [at for at in found if at < first], asked.holder, given_by_us)
        found = [at for at in found if first <= at < end]
        if asked.max_bytes == 1 and len(found) > 1:
            found, following = found[:1], found[1]
        queue = self.partition_at(asked.partition).proposed.queues.by_name[asked.group]
        lease = next((each for each in queue.leases.values() if each.worker == asked.worker), None)
        runs = {} if lease is None else {at + n: each for at, count, each in lease.runs() for n in range(count)}
        shelf.claim(
            group, found, asked.holder, given_by_us, asked.attempt, runs, 0 if lease is None else lease.token,
            force=asked.force, now_us=now_us,
        )  # fmt: skip
        if lease is not None:
            given_us = now_us + asked.given_us if asked.given_us <= 0 else min(asked.given_us, now_us)
            until_us = group.lease_until(now_us, asked.lease_ms)
            shelf.given(group, lease.token, asked.worker, until_us, given_us, runs, now_us)
        self.note(f"{asked.group} {found} -> {asked.worker} has {runs} of {asked.partition}")
        token = 0 if lease is None else lease.token
        given = (token, runs, following, gone)
        self.expect(asked.request, lambda answer, payload: self._check_claimed(asked, given, answer, payload))

    def _check_claimed(
        self, asked: m.Claim, given: tuple[int, dict[int, int], int, list[int]], answer: Any, payload: bytes
    ) -> None:
        token, runs, following, gone = given
        assert isinstance(answer, m.Leased), answer
        assert (answer.partition, answer.token) == (asked.partition, token)
        assert {at + n: attempt for at, count, attempt in answer.runs for n in range(count)} == runs
        assert (answer.next_offset, answer.gone, answer.refused) == (following, gone, [])
        values: dict[int, bytes] = {}
        for batch in batches(payload):
            values.update(zip(batch.offsets().tolist(), batch.values(), strict=True))
        assert bool(payload) == bool(runs and asked.max_bytes)
        for offset in runs if asked.max_bytes else ():
            assert values[offset] == self.shelves[asked.partition].records[offset].value
        self._check_durable({asked.partition})
