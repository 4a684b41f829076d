"""The keeper's rounds over fakes: what is synced when, what the marks say, what the broker believes."""

from __future__ import annotations

import errno
import math

import pytest
from penstock.broker.config import KeeperOptions
from penstock.broker.keeper.files import SegmentFiles
from penstock.broker.watermarks import MARK_S
from penstock.storage.board import split, word
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogWriter
from penstock.storage.segment import read_page
from support.pair import Pair
from support.writeback import WritebackFiles


@pytest.fixture
def files() -> WritebackFiles:
    return WritebackFiles()


@pytest.fixture
def pair(files: WritebackFiles) -> Pair:
    return Pair(files)


def mark_of(pair: Pair, log: LogWriter) -> tuple[int, int]:
    """Generation and seq of the newest mark in the log's newest segment."""
    newest = max(name for name in pair.files.listdir(log.path) if name.endswith(".segment"))
    mark = read_page(pair.files.open(f"{log.path}/{newest}")).mark
    return (0, 0) if mark is None else split(mark.word)


def test_a_round_makes_what_was_written_durable_and_marks_it(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 3)
    pair.publish(log)
    assert (log.written, log.durable) == (3, 0)
    moved, wait = pair.round()
    assert moved
    assert wait == pytest.approx(0.5)  # then the mark itself is synced
    assert log.durable == log.committed == 3
    assert mark_of(pair, log) == (1, 3)
    row = pair.board.row(pair.watermarks.number_of(log))
    assert row.synced == row.sync_started == row.durable == word(1, 3)


def test_one_sync_covers_many_appends(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log)
    for _ in range(20):
        pair.append(log, 1)
        pair.publish(log)
    before = pair.files.syncs
    pair.round()
    assert pair.files.syncs == before + 1
    assert log.durable == 21


def test_nothing_written_is_nothing_done(pair: Pair):
    log = pair.open("/a")
    before = pair.files.syncs
    assert pair.round() == (False, None)
    pair.append(log, 1)
    pair.publish(log)
    pair.round()
    after = pair.files.syncs
    assert pair.round(0.1) == (False, pytest.approx(0.4))
    assert pair.files.syncs == after > before


def test_the_last_mark_is_synced_when_things_are_quiet(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 2)
    pair.publish(log)
    pair.round(0.0)
    cut_early = pair.files.power_cut()
    assert pair.round(0.6) == (False, None)
    cut_late = pair.files.power_cut()
    assert mark_of(Pair(cut_early), log) < mark_of(Pair(cut_late), log) == (1, 2)
    assert pair.round(1.2) == (False, None)


def test_written_topics_are_synced_lazily_and_the_keeper_says_when(pair: Pair):
    log = pair.open("/a", commit="written")
    pair.append(log, 1)
    pair.publish(log)
    assert log.committed == 1
    moved, wait = pair.round(0.0)
    assert (moved, log.durable) == (False, 0)
    assert wait == pytest.approx(0.1)
    assert pair.round(0.11)[0]
    assert log.durable == 1


def test_a_written_topic_under_load_rings_once_until_it_was_synced(pair: Pair):
    log = pair.open("/a", commit="written")
    for _ in range(50):
        pair.append(log, 1)
        pair.publish(log)
    assert pair.link.rings == 1
    pair.round(0.0)
    pair.append(log, 1)  # in the file before the sync, published after it
    pair.round(0.2)
    assert log.durable == 50
    pair.publish(log)
    assert pair.link.rings == 2
    assert pair.round(0.4) == (False, pytest.approx(0.1))
    pair.round(0.6)
    assert log.durable == 51


def test_a_log_that_rolls_is_synced_old_segments_first_and_they_are_let_go(pair: Pair):
    log = pair.open("/a", segment_bytes=64 << 10)
    for _ in range(5):
        pair.append(log, 2, size=20_000)
    pair.publish(log)
    assert len(log.dirty_segments()) > 2
    pair.round()
    assert log.durable == log.written == 10
    assert log.dirty_segments() == []
    row = pair.watermarks.number_of(log)
    assert len(pair.keeper._tails[row].segments) == 1
    assert mark_of(pair, log) == (1, 10)
    assert Pair(pair.files.power_cut()).open("/a").written == 10


