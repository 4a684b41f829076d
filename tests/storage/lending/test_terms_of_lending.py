"""What an appender may write, what the broker takes over, and what a reader believes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, cast

import pytest
from penstock.storage import appending
from penstock.storage.batch import Codec, Kind, encode
from penstock.storage.board import Board
from penstock.storage.board_row import PAUSED, ROW_WORD, Row
from penstock.storage.errors import Corrupt, InvalidBatch, StorageFull
from penstock.storage.header import EVENT_TIMES
from penstock.storage.layout import INDEX_ROW, INDEX_ROW_BYTES, INDEX_ROW_STRUCT, IndexRow, index_position, word
from penstock.storage.lending import appending as lent_appending
from penstock.storage.lending.grant import GOOD_S, byte_of
from support.lending import LATER, PRODUCER, TIME, Bytes, LentLog


class Changing:
    """Words of a row, one of which changes right after another was read."""

    def __init__(self, row: Row, after: str, change: Callable[[], None]) -> None:
        self._words, self._after, self._change = row.words, ROW_WORD[after], change

    def __getitem__(self, place: int) -> int:
        found = self._words[place]
        if place == self._after:
            self._after = -1
            self._change()
        return found


def lent_row(lent: int, *, written: int, appended: int) -> Row:
    row = Board.private(1, slots=0).row(0)
    row.lent, row.written, row.appended = lent, word(1, written), word(1, appended)
    return row


@pytest.mark.parametrize(
    ("lent", "written", "appended", "limit"), [(0, 3, 5, 3), (7, 3, 5, 5), (7 | PAUSED, 3, 5, 5), (7, 6, 5, 6)]
)
def test_a_reader_goes_by_the_appenders_word_while_the_log_is_lent(
    lent: int, written: int, appended: int, limit: int
) -> None:
    assert lent_row(lent, written=written, appended=appended).trusted_word(lambda: True) == word(1, limit)


def test_a_reader_believes_no_word_under_a_grant_of_another_board() -> None:
    assert lent_row(7, written=3, appended=5).trusted_word(lambda: False) == word(1, 3)


@pytest.mark.parametrize("lent", [0, 8])
def test_a_reader_believes_no_word_whose_grant_ends_while_it_looks(lent: int) -> None:
    row = lent_row(7, written=3, appended=5)
    changing = Row(cast("memoryview", Changing(row, "appended", lambda: setattr(row, "lent", lent))))
    assert changing.trusted_word(lambda: True) == word(1, 3)


def test_a_pause_while_it_looks_ends_no_grant() -> None:
    row = lent_row(7, written=3, appended=5)
    changing = Row(cast("memoryview", Changing(row, "appended", lambda: setattr(row, "lent", 7 | PAUSED))))
    assert changing.trusted_word(lambda: True) == word(1, 5)


def put(lent: LentLog, batch: bytes) -> None:
    """A producer that writes whatever it likes, and says that it is there."""
    assert lent.appender is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lent_appending, "is_plain", lambda *_: True)
        lent.appender.append(batch)


@pytest.mark.parametrize(
    "batch",
    [
        encode([b"x"], producer_id=PRODUCER + 1),
        encode([b"x"], producer_id=PRODUCER, first_sequence=1),
        encode([b"x"], producer_id=PRODUCER, producer_epoch=1),
        encode([b"x"], producer_id=PRODUCER, priorities=[1]),
        encode([b"x"], producer_id=PRODUCER)[:-64] + b"x" * 64,
    ],
)
@pytest.mark.parametrize("byte", [True, False])
def test_what_the_producer_may_not_write_is_cut_away(batch: bytes, byte: bool) -> None:
    lent = LentLog()
    put(lent, bytes(batch))
    if byte:
        lent.recall()
    else:
        lent.lender.follow(LATER)
        assert lent.lender.refused
        lent.force()
    assert lent.lender.refused
    assert lent.lender.taken() == []
    lent.append(b"next")
    assert lent.values() == [b"first", b"next"]
    assert lent.log.generation == 2
    assert lent.files.overwritten == []


def test_a_damaged_length_in_an_index_row_moves_no_batch() -> None:
    lent = LentLog()
    lent.borrow()
    row = index_position(1, lent.log.written) + (INDEX_ROW.fields or {})["batch_bytes"][1]
    lent.files.contents[lent.log.opened[-1].ref.index_path].data[row] ^= 64
    assert lent.send(b"one") is not None
    lent.recall()
    assert lent.values() == [b"first", b"broker's", b"one"]
    assert lent.files.overwritten == []


def test_what_the_broker_would_refuse_is_cut_away() -> None:
    lent = LentLog()

    def judge(_: object) -> None:
        raise InvalidBatch("no")

    assert lent.lender._terms is not None  # pyright: ignore[reportPrivateUsage]
    lent.lender._terms.judge = judge  # pyright: ignore[reportPrivateUsage]
    lent.send(b"one")
    lent.recall()
    assert lent.lender.refused == "no"
    assert lent.log.written == 1


def test_a_word_beyond_the_batches_is_refused() -> None:
    lent = LentLog()
    lent.row.appended = word(1, 5)
    lent.lender.follow(LATER)
    assert "2 is not there" in lent.lender.refused


def test_a_time_ahead_of_the_brokers_is_refused() -> None:
    lent = LentLog()
    assert lent.appender is not None
    lent.appender._monotonic = lambda: 1.0  # pyright: ignore[reportPrivateUsage]
    lent.send(b"one")
    lent.lender.follow(TIME + 999_999)
    assert lent.lender.refused
    assert lent.log.written == 1


def test_where_the_log_ends_ahead_of_the_clock_what_follows_has_the_time_of_its_end() -> None:
    """Its clock was ahead when it was written, and is right now."""
    lent = LentLog()
    lent.recall()
    lent.log.append([encode([b"ahead"])], LATER + 1)
    lent.publish()
    lent.log.sync()
    lent.grant()
    assert lent.send(b"one") is not None
    lent.lender.follow(LATER)
    assert lent.lender.refused == ""
    assert lent.values() == [b"first", b"ahead", b"one"]


@pytest.mark.parametrize(("age_s", "taken"), [(GOOD_S, True), (GOOD_S + 0.001, False)])
def test_nothing_is_appended_when_the_clock_of_the_grant_is_old(age_s: float, taken: bool) -> None:
    lent = LentLog()
    appender = lent.appender
    assert appender is not None
    appender._monotonic = lambda: age_s  # pyright: ignore[reportPrivateUsage]
    assert (appender.append(encode([b"one"], producer_id=PRODUCER)) is not None) == taken
    assert (appender.ended, appender.in_doubt) == (not taken, False)
    lent.lender.follow(TIME + round(GOOD_S * 1e6))
    assert lent.lender.refused == ""
    assert len(lent.lender.taken()) == taken
    assert lent.table == {}


def test_nothing_is_appended_to_a_poisoned_log() -> None:
    lent = LentLog()
    lent.row.poison = word(1, 1)
    assert lent.appender is not None
    assert lent.appender.append(encode([b"x"], producer_id=PRODUCER)) is None
    assert lent.appender.ended
    assert lent.log.opened[-1].file.pread(64, lent.log.opened[-1].position) == bytes(64)


def test_nothing_is_appended_by_another_process_that_was_not_told_of_a_fork() -> None:
    lent = LentLog()
    appender = lent.appender
    assert appender is not None
    appender._process += 1
    before = lent.contents()
    assert appender.append(encode([b"one"], producer_id=PRODUCER)) is None
    assert lent.contents() == before


@pytest.mark.parametrize("place", ["seq of the batch", "checksum of the row"])
def test_an_appender_believes_no_index_row_that_does_not_agree_with_its_batch(place: str) -> None:
    lent = LentLog()
    appender, active = lent.appender, lent.log.opened[-1]
    assert appender is not None
    lent.borrow()
    if place == "checksum of the row":
        found = index_position(active.ref.base_seq, lent.log.written)
        row = IndexRow(*INDEX_ROW_STRUCT.unpack(active.index.pread(INDEX_ROW_BYTES, found)))
        active.index.pwritev([INDEX_ROW_STRUCT.pack(*row._replace(header_checksum=row.header_checksum ^ 1))], found)
    else:
        lent.row.written = word(1, lent.log.written + 1)
        first = active.index.pread(INDEX_ROW_BYTES, index_position(active.ref.base_seq, 1))
        active.index.pwritev([first], index_position(active.ref.base_seq, lent.log.written + 1))
    assert appender.append(encode([b"one"], producer_id=PRODUCER)) is None
    assert isinstance(appender.trouble, Corrupt)
    assert lent.values()[-1] == b"broker's"


def test_readers_are_woken_by_what_was_appended_and_by_nothing_else() -> None:
    lent, told = LentLog(), list[bool]()
    appender = lent.appender
    assert appender is not None

    class Wakes:
        asleep = 7

        def wake(self) -> None:
            told.append(bool(lent.table))

    appender._wakes = Wakes()
    lent.row.lent |= PAUSED
    assert appender.append(encode([b"one"], producer_id=PRODUCER)) is None
    assert told == []
    lent.row.lent &= ~PAUSED
    assert appender.append(encode([b"one"], producer_id=PRODUCER)) is not None
    assert (told, appender.asleep) == ([False], 7)  # once its byte was free


def test_nothing_is_appended_while_another_opening_has_the_byte() -> None:
    lent, batch = LentLog(), encode([b"one"], producer_id=PRODUCER)
    appender = lent.appender
    assert appender is not None
    other = Bytes(lent.table)
    assert other.take(byte_of(0))
    before = lent.contents()
    assert appender.append(batch) is None
    assert (appender.paused, appender.in_doubt, appender.ended) == (True, False, False)
    assert lent.contents() == before
    other.close()
    assert appender.append(batch) is not None


def test_nothing_is_appended_while_the_broker_does() -> None:
    lent = LentLog()
    lent.row.lent |= PAUSED
    assert lent.appender is not None
    assert lent.appender.append(encode([b"x"], producer_id=PRODUCER)) is None
    assert not lent.appender.ended
    assert lent.files.overwritten == []
    assert lent.log.opened[-1].file.pread(64, lent.log.opened[-1].position) == bytes(64)


@pytest.mark.parametrize("end", ["generation", "grant", "incarnation"])
def test_nothing_is_written_once_the_grant_is_over(end: str) -> None:
    lent = LentLog()
    if end == "generation":
        lent.row.written = word(2, 1)
    elif end == "grant":
        lent.row.lent = 99
    else:
        lent.incarnation = 9
    assert lent.appender is not None
    assert lent.appender.append(encode([b"x"], producer_id=PRODUCER)) is None
    assert lent.appender.ended
    assert lent.log.opened[-1].file.pread(64, lent.log.opened[-1].position) == bytes(64)


def test_an_appender_stays_within_its_segment_and_what_is_reserved() -> None:
    lent = LentLog(segment_bytes=8192)
    active = lent.log.opened[-1]
    assert lent.appender is not None
    before = active.file.size()
    batch = encode([b"x" * (8192 - active.position)], producer_id=PRODUCER)
    assert lent.appender.append(batch) is None
    assert not lent.appender.ended
    assert active.file.size() == before
    assert active.file.pread(64, active.position) == bytes(64)


def test_an_appender_reserves_nothing() -> None:
    lent = LentLog(segment_bytes=32 << 20)
    active = lent.log.opened[-1]
    before = active.file.size()
    assert lent.appender is not None
    assert before < 16 << 20
    assert lent.appender.append(encode([b"x" * before], producer_id=PRODUCER)) is None
    assert not lent.appender.ended
    assert active.file.size() == before
    active.allocate(2 * before)
    assert lent.appender.append(encode([b"x" * (before // 2)], producer_id=PRODUCER)) is not None


def test_an_appender_leaves_a_large_file_to_the_broker() -> None:
    lent = LentLog(segment_bytes=8192)
    lent.log.opened[-1].file.allocate(1 << 20)
    assert lent.appender is not None
    assert lent.appender.append(encode([b"x" * 8192], producer_id=PRODUCER)) is None


def test_a_grant_begins_with_a_word_of_its_own() -> None:
    lent = LentLog()
    lent.recall()
    lent.row.appended = word(1, 9)  # of another log that had this row
    lent.grant()
    assert lent.row.appended == word(1, 1)
    assert not lent.lender.moved


def test_following_remembers_few_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "ENDS_KEPT", 4)
    lent = LentLog()
    for number in range(20):
        lent.send(b"%d" % number)
    lent.lender.follow(LATER)
    assert len(lent.log.ends) <= 9


def test_a_lent_log_has_room_for_the_index_too() -> None:
    lent = LentLog()
    active = lent.log.opened[-1]
    assert active.file.size() == 1 << 20
    assert active.index.size() >= 64 * (1 << 20) // 256


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.EIO, "input/output error"), False), (StorageFull("no space is left"), False),
        (KeyboardInterrupt(), True), (TimeoutError("of an alarm"), True), (RuntimeError("likewise"), True),
    ],
)  # fmt: skip
def test_an_exception_ends_the_grant_and_is_raised_where_it_is_the_applications(
    error: BaseException, raised: bool
) -> None:
    lent = LentLog()
    appender = lent.appender
    assert appender is not None

    def happen() -> None:
        raise error

    lent.steps.at[lent.steps.count + 9] = happen
    batch = encode([b"one"], producer_id=PRODUCER)
    if raised:
        with pytest.raises(type(error)):
            appender.append(batch)
    else:
        assert appender.append(batch) is None
    assert appender.trouble is (None if raised else error)
    assert appender.ended
    assert not lent.table


def test_a_recall_shows_readers_no_lower_end() -> None:
    lent = LentLog()
    lent.send(b"one")
    seen: list[int] = []
    publish = lent.lender._publish  # pyright: ignore[reportPrivateUsage]

    def published() -> None:
        publish()
        seen.append(lent.row.lent & ~PAUSED)

    lent.lender._publish = published  # pyright: ignore[reportPrivateUsage]
    lent.recall()
    assert seen
    assert all(seen)
    assert lent.row.lent == 0
    assert lent.row.written == word(1, 2)


def test_a_log_forced_back_goes_on_in_a_new_generation() -> None:
    lent = LentLog()
    lent.send(b"one")
    lent.force()
    assert lent.row.written == word(2, 2)
    assert lent.log.generation == 2
    assert [batch.seq for batch in lent.lender.taken()] == [2]


def test_a_borrow_that_fills_the_segment_ends_the_grant() -> None:
    lent = LentLog(segment_bytes=8192)
    lent.send(b"one")
    assert lent.lender.borrow(LATER)
    lent.append(b"x" * 7000)
    lent.lender.give_back()
    assert not lent.lender.lent
    assert lent.row.lent == 0
    assert not lent.table


def test_no_log_is_lent_that_is_not_at_rest() -> None:
    lent = LentLog()
    lent.recall()
    lent.append(b"not synced")
    assert lent.grant() is None
    lent.log.sync()
    assert lent.grant() is not None


@pytest.mark.parametrize(
    "columns",
    [
        {"priorities": [1]},
        {"not_before": [1]},
        {"dedup": [b"d"]},
        {"kind": Kind.STAGED},
        {"event_times": [EVENT_TIMES[0] - 1]},
        {"event_times": [EVENT_TIMES[1] + 1]},
        {"keys": [bytes(1000)], "codec": Codec.ZSTD},
        {"headers": [{"h": bytes(4 << 20)}]},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_batches_of_anything_else_than_plain_records_are_not_appended(columns: dict[str, Any]) -> None:
    lent = LentLog()
    assert lent.appender is not None
    assert lent.appender.append(encode([b"x"], producer_id=PRODUCER, **columns)) is None
    assert (lent.appender.ended, lent.appender.in_doubt, lent.appender.paused) == (False, False, False)
    plain = encode([b"x"], keys=[b"k"], headers=[{"a": b"b"}], event_times=[EVENT_TIMES[0]], producer_id=PRODUCER)
    assert lent.appender.append(plain) is not None


def test_a_paused_appender_says_that_it_may_be_tried_again() -> None:
    lent = LentLog()
    appender, batch = lent.appender, encode([b"x"], producer_id=PRODUCER)
    assert appender is not None
    lent.row.lent |= PAUSED
    assert appender.append(batch) is None
    assert (appender.paused, appender.in_doubt, appender.ended) == (True, False, False)
    lent.row.lent &= ~PAUSED
    assert appender.append(batch) is not None
    assert (appender.paused, appender.in_doubt, appender.ended) == (False, False, False)


def test_an_appender_says_whether_a_batch_may_stand_that_it_did_not_acknowledge() -> None:
    doubts = set()
    for step in range(1, 40):
        lent = LentLog()
        assert lent.appender is not None
        lent.steps.at[step] = lent.force
        if lent.appender.append(encode([b"x"], producer_id=PRODUCER)) is None:
            assert lent.appender.in_doubt or b"x" not in lent.values()
            assert lent.appender.ended or lent.appender.paused
            doubts.add(lent.appender.in_doubt)
    assert doubts == {True, False}
