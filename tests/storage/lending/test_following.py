"""What of a batch keeps it from being followed, one thing at a time."""

from __future__ import annotations

import msgspec
import pytest
from penstock.storage.batch import encode
from penstock.storage.header import Kind
from penstock.storage.lending.following import Terms, follow_every
from penstock.storage.recovery import LogEnd
from support.lending import LATER, PRODUCER, LentLog


def appended(batch: bytes, **end: int) -> LentLog:
    """A lent log to which its producer appended a batch as if the log ended so."""
    lent = LentLog()
    appender = lent.appender
    assert appender is not None
    wrong: LogEnd = msgspec.structs.replace(appender.last, **end)
    appender._end = wrong  # pyright: ignore[reportPrivateUsage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.storage.lending.appending.is_plain", lambda *_: True)
        appender.append(batch)
    return lent


GOOD = encode([b"x"], producer_id=PRODUCER)


@pytest.mark.parametrize(
    ("batch", "end"),
    [
        (GOOD, {"term": 9}),
        (GOOD, {"checksum": 7}),
        (GOOD, {"offset": 5}),
        (encode([b"x"], producer_id=PRODUCER, kind=Kind.STAGED), {}),
    ],
)
def test_a_batch_that_is_not_the_next_plain_one_is_not_followed(batch: bytes, end: dict[str, int]) -> None:
    lent = appended(batch, **end)
    lent.lender.follow(LATER)
    assert lent.lender.refused
    assert lent.log.written == 1


def test_the_next_sequence_is_behind_the_batch_before() -> None:
    lent = LentLog()
    for number in range(3):
        lent.send(b"%d" % number)
    terms = Terms(PRODUCER, 0, 0, lambda _: None)
    found = follow_every(lent.log, terms, LATER)
    assert (len(found.batches), found.stopped, terms.sequence) == (3, "", 3)
    lent.sequence = 0
    lent.send(b"again")
    assert follow_every(lent.log, terms, LATER).stopped