def test_many_dirty_files_are_one_syncfs(files: WritebackFiles):
    pair = Pair(files, options=KeeperOptions(single_files=3))
    logs = [pair.open(f"/{name}") for name in "abcdef"]
    for log in logs:
        pair.append(log, 1)
    pair.publish(*logs)
    before = files.syncs
    pair.round()
    assert files.syncs == before + 1
    assert [log.durable for log in logs] == [1] * 6


def test_an_idle_broker_syncs_a_single_record_itself(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log, idle=True)
    assert log.durable == 1
    assert pair.link.rings == 0
    assert pair.round() == (False, None)
    assert mark_of(pair, log) == (1, 1)


def test_what_comes_after_a_sync_of_the_brokers_own_is_rung_for_though_the_keeper_rang_before(pair: Pair):
    log = pair.open("/a", commit="written")
    pair.append(log, 1)
    pair.publish(log)
    pair.watermarks.sync_now(log)
    pair.append(log, 1)
    pair.settle()  # of the first batch, which is durable already
    rings = pair.link.rings
    pair.publish(log)
    assert pair.link.rings > rings


def test_the_mark_of_inline_syncs_waits_until_it_is_due_and_is_written_once_for_all_of_them(pair: Pair):
    log = pair.open("/a")
    for number in range(3):
        pair.append(log, 1)
        pair.watermarks.flushed([log], idle=True, now_s=number / 1000)
        assert log.durable == number + 1
        assert pair.watermarks.after_answers(number / 1000) == MARK_S
        assert mark_of(pair, log) == (1, 0)
    assert pair.watermarks.after_answers(MARK_S) == math.inf
    assert mark_of(pair, log) == (1, 3)


