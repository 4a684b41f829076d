"""Copies of what dies reach the dead topic exactly once, whatever is killed when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from penstock.broker.engine.logs.partition import Partition
from penstock.broker.engine.queues.upkeep import moving, rounds
from penstock.broker.engine.tables import effects as fx
from penstock.storage.batch import Batch, Codec, Kind, batches
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogWriter
from penstock.storage.memory_files import Content
from penstock.transport import messages as m
from penstock.transport import queue_messages as q
from penstock.transport.partitioner import PARTITIONERS, partition_of
from support.dead import die, opened, queue, set_queue
from support.engine import MemoryPort, MemoryStore, Rig
from support.unjudged import append, hidden_codec, with_headers

COUNT = 12
STEPS_MAX = 400


def world(*, graves: int = 2, start: bool = True, partitioner: str = "xxh3", **config: Any) -> tuple[Rig, bytes, bytes]:
    """A topic of 12 records, half of them with a key, whose dead ones are copied to another one."""
    rig = Rig(**config)
    topic = rig.topic("flights")
    values = [b"value %d" % number for number in range(COUNT)]
    keys = [b"key %d" % number if number % 2 else None for number in range(COUNT)]
    headers = [{"from": b"%d" % number} for number in range(COUNT)]
    for first in range(0, COUNT, 4):
        some = slice(first, first + 4)
        rig.produce(topic, values[some], keys=keys[some], headers=headers[some], event_times=list(range(COUNT))[some])
    copies_to = rig.topic("graves", graves, partitioner=partitioner)
    set_queue(rig, topic, dead_topic="graves")
    if not start:
        assert isinstance(rig.ask(m.DeleteTopic, copies_to), m.Done)
    return rig, topic, copies_to if start else b""


def copies(rig: Rig, graves: bytes) -> list[dict[str, Any]]:
    """Every record of the dead topic, partition by partition."""
    found: list[dict[str, Any]] = []
    for number in range(partitions(rig, graves)):
        for batch in records(rig, graves, number):
            keys, headers = batch.keys() or [None] * batch.record_count, batch.headers()
            assert headers is not None
            for value, key, about in zip(batch.values(), keys, headers, strict=True):
                found.append({"value": value, "key": key, "partition": number, **about})
    return found


def records(rig: Rig, topic: bytes, number: int) -> list[Batch]:
    """The records batches of a partition, as fetches give them."""
    found: list[Batch] = []
    offset, end = 0, source(rig, topic, number).end
    while offset < end:
        rig.send(m.Fetch(rig.next_request(), topic, number, offset, -1, 1 << 20, 0))
        _, answer, payload = rig.port.sent[-1]
        found += [batch for batch in batches(payload) if batch.kind == Kind.RECORDS]
        offset = answer.next_offset
    return found


def partitions(rig: Rig, topic: bytes) -> int:
    return len(rig.node._registry.topics.get(topic).readable)


def source(rig: Rig, topic: bytes, number: int = 0) -> Partition:
    return rig.node._registry.topics.get(topic).partition(number)


def offsets(rig: Rig, graves: bytes) -> list[int]:
    return sorted(int(copy["penstock-dead-offset"]) for copy in copies(rig, graves))


# -- what a copy is -------------------------------------------------------------------------------


def test_a_copy_is_the_record_with_what_became_of_it():
    rig, topic, graves = world()
    died_us = rig.now.wall_us
    die(rig, topic, [2, 3], reason="no such mailbox")
    rig.turn(8)
    by_value = {copy["value"]: copy for copy in copies(rig, graves)}
    assert sorted(by_value) == [b"value 2", b"value 3"]
    copy = by_value[b"value 3"]
    assert (copy["key"], copy["from"], copy["partition"]) == (b"key 3", b"3", partition_of(b"key 3", 2))
    assert {name: value for name, value in copy.items() if name.startswith("penstock-dead-")} == {
        "penstock-dead-reason": b"no such mailbox",
        "penstock-dead-group": b"g",
        "penstock-dead-topic": b"flights",
        "penstock-dead-partition": b"0",
        "penstock-dead-offset": b"3",
        "penstock-dead-attempts": b"1",
        "penstock-dead-time": b"%d" % died_us,
    }
    assert by_value[b"value 2"]["key"] is None
    assert list(queue(rig, topic).dead_letters) == [2, 3]


def test_a_copy_goes_where_the_dead_topic_sends_its_key():
    rig, topic, graves = world(graves=7, partitioner="murmur2")
    died = list(range(1, COUNT, 2))
    die(rig, topic, died)
    rig.turn(8)
    found = {copy["key"]: copy["partition"] for copy in copies(rig, graves)}
    assert found == {b"key %d" % number: PARTITIONERS["murmur2"].of(b"key %d" % number, 7) for number in died}


def test_what_is_rejected_by_a_worker_is_copied_and_a_worker_of_the_dead_topic_gets_it():
    rig, topic, graves = world(graves=1)
    request = rig.next_request()
    rig.send(q.Lease(request, graves, "undertakers", "u", 10, wait_ms=30_000))
    rig.turn()
    leased = rig.ask(q.Lease, topic, "g", "w", 2)
    rig.ask(q.SettleTasks, topic, "g", [q.Settle(0, leased.token, q.Verb.REJECT, reason="no")])
    rig.turn(8)
    (answer,) = rig.answers(request)
    assert [run[:2] for run in answer.runs] == [(0, 2)]
    assert offsets(rig, graves) == [0, 1]


def test_what_dies_again_is_copied_again():
    rig, topic, graves = world()
    die(rig, topic, [2])
    rig.ask(q.RedriveDead, topic, "g")
    die(rig, topic, [2])
    rig.turn(8)
    assert offsets(rig, graves) == [2, 2]


def test_many_are_moved_in_rounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(moving, "PORTION", 3)
    rig, topic, graves = world()
    die(rig, topic, list(range(COUNT)))
    rig.turn(30)
    assert offsets(rig, graves) == list(range(COUNT))


def test_a_round_ends_where_it_grows_too_large(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rounds, "PORTION_BYTES", 1)
    rig, topic, graves = world()
    die(rig, topic, [5, 7, 9])
    rig.ask(q.RedriveDead, topic, "g", [(0, 5)])
    die(rig, topic, [5])  # its entry is the last, its offset the first
    rig.turn(60)
    assert offsets(rig, graves) == [5, 5, 7, 9]


def test_a_record_that_cannot_be_read_is_copied_as_far_as_it_is_known():
    rig, topic, graves = world()
    path = f"{rig.store.directory(topic, 0)}/"
    (name,) = [each for each in rig.store.files.contents if each.startswith(path) and each.endswith(".segment")]
    data = rig.store.files.contents[name].data
    at = bytes(data).index(b"value 5")
    data[at : at + 7] = b"VALUE 5"
    die(rig, topic, [1, 5])
    rig.turn(8)
    found = {int(copy["penstock-dead-offset"]): copy for copy in copies(rig, graves)}
    assert (found[1]["value"], found[5]["value"], found[5]["penstock-dead-unreadable"]) == (b"value 1", b"", b"1")


def test_headers_that_are_none_spoil_the_copy_of_their_record_alone():
    rig, topic, graves = world()
    append(source(rig, topic), with_headers(b"\x81\xa1h\xc4\x01v", b"\x01", b""))
    rig.turn()
    die(rig, topic, [COUNT, COUNT + 1, COUNT + 2])
    rig.turn(8)
    found = {int(copy["penstock-dead-offset"]): copy for copy in copies(rig, graves)}
    assert [found[COUNT + number]["value"] for number in range(3)] == [b"0", b"", b"2"]
    assert found[COUNT]["h"] == b"v"
    assert ["penstock-dead-unreadable" in found[COUNT + number] for number in range(3)] == [False, True, False]


# -- what does not move ---------------------------------------------------------------------------


def test_records_of_a_codec_that_the_broker_lacks_wait_until_it_is_installed():
    rig, topic, graves = world()
    rig.produce(topic, [b"packed"], codec=Codec.ZSTD)
    with hidden_codec():
        die(rig, topic, [COUNT])
        rig.pass_time(5)
        assert copies(rig, graves) == []
        assert "pip install" in rig.ask(m.Stats).values["outbox.stuck_because"]
        assert rig.partition(topic).state == "ok"
    rig.pass_time(120, step=5)
    assert [copy["value"] for copy in copies(rig, graves)] == [b"packed"]


def test_records_that_the_disk_did_not_give_wait_until_it_does():
    rig, topic, graves = world()
    read = rig.port.read

    def fails(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    rig.port.read = fails
    die(rig, topic, [2])
    rig.pass_time(5)
    assert "Input/output" in rig.ask(m.Stats).values["outbox.stuck_because"]
    assert rig.partition(topic).state == "ok"
    rig.port.read = read
    assert copies(rig, graves) == []
    rig.pass_time(120, step=5)
    assert [copy["value"] for copy in copies(rig, graves)] == [b"value 2"]


def test_without_the_dead_topic_they_wait_and_stats_say_why():
    rig, topic, _ = world(start=False)
    die(rig, topic, [2, 3])
    rig.pass_time(10)
    stats = rig.node.stats()
    assert (stats["outbox.waiting"], stats["outbox.stuck"]) == (2, 1)
    assert "dead topic graves does not exist" in stats["outbox.stuck_because"]
    rig.restart()
    graves = rig.topic("graves", 3)
    rig.pass_time(70)
    assert offsets(rig, graves) == [2, 3]
    stats = rig.node.stats()
    assert (stats["outbox.waiting"], stats["outbox.stuck"], stats["outbox.stuck_because"]) == (0, 0, "")


def test_one_topic_that_is_missing_does_not_stop_another():
    rig, topic, graves = world()
    nowhere = rig.topic("nowhere")
    set_queue(rig, topic, "h", dead_topic="nowhere")
    assert isinstance(rig.ask(m.DeleteTopic, nowhere), m.Done)
    die(rig, topic, [1, 2, 3], "h")
    die(rig, topic, [4])
    rig.pass_time(5)
    assert offsets(rig, graves) == [4]
    assert rig.node.stats()["outbox.waiting"] == 3


def test_a_full_target_is_tried_again_until_it_takes_them(monkeypatch: pytest.MonkeyPatch):
    rig, topic, graves = world(graves=1)
    log, appended = source(rig, graves).log, 0

    def full(found: Any, now_us: int) -> Any:
        nonlocal appended
        appended += len(found) > 1  # copies behind the batch that says whose they are, which is tried alone, too
        raise StorageFull("no room")

    monkeypatch.setattr(log, "append", full)
    die(rig, topic, [1, 2])
    rig.pass_time(20)
    assert 3 <= appended <= 8  # after 0, 1, 3, 7 and 15 seconds
    assert rig.node.stats()["outbox.stuck_because"] == "no room"
    monkeypatch.undo()
    rig.pass_time(60)
    assert offsets(rig, graves) == [1, 2]


def test_a_source_that_cannot_write_repeats_no_copy(monkeypatch: pytest.MonkeyPatch):
    rig, topic, graves = world(graves=1)
    die_at = source(rig, topic).log
    append = die_at.append

    def refuse(found: Any, now_us: int) -> Any:
        if any(fx.OutboxMoved in map(type, effects_of(batch)) for batch in found):
            raise StorageFull("no room")
        return append(found, now_us)

    monkeypatch.setattr(die_at, "append", refuse)
    die(rig, topic, [1, 2])
    rig.pass_time(20)
    assert offsets(rig, graves) == [1, 2]
    assert rig.node.stats()["outbox.waiting"] == 2
    monkeypatch.undo()
    rig.pass_time(60)
    assert offsets(rig, graves) == [1, 2]
    assert rig.node.stats()["outbox.waiting"] == 0


def effects_of(batch: Any) -> list[fx.AnyEffect]:
    column = next(batches(batch)).effects()
    return [] if column is None else fx.decode(column)


def test_copies_go_anew_to_a_dead_topic_that_was_made_again(monkeypatch: pytest.MonkeyPatch):
    rig, topic, graves = world(graves=1)
    log = source(rig, graves).log

    def full(batch: Any, now_us: int) -> Any:
        raise StorageFull("no room")

    monkeypatch.setattr(log, "append", full)
    die(rig, topic, [1, 2])
    rig.pass_time(2)
    rig.ask(m.DeleteTopic, graves)
    graves = rig.topic("graves", 2)
    rig.pass_time(10)
    assert offsets(rig, graves) == [1, 2]


def test_a_topic_may_not_be_its_own_dead_topic():
    rig, topic, _ = world()
    answer = rig.ask(q.SetQueue, topic, "g", {"dead_topic": "flights"})
    assert answer.code == "invalid_settings"
    assert "name another one" in answer.message
    assert rig.ask(q.SetQueue, topic, "g", {"dead_topic": "no/name"}).code == "invalid_topic"
    answer = rig.ask(q.SetQueue, topic, "g", {"dead_topic": "later"})
    assert answer.code == "invalid_settings"
    assert "dead_topic=later names no topic: create it first" in answer.message
    later = rig.topic("later")
    assert rig.ask(q.SetQueue, topic, "g", {"dead_topic": "later"}).queues[0].settings["dead_topic"] == "later"
    assert isinstance(rig.ask(m.DeleteTopic, later), m.Done)
    assert rig.ask(q.SetQueue, topic, "g", {"max_attempts": 3}).queues[0].settings["max_attempts"] == 3


def test_a_topic_that_is_deleted_takes_its_outbox_along():
    rig, topic, _ = world(start=False)
    die(rig, topic, [1, 2])
    rig.pass_time(2)
    rig.ask(m.DeleteTopic, topic)
    rig.pass_time(10)
    assert rig.node.stats()["outbox.waiting"] == 0
    assert rig.node.stats()["outbox.stuck"] == 0


def test_the_producer_of_copies_is_remembered_as_long_as_it_matters(monkeypatch: pytest.MonkeyPatch):
    rig, topic, graves = world(graves=1, producer_expiry_s=10.0, housekeeping_s=1.0)
    log = source(rig, topic).log
    append = log.append

    def refuse(found: Any, now_us: int) -> Any:
        if any(fx.OutboxMoved in map(type, effects_of(batch)) for batch in found):
            raise StorageFull("no room")
        return append(found, now_us)

    monkeypatch.setattr(log, "append", refuse)
    die(rig, topic, [1, 2])
    rig.pass_time(100)
    assert opened(rig, graves).committed.producers.by_id
    monkeypatch.undo()
    rig.pass_time(100)
    assert not opened(rig, graves).committed.producers.by_id
    die(rig, topic, [3])
    rig.turn(8)
    assert offsets(rig, graves) == [1, 2, 3]


# -- crashes --------------------------------------------------------------------------------------


class Machine:
    """A world that is driven in the smallest steps, and may lose its process, or its power, after each."""

    def __init__(self) -> None:
        self.rig, self.topic, self.graves = world(graves=3)
        self._synced = {log.path: self._files_of(log.path) for log in self.rig.node.logs}
        for runs, dead in (([(0, 5)], [0, 3, 4]), ([(6, 5)], [6, 7, 8, 9, 10])):
            books = opened(self.rig, self.topic)
            token = books.proposed.queues.by_name["g"].last_token + 1
            books.propose(fx.LeaseGranted("g", token, "w", 1 << 60, [(*run, 1) for run in runs], runs[0][0] + 5))
            books.propose(fx.TasksDied("g", token, [(offset, 1, 1) for offset in dead], "broken"))

    def steps(self) -> Iterator[None]:
        """Until everything is moved."""
        rig = self.rig
        for _ in range(STEPS_MAX):
            appended = rig.node.flush(rig.now)
            yield
            for log in appended:
                log.sync()
                self._synced[log.path] = self._files_of(log.path)
                yield
            rig.node.advance(rig.now)
            yield
            if rig.node.tick(rig.now) > 0 and not opened(rig, self.topic).committed.outbox.entries:
                return
            yield

    def crash(self, *, power: bool) -> None:
        """End the process; without power, what was not synced is gone, log by log."""
        files = self.rig.store.files
        if power:
            for path, synced in self._synced.items():
                for name in [name for name in files.contents if name.startswith(f"{path}/")]:
                    del files.contents[name]
                files.contents.update({name: Content(data) for name, data in synced.items()})
        self.rig.store, self.rig.port = MemoryStore(files), MemoryPort()
        self.rig.node = self.rig._open()
        self._synced = {log.path: self._files_of(log.path) for log in self.rig.node.logs}  # opening syncs what it keeps

    def _files_of(self, path: str) -> dict[str, bytes]:
        contents = self.rig.store.files.contents
        return {name: bytes(content.data) for name, content in contents.items() if name.startswith(f"{path}/")}

    def check(self) -> int:
        """Every record that is dead is in the dead topic once. Returns how many there are."""
        self.rig.pass_time(130)
        dead = list(queue(self.rig, self.topic).dead_letters)
        assert offsets(self.rig, self.graves) == sorted(dead)
        assert not opened(self.rig, self.topic).committed.outbox.entries
        return len(dead)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rounds for a few copies."""
    monkeypatch.setattr(moving, "PORTION", 3)


