"""What the log says of requests that have a name, and how much of it."""

from __future__ import annotations

import logging

import pytest
from penstock.broker.request_names import ALL_MOST, LINES_MOST, NAMED_MOST, SLOW_S, WARNINGS_MOST, RequestNames
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.errors import ProtocolError

TOPIC = bytes(16)
DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING


class Log:
    """Names over a log that is a list."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []
        self.names = RequestNames(lambda sentence, level: self.lines.append((sentence, level)))

    def asked(self, number: int, *ids: str, at_s: float = 0.0, wait_ms: int = -1, peer: str = "a") -> None:
        """A request came with its name: a Produce, or a Fetch that waits."""
        self.names.heard(peer, m.NameRequest(number, list(ids)), at_s)
        request = m.Produce(number, TOPIC, 0) if wait_ms < 0 else m.Fetch(number, TOPIC, 0, 0, -1, 1, wait_ms)
        self.names.heard(peer, request, at_s)

    def answered(self, number: int, code: str = "", at_s: float = 0.0, peer: str = "a") -> list[tuple[str, int]]:
        """The answer leaves. Returns the lines that follow."""
        answer = m.Failure(number, code, "why") if code else m.Produced(number, 0, 0, 0)
        self.names.answered(peer, answer, at_s)
        lines, self.lines[:] = list(self.lines), []
        return lines


@pytest.mark.parametrize(
    ("code", "took_s", "wait_ms", "level"),
    [
        ("", 0.5, -1, DEBUG), ("unknown_topic", 0.5, -1, INFO), ("forbidden", 0.5, -1, WARNING),
        ("", SLOW_S, -1, WARNING), ("", SLOW_S - 0.01, -1, DEBUG), ("unknown_topic", SLOW_S, -1, WARNING),
        ("", 5.0, 5_000, DEBUG), ("", 5.0 + SLOW_S, 5_000, WARNING), ("", 5.0, 0, WARNING),
    ],
)  # fmt: skip
def test_an_answer_is_told_as_loudly_as_it_matters(code, took_s, wait_ms, level):
    log = Log()
    log.asked(7, "order-17", at_s=1.0, wait_ms=wait_ms)
    kind, outcome = "Produce" if wait_ms < 0 else "Fetch", f"{code} after {took_s:.3g} s: why"
    expected = f"request order-17: {kind}: {outcome if code else f'Produced after {took_s:.3g} s'}"
    assert log.answered(7, code, 1.0 + took_s) == [(expected, level)]


def test_a_request_of_several_is_told_of_each():
    log = Log()
    log.asked(7, "one", "two")
    said = [sentence for sentence, _ in log.answered(7)]
    assert said == ["request one: Produce: Produced after 0 s", "request two: Produce: Produced after 0 s"]


def test_one_without_a_name_is_not_told():
    log = Log()
    log.asked(7, "one")
    log.names.heard("a", m.Produce(8, TOPIC, 0), 0.0)
    log.names.heard("b", m.Produce(7, TOPIC, 0), 0.0)
    assert log.answered(8) == log.answered(7, peer="b") == []
    assert len(log.names.fresh) == 1
    assert len(log.answered(7)) == 1
    assert log.answered(7) == []
    assert not log.names.open


def test_a_name_without_its_request_goes_with_its_connection():
    log = Log()
    log.names.heard("a", m.NameRequest(7, ["order-17"]), 0.0)
    assert (log.names.promised("a"), log.names.promised("b")) == ("order-17", "")
    log.names.heard("a", m.Ping(7), 0.0)
    assert log.names.promised("a") == ""
    log.names.lost("a")
    log.names.lost("b")
    assert log.answered(7) == []
    assert not log.names.open


def test_the_last_that_was_announced_is_promised():
    log = Log()
    log.asked(7, "one")
    log.names.heard("a", m.NameRequest(8, ["two"]), 0.0)
    assert log.names.promised("a") == "two"


def test_what_was_announced_and_never_came_may_be_answered_as_too_much():
    log = Log()
    log.names.heard("a", m.NameRequest(7, ["order-17"]), 0.0)
    assert log.answered(7, "too_much_asked") == [("request order-17: announced: too_much_asked after 0 s: why", INFO)]


def test_what_waits_for_a_sync_is_what_has_no_answer_and_waits_for_nothing_else():
    log = Log()
    log.asked(1, "answered")
    log.asked(2, "waits", "too")
    log.asked(3, "reads", wait_ms=10)
    log.answered(1)
    assert log.names.take_waiting() == ["waits", "too"]
    assert log.names.take_waiting() == []
    assert log.answered(2) != []


def test_names_of_a_connection_are_bounded_and_the_oldest_goes():
    log = Log()
    for number in range(1, NAMED_MOST + 2):
        log.asked(number, f"id-{number}")
    assert log.answered(1) == []
    assert len(log.answered(2)) == len(log.answered(NAMED_MOST + 1)) == 1
    assert len(log.names.open["a"]) == NAMED_MOST - 2


def test_all_names_are_bounded_and_room_is_used_again():
    log = Log()
    for peer in range(ALL_MOST // NAMED_MOST):
        for number in range(1, NAMED_MOST + 1):
            log.asked(number, "x", peer=str(peer))
    log.asked(1, "late", peer="late")
    assert log.answered(1, peer="late") == []
    log.asked(1, "again", peer="0")  # the name of a request that has one
    log.names.lost("1")
    log.asked(1, "late", peer="late")
    assert len(log.answered(1, peer="late")) == 1
    for number in range(1, NAMED_MOST + 2):
        log.asked(number, "x", peer="late")
    assert sum(map(len, log.names.open.values())) == ALL_MOST


@pytest.mark.parametrize(("code", "most"), [("forbidden", WARNINGS_MOST), ("", LINES_MOST)])
def test_lines_are_bounded_by_the_second_and_those_left_out_are_counted(code, most):
    log = Log()
    said = []
    for number in range(1, most + 4):
        log.asked(number, "x", at_s=5.0)
        said += log.answered(number, code, 5.0)
    assert len(said) == most
    for number, left in ((1, 3), (2, 0)):
        log.asked(number, "x", at_s=6.0)
        ((sentence, _),) = log.answered(number, code, 6.0)
        assert sentence.endswith("(3 such lines were left out before)") is bool(left)


def test_a_name_that_is_said_again_is_counted_once():
    log = Log()
    for _ in range(ALL_MOST + 1):
        log.names.heard("a", m.NameRequest(1, ["x"]), 0.0)
    log.asked(1, "y", peer="b")
    assert len(log.answered(1, peer="b")) == 1


def test_a_request_takes_as_long_as_it_is_here_not_as_its_name():
    log = Log()
    log.names.heard("a", m.NameRequest(1, ["x"]), 0.0)
    log.names.heard("a", m.Produce(1, TOPIC, 0), 2 * SLOW_S)
    ((sentence, level),) = log.answered(1, at_s=2.25 * SLOW_S)
    assert level == DEBUG
    assert f"after {0.25 * SLOW_S:.3g} s" in sentence


def test_many_loud_lines_leave_room_for_quiet_ones():
    log = Log()
    for number in range(1, WARNINGS_MOST + 2):
        log.asked(number, "x")
        log.answered(number, "forbidden")
    log.asked(1, "x")
    assert len(log.answered(1)) == 1


WRONG_IDS = [[], [""], ["a b"], ["a\n"], ["\na"], ["\xe9"], ["x" * 129], ["fine", "\x1b[2J"], ["x"] * 65, [b"x"]]


@pytest.mark.parametrize("ids", WRONG_IDS)
def test_an_id_that_could_end_a_line_is_no_message(ids):
    with pytest.raises(ProtocolError):
        codec.decode_request([codec.encode(m.NameRequest(1, ids))])


def test_the_longest_ids_are_one():
    message = m.NameRequest(1, ["!~" * 64] * 64)
    assert codec.decode_request([codec.encode(message)])[0] == message