def test_a_keeper_that_syncs_before_the_mark_is_due_writes_it(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.watermarks.flushed([log], idle=True, now_s=0.0)
    pair.append(log, 1)
    pair.watermarks.flushed([log], idle=False, now_s=0.0)
    assert pair.watermarks.after_answers(MARK_S) == math.inf  # not before the keeper: more is written than is durable
    assert mark_of(pair, log) == (1, 0)
    pair.deliver()
    pair.round()
    assert mark_of(pair, log) == (1, 2)


def test_no_mark_is_left_for_a_log_that_was_closed_before_it_was_due(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.watermarks.flushed([log], idle=True, now_s=0.0)
    pair.watermarks.let_go(log)
    assert pair.watermarks.after_answers(MARK_S) == math.inf
    assert mark_of(pair, log) == (1, 0)


@pytest.mark.parametrize("error", [OSError(5, "bad sector"), StorageFull("no space is left")])
def test_a_mark_that_cannot_be_written_poisons_no_log(pair: Pair, monkeypatch, caplog, error: Exception):
    def fail(log: object) -> None:
        raise error

    log = pair.open("/a")
    monkeypatch.setattr(type(log), "mark_durable", fail)
    for number in range(2):
        pair.append(log, 1)
        pair.watermarks.flushed([log], idle=True, now_s=float(number))
        assert pair.watermarks.after_answers(number + MARK_S) == math.inf
        assert (log.durable, log.poisoned, pair.watermarks.held(log).row.poison) == (number + 1, None, 0)
    assert f"the mark of /a could not be written: {error}" in caplog.text


def test_a_log_without_waiters_rings_after_the_answers_and_does_not_keep_others_from_inline_syncs(pair: Pair):
    lazy, log = pair.open("/lazy", commit="written"), pair.open("/a")
    pair.append(lazy, 1)
    pair.watermarks.flushed([lazy], idle=True, now_s=0.0)
    assert (pair.link.rings, pair.board.row(pair.watermarks.number_of(lazy)).written) == (0, word(1, 1))
    pair.watermarks.after_answers(0.0)
    assert pair.link.rings == 1
    pair.append(log, 1)
    pair.watermarks.flushed([log], idle=True, now_s=0.0)
    assert (log.durable, pair.link.rings) == (1, 1)


def test_what_the_keeper_has_synced_before_anything_waited_for_it_is_taken_over(pair: Pair):
    """A member appends small batches that stand in its order, and has the log synced later."""
    logs = [pair.open("/a"), pair.open("/b")]
    for log in logs:
        pair.append(log, 1)
    pair.watermarks.publish(logs)
    pair.deliver()
    pair.round()
    pair.settle()
    assert [log.durable for log in logs] == [0, 0]
    rings = pair.link.rings
    pair.watermarks.flushed(logs, idle=True, now_s=0.0)
    assert [log.durable for log in logs] == [1, 1]
    assert (pair.watermarks.waiting, pair.link.rings) == (False, rings)
    assert [pair.board.row(pair.watermarks.number_of(log)).durable for log in logs] == [word(1, 1)] * 2


def test_inline_and_keeper_take_turns_without_undoing_each_other(pair: Pair):
    log = pair.open("/a")
    for turn in range(12):
        pair.append(log, 1)
        pair.publish(log, idle=turn % 2 == 0, now_s=float(turn))
        pair.round(float(turn))
        assert log.durable == turn + 1
        assert mark_of(pair, log) == (1, turn + 1)


def test_a_seq_whose_segment_is_not_registered_yet_is_left_alone(pair: Pair):
    log = pair.open("/a", segment_bytes=64 << 10)
    pair.append(log, 2, size=20_000)
    pair.publish(log)
    pair.round()
    pair.append(log, 4, size=20_000)
    pair.watermarks.flushed([log], idle=False, now_s=0.0)  # published; the new segments are still under way
    assert pair.round(1.0)[0] is False
    assert log.durable == 2
    pair.deliver()
    pair.round(1.0)
    assert log.durable == 6


def test_a_row_changes_hands_only_after_the_keeper_forgot_it(files: WritebackFiles):
    pair = Pair(files)
    log = pair.open("/a")
    pair.append(log, 5)
    pair.publish(log)
    pair.round()
    number = pair.watermarks.number_of(log)
    pair.watermarks.let_go(log)
    log.close()
    assert pair.watermarks.number_of(pair.open("/b")) != number
    pair.deliver()
    other = pair.open("/c")
    assert pair.watermarks.number_of(other) == number
    pair.append(other, 1)
    pair.publish(other)
    assert pair.board.row(number).synced == 0
    pair.round()
    assert other.durable == 1


def test_a_keeper_without_descriptors_leaves_the_log_to_the_broker(pair: Pair, caplog: pytest.LogCaptureFixture):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.watermarks.flushed([log], idle=False, now_s=0.0)
    pair.link.commands.clear()
    pair.watermarks.refused(pair.watermarks.number_of(log), "too many open files")
    assert (log.durable, pair.watermarks.stuck(99.0, 30.0)) == (1, False), "it owes nothing, and need not be replaced"
    pair.append(log, 1)
    pair.publish(log)
    assert log.durable == 2
    assert "too many open files" in caplog.text


def test_of_a_deleted_log_the_keepers_refusal_is_no_news(pair: Pair, caplog: pytest.LogCaptureFixture):
    """The keeper was told of a new segment, and the topic was deleted before it looked."""
    log = pair.open("/a")
    number = pair.watermarks.number_of(log)
    pair.watermarks.let_go(log)
    pair.watermarks.refused(number, "no such file")
    assert caplog.messages == []


def test_a_busy_log_gets_a_spare_for_its_next_segment(pair: Pair):
    log = pair.open("/a", segment_bytes=64 << 10)
    spares = []
    for turn in range(4):
        pair.append(log, 3, size=20_000)
        pair.watermarks.flushed([log], idle=False, now_s=float(turn))
        spares += [command for command in pair.link.commands if type(command).__name__ == "PrepareSpare"]
        pair.deliver()
    assert spares
    assert {spare.size_bytes for spare in spares} == {64 << 10}


def test_the_name_of_a_new_segment_is_durable_before_anything_in_it_counts(monkeypatch: pytest.MonkeyPatch, pair: Pair):
    log, synced = pair.open("/a", segment_bytes=64 << 10), []
    pair.append(log, 1)
    pair.publish(log)
    pair.round()

    def noted(path: str) -> None:
        synced.append((path, log.durable, split(pair.board.row(pair.watermarks.number_of(log)).synced)[1]))

    monkeypatch.setattr(pair.files, "sync_dir", noted)
    pair.append(log, 4, size=20_000)
    pair.publish(log)
    assert (len(log.names), synced) == (2, [])
    pair.round()
    assert (synced, log.durable) == ([("/a", 1, 1)], 5)
    pair.append(log, 1)
    pair.publish(log)
    pair.round()
    log.sync()
    assert len(synced) == 1  # once for each segment


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), StorageFull("too many open files")])
def test_a_name_that_cannot_be_synced_poisons_the_log(monkeypatch: pytest.MonkeyPatch, pair: Pair, error: Exception):
    log = pair.open("/a", segment_bytes=64 << 10)
    pair.append(log, 1)
    pair.publish(log)
    pair.round()
    pair.append(log, 4, size=20_000)
    pair.publish(log)

    def failed(path: str) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(pair.files, "sync_dir", failed)
        pair.round()
    assert (log.durable, log.poisoned is None) == (1, False)


