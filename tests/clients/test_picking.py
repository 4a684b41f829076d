"""Single records out of batches: whole ones, parts, and those that were kept under their own offsets."""

from __future__ import annotations

import pytest
from penstock.clients.picking import pick
from penstock.storage.batch import Stamp, encode, stamp
from penstock.storage.errors import BadChecksum, InvalidBatch


def batch(base: int, count: int, **how) -> bytes:
    made = encode([b"%d" % (base + n) for n in range(count)], **how)
    head = stamp(made, Stamp(1 + base, base, 1, bytes(16), 5_000_000 + base, 0))
    return bytes(head + made[len(head) :])


def values(payload: bytes, runs) -> list[bytes]:
    return [value for rows in pick(payload, runs) for value in rows[0]]


def offsets(payload: bytes, runs) -> list[int]:
    return [offset for rows in pick(payload, runs) for offset in rows[3]]


def test_runs_are_found_in_the_order_that_was_asked_for():
    payload = batch(0, 10) + batch(10, 5) + batch(20, 10)
    runs = [(25, 2), (3, 2), (8, 6), (20, 1)]
    wanted = [25, 26, 3, 4, 8, 9, 10, 11, 12, 13, 20]
    assert offsets(payload, runs) == wanted
    assert values(payload, runs) == [b"%d" % offset for offset in wanted]


def test_keys_headers_and_times_come_with_their_records():
    payload = batch(0, 3, keys=[b"a", None, b"c"], headers=[{"h": b"1"}, None, None], event_times=[7, 8, 9])
    ((_, keys, headers, _, times),) = pick(payload, [(1, 2)])
    assert (list(keys), list(headers), list(times)) == ([None, b"c"], [{}, {}], [8, 9])
    (plain,) = pick(batch(4, 2), [(5, 1)])
    assert [next(iter(column)) for column in plain] == [b"5", None, {}, 5, 5_000_004]


@pytest.mark.parametrize("runs", [[(10, 1)], [(8, 3)], [(0, 10), (12, 1)]])
def test_a_record_that_did_not_come_is_an_error_and_never_a_gap(runs):
    with pytest.raises(InvalidBatch, match="is not among the records that came"):
        values(batch(0, 10) + batch(20, 2), runs)


def test_damage_is_found_before_anything_is_used():
    payload = bytearray(batch(0, 10))
    payload[-60] ^= 1
    with pytest.raises((BadChecksum, InvalidBatch)):
        values(bytes(payload), [(0, 1)])
