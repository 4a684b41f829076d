"""Staged records that are damaged: a line stops there, and goes on behind accepted losses."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.transactions import publishing
from penstock.storage.repair import repair
from support.engine import START_US, Rig
from support.transactions import answer_to, code, commit, open_stages, put, send_commit, state

WANTED = [b"value-1", b"value-2", b"value-3"]


def spoil(rig: Rig, topic: bytes, needle: bytes, *, back: int = 0) -> None:
    """Flip a byte of what is staged, or of the header before it."""
    path = rig.store.directory(topic, 0)
    (name,) = [name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")]
    data = rig.store.files.contents[name].data
    data[data.index(needle) - back] ^= 0xFF


def accept(rig: Rig, topic: bytes) -> None:
    """As `penstock log repair --accept-loss` does beside a broker that is down."""
    for log in rig.node.logs:
        log.close(clean=False)
    repaired = repair(rig.store.files, rig.store.directory(topic, 0), now_us=START_US, accept_loss=True)
    assert any("accept the loss" in action for action in repaired.actions), repaired.actions
    rig.restart(clean=False)


@pytest.mark.parametrize("snapshots", [1, 1000])
@pytest.mark.parametrize("back", [0, 100], ids=["column", "header"])
@pytest.mark.parametrize("spoiled", WANTED)
def test_what_was_given_up_is_left_out_and_everything_around_it_is_published(spoiled: bytes, back: int, snapshots: int):
    rig = Rig(snapshot_batches=snapshots)
    topic = rig.topic()
    commit(rig, "first", 1)
    only, behind = put(rig, topic, 1, *WANTED, batch=1), put(rig, topic, 2, b"behind")
    spoil(rig, topic, spoiled, back=back)
    requests = [send_commit(rig, "etl", 1, only), send_commit(rig, "etl", 2, behind)]
    rig.pass_time(5)
    assert [code(answer_to(rig, request)) for request in requests] == ["unavailable"] * 2
    rig.restart(clean=False)
    rig.pass_time(5)
    assert (state(rig, "etl"), rig.node.stats()["stages.stuck"]) == ((2, False), 2)
    accept(rig, topic)
    rig.pass_time(5)
    assert rig.read(topic) == [*(value for value in WANTED if value != spoiled), b"behind"]
    assert (state(rig, "etl"), open_stages(rig)) == ((2, True), 0)
    for _ in range(2):
        rig.restart(clean=False)
        assert len(rig.read(topic)) == 3


def test_publishing_that_went_on_behind_a_loss_goes_on_there_after_a_crash(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(publishing, "PORTION_BYTES", 1)
    rig = Rig(snapshot_batches=1000)
    topic = rig.topic()
    commit(rig, "first", 1)
    wanted = [b"value-%d" % number for number in range(8)]
    only = put(rig, topic, 1, *wanted, batch=1)
    spoil(rig, topic, b"value-3")
    commit(rig, "etl", 1, only)
    for log in rig.node.logs:
        log.close(clean=False)
    repair(rig.store.files, rig.store.directory(topic, 0), now_us=START_US, accept_loss=True)
    for _ in range(10):
        rig.node = rig._open()
        rig.turn(3)
    rig.turn(20)
    assert rig.read(topic) == [value for value in wanted if value != b"value-3"]


def test_a_stage_that_lost_something_is_not_committed_any_more():
    rig = Rig()
    topic = rig.topic()
    commit(rig, "first", 1)
    only = put(rig, topic, 1, *WANTED, batch=1)
    spoil(rig, topic, b"value-2")
    accept(rig, topic)
    answer: Any = commit(rig, "etl", 1, only)
    assert (code(answer), rig.read(topic)) == ("stage_lost", [])
