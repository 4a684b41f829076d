"""Forgetting: abandoned stages, old names, and what is never forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.transactions import forgetting
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import stage
from support.transactions import code, commit, home, open_stages, partition, put, send_commit, state

HOUR_S = 3600.0


def old_rig(**config: Any) -> Rig:
    """Passes are made every minute."""
    return Rig(housekeeping_s=60.0, **config)


def wait(rig: Rig, seconds: float) -> None:
    rig.pass_time(seconds, step=30.0)


def test_a_stage_that_gets_nothing_for_an_hour_is_dropped():
    rig = old_rig()
    topic = rig.topic(partitions=2)
    put(rig, topic, 1, b"1")
    put(rig, topic, 2, b"2", partition=1)
    wait(rig, HOUR_S / 2)
    stage(rig, topic, [b"more"], 2, 1, partition=1)
    wait(rig, HOUR_S / 2 + 90)
    assert (open_stages(rig), rig.node.stats()["stages.dropped"]) == (1, 1)
    assert code(commit(rig, "etl", 1, m.Stage(topic, 0, 1, 1))) == "stage_lost"
    rig.restart(clean=False)
    assert commit(rig, "etl", 1, m.Stage(topic, 1, 2, 2)).epoch == 1
    wait(rig, 3 * HOUR_S)
    assert open_stages(rig) == 0


def test_how_long_is_a_setting():
    rig = old_rig(stage_expiry_s=300.0)
    put(rig, rig.topic(), 1, b"1")
    wait(rig, 240)
    assert open_stages(rig) == 1
    wait(rig, 180)
    assert open_stages(rig) == 0


def test_a_stage_that_is_decided_is_not_dropped_however_long_it_takes():
    rig = old_rig(stage_expiry_s=120.0)
    topic = rig.topic()
    commit(rig, "first", 1)
    only = put(rig, topic, 1, b"1")
    log = partition(rig, topic).log
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    log.append = full
    commit(rig, "etl", 1, only)
    wait(rig, HOUR_S)
    log.append = append
    wait(rig, 60)
    assert (rig.read(topic), state(rig, "etl"), rig.node.stats()["stages.dropped"]) == ([b"1"], (1, True), 0)


def test_a_drop_that_could_not_be_logged_is_tried_again():
    rig = old_rig(stage_expiry_s=120.0)
    topic = rig.topic()
    put(rig, topic, 1, b"1")
    log = partition(rig, topic).log
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    log.append = full
    wait(rig, 300)
    assert open_stages(rig) == 1
    log.append = append
    wait(rig, 120)
    assert open_stages(rig) == 0


def test_names_are_forgotten_long_after_their_last_epoch_and_fleeting_ones_after_an_hour():
    rig = old_rig(transaction_expiry_s=10 * HOUR_S)
    for name in ("lasting", "renewed", "~fleeting"):
        commit(rig, name, 1)
    wait(rig, HOUR_S - 120)
    assert [state(rig, name)[0] for name in ("lasting", "renewed", "~fleeting")] == [1, 1, 1]
    wait(rig, 300)
    assert [state(rig, name)[0] for name in ("lasting", "renewed", "~fleeting")] == [1, 1, -1]
    commit(rig, "renewed", 2)
    wait(rig, 9.5 * HOUR_S)
    assert [state(rig, name)[0] for name in ("lasting", "renewed")] == [-1, 2]
    rig.restart()
    assert [state(rig, name)[0] for name in ("lasting", "renewed")] == [-1, 2]
    assert commit(rig, "lasting", 1).repeated is False, "it is a new one"


@pytest.mark.parametrize("name", ["~once", "lasting"])
def test_a_name_is_not_forgotten_for_the_time_that_no_broker_was_there(name: str):
    """A client that had no answer when the broker went away asks again when it is back."""
    rig = Rig(housekeeping_s=1.0, transaction_expiry_s=HOUR_S, grace_s=HOUR_S)
    topic = rig.topic()
    only = put(rig, topic, 1, b"1")
    assert commit(rig, name, 1, only).repeated is False
    rig.now = Now(rig.now.wall_us + round(3 * HOUR_S * 1e6), rig.now.monotonic_s + 3 * HOUR_S)
    rig.restart(clean=False)
    rig.pass_time(HOUR_S / 4, step=1.0)
    assert commit(rig, name, 1, only).repeated is False
    assert rig.read(topic) == [b"1"]
    rig.pass_time(HOUR_S / 4, step=1.0)
    assert state(rig, name)[0] == -1, "but not for ever"


def test_a_name_with_something_unfinished_is_not_forgotten():
    rig = old_rig(transaction_expiry_s=120.0)
    topic = rig.topic()
    commit(rig, "first", 1)
    only = put(rig, topic, 1, b"1")
    partition(rig, topic).log.append = _full
    commit(rig, "~etl", 1, only)
    wait(rig, HOUR_S)
    assert state(rig, "~etl") == (1, False)
    assert state(rig, "first") == (-1, True)


def _full(batches: Any, now_us: int) -> Any:
    raise StorageFull("no space left")


def test_a_full_table_makes_room_by_what_is_due_then_by_fleeting_names_and_then_refuses(monkeypatch: Any):
    monkeypatch.setattr(forgetting, "PORTION", 1)
    rig = Rig(max_transactions=2, max_partitions=1)
    for name in ("~a", "b"):
        commit(rig, name, 1)
    assert commit(rig, "~c", 1).epoch == 1
    assert [state(rig, name)[0] for name in ("~a", "b", "~c")] == [-1, 1, 1]
    assert commit(rig, "d", 1).epoch == 1
    answer = commit(rig, "e", 1)
    assert (code(answer), "max_transactions" in answer.message) == ("limit_reached", True)
    assert commit(rig, "d", 2).epoch == 2, "who is known needs no room"
    assert len(home(rig, "b").committed.transactions) == 2


def test_names_that_are_due_go_before_fleeting_ones():
    rig = Rig(max_transactions=2, max_partitions=1, transaction_expiry_s=HOUR_S, housekeeping_s=1e9)
    commit(rig, "old", 1)
    rig.pass_time(HOUR_S + 1, step=600.0)
    commit(rig, "~young", 1)
    commit(rig, "new", 1)
    assert [state(rig, name)[0] for name in ("old", "~young", "new")] == [-1, 1, 1]


def test_what_a_table_forgot_in_favour_of_a_decision_that_failed_is_still_known():
    rig = Rig(max_transactions=1, max_partitions=1)
    commit(rig, "~a", 1)
    home(rig, "~a").log.append = _full
    assert code(commit(rig, "b", 1)) == "storage_full"
    assert state(rig, "~a") == (1, True)


# -- where decisions may be missing ---------------------------------------------------------------------


def lost(rig: Rig) -> None:
    """The partitions of decisions cannot be opened any more."""
    paths = {home(rig, name).log.path for name in ("etl", "first")}
    rig.node.close(rig.now)
    for path in paths:
        rig.store.files.remove_tree(path)


def test_where_a_decision_may_be_missing_nothing_is_dropped_committed_or_said():
    rig = old_rig(stage_expiry_s=120.0)
    topic = rig.topic()
    commit(rig, "etl", 1), commit(rig, "first", 1)
    only = put(rig, topic, 1, b"1")
    lost(rig)
    rig.restart(clean=False)
    assert code(rig.ask(m.DropStages, [only])) == "unavailable"
    assert code(commit(rig, "etl", 2, only)) == "unavailable"
    assert code(rig.ask(m.AskTransaction, "etl")) == "unavailable"
    wait(rig, HOUR_S)
    assert open_stages(rig) == 1


def test_a_decision_whose_commit_is_unknown_keeps_its_stages():
    rig = Rig(stage_expiry_s=10.0, housekeeping_s=1.0)
    topic = rig.topic()
    commit(rig, "etl", 1)
    only = put(rig, topic, 1, b"1")
    rig.store.hold = True
    request = send_commit(rig, "etl", 2, only)
    rig.turn()
    home(rig, "etl").log.poison("fdatasync: I/O error")
    rig.turn()
    assert [code(each) for each in rig.answers(request)] == ["poisoned"]
    rig.store.hold = False
    assert code(rig.ask(m.AskTransaction, "etl")) == "unavailable"
    for epoch in (2, 3):
        assert code(commit(rig, "etl", epoch, only)) == "poisoned", "nothing is known before a start"
    assert rig.ask(m.DropStages, [only]) == m.Done(rig._request)
    rig.pass_time(60)
    assert open_stages(rig) == 1
    rig.restart(clean=False)
    assert (state(rig, "etl"), rig.read(topic)) in (((1, True), []), ((2, True), [b"1"]))


def test_the_log_of_decisions_does_not_grow_without_end(monkeypatch: Any):
    from penstock.broker.engine.tables.settings import TopicSettings
    from penstock.broker.engine.transactions import home as homes

    monkeypatch.setattr(homes, "SETTINGS", TopicSettings(segment_bytes=64 << 10, retention_s=3600.0))
    rig = Rig(max_partitions=1, housekeeping_s=1.0, snapshot_batches=100)
    topic = rig.topic()
    for epoch in range(1, 400):
        commit(rig, "etl", epoch, put(rig, topic, epoch, b"%d" % epoch))
    rig.pass_time(20)
    assert len(home(rig, "etl").log.segments()) <= 2
    rig.restart(clean=False)
    assert state(rig, "etl") == (399, True)