def test_a_keeper_that_ends_syncs_what_was_written_and_its_marks(pair: Pair):
    durable, lazy = pair.open("/a"), pair.open("/b", commit="written")
    pair.append(durable, 2)
    pair.append(lazy, 2)
    pair.publish(durable, lazy)
    pair.keeper.finish_all()
    after = Pair(pair.files.power_cut())
    assert after.open("/a").written == 2
    assert after.open("/b").written == 2


def test_a_keeper_that_ends_marks_what_a_broker_synced_that_was_killed_before_its_mark(pair: Pair):
    log, poisoned = pair.open("/a"), pair.open("/b")
    for each in (log, poisoned):
        pair.append(each, 3)
        pair.watermarks.flushed([each], idle=True, now_s=0.0)  # with one dirty file it syncs by itself
        pair.deliver()
    assert (log.durable, mark_of(pair, log)) == (3, (1, 0))
    pair.board.row(pair.watermarks.number_of(poisoned)).poison = word(1, 3)
    pair.keeper.finish_all()
    assert mark_of(pair, log) == (1, 3)
    assert mark_of(pair, poisoned) == (1, 0)
    assert mark_of(Pair(pair.files.power_cut()), log) == (1, 3), "it is synced too"


def test_what_is_synced_is_told_before_its_mark_is_written(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 3)
    pair.publish(log)
    assert pair.keeper.round(0.0)[0]
    pair.settle()
    assert (log.durable, mark_of(pair, log)) == (3, (1, 0))
    pair.keeper.write_marks(0.0)
    assert mark_of(pair, log) == (1, 3)


