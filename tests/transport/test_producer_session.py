"""Every batch settles once, in order, whatever happens to connections and answers."""

from __future__ import annotations

import random
from itertools import count

import pytest
from penstock.transport.errors import SessionBroken
from penstock.transport.messages import Failure, Produced
from penstock.transport.producer_session import InFlight, ProducerSession

BUSY = ("storage_full", "the disk is full", True)
GAP = ("sequence_gap", "something is missing", False)
UNKNOWN = ("unknown_producer", "who are you", False)


class Line:
    """A session and the requests it sends, as (request, first sequence)."""

    def __init__(self, **options: int) -> None:
        self.session = ProducerSession(1, **options)
        self.sent: list[tuple[int, int]] = []
        self._requests = count(1)

    def add(self, *counts: int, size: int = 100) -> None:
        for records in counts:
            self.session.add(bytes(size), records, handle=self.session.next_sequence)

    def send_all(self) -> list[tuple[int, int]]:
        start = len(self.sent)
        while (batch := self.session.to_send()) is not None:
            request = next(self._requests)
            self.session.sent(batch, request)
            self.sent.append((request, batch.first_sequence))
        return self.sent[start:]

    def told(self, answer: Produced | Failure) -> list[InFlight]:
        """Take an answer; returns what it settled, and takes that off."""
        if isinstance(answer, Produced):
            self.session.produced(answer)
        else:
            self.session.failed(answer)
        return self.settled()

    def settled(self) -> list[InFlight]:
        found = [*self.session.settled]
        self.session.settled.clear()
        return found


def yes(request: int) -> Produced:
    return Produced(request, offset=request * 100, term=1, time_us=0)


def no(request: int, kind: tuple[str, str, bool]) -> Failure:
    return Failure(request, *kind)


def handles(settled: list) -> list[int]:
    return [each.handle for each in settled]


def test_sequences_follow_the_records():
    line = Line(next_sequence=7)
    line.add(3, 1, 5)
    assert line.send_all() == [(1, 7), (2, 10), (3, 11)]
    assert line.session.next_sequence == 16


def test_batches_settle_in_order_though_answers_do_not():
    line = Line()
    line.add(1, 1, 1)
    line.send_all()
    assert line.told(yes(3)) == []
    assert line.told(yes(2)) == []
    settled = line.told(yes(1))
    assert handles(settled) == [0, 1, 2]
    assert [each.produced.offset for each in settled] == [100, 200, 300]
    assert len(line.session) == line.session.bytes_in_flight == 0


def test_an_answer_settles_a_batch_once():
    line = Line()
    line.add(1)
    line.send_all()
    assert handles(line.told(yes(1))) == [0]
    assert line.told(yes(1)) == []
    assert line.told(no(1, GAP)) == []
    assert line.session.broken is None


def test_a_lost_connection_sends_everything_again_in_order_with_the_same_sequences():
    line = Line()
    line.add(2, 3, 4)
    assert line.send_all() == [(1, 0), (2, 2), (3, 5)]
    line.session.lost()
    assert line.told(yes(2)) == []  # of the old connection: not trusted, it will be answered again
    assert line.send_all() == [(4, 0), (5, 2), (6, 5)]
    assert handles(line.told(yes(4))) == [0]


def test_what_was_answered_before_the_loss_is_not_sent_again():
    line = Line()
    line.add(1, 1, 1)
    line.send_all()
    line.told(yes(2))
    line.session.lost()
    assert line.send_all() == [(4, 0), (5, 2)]
    assert handles(line.told(yes(4))) == [0, 1]


def test_a_loss_before_anything_was_sent_changes_nothing():
    line = Line()
    line.add(1)
    line.session.lost()
    assert line.send_all() == [(1, 0)]


def test_a_failure_that_a_retry_can_help_sends_that_batch_and_all_after_it_again():
    line = Line()
    line.add(1, 1, 1)
    line.send_all()
    assert line.told(no(2, BUSY)) == []
    assert line.told(no(3, GAP)) == []  # the broker refused it only for the gap that the second left
    assert line.session.broken is None
    assert line.send_all() == [(4, 1), (5, 2)]
    assert handles(line.told(yes(1)) + line.told(yes(4))) == [0, 1]


def test_a_gap_that_is_reported_before_its_cause_waits_for_it():
    line = Line()
    line.add(1, 1, 1)
    line.send_all()
    assert line.told(no(2, GAP)) == []
    assert line.told(no(3, GAP)) == []
    assert line.send_all() == []  # sending the second now would only be refused again
    assert line.told(no(1, BUSY)) == []
    assert line.send_all() == [(4, 0), (5, 1), (6, 2)]


def test_a_producer_unknown_for_want_of_its_first_batch_goes_on_once_that_is_sent_again():
    line = Line()
    line.add(1, 1)
    line.send_all()  # the first over a connection that was lost, the second over the next one
    assert line.told(no(2, UNKNOWN)) == []
    assert line.send_all() == []
    line.session.lost()
    assert line.send_all() == [(3, 0), (4, 1)]


def test_a_gap_with_no_cause_before_it_is_the_end():
    line = Line()
    line.add(1, 1)
    line.send_all()
    line.told(no(2, GAP))
    line.told(yes(1))
    assert line.send_all() == [(3, 1)]
    assert handles(line.told(no(3, GAP))) == [1]
    assert line.session.broken is not None


