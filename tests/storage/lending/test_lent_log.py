"""Appending to a lent log and following it, with something happening at every step of an append."""

from __future__ import annotations

import errno
import random

import pytest
from penstock.storage.batch import encode
from penstock.storage.errors import Poisoned
from penstock.storage.lending.appending import DirectAppender
from support.lending import LATER, PRODUCER, Killed, LentLog, OnceFile

HAPPENINGS = ("borrow", "recall", "force", "restart", "restart elsewhere", "interrupt", "kill", "fail")


def happen(lent: LentLog, what: str) -> None:
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "kill":
        raise Killed
    if what == "fail":
        raise OSError(errno.EIO, "failed")
    if what == "restart elsewhere":
        lent.restart(board_lost=True)
    else:
        getattr(lent, what)()


def steps_of_an_append() -> int:
    lent = LentLog()
    assert lent.send(b"one") is not None
    return lent.steps.count


STEPS = range(1, steps_of_an_append() + 1)


def check(lent: LentLog) -> None:
    """What was acknowledged and what was seen is there, each once and in order, also for the next broker."""
    lent.steps.always = lambda: None
    lent.end_grant()
    assert lent.files.overwritten == []
    for _ in range(2):
        values = lent.values()
        assert [value for value in values if value in lent.acked] == lent.acked
        assert lent.seen == values[: len(lent.seen)]
        assert len([each for each in values if each != b"broker's"]) == len(set(values) - {b"broker's"})
        lent.restart()


def test_the_broker_follows_what_the_producer_appends() -> None:
    lent = LentLog()
    for number in range(300):
        assert lent.send(b"%d" % number) is not None
    assert lent.log.written == 1
    assert lent.lender.moved
    lent.lender.follow(LATER)
    assert [batch.seq for batch in lent.lender.taken()] == list(range(2, 302))
    assert lent.log.end_offset == 301
    assert not lent.lender.moved
    assert not lent.lender.refused
    assert lent.values() == [b"first", *(b"%d" % number for number in range(300))]
    check(lent)


def test_a_borrowed_log_goes_on_being_lent() -> None:
    lent = LentLog()
    for number in range(5):
        assert lent.send(b"%d" % number) is not None
        lent.borrow()
    assert lent.lender.lent
    assert lent.values() == [b"first", *(each for n in range(5) for each in (b"%d" % n, b"broker's"))]
    check(lent)


def test_a_reader_sees_a_record_before_the_broker_follows() -> None:
    lent = LentLog()
    lent.send(b"one")
    lent.look(lent.row, lent.incarnation)
    assert lent.seen == [b"first", b"one"]
    assert lent.log.written == 1


def test_a_full_segment_goes_through_the_broker() -> None:
    lent = LentLog(segment_bytes=8192)
    direct = [lent.send(b"%d" % number) is not None for number in range(40)]
    assert direct[0]
    assert not all(direct)
    check(lent)


@pytest.mark.parametrize("what", HAPPENINGS)
@pytest.mark.parametrize("step", STEPS)
def test_whatever_happens_at_any_step_nothing_is_lost_or_twice(step: int, what: str) -> None:
    lent = LentLog()
    row, incarnation = lent.row, lent.incarnation
    lent.send(b"zero")
    lent.steps.always = lambda: lent.look(row, incarnation)
    lent.steps.at[lent.steps.count + step] = lambda: happen(lent, what)
    try:
        lent.send(b"one")
    except Killed:
        lent.end_grant()
    lent.look(row, incarnation)
    if lent.appender is None or lent.appender.ended:
        lent.end_grant()
        lent.log.sync()
        assert lent.grant() is not None
    lent.send(b"two")
    lent.look(row, incarnation)
    assert b"two" in lent.acked
    check(lent)


@pytest.mark.parametrize("step", STEPS)
def test_a_child_that_goes_on_from_any_step_changes_nothing(step: int) -> None:
    lent = LentLog()
    appender = lent.appender
    assert isinstance(appender, DirectAppender)
    left: list[object] = []

    def fork() -> None:
        appender._forked()
        appender._process = 0
        left.append(lent.contents())

    lent.steps.at[lent.steps.count + step] = fork
    appender.append(encode([b"one"], producer_id=PRODUCER))
    assert left == [lent.contents()]
    assert appender.append(encode([b"two"], producer_id=PRODUCER, first_sequence=1)) is None
    assert left == [lent.contents()]
    assert not appender.has_grant


def test_what_the_broker_cannot_read_ends_its_appends_and_is_there_for_the_next_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    lent = LentLog()
    assert lent.send(b"one") is not None
    with monkeypatch.context() as broken:
        broken.setattr(OnceFile, "pread", fail)
        lent.lender.follow(LATER)
        assert lent.lender.recall(LATER)
    assert (lent.lender.lent, lent.lender.refused, lent.log.written) == (False, "", 1)
    with pytest.raises(Poisoned, match="cannot be read"):
        lent.append(b"more")
    lent.restart()
    assert lent.values() == [b"first", b"one"]


def test_an_appender_ends_with_its_grant() -> None:
    lent = LentLog()
    appender = lent.appender
    assert isinstance(appender, DirectAppender)
    lent.recall()
    assert lent.send(b"one") is None
    assert appender.ended
    assert lent.values() == [b"first", b"one"]


def test_a_log_is_not_lent_while_its_byte_is_busy() -> None:
    lent = LentLog()
    found: list[object] = []
    lent.steps.at[4] = lent.force
    lent.steps.at[5] = lambda: found.append(lent.grant())
    lent.send(b"one")
    assert found == [None]
    assert lent.values()[-1] == b"one"


@pytest.mark.parametrize("seed", range(60))
def test_a_life_loses_and_repeats_nothing(seed: int) -> None:
    choose, lent = random.Random(seed), LentLog(segment_bytes=choose_size(seed))
    for number in range(12):
        row, incarnation = lent.row, lent.incarnation
        lent.steps.always = lambda row=row, incarnation=incarnation: lent.look(row, incarnation)
        for _ in range(choose.randrange(3)):
            step, what = lent.steps.count + choose.choice(STEPS), choose.choice(HAPPENINGS)
            lent.steps.at[step] = lambda what=what: happen(lent, what)
        try:
            lent.send(b"%d" % number)
        except Killed:
            lent.end_grant()
        lent.steps.at.clear()
        if lent.appender is None or lent.appender.ended:
            lent.end_grant()
            lent.log.sync()
            lent.grant()
    check(lent)


def choose_size(seed: int) -> int:
    return 1 << 20 if seed % 2 else 8192
