"""The member that asks for what has rotted, alone: which others it asks, what it takes, and when it gives up."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from penstock.broker.replica import mending
from penstock.broker.replica.catching_up import RETRY_TICKS
from penstock.broker.replica.catchup_messages import AskWhole, WholeBatches
from penstock.broker.replica.mending import ROUNDS, Mending
from penstock.storage.data_directory import ORDER
from penstock.storage.verify import verify
from support.files import RecordingFiles
from support.logs import LOG_ID, build


class Alone:
    """A `Mending` over a log with rot in some batches, whose other members are played by the test."""

    def __init__(self, *rotten: int, others: Sequence[int] = (2, 3)) -> None:
        self.files = RecordingFiles()
        self.log = build(self.files, f"/data/{ORDER}", shape=((1, 1, 1), (1, 1, 1), (1, 1)))
        for seq in rotten:
            name, position = self.log.places[seq]
            self.log.files.contents[f"{self.log.directory}/{name.segment_file}"].data[position + 9] ^= 1
        self.asked: list[tuple[int, AskWhole]] = []
        self.ended: list[tuple[str, int, str]] = []
        self.mending = Mending(
            self.log.files, "/data", others=lambda: others, ask=lambda *each: self.asked.append(each),
            ended=lambda *each: self.ended.append(each),
        )  # fmt: skip
        self.mending.begin(ORDER)
        self.mending.tick()

    def answer(self, member: int, *seqs: int, at: int = 0) -> None:
        bodies = [self.log.batches[seq] for seq in seqs]
        self.mending.take(member, WholeBatches(LOG_ID, at or self.asked[-1][1].seq), bodies)


def test_one_member_is_asked_after_the_other_and_what_follows_is_asked_of_the_one_that_had_some():
    alone = Alone(1, 2)
    assert alone.asked == [(2, AskWhole(ORDER, LOG_ID, 1, 2))]
    alone.answer(2)
    assert alone.asked[1:] == [(3, AskWhole(ORDER, LOG_ID, 1, 2))]
    alone.answer(3, 1)
    assert alone.asked[2:] == [(3, AskWhole(ORDER, LOG_ID, 2, 2))]
    alone.answer(3, 2, 3)
    assert alone.mending.batches == 2
    alone.mending.tick()
    assert alone.ended == [(ORDER, 2, "")]
    assert not alone.mending.is_busy
    assert verify(alone.log.files, alone.log.directory).ok


def test_answers_of_others_and_to_other_questions_are_ignored():
    alone = Alone(2)
    alone.answer(3, 2)
    alone.answer(2, 2, at=1)
    alone.mending.take(2, WholeBatches(bytes(16), 2), [alone.log.batches[2]])
    assert (alone.mending.batches, len(alone.asked)) == (0, 1)
    alone.answer(2, 2)
    alone.answer(2, 2, at=2)
    assert alone.mending.batches == 1


def test_what_does_not_fit_has_the_next_member_asked():
    alone = Alone(2)
    alone.answer(2, 3)
    assert [member for member, _ in alone.asked] == [2, 3]
    alone.answer(3, 1)
    assert alone.ended[0][0] == ORDER
    assert "batches 2 to 2" in alone.ended[0][2]
    assert "no other node has them whole" in alone.ended[0][2]


def test_what_follows_and_ends_elsewhere_is_begun_anew_with_the_next_member():
    """As a copy of the log in which something else was appended behind the same batch."""
    alone = Alone(1)
    other = build(shape=((2,),))
    alone.mending.take(2, WholeBatches(LOG_ID, 1), [other.batches[1]])
    assert alone.asked[1:] == [(3, AskWhole(ORDER, LOG_ID, 1, 1))]
    alone.answer(3, 1)
    assert alone.mending.batches == 1


def test_a_silent_member_is_passed_over_and_asked_again_a_few_times():
    alone = Alone(2)
    for _ in range(RETRY_TICKS - 1):
        alone.mending.tick()
    assert len(alone.asked) == 1
    alone.mending.tick()
    assert [member for member, _ in alone.asked] == [2, 3]
    alone.answer(3)
    assert [member for member, _ in alone.asked] == [2, 3, 2]
    for _ in range(2 * ROUNDS * RETRY_TICKS):
        alone.mending.tick()
    assert [member for member, _ in alone.asked] == [2, 3] * ROUNDS
    assert "none of the other nodes that answer" in alone.ended[0][2]


def test_a_segment_that_retention_took_meanwhile_is_nothing_to_mend():
    alone = Alone(2)
    alone.log.files.unlink(alone.log.segment_path(0))
    alone.answer(2, 2)
    alone.mending.tick()
    assert alone.ended == [(ORDER, 0, "")]


def test_a_member_without_others_has_none_to_ask():
    assert "no other node has them whole" in Alone(2, others=()).ended[0][2]


def test_a_range_that_is_too_long_is_left(monkeypatch: pytest.MonkeyPatch):
    alone = Alone(1, 2, 3)
    size = len(alone.log.batches[1])
    monkeypatch.setattr(mending, "RANGE_BYTES", size)
    alone.answer(2, 1)
    assert not alone.ended
    alone.answer(2, 2)
    assert "too many" in alone.ended[0][2]


def test_a_log_is_looked_through_in_portions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mending, "LOOKED_AT_ONCE", 1)
    alone = Alone(3)
    ticks = 1
    while not alone.asked:
        alone.mending.tick()
        ticks += 1
    assert ticks == 3
    alone.answer(2, 3)
    while not alone.ended:
        alone.mending.tick()
        ticks += 1
    assert ticks == 3 + 6


def test_a_log_without_rot_is_whole():
    assert Alone().ended == [(ORDER, 0, "")]


def test_damage_that_cannot_be_mended_ends_it_and_the_next_log_is_looked_at():
    alone = Alone()
    alone.ended.clear()
    alone.log.files.contents[alone.log.segment_path(1)].data[8] ^= 1
    alone.mending.begin(ORDER)
    alone.mending.begin("metadata")
    alone.mending.tick()
    assert "is damaged at 0" in alone.ended[0][2]
    assert alone.mending.is_busy
    alone.mending.tick()
    assert alone.ended[1][0] == "metadata"
    assert not alone.mending.is_busy


@pytest.mark.parametrize("kind", ["open", "write"])
def test_a_log_that_cannot_be_read_or_written_now_is_mended_later(kind: str):
    alone = Alone(2, 5)
    alone.answer(2, 2)
    alone.mending.tick()
    alone.files.fail(kind, 1, errno.EMFILE)
    alone.answer(2, 5)
    assert (alone.ended, alone.mending.batches) == ([], 1)
    alone.answer(2, 5)
    assert alone.mending.batches == 1, "nothing is asked for now"
    alone.files.fail("open", 1, errno.ENOMEM)
    alone.mending.tick()
    alone.mending.tick()
    alone.answer(2, 5)
    alone.mending.tick()
    assert alone.ended == [(ORDER, 2, "")]
    alone.mending.begin(ORDER)
    alone.mending.tick()
    assert alone.ended[1:] == [(ORDER, 0, "")]


def test_a_log_that_a_bad_sector_keeps_from_being_written_is_not_mended():
    alone = Alone(2)
    alone.files.fail("write", 1, errno.EIO)
    alone.answer(2, 2)
    assert "could not be mended" in alone.ended[0][2]
