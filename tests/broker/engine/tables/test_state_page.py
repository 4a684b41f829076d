"""STATE.md says what the structs say."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from penstock.broker.engine.logs import catalogue
from penstock.broker.engine.tables import (
    barriers,
    decisions,
    dedup,
    effects,
    groups,
    producers,
    stages,
    state,
    ties,
    timetable,
)
from penstock.broker.engine.tables.queues import kept, leases, outbox, queue, retrying, shelf_bodies, voids, workers

PAGE = Path(effects.__file__).with_name("STATE.md").read_text()
EFFECTS = [
    effect for effect in vars(effects).values() if isinstance(effect, type) and issubclass(effect, effects.Effect)
]
STRUCTS = [
    state.SnapshotBody, producers.ProducerState, producers.Place, groups.GroupState, catalogue.CatalogueBody,
    catalogue.TopicEntry, queue.QueueBody, queue.ShelfCursor, retrying.RetryingRecord, queue.DeadLetter,
    leases.LeaseBody, leases.ExtentBody, outbox.OutboxEntry, kept.KeptBody, timetable.ScheduleBody,
    dedup.KeyTableBody, voids.VoidsBody, shelf_bodies.ShelvesBody, shelf_bodies.ShelfBody, shelf_bodies.RunName,
    shelf_bodies.RunBody, stages.Stage, decisions.TransactionState, decisions.Decision, workers.KnownWorker,
    barriers.BarrierBody, barriers.Word, ties.TiesBody, ties.TieBody, ties.MemberEnd,
]  # fmt: skip


def rows(pattern: str) -> list[tuple[str, ...]]:
    return re.findall(pattern, PAGE, re.MULTILINE)


def test_the_page_names_every_effect_with_its_tag_and_fields():
    written = {(int(tag), name, fields) for tag, name, fields in rows(r"^\| (\d+) \| (\w+) \| (.+) \|$")}
    real = {
        (effect.__struct_config__.tag, effect.__name__, ", ".join(effect.__struct_fields__))
        for effect in EFFECTS
        if effect not in (effects.Effect, effects.QueueEffect)
    }
    assert written == real


def test_the_page_names_every_struct_of_a_snapshot_with_its_fields():
    written = dict(rows(r"^\| ([A-Z]\w+) \| (.+) \|$"))
    assert written == {each.__name__: ", ".join(each.__struct_fields__) for each in STRUCTS}


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_structs_of_a_snapshot_are_stored_as_arrays(struct: type[msgspec.Struct]):
    assert struct.__struct_config__.array_like


def test_the_page_says_how_many_batches_of_a_producer_are_remembered():
    assert f"last {producers.RECENT} batches" in PAGE


def test_the_page_names_the_version_of_both_bodies():
    assert state.VERSION == catalogue.VERSION == 1
    assert "`version` is 1;" in PAGE
