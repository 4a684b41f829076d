"""Which batches of a frame belong to a message of a catch-up."""

from __future__ import annotations

import pytest
from penstock.broker.replica.bodies import beside
from penstock.broker.replica.catchup_messages import AskManifest, FilePiece, ShippedBatches, WholeBatches

LOG, OTHER = b"m" * 16, b"n" * 16
BODIES = {(log_id, seq, 7): b"%b%d" % (log_id[:1], seq) for log_id in (b"l" * 16, LOG, OTHER) for seq in (9, 3, 4, 5)}
"""Of one turn: batches 3 to 5 of a log that rots or is shipped, its batch 9 of an append, and those of two others."""


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (WholeBatches(LOG, 3), [b"m3", b"m4", b"m5"]),
        (ShippedBatches(1, LOG, 3), [b"m4", b"m5"]),
        (ShippedBatches(1, OTHER, 2), [b"n3", b"n4", b"n5"]),
        (WholeBatches(LOG, 2), []),
        (WholeBatches(LOG, 6), []),
        (WholeBatches(b"o" * 16, 3), []),
        (FilePiece(1, LOG, "run-1", 0, b""), []),
        (AskManifest(), []),
    ],
)
def test_a_message_of_a_catch_up_has_the_batches_that_it_names_and_no_others(said, found) -> None:
    assert beside(said, BODIES) == found


def test_batches_come_in_the_order_of_their_log() -> None:
    bodies = {(LOG, seq, 0): b"%d" % seq for seq in (12, 9, 11, 10, 100)}
    assert beside(WholeBatches(LOG, 9), bodies) == [b"9", b"10", b"11", b"12"]
