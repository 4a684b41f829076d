"""What the calm collector relies on: nothing that a broker does over and over leaves cycles behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from penstock.storage.batch import encode
from penstock.storage.files import Files
from penstock.transport import messages as m
from support.core import Core
from support.writeback import WritebackFiles


@pytest.fixture
def core() -> Iterator[Core]:
    """A node that has done everything once; the collector is off, and looks at nothing that was there before."""
    core = Core(WritebackFiles())
    use(core, "first")
    gc.collect()
    gc.freeze()
    gc.disable()
    yield core
    gc.enable()


def use(core: Core, name: str) -> None:
    """Create, produce, be refused, fetch, join, commit, leave, delete."""
    topic = core.create_topic(name)
    for number in range(3):
        core.ask(lambda request: m.Produce(request, topic, 0), bytes(encode([b"value"])))
        core.ask(lambda request: m.Produce(request, topic, 9), b"x" * 200)
        core.ask(lambda request, at=number: m.Fetch(request, topic, 0, at, -1, 1 << 20, 0))
    joined = core.ask(lambda request: m.Join(request, topic, "g", "a", "control", -1, [], 10_000, 1 << 20, 1000))
    place = m.Position(0, 2, joined.assignments[0].epoch)
    core.ask(lambda request: m.Commit(request, joined.session, topic, "g", [place]))
    core.ask(lambda request: m.Leave(request, joined.session))
    work(core, topic)
    core.ask(lambda request: m.DeleteTopic(request, topic))


def work(core: Core, topic: bytes) -> None:
    """Wait for tasks, get some, and none, settle, fail, die, ask, cancel, redrive, pause, be refused."""
    core.ask(lambda request: m.SetQueue(request, topic, "jobs", {"max_attempts": 2}))
    core.ask(lambda request: m.Lease(request, topic, "unknown", "w", 1, wait_ms=0, start=-2))
    for verb in range(4):
        leased = core.ask(lambda request: m.Lease(request, topic, "jobs", "w", 1, wait_ms=1000))
        held = [(0, leased.token)]
        core.ask(lambda request, held=held: m.ExtendLeases(request, topic, "jobs", held))
        settles = [m.Settle(0, leased.token, verb, delay_ms=0), m.Settle(0, 7, 0)]
        core.ask(lambda request, settles=settles: m.SettleTasks(request, topic, "jobs", settles))
    core.ask(lambda request: m.AskTask(request, topic, "jobs", 0, 0))
    core.ask(lambda request: m.CancelTask(request, topic, "jobs", 0, 0))
    core.ask(lambda request: m.ListDead(request, topic, "jobs", 0, 0, 10))
    core.ask(lambda request: m.RedriveDead(request, topic, "jobs"))
    core.ask(lambda request: m.PauseQueue(request, topic, "jobs", 0))
    core.ask(lambda request: m.ListQueues(request, topic))
    core.ask(lambda request: m.DeleteQueue(request, topic, "jobs"))


def test_nothing_a_broker_does_over_and_over_leaves_cycles(core: Core) -> None:
    for number in range(3):
        use(core, f"t{number}")
    assert ours_in_cycles() == set()


def test_a_cycle_is_noticed(core: Core) -> None:
    files: Any = Files()
    files.itself = files
    del files
    assert ours_in_cycles() == {"Files"}


def ours_in_cycles() -> set[str]:
    """What of penstock's only the collector can free, by name; threads of other tests may leave things of their own."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        named = [each if hasattr(each, "__qualname__") else type(each) for each in gc.garbage]
        return {each.__qualname__ for each in named if str(getattr(each, "__module__", "")).startswith("penstock")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
