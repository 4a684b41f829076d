"""The races between broker, keeper, kernel and their deaths, each as a script over real code and a fake disk.

What must hold in each: nothing is acknowledged as durable that a power cut takes away, and what was
acknowledged as written survives the death of any process.
"""

from __future__ import annotations

import pytest
from penstock.broker.config import KeeperOptions
from penstock.broker.keeper.messages import NAMED_MOST, Named
from penstock.broker.keeper.unresolved_syncs import UnresolvedSyncs, doubts_of
from penstock.storage.batch import encode
from penstock.storage.board import Board, word
from penstock.storage.errors import Poisoned
from penstock.storage.log import LogWriter
from support.pair import Pair
from support.writeback import WritebackFiles


@pytest.fixture
def files() -> WritebackFiles:
    return WritebackFiles()


@pytest.fixture
def pair(files: WritebackFiles) -> Pair:
    return Pair(files)


def segment_of(log: LogWriter) -> str:
    """Path of the segment that is written to."""
    newest = max(name for name in log.files.listdir(log.path) if name.endswith(".segment"))
    return f"{log.path}/{newest}"


def durable_one(pair: Pair, log: LogWriter) -> None:
    """One batch that is durable, its mark too."""
    pair.append(log, 1)
    pair.publish(log)
    pair.round(0.0)
    pair.round(9.0)


def records(pair: Pair, path: str) -> int:
    """Records that a fresh start finds and can read."""
    log = pair.open(path)
    cursor, found = log.reader().cursor(0), 0
    while (chunk := cursor.next(limit_seq=log.written)) is not None:
        for batch in chunk.batches:
            batch.check()
            found += batch.record_count
    assert found == log.end_offset
    return found


# -- a result of an old generation ----------------------------------------------------------------


def test_a_sync_result_of_an_old_generation_is_ignored(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 3)
    pair.publish(log)
    steps, _ = pair.keeper.begin(0.0)
    done = pair.keeper.sync(steps)  # the result is on its way ...
    number, old = pair.watermarks.number_of(log), log.generation
    pair.watermarks.let_go(log)  # ... and the log is opened again meanwhile, as after a repair
    log.close(clean=False)
    again = pair.open("/a")
    pair.append(again, 1)
    pair.publish(again)
    assert again.generation > old
    durable = again.durable
    pair.keeper.finish(done)
    pair.board.row(pair.watermarks.number_of(again)).synced = word(old, again.written)
    pair.settle()
    assert again.durable == durable < again.written
    assert number != pair.watermarks.number_of(again)


def test_a_poison_of_an_old_generation_is_ignored(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log)
    pair.board.row(pair.watermarks.number_of(log)).poison = word(log.generation - 1, 1)
    pair.round()
    assert log.poisoned is None
    assert log.durable == 1


# -- a keeper that dies between sync_started and its result ------------------------------------------


