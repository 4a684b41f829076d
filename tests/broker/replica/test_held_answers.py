"""Answers that need proof of the lead wait for a round that began after their request."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.broker.replica.held_answers import HeldAnswers
from penstock.storage.errors import Corrupt, ReadFailed
from penstock.transport import messages as m
from support.engine import MemoryPort


def sent(port: MemoryPort) -> list[int]:
    return [message.request for _, message, _ in port.sent]


def test_an_answer_leaves_once_its_round_is_confirmed_and_its_entry_applied():
    port = MemoryPort()
    answers = HeldAnswers(port)
    assert answers.begin_round() is None
    assert answers.reply("c", m.Done(1))
    first = answers.begin_round()
    answers.reply("c", m.Done(2))
    second = answers.begin_round()
    assert first
    assert second
    answers.release(99)
    assert sent(port) == []
    answers.confirm(second, 7)
    answers.release(6)
    assert sent(port) == []
    answers.release(7)
    assert sent(port) == [2]
    answers.confirm(first, 3)
    answers.confirm(first, 3)
    answers.release(7)
    assert sent(port) == [2, 1]
    answers.release(8)
    assert sent(port) == [2, 1]


def test_what_is_answered_while_commits_are_applied_passes_at_once():
    port = MemoryPort()
    answers = HeldAnswers(port)
    answers.passing = True
    answers.reply("c", m.Done(1))
    answers.passing = False
    assert sent(port) == [1]
    assert answers.begin_round() is None


def test_held_answers_go_with_the_lead():
    port = MemoryPort()
    answers = HeldAnswers(port)
    answers.reply("c", m.Done(1))
    context = answers.begin_round()
    answers.reply("c", m.Done(2))
    answers.drop()
    assert context
    answers.confirm(context, 1)
    answers.release(9)
    assert sent(port) == []
    assert answers.begin_round() is None


def test_nothing_leaves_once_a_read_has_met_damage():
    port = MemoryPort()
    answers = HeldAnswers(port)
    answers.meet(Corrupt("first"))
    answers.meet(Corrupt("second"))
    answers.passing = True
    assert answers.reply("c", m.Done(1))
    assert answers.deliver(1, m.Deliver(1, 1, 0, 0, 0, 0, 0, 0), b"")
    assert port.sent == []
    assert answers.damage is not None
    assert answers.damage.message == "first"


@pytest.mark.parametrize(
    ("spared", "mends", "told", "closes"),
    [(True, True, Corrupt, True), (False, True, ReadFailed, False), (False, False, Corrupt, False)],
)
def test_a_reader_is_told_of_damage_unless_others_may_have_what_is_damaged(spared, mends, told, closes):
    port, heard = MemoryPort(), list[Corrupt]()
    port.read = raising  # pyright: ignore[reportAttributeAccessIssue]
    answers = HeldAnswers(port)
    answers.spared, answers.mends, answers.tell = lambda: spared, lambda damage: mends, heard.append
    for _ in range(2):
        with pytest.raises(told) as raised:
            answers.read(Any, 1, 1, "token")
        assert (raised.value.retry_after > 0) == (told is ReadFailed), "clients ask again by themselves"
    assert (answers.damage is not None, len(heard)) == (closes, 0 if closes else 1)


def raising(*_: object) -> None:
    raise Corrupt("bad")


@pytest.mark.parametrize(
    ("spared", "mends", "told", "closes"),
    [(True, True, Corrupt, True), (False, True, ReadFailed, False), (False, False, OSError, False)],
)
def test_a_reader_is_told_of_a_bad_sector_as_of_damage_where_others_may_have_what_it_held(spared, mends, told, closes):
    port, heard = MemoryPort(), list[Corrupt]()
    port.read = unread(errno.EIO)  # pyright: ignore[reportAttributeAccessIssue]
    answers = HeldAnswers(port)
    answers.spared, answers.mends, answers.tell = lambda: spared, lambda damage: mends, heard.append
    for _ in range(2):
        with pytest.raises(told, match=os.strerror(errno.EIO)):
            answers.read(PLACE, 1, 1, "token")
    assert (answers.damage is not None, len(heard)) == (closes, 0 if closes else 1)
    assert {each.path for each in heard} <= {PLACE.path}


def test_what_keeps_a_port_from_reading_now_is_no_damage():
    port = MemoryPort()
    port.read = unread(errno.EACCES)  # pyright: ignore[reportAttributeAccessIssue]
    answers = HeldAnswers(port)
    with pytest.raises(OSError, match=os.strerror(errno.EACCES)):
        answers.read(PLACE, 1, 1, "token")
    assert answers.damage is None


PLACE: Any = SimpleNamespace(path="data/topics/t/0")


def unread(code: int) -> Callable[..., None]:
    """A port's way of reading that fails."""

    def read(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return read
