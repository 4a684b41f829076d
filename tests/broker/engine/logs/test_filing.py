"""Large parts of shelves stand in runs, snapshots stay small, and a run that is lost costs replay, never records."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import structs
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables.queues import offsets, shelves, timers
from penstock.broker.engine.tables.queues.shelf_bodies import content
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage import runs, snapshots
from penstock.storage.errors import Corrupt, StorageFull
from penstock.transport import messages as m
from support.engine import START_US, Rig

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are large from 32 records on."""
    monkeypatch.setattr(timers, "TAIL", 4)
    monkeypatch.setattr(timers, "SEALED", 32)
    monkeypatch.setattr(shelves, "LARGE", 32)
    monkeypatch.setattr(offsets, "BLOCK", 8)


def filled(rig: Rig, batches: int = 40, seed: int = 1) -> bytes:
    """A topic with delayed and urgent records, 10 in a batch."""
    rng, topic = random.Random(seed), rig.topic()
    for _ in range(batches):
        times = [rng.choice([0, START_US + rng.randrange(100, 9000) * SECOND]) for _ in range(10)]
        rig.produce(topic, [b"x"] * 10, not_before=times, priorities=[rng.choice([0, 0, 5]) for _ in range(10)])
    return topic


def path(rig: Rig) -> str:
    return rig.node.logs[1].path


def numbers(rig: Rig) -> set[int]:
    """The runs on the disk."""
    found = {runs.number_of(name) for name in rig.store.files.listdir(path(rig))}
    return {number for number in found if number is not None}


def state(rig: Rig) -> PartitionState:
    return next(iter(rig.node._registry.partitions)).committed


def contents(found: PartitionState) -> list[tuple[int, list[int], list[int]]]:
    """What is on the shelves, whatever stands where."""
    every = [(level, shelf) for level, shelf in sorted(found.shelves.by_level.items())]
    return [
        (
            level,
            shelf.offsets.slice(0, len(shelf.offsets)).tolist(),
            sorted(offset for run in shelf.timers.runs for offset in run.offsets(0, len(run)).tolist()),
        )
        for level, shelf in every
    ]


def worked_off(rig: Rig, topic: bytes) -> list[int]:
    """Every offset that a group is given once all timers are due."""
    found: list[int] = []
    rig.now = rig.now._replace(monotonic_s=rig.now.monotonic_s + 9000, wall_us=rig.now.wall_us + 9000 * SECOND)
    rig.turn()
    while True:
        leased = rig.lease(topic, most=100)
        if not leased.runs:
            return sorted(found)
        assert rig.settle(topic, m.Settle(0, leased.token, 0)) == []
        found += [offset for first, count, _ in leased.runs for offset in range(first, first + count)]


def test_a_snapshot_names_its_large_parts_and_holds_the_rest() -> None:
    rig = Rig(snapshot_batches=10)
    filled(rig)
    assert numbers(rig) == state(rig).shelves.numbers()
    assert len(numbers(rig)) > 5
    assert len(state(rig).encode()) < 4000, "400 special records would be more"
    before = contents(state(rig))
    for clean in (True, False):
        rig.restart(clean=clean)
        assert contents(state(rig)) == before


def test_after_a_restart_runs_are_not_written_again() -> None:
    rig = Rig(snapshot_batches=10)
    filled(rig)
    rig.restart()
    written = files_of(rig)
    assert written
    rig.restart()
    assert files_of(rig) == written


def test_a_run_of_a_state_that_was_lost_goes_at_the_start() -> None:
    rig = Rig(snapshot_batches=10)
    filled(rig)
    directory, named = path(rig), numbers(rig)
    rig.node.close(rig.now)
    rig.store.files.create(f"{directory}/{runs.file_name(max(named) + 1)}").close()  # torn by a power cut
    rig.restart(clean=False)
    assert numbers(rig) == named


def test_a_run_that_cannot_be_removed_keeps_no_log_from_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    rig = Rig(snapshot_batches=10)
    filled(rig)
    before = contents(state(rig))
    monkeypatch.setattr(runs.RunFiles, "drop", refuse)
    rig.restart(clean=False)
    assert contents(state(rig)) == before


def files_of(rig: Rig) -> dict[int, int]:
    """The file of each run: another one was written anew."""
    return {number: id(rig.store.files.contents[f"{path(rig)}/{runs.file_name(number)}"]) for number in numbers(rig)}


@pytest.mark.parametrize("harm", ["gone", "flipped", "cut", "swapped"])
def test_a_run_that_is_lost_costs_replay_and_no_record(harm: str) -> None:
    rig = Rig(snapshot_batches=10)
    topic = filled(rig)
    rig.restart()
    before = contents(state(rig))
    hurt(rig, max(numbers(rig)), harm)
    rig.restart(clean=False)
    assert contents(state(rig)) == before
    assert worked_off(rig, topic) == list(range(400))