def run(machine: Machine, most: int) -> int:
    """Take steps. Returns how many there were."""
    taken = 0
    for _ in machine.steps():
        taken += 1
        if taken >= most:
            break
    return taken


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_each_copy_is_there_once_wherever_a_crash_came(power: bool):
    whole = Machine()
    steps = run(whole, STEPS_MAX)
    assert whole.check() == 8
    assert 30 < steps < STEPS_MAX
    seen = set()
    for after in range(1, steps):
        machine = Machine()
        run(machine, after)
        machine.crash(power=power)
        seen.add(machine.check())
    assert seen == ({0, 8} if power else {8})  # without power the deaths themselves may be gone


@pytest.mark.usefixtures("small")
def test_each_copy_is_there_once_after_several_crashes():
    chance = random.Random(11)
    for _ in range(60):
        machine = Machine()
        for _ in range(chance.randint(2, 4)):
            run(machine, chance.randint(1, 30))
            machine.crash(power=chance.random() < 0.5)
        machine.check()


@pytest.mark.usefixtures("small")
def test_the_dead_topic_may_grow_in_the_middle():
    for after in range(4, 40, 3):
        machine = Machine()
        run(machine, after)
        machine.rig.ask(m.AlterTopic, machine.graves, {}, 5)
        machine.crash(power=False)
        assert machine.check() == 8


def test_a_checker_that_finds_a_copy_twice_says_so():
    machine = Machine()
    run(machine, STEPS_MAX)
    twice = opened(machine.rig, machine.topic)
    twice.propose(fx.LeaseGranted("g", 99, "w", 1 << 60, [(11, 1, 1)], 12))
    twice.propose(fx.TasksDied("g", 99, [(11, 1, 1)], "broken"))
    machine.rig.pass_time(5)
    twice.propose(fx.TasksDiscarded("g", [(11, 1)]))
    with pytest.raises(AssertionError):
        machine.check()


def test_nothing_of_it_is_open_afterwards():
    machine = Machine()
    run(machine, STEPS_MAX)
    log: LogWriter = source(machine.rig, machine.topic).log
    before = log.written
    machine.rig.pass_time(300, step=10)
    assert log.written == before