@pytest.mark.parametrize("code", ["sequence_gap", "unknown_producer", "fenced", "invalid_batch", "unknown_topic"])
def test_any_other_failure_ends_that_batch_and_all_after_it(code):
    line = Line()
    line.add(1, 1, 1)
    line.send_all()
    assert handles(line.told(yes(1))) == [0]
    line.told(yes(3))
    failure = Failure(2, code, "no")
    settled = line.told(failure)
    assert handles(settled) == [1, 2]
    assert settled[0].failure == failure
    assert settled[1].failure is None  # it was appended: the broker said so
    with pytest.raises(SessionBroken, match=f"after {code}: no"):
        line.add(1)


def test_a_refusal_leaves_the_batches_before_it_alone():
    line = Line()
    line.add(1, 1)
    line.send_all()
    assert handles(line.told(Failure(2, "fenced", "no"))) == [1]
    assert handles(line.told(yes(1))) == [0]


def test_a_broken_session_goes_on_as_another_producer():
    line = Line()
    line.add(5)
    line.send_all()
    line.told(no(1, GAP))
    line.session.restart(2, epoch=3)
    line.add(1)
    assert (line.session.producer_id, line.session.epoch) == (2, 3)
    assert line.send_all() == [(2, 0)]


def test_giving_up_fails_everything_that_is_not_known_to_be_appended():
    line = Line()
    line.add(1, 1, 1)
    line.send_all()
    assert line.told(yes(2)) == []
    line.session.abandon(Failure(0, "timeout", "no answer"))
    settled = line.settled()
    assert [each.failure is None for each in settled] == [False, True, False]
    assert len(line.session) == line.session.bytes_in_flight == 0


def test_the_window_is_bounded_by_batches_and_by_bytes():
    line = Line(window_batches=2, window_bytes=1000)
    assert line.session.has_room(5000)  # alone, a batch may be larger than the window
    line.add(1, size=600)
    assert line.session.has_room(400)
    assert not line.session.has_room(401)
    line.add(1, size=100)
    assert not line.session.has_room(1)
    line.send_all()
    line.told(yes(1))
    assert line.session.has_room(900)


def test_a_window_no_broker_can_remember_is_refused():
    with pytest.raises(AssertionError, match="1 to 64"):
        ProducerSession(1, window_batches=65)


@pytest.mark.parametrize("seed", range(200))
def test_a_broker_that_answers_loses_and_restarts_at_random_gets_every_batch_once_in_order(seed):
    """A broker that dedups by sequence, as the real one, over a line that loses whatever it likes."""
    rng = random.Random(seed)
    line, log, told = Line(window_batches=8), [], []
    wire: list[tuple[int, int, int]] = []
    answers: list[Produced | Failure] = []
    requests, left = count(1), 40
    while left or len(line.session):
        action = rng.choice(["add", "send", "broker", "answer", "lose", "fail"])
        if action == "add" and left and line.session.has_room(100):
            line.add(rng.randrange(1, 4))
            left -= 1
        elif action == "send" and isinstance(batch := line.session.to_send(), InFlight):
            line.session.sent(batch, request := next(requests))
            wire.append((request, batch.first_sequence, batch.count))
        elif action == "broker" and wire:
            request, first, records = wire.pop(0)
            expected = sum(each for _, each in log)
            if first == expected:
                log.append((first, records))
            failed = first > expected
            answers.append(no(request, GAP) if failed else yes(request))
        elif action == "fail" and wire:
            answers.append(no(wire.pop(0)[0], BUSY))
        elif action == "answer" and answers:
            answer = answers.pop(rng.randrange(len(answers)))
            told += line.told(answer)
        elif action == "lose" and rng.random() < 0.1:
            line.session.lost()
            answers.clear()
            wire = wire[: rng.randrange(len(wire) + 1)]  # some of it had arrived
        assert line.session.unsent == sum(not batch.request for batch in line.session.in_flight)
    assert line.session.broken is None
    assert [(each.first_sequence, each.count) for each in told] == log
    assert len(log) == 40


BAD = ("invalid_batch", "a record is bad", False)


@pytest.mark.parametrize("code", [BAD, ("record_too_large", "too large", False)])
def test_the_sequence_of_a_batch_that_was_refused_alone_is_free(code):
    line = Line()
    line.add(3, 2)
    line.send_all()
    line.told(yes(1))
    line.told(no(2, code))
    assert line.session.free_sequence == 3
    line.session.restart(line.session.producer_id, next_sequence=3)
    line.add(1)
    assert line.send_all() == [(3, 3)]


def test_the_sequence_of_a_refused_batch_is_not_free_where_others_are_behind_it():
    line = Line()
    line.add(1, 1)
    line.send_all()
    first, behind = line.told(no(1, BAD))
    assert line.session.free_sequence is None
    assert [first.copied, behind.copied] == [False, False]


def test_a_batch_that_may_still_arrive_is_copied():
    line = Line()
    line.add(1, 1, 1)
    line.send_all()
    line.told(yes(3))
    line.session.lost()
    line.send_all()
    refused, *_ = line.told(no(4, BAD))
    assert refused.copied
    assert line.session.free_sequence is None


def test_a_batch_that_was_put_off_is_no_copy_but_those_behind_it_are():
    line = Line()
    line.add(1, 1)
    line.send_all()
    line.told(no(1, BUSY))
    assert [batch.copied for batch in line.session.in_flight] == [False, True]
    line.send_all()
    line.session.lost()
    line.session.lost()
    assert [batch.copied for batch in line.session.in_flight] == [True, True]


def test_a_batch_that_was_never_sent_is_no_copy():
    line = Line()
    line.add(1)
    line.session.lost()
    line.send_all()
    (refused,) = line.told(no(1, BAD))
    assert (refused.copied, line.session.free_sequence) == (False, 0)