def test_marks_are_written_now_and_then_and_the_last_one_is_synced_when_things_are_quiet(files: WritebackFiles):
    pair = Pair(files, options=KeeperOptions(mark_s=0.05, quiet_s=0.5))
    log = pair.open("/a")
    marks = []
    for now_s in (1.0, 1.01, 1.02, 1.06, 1.07):
        pair.append(log, 1)
        pair.publish(log)
        assert pair.keeper.round(now_s)[0]
        wait = pair.keeper.write_marks(now_s)
        marks.append(mark_of(pair, log)[1])
    assert marks == [1, 1, 1, 4, 4]
    assert wait == pytest.approx(0.04)  # the mark of the last round
    assert pair.keeper.round(1.11) == (False, pytest.approx(0.46))
    assert pair.keeper.write_marks(1.11) == pytest.approx(0.46)
    assert mark_of(pair, log) == (1, 5)
    assert mark_of(Pair(pair.files.power_cut()), log) < (1, 5)
    assert pair.keeper.round(1.58) == (False, None)
    assert pair.keeper.write_marks(1.58) is None
    assert mark_of(Pair(pair.files.power_cut()), log) == (1, 5)


def test_segments_that_are_sealed_are_closed_before_a_mark_is_due(files: WritebackFiles):
    pair = Pair(files, options=KeeperOptions(mark_s=5.0))
    log = pair.open("/a", segment_bytes=64 << 10)
    pair.append(log, 1)
    pair.publish(log)
    pair.round(0.0)
    pair.append(log, 8, size=20_000)
    pair.publish(log)
    pair.round(0.1)
    assert len(pair.keeper._tails[pair.watermarks.number_of(log)].segments) == 1
    assert log.durable == 9


def test_no_mark_is_left_for_a_log_that_was_forgotten_before_it_was_due(files: WritebackFiles):
    pair = Pair(files, options=KeeperOptions(mark_s=5.0))
    log, other = pair.open("/a"), pair.open("/b")
    for each in (other, log):
        pair.append(each, 1)
        pair.publish(each)
        pair.round(0.0 if each is other else 0.1)
    pair.watermarks.let_go(log)
    pair.deliver()
    assert pair.keeper.write_marks(9.0) == pytest.approx(-8.4)  # only the other log's, which waits to be synced
    assert mark_of(pair, log) == (1, 0)


def test_a_mark_that_waits_is_dropped_when_the_next_segment_cannot_be_opened(
    files: WritebackFiles, monkeypatch: pytest.MonkeyPatch
):
    pair = Pair(files, options=KeeperOptions(mark_s=5.0))
    log, other = pair.open("/a", segment_bytes=64 << 10), pair.open("/b")
    for now_s in (0.0, 0.1):
        for each in (log, other):
            pair.append(each, 1)
            pair.publish(each)
        pair.round(now_s)
    pair.append(log, 4, size=20_000)
    monkeypatch.setattr(SegmentFiles, "open", lambda *_: (_ for _ in ()).throw(OSError("no descriptor is left")))
    with pytest.raises(OSError, match="no descriptor"):
        pair.publish(log)
    pair.round(9.0)
    assert (mark_of(pair, log), mark_of(pair, other)) == ((0, 0), (1, 2))
    assert (log.durable, log.poisoned) == (2, None)  # the broker is told, and syncs it by itself


def test_a_mark_that_cannot_be_written_changes_nothing_about_what_is_synced(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log)
    monkeypatch.setattr(SegmentFiles, "write_mark", lambda *_: (_ for _ in ()).throw(OSError("no such luck")))
    pair.round()
    assert (log.durable, log.poisoned) == (1, None)
    assert "no such luck" in pair.warnings[0]
    monkeypatch.undo()
    pair.append(log, 1)
    pair.publish(log)
    pair.round()
    assert mark_of(pair, log) == (1, 2)


def test_a_partition_that_was_clean_for_long_is_seen_when_it_moves_and_a_new_one_beside_it(pair: Pair):
    logs = [pair.open(f"/{name}") for name in "abc"]
    for turn in range(3):
        for log in logs:
            pair.append(log, 1)
            pair.publish(log, idle=turn == 1)
            pair.round(float(turn))
            assert log.durable == log.written
        assert pair.keeper._dirty_rows() == []
    late = pair.open("/d")
    pair.append(late, 1)
    pair.append(logs[1], 1)
    pair.publish(late, logs[1])
    pair.round(9.0)
    assert (late.durable, logs[1].durable) == (1, 4)
