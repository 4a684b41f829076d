"""The order of the broker's steps: what the appender or a reader could do between two of them is never wrong.

The tests of `test_lent_log.py` stop an appender at each of its steps; here it is the broker that is looked at.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from penstock.storage.batch import encode
from penstock.storage.board_row import PAUSED, ROW_WORD, Row
from penstock.storage.layout import word
from penstock.storage.lending import appending
from penstock.storage.lending.grant import byte_of
from penstock.storage.log import LogOptions
from support.lending import LATER, PRODUCER, TIME, Bytes, LentLog

LENT, APPENDED = ROW_WORD["lent"], ROW_WORD["appended"]


class Observed(LentLog):
    """A lent log that notes what its lender does to the row and the byte, and when it publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []
        lender: Any = self.lender
        lender._row = Row(cast("memoryview", NotingWords(self.row.words, self.noted)))
        lender._locks = NotingBytes(self.table, self.noted)
        lender._publish = self._noting_publish

    def _noting_publish(self) -> None:
        self.noted.append(f"publish {self.log.generation}:{self.log.written}")
        self.publish()


class NotingWords:
    """The words of a row."""

    def __init__(self, words: Any, noted: list[str]) -> None:
        self._words, self._noted = words, noted

    def __getitem__(self, place: int) -> int:
        if place == APPENDED:
            self._noted.append("look")
        return self._words[place]

    def __setitem__(self, place: int, value: int) -> None:
        if place == LENT:
            self._noted.append("pause" if value & PAUSED else "lent" if value else "not lent")
        self._words[place] = value


class NotingBytes(Bytes):
    """The byte of the row."""

    def __init__(self, table: dict[int, Bytes], noted: list[str]) -> None:
        super().__init__(table)
        self._noted = noted

    def take(self, number: int) -> bool:
        taken = super().take(number)
        self._noted.append("take" if taken else "busy")
        return taken

    def give_back(self, number: int) -> None:
        self._noted.append("free")
        super().give_back(number)


def test_the_byte_is_free_again_only_after_what_the_broker_appended_is_published() -> None:
    lent = Observed()
    lent.send(b"one")
    assert lent.lender.borrow(LATER)
    lent.log.append([encode([b"broker's"])], TIME)
    lent.lender.give_back()
    assert lent.noted == ["pause", "take", "publish 1:2", "publish 1:3", "free", "lent"]


def test_a_grant_is_over_before_the_byte_is_free() -> None:
    lent = Observed()
    lent.send(b"one")
    assert lent.lender.recall(LATER)
    assert lent.noted == ["pause", "take", "publish 1:2", "not lent", "free"]


def test_a_forced_recall_ends_the_grant_and_makes_a_system_call_before_its_only_look() -> None:
    lent = Observed()
    lent.send(b"one")
    lent.table[byte_of(0)] = Bytes({})  # of a producer that is stopped
    assert not lent.lender.recall(LATER)
    assert lent.noted == ["pause", "busy"]
    lent.noted.clear()
    lent.lender.force(LATER)
    assert lent.noted == ["not lent", "busy", "free", "look", "publish 1:2", "publish 2:2"]


def test_a_borrow_of_a_log_that_has_what_may_not_stand_fails_and_frees_the_byte() -> None:
    lent = Observed()
    assert lent.appender is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "is_plain", lambda *_: True)
        lent.appender.append(encode([b"x"], producer_id=PRODUCER, first_sequence=5))
    lent.noted.clear()
    assert not lent.lender.borrow(LATER)
    assert lent.lender.refused
    assert lent.noted == ["pause", "take", "free"]
    assert lent.lender.recall(LATER)
    lent.append(b"next")
    assert lent.values() == [b"first", b"next"]


@pytest.mark.parametrize("what", ["must_cut", "poisoned"])
def test_a_log_that_is_in_doubt_after_a_borrow_is_not_lent_any_more(what: str) -> None:
    lent = LentLog()
    assert lent.lender.borrow(LATER)
    setattr(lent.log, what, True if what == "must_cut" else OSError("the disk failed"))
    lent.lender.give_back()
    assert not lent.lender.lent
    assert lent.row.lent == 0
    assert not lent.table


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("must_cut", True),
        ("poisoned", OSError()),
        ("segment_ends", True),
        ("in_term", False),
        ("ready", False),
        ("options", LogOptions(commit="durable")),
    ],
)
def test_no_log_is_lent_that_is_in_motion_or_in_doubt(what: str, value: object) -> None:
    lent = LentLog()
    lent.recall()
    setattr(lent.log, what, value)
    terms: Any = None
    assert lent.lender.lend(9, terms, time_us=0, monotonic_s=0.0) is None
    assert not lent.table


@pytest.mark.parametrize("force", [False, True])
def test_a_word_of_another_generation_says_nothing(force: bool) -> None:
    lent = LentLog()
    lent.row.appended = word(2, 9)
    if force:
        lent.force()
    else:
        lent.lender.follow(LATER)
    assert lent.lender.refused == ""
    assert lent.log.written == 1
