"""The checker finds each class of fault in a history made by hand."""

from __future__ import annotations

from support.checker import Sent, check_read, check_stored, name


def log(*numbers: int, producer: str = "p") -> list[bytes]:
    return [name(producer, number) for number in numbers]


def test_a_clean_history_is_ok():
    verdict = check_stored({"p": Sent(4, {0, 1, 2})}, [log(0, 2), log(1)])
    assert (verdict.ok, verdict.unknown, verdict.lost) == (3, 1, [])
    assert verdict.duplicate == verdict.reordered == verdict.phantom == []


def test_each_fault_is_found():
    sent = {"p": Sent(6, {0, 1, 2, 3})}
    assert check_stored(sent, [log(0, 1, 3)]).lost == ["p 2"]
    assert check_stored(sent, [log(0, 1, 2, 3, 2)]).duplicate == ["p 2"]
    assert check_stored(sent, [log(0, 1), log(2, 3, 1)]).duplicate == ["p 1"]
    assert check_stored(sent, [log(0, 2, 1, 3)]).reordered == ["p 1"]
    assert check_stored(sent, [log(0, 1, 2, 3, 6)]).phantom == ["p 6"]
    assert check_stored(sent, [log(0, 1, 2, 3), log(0, producer="q")]).phantom == ["q 0"]
    assert "1 lost" in str(check_stored(sent, [log(0, 1, 3)]))


def test_what_was_sent_and_never_acknowledged_may_be_there_or_not():
    sent = {"p": Sent(3, {0})}
    for stored in (log(0), log(0, 1), log(0, 2), log(0, 1, 2)):
        verdict = check_stored(sent, [stored])
        assert not verdict.lost + verdict.duplicate + verdict.reordered + verdict.phantom


def test_reading_is_judged_against_the_log():
    stored = log(0, 1, 2)
    assert check_read(stored, list(enumerate(stored))).ok == 3
    assert check_read(stored, [(0, stored[0]), (2, stored[2])]).lost == ["b'p 1' at 1"]
    assert len(check_read(stored, [*enumerate(stored), (1, stored[1])]).duplicate) == 1
    assert check_read(stored, [(0, stored[1])]).phantom == ["b'p 1' at 0"]