def test_a_keeper_that_dies_in_a_sync_that_went_well_costs_nothing(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    pair.append(log, 2)
    pair.publish(log)
    pair.keeper.begin(1.0)
    pair.kill_keeper()
    assert (log.durable, log.poisoned) == (3, None)
    assert records(Pair(pair.files.power_cut()), "/a") == 3


def test_a_keeper_that_dies_in_a_sync_that_failed_is_answered_by_the_brokers_own_descriptor(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    pair.append(log, 2)
    pair.publish(log)
    steps, _ = pair.keeper.begin(1.0)
    pair.files.fail_next(segment_of(log))
    with pytest.raises(OSError, match="Input/output"):
        steps[0].files[-1].sync()  # the keeper was told, and died before it could say so
    pair.kill_keeper()
    assert log.durable == 1  # a successor's sync would have succeeded: the pages are clean
    assert log.poisoned is not None
    with pytest.raises(Poisoned):
        pair.append(log, 1)
    assert records(Pair(pair.files.power_cut()), "/a") == 1


def test_a_write_back_that_failed_before_any_sync_is_not_missed(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    pair.append(log, 1)
    pair.files.fail_next(segment_of(log))
    pair.files.write_back(segment_of(log), pair.files.contents[segment_of(log)])  # the kernel, in its own time
    pair.publish(log)
    pair.round(1.0)
    assert (log.durable, log.poisoned is None) == (1, False)


def test_a_successor_keeper_is_only_asked_about_bytes_written_after_it_opened_the_file(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    pair.append(log, 1)
    pair.publish(log)
    pair.keeper.begin(1.0)
    pair.kill_keeper()
    pair.start_keeper()
    assert log.durable == log.written
    pair.append(log, 1)
    pair.files.fail_next(segment_of(log))
    pair.publish(log)
    pair.round(2.0)
    assert (log.durable, log.poisoned is None) == (2, False)


def test_without_a_keeper_the_broker_goes_on_by_itself(pair: Pair):
    log, other = pair.open("/a"), pair.open("/b", commit="written")
    pair.kill_keeper()
    for _ in range(3):
        pair.append(log, 1)
        pair.append(other, 1)
        pair.publish(log, other)
    assert (log.durable, other.committed) == (3, 3)
    pair.start_keeper()
    pair.append(log, 1)
    pair.publish(log)
    assert log.durable == 3
    pair.round()
    assert log.durable == 4


# -- both die ---------------------------------------------------------------------------------------


def both_die_in_a_sync(pair: Pair, log: LogWriter, now_s: float) -> None:
    """Broker and keeper are killed after `sync_started`; the write-back failed, and the dead keeper was told."""
    steps, _ = pair.keeper.begin(now_s)
    pair.files.fail_next(segment_of(log))
    with pytest.raises(OSError, match="Input/output"):
        steps[0].files[-1].sync()


def test_written_records_survive_the_death_of_both_in_a_sync_and_are_really_durable_then(pair: Pair):
    log = pair.open("/a", commit="written")
    durable_one(pair, log)
    durable = log.durable
    pair.append(log, 4)  # acknowledged: the level is "written"
    pair.publish(log)
    pair.keeper.begin(20.0)
    both_die_in_a_sync(pair, log, now_s=21.0)
    assert records(Pair(pair.files.power_cut()), "/a") == durable
    suspect = log.log_id.hex() in {doubt.log_id for doubt in doubts_of(pair.board)}
    after = Pair(pair.files)
    again = after.open("/a", commit="written", suspect=suspect)
    assert again.end_offset == log.end_offset
    assert records(Pair(after.files.power_cut()), "/a") == log.end_offset


def test_a_sync_that_never_answered_is_in_doubt_for_the_next_broker(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    assert doubts_of(pair.board) == []
    pair.append(log, 2)
    pair.publish(log)
    both_die_in_a_sync(pair, log, now_s=1.0)
    found = doubts_of(pair.board)
    assert [(doubt.log_id, doubt.poisoned) for doubt in found] == [(log.log_id.hex(), False)]


def test_a_doubt_survives_a_crash_in_the_middle_of_the_next_start(tmp_path):
    from penstock.storage.data_directory import open_board
    from penstock.storage.files import Files

    files, data = Files(), str(tmp_path)
    board = Board.create(4, name=None, file=tmp_path / "board.shared")
    (tmp_path / "board").write_text(board.name)
    row = board.row(0)
    row.assign(7, generation=1, level=1)
    row.sync_started = row.written = word(1, 5)
    log_id = (7).to_bytes(16, "little")
    assert UnresolvedSyncs(files, data).about(log_id) is not None
    open_board(files, data, rows=4, slots=64).close()  # set up anew: it says nothing any more, and the broker dies
    second = UnresolvedSyncs(files, data)
    assert second.about(log_id) is not None
    second.settled(log_id)
    second.save()
    assert not UnresolvedSyncs(files, data)


# -- EIO ----------------------------------------------------------------------------------------------


def test_a_failed_sync_poisons_is_never_tried_again_and_acknowledges_nothing(pair: Pair):
    log, other = pair.open("/a"), pair.open("/b")
    durable_one(pair, log)
    durable_one(pair, other)
    pair.append(log, 2)
    pair.append(other, 2)
    pair.files.fail_next(segment_of(log))
    pair.publish(log, other)
    pair.round(10.0)
    assert (log.durable, other.durable) == (1, 3)
    assert log.poisoned is not None
    assert "failed" in pair.warnings[0]
    assert pair.files.exists("/a/poison")
    assert pair.board.row(pair.watermarks.number_of(log)).poison == word(log.generation, 3)
    before = pair.files.syncs
    pair.publish(log)
    pair.round(11.0)
    pair.round(12.0)
    assert log.durable == 1
    assert pair.files.syncs <= before + 1  # the other log's mark


def wide_round(pair: Pair, logs: list[LogWriter], now_s: float) -> None:
    """One batch to each of these logs, and a round."""
    for log in logs:
        pair.append(log, 1)
    pair.publish(*logs)
    pair.round(now_s)


@pytest.fixture
def four(files: WritebackFiles) -> tuple[Pair, list[LogWriter]]:
    """Four logs with one durable batch each, in rounds that sync more than two files at once."""
    pair = Pair(files, options=KeeperOptions(single_files=2, mark_s=0.0))
    logs = [pair.open(f"/{name}") for name in "abcd"]
    for log in logs:
        durable_one(pair, log)
    return pair, logs


def test_a_syncfs_that_fails_poisons_the_partition_whose_file_failed_and_no_other(four: tuple[Pair, list[LogWriter]]):
    pair, logs = four
    pair.files.fail_next(segment_of(logs[1]))
    wide_round(pair, logs, 10.0)
    assert [log.poisoned is None for log in logs] == [True, False, True, True]
    assert [log.durable for log in logs] == [2, 1, 2, 2]
    after = Pair(pair.files.power_cut())
    assert [records(after, log.path) for log in logs] == [2, 1, 2, 2]


def test_an_error_that_a_syncfs_told_of_a_file_outside_its_round_is_not_forgotten(four: tuple[Pair, list[LogWriter]]):
    pair, logs = four
    pair.append(logs[3], 1)  # while the others are synced
    pair.files.fail_next(segment_of(logs[3]))
    wide_round(pair, logs[:3], 10.0)
    wide_round(pair, logs, 11.0)
    assert [log.durable for log in logs] == [3, 3, 3, 1]
    assert [log.poisoned is None for log in logs] == [True, True, True, False]


def test_an_error_that_was_told_to_its_partition_poisons_no_other_in_the_next_wide_round(
    four: tuple[Pair, list[LogWriter]],
):
    pair, logs = four
    pair.files.fail_next(segment_of(logs[3]))
    wide_round(pair, logs[3:], 10.0)
    assert logs[3].poisoned is not None
    wide_round(pair, logs[:3], 11.0)
    assert [log.durable for log in logs] == [2, 2, 2, 1]


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_a_mark_that_cannot_be_synced_is_noticed_with_the_next_append(pair: Pair, commit: str):
    """The keeper does not ring for it, and would never answer for what follows."""
    log = pair.open("/a", commit=commit)
    pair.append(log, 1)
    pair.publish(log)
    for now_s in (0.0, 0.2):
        pair.round(now_s)
    pair.files.fail_next(segment_of(log))
    pair.round(9.0)
    assert pair.files.exists("/a/poison")
    pair.append(log, 1)
    pair.publish(log, idle=True, now_s=9.0)
    assert (log.durable, log.poisoned is None, pair.watermarks.waiting) == (1, False, False)
    with pytest.raises(Poisoned):
        pair.append(log, 1)


def test_after_an_eio_and_a_restart_of_both_the_log_is_cut_at_the_mark_and_goes_on(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    pair.append(log, 3)
    pair.files.fail_next(segment_of(log))
    pair.publish(log)
    pair.round(1.0)
    assert log.poisoned is not None
    after = Pair(pair.files)
    again = after.open("/a")
    assert again.written == again.durable == 1
    pair_of_new = after.append(again, 2)
    assert pair_of_new == [2, 3]
    assert again.generation > log.generation
    after.publish(again)
    after.round(2.0)
    assert again.durable == 3
    assert records(Pair(after.files.power_cut()), "/a") == 3


@pytest.mark.parametrize("idle", [False, True], ids=["keeper", "inline"])
def test_an_eio_and_then_a_power_cut_take_nothing_that_was_acknowledged(pair: Pair, idle: bool):
    log = pair.open("/a")
    for turn in range(3):  # the mark of the last of these is in the page cache only
        pair.append(log, 1)
        pair.publish(log, idle=idle, now_s=turn / 100)
        pair.round(turn / 100)
    assert log.durable == 3
    pair.append(log, 2)
    pair.files.fail_next(segment_of(log))
    pair.publish(log, idle=idle, now_s=0.1)
    pair.round(0.1)
    assert (log.durable, log.poisoned is None) == (3, False)
    after = Pair(pair.files.power_cut())
    again = after.open("/a")
    assert again.durable == 3
    assert after.append(again, 1) == [4]
    assert records(Pair(after.files.power_cut()), "/a") >= 3


def test_an_inline_sync_that_fails_poisons_as_the_keepers_does(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    pair.append(log, 1)
    pair.files.fail_next(segment_of(log))
    pair.publish(log, idle=True)
    assert (log.durable, log.poisoned is None) == (1, False)
    assert pair.board.row(pair.watermarks.number_of(log)).poison != 0


# -- a keeper that was stopped and wakes late ---------------------------------------------------------


def test_a_keeper_that_wakes_late_does_not_move_any_word_back(pair: Pair):
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log)
    steps, _ = pair.keeper.begin(0.0)
    stopped = pair.kill_keeper()  # the broker took it for dead, and settled what it left open
    pair.start_keeper()
    pair.append(log, 2)
    pair.publish(log)
    pair.round(1.0)
    row = pair.board.row(pair.watermarks.number_of(log))
    before = (row.synced, row.durable, log.durable)
    stopped.finish(stopped.sync(steps))
    pair.settle()
    assert (row.synced, row.durable, log.durable) == before == (word(1, 3), word(1, 3), 3)
    assert records(Pair(pair.files.power_cut()), "/a") == 3


def test_a_keeper_that_wakes_late_with_an_error_does_not_poison_a_new_generation(pair: Pair):
    log = pair.open("/a")
    durable_one(pair, log)
    pair.append(log, 1)
    pair.publish(log)
    steps, _ = pair.keeper.begin(1.0)
    stopped = pair.kill_keeper()
    number = pair.watermarks.number_of(log)
    pair.watermarks.let_go(log)
    log.close(clean=False)
    again = pair.open("/a")
    assert pair.watermarks.number_of(again) == number
    pair.append(again, 1)
    pair.start_keeper()
    stopped._poison(steps[0], OSError(5, "Input/output error"))
    pair.settle()
    assert again.poisoned is None
    assert not pair.files.exists("/a/poison")


def test_a_keeper_of_an_earlier_board_writes_no_word(files: WritebackFiles, tmp_path):
    board = Board.create(8, name=None, file=tmp_path / "board")
    pair = Pair(files, board=board)
    log = pair.open("/a")
    pair.append(log, 1)
    pair.publish(log)
    steps, _ = pair.keeper.begin(0.0)
    second = Board.create(8, name=None, file=tmp_path / "board")  # set up anew in place by the next broker
    pair.keeper.finish(pair.keeper.sync(steps))
    assert pair.keeper.begin(1.0) == ([], None)
    assert second.row(0).synced == 0


def test_a_keeper_that_does_nothing_is_noticed_after_the_stated_time_and_not_before(pair: Pair):
    log = pair.open("/a")
    assert not pair.watermarks.stuck(1000.0, timeout_s=30.0)
    pair.append(log, 1)
    pair.publish(log, now_s=1000.0)
    assert not pair.watermarks.stuck(1029.0, timeout_s=30.0)
    assert pair.watermarks.stuck(1031.0, timeout_s=30.0)
    pair.round(1031.0)
    assert not pair.watermarks.stuck(2000.0, timeout_s=30.0)


def test_what_a_stopped_keeper_left_open_is_durable_once_it_is_replaced(pair: Pair):
    log = pair.open("/a")
    log.append([encode([b"one"])], 1)
    pair.publish(log)
    pair.keeper.begin(0.0)
    assert log.committed == 0
    pair.kill_keeper()
    pair.start_keeper()
    assert log.committed == 1


# -- requests that have a name -----------------------------------------------------------------------


def test_the_keeper_hears_which_requests_wait_for_the_round_that_it_is_rung_for(pair: Pair):
    log, lazy = pair.open("/log"), pair.open("/lazy", commit="written")
    heard: list[list[str]] = []
    for logs, idle, names in (
        ([log], False, ["a", "b"]), ([log], False, []), ([log], True, ["inline"]), ([lazy], False, ["lazy"]),
        ([log, lazy], True, [str(number) for number in range(NAMED_MOST + 1)]),
    ):  # fmt: skip
        for each in logs:
            pair.append(each, 1)
        rings = pair.link.rings
        pair.watermarks.flushed(logs, idle=idle, now_s=0.0, named=names)
        named = [each.ids for each in pair.link.commands if isinstance(each, Named)]
        assert not named or pair.link.rings > rings
        heard += named
        pair.deliver()
        pair.round()
    assert heard == [["a", "b"], [str(number) for number in range(NAMED_MOST)]]