def hurt(rig: Rig, number: int, harm: str) -> None:
    files, name = rig.store.files, f"{path(rig)}/{runs.file_name(number)}"
    data = bytearray(files.read(name))
    files.unlink(name)
    match harm:
        case "gone":
            return
        case "flipped":
            data[70] ^= 1
        case "cut":
            del data[-1:]
        case _:
            data = bytearray(files.read(f"{path(rig)}/{runs.file_name(min(numbers(rig)))}"))
    file = files.create(name, len(data))
    file.pwritev([bytes(data)], 0)
    file.close()


def test_a_lost_run_whose_records_the_log_has_no_more_is_not_guessed() -> None:
    rig = Rig(snapshot_batches=10)
    filled(rig)
    rig.restart()
    log = rig.node.logs[1]
    number = min(state(rig).shelves.numbers())
    found = state(rig)

    class Cut:
        """A store whose log begins behind the snapshots: none but those that name the run reach it."""

        def load_snapshot(self, log: Any, below: int | None = None) -> snapshots.Snapshot | None:
            if below is not None:
                raise Corrupt("no snapshot reaches the log")
            return snapshots.load_newest(rig.store.files, path(rig))

        def runs(self, log: Any) -> runs.RunFiles:
            return rig.store.runs(log)

    store: Any = Cut()
    assert contents(replay(log, PartitionState, store).committed) == contents(found)
    hurt(rig, number, "gone")
    with pytest.raises(Corrupt, match="no snapshot reaches"):
        replay(log, PartitionState, store)


def test_runs_that_no_snapshot_names_any_more_are_removed() -> None:
    rig = Rig(snapshot_batches=5)
    topic = filled(rig)
    assert numbers(rig)
    next(iter(rig.node._registry.partitions.values())).set_first(400)
    rig.turn()
    assert state(rig).shelves.numbers() == set()
    for _ in range(20):
        rig.produce(topic, [b"plain"])
    assert numbers(rig) == set()


def test_on_a_full_disk_the_parts_stay_in_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, number: int, body: bytes) -> int:
        raise StorageFull("no room")

    rig = Rig(snapshot_batches=10)
    with monkeypatch.context() as patched:
        patched.setattr(runs.RunFiles, "save", full)
        topic = filled(rig)
        rig.restart()
    assert numbers(rig) == set()
    assert worked_off(rig, topic) == list(range(400))


def test_a_turn_writes_one_run_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(snapshot_batches=1000)
    with monkeypatch.context() as patched:
        patched.setattr(timers, "SEALED", 1 << 18)
        patched.setattr(shelves, "LARGE", 1 << 18)
        topic = filled(rig)
    nothing: Any = NoSnapshots()
    replayed = replay(rig.node.logs[1], PartitionState, nothing)
    state(rig).shelves = replayed.committed.shelves
    saved = []
    original = runs.RunFiles.save
    monkeypatch.setattr(runs.RunFiles, "save", lambda *args: saved.append(1) or original(*args))
    for count in range(1, 4):
        rig.produce(topic, [b"plain"])
        rig.node.tick(rig.now)
        assert 0 < len(saved) <= 4 * count


class NoSnapshots:
    def load_snapshot(self, log: Any, below: int | None = None) -> None:
        return None


def test_a_digest_is_the_same_whichever_parts_are_in_runs() -> None:
    rig = Rig(snapshot_batches=10)
    filled(rig)
    before = state(rig)
    assert before.shelves.numbers()
    log = rig.node.logs[1]
    unfiled = replay(log, PartitionState, NoSnapshots()).committed  # pyright: ignore[reportArgumentType]
    assert not unfiled.shelves.numbers()
    assert unfiled.encode() != before.encode()
    assert unfiled.digest() == before.digest()
    for clean in (True, False):
        digest = state(rig).digest()
        rig.restart(clean=clean)
        assert state(rig).digest() == digest


def test_every_part_of_the_shelves_is_in_the_digest() -> None:
    rig = Rig()
    topic = rig.topic()
    digests = {state(rig).digest()}
    for number in range(3):
        rig.produce(topic, [b"x"], not_before=[START_US + 900 * SECOND])
        digests.add(state(rig).digest())
        rig.produce(topic, [b"x"], priorities=[5 - number])
        digests.add(state(rig).digest())
    assert len(digests) == 7
    found = state(rig)
    known = content(found.shelves)
    shelf = found.shelves.by_level[0]
    *others, run = runs = shelf.timers.runs
    for times, deltas in ((run.times + 1, run.deltas), (run.times, run.deltas + 1)):
        shelf.timers = timers.Timers([*others, structs.replace(run, times=times, deltas=deltas)])
        assert content(found.shelves) != known
    shelf.timers = timers.Timers(runs)
    assert content(found.shelves) == known
    found.shelves.by_level[7] = found.shelves.by_level.pop(5)
    assert content(found.shelves) != known
