"""Transactions whose broker loses power, runs out of disk, or fails to sync, at every single operation on a file.

Two epochs go to three partitions of two topics, in several portions each. Whatever the disk has kept at any place, an
epoch is there altogether or not at all; one that was answered is there; and a client that asks what was committed,
and does the rest again, has every record once and in order.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from penstock.broker.engine.transactions import publishing
from penstock.storage.errors import Error
from penstock.transport import messages as m
from support.files import RecordingFiles
from support.transaction_crashes import HOWS, Epoch, Place, Story, check, epoch, go_on, images, survive

DURABLE = {"a": (2, "durable"), "b": (1, "durable")}
WRITTEN = {"a": (2, "durable"), "b": (1, "written")}
PLACES = [Place("a", 0), Place("a", 1), Place("b", 0)]
EPOCHS = [epoch(1, *PLACES), epoch(2, *PLACES[1:])]
FEW = [epoch(1, *PLACES[1:]), epoch(2, PLACES[2])]
"""What a topic that is written needs to show the difference."""

STORIES = [(DURABLE, EPOCHS, HOWS), (WRITTEN, FEW, ("none", "some"))]


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "PORTION_BYTES", 1)


def told(topics: dict[str, tuple[int, str]], epochs: list[Epoch]) -> tuple[Story, int]:
    """A story that went well, and where its journal begins to matter."""
    story = Story(RecordingFiles(), topics)
    start = len(story.files.journal)
    for each in epochs:
        story.do(each)
    check(story, epochs, story.truth)
    return story, start


@pytest.mark.parametrize(("topics", "epochs", "hows"), STORIES, ids=["durable", "written"])
def test_power_lost_at_any_operation_leaves_all_or_nothing(
    topics: dict[str, tuple[int, str]], epochs: list[Epoch], hows: tuple[str, ...], seed: int
):
    story, start = told(topics, epochs)
    choose = random.Random(seed)
    places = 0
    for place, how, image, truth in images(story.files, start, choose, hows):
        try:
            go_on(survive(image, story.files.directories, topics, choose.getrandbits(32)), epochs, truth)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, operation {place}, {how} of the unsynced: {error}") from error
        places += 1
    assert places > 100 * len(hows)


@pytest.mark.parametrize(("topics", "epochs", "hows"), STORIES, ids=["durable", "written"])
def test_power_lost_again_while_a_start_ends_what_was_begun(
    topics: dict[str, tuple[int, str]], epochs: list[Epoch], hows: tuple[str, ...], seed: int
):
    story, start = told(topics, epochs)
    choose = random.Random(seed)
    tried = 0
    for place, how, image, truth in images(story.files, start, choose, hows):
        if choose.random() > 0.2:
            continue
        second = survive(image, story.files.directories, topics, choose.getrandbits(32))
        again = list(images(second.files, 0, choose, ("none", "some")))
        _, _, image, _ = choose.choice(again)
        try:
            go_on(survive(image, second.files.directories, topics, choose.getrandbits(32)), epochs, truth)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, operation {place}, {how} kept, and again: {error}") from error
        tried += 1
    assert tried > 30


def run_until_it_goes_well(kind: str, code: int, after: Callable[[Story], Story]) -> int:
    """Let each operation of a kind fail once, in a story of its own. Returns how many there are."""
    for nth in range(1, 1000):
        story = Story(RecordingFiles(), DURABLE)
        story.files.fail(kind, nth, code)
        failed = not all(map(story.tries, EPOCHS))
        story.files.heal()
        if not failed and story.files.calls[kind] < nth:
            check(story, EPOCHS, story.truth)
            return nth - 1
        try:
            go_on(after(story), EPOCHS, story.truth)
        except (AssertionError, Error) as error:
            raise AssertionError(f"{kind} number {nth}: {error}") from error
    raise AssertionError("it never went well")


def in_time(story: Story) -> Story:
    """There is room again."""
    story.rig.pass_time(publishing.RETRY_MOST_S + 1)
    return story


def opened_again(story: Story) -> Story:
    """Start the broker again."""
    again = Story(story.files, DURABLE, seed=2)
    again.rig.turn(8)
    return again


@pytest.mark.parametrize("kind", ["write", "allocate", "create"])
def test_a_disk_that_is_full_at_any_operation_delays_and_loses_nothing(kind: str):
    assert run_until_it_goes_well(kind, errno.ENOSPC, in_time) >= (40 if kind == "write" else 4)


def test_a_sync_that_fails_anywhere_is_as_a_crash_there():
    assert run_until_it_goes_well("sync", errno.EIO, opened_again) > 20


def test_the_check_finds_what_is_wrong():
    """A record too many, too few, or in another order is seen, and an answered epoch that is gone."""
    story, _ = told(DURABLE, EPOCHS)
    for wrong in ("more", "fewer", "turned"):
        values = {place: list(of) for place, of in EPOCHS[0].values.items()}
        found = values[PLACES[0]]
        if wrong == "more":
            found.append(b"x")
        elif wrong == "fewer":
            found.pop()
        else:
            found.reverse()
        with pytest.raises(AssertionError, match="instead of"):
            check(story, [Epoch(1, values), EPOCHS[1]], story.truth)
    with pytest.raises(AssertionError, match="answered"):
        check(story, EPOCHS, story.truth._replace(committed=frozenset({1, 2, 3})))
    assert isinstance(story.rig.ask(m.AskTransaction, "etl"), m.TransactionState)
