"""Single records out of batches: whole ones, parts, and those that were kept under their own offsets."""

from __future__ import annotations

import pytest
from penstock.clients.queues.picking import Unreadable, pick
from penstock.storage.batch import Codec, Stamp, encode, parse, stamp
from penstock.storage.errors import BadChecksum, Corrupt, InvalidBatch, MissingCodec
from penstock.storage.kept import keep
from support.unjudged import NOT_ZSTD, hidden_codec, with_headers


def batch(base: int, count: int, **how) -> bytes:
    return placed(base, bytes(encode([b"%d" % (base + n) for n in range(count)], **how)))


def placed(base: int, made: bytes) -> bytes:
    head = stamp(made, Stamp(1 + base, base, 1, bytes(16), 5_000_000 + base, 0))
    return bytes(head + made[len(head) :])


def values(payload: bytes, runs) -> list[bytes]:
    return [value for rows in pick(payload, runs) for value in rows[0]]


def told(payload: bytes, runs) -> list[object]:
    """Values, and in place of what cannot be handed out where, how many, and why."""
    found: list[object] = []
    for each in pick(payload, runs):
        found += [(each.offset, each.count, type(each.error))] if isinstance(each, Unreadable) else list(each[0])
    return found


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
def test_a_record_that_did_not_come_is_named_and_never_a_gap(runs):
    missing = [each for each in pick(batch(0, 10) + batch(20, 2), runs) if isinstance(each, Unreadable)]
    assert [(each.offset, each.count, type(each.error)) for each in missing] == [
        (runs[-1][0] + runs[-1][1] - 1, 1, Corrupt)
    ]
    assert "it is damaged, or gone by now" in missing[0].error.message


def test_a_damaged_batch_hides_no_other_one():
    damaged = bytearray(batch(10, 5))
    damaged[-60] ^= 1
    payload = batch(0, 10) + bytes(damaged) + placed(15, NOT_ZSTD) + batch(17, 2)
    assert told(payload, [(9, 3), (13, 6)]) == [
        b"9", (10, 2, BadChecksum), (13, 2, BadChecksum), (15, 2, InvalidBatch), b"17", b"18",
    ]  # fmt: skip


def test_of_a_damaged_kept_batch_all_records_are_unreadable():
    kept = bytearray(keep(parse(batch(0, 10)), [(2, 1), (5, 2)]))
    kept[-60] ^= 1
    assert told(batch(10, 1) + bytes(kept), [(2, 1), (5, 2), (10, 1)]) == [
        (2, 1, BadChecksum), (5, 1, BadChecksum), (6, 1, BadChecksum), b"10",
    ]  # fmt: skip


def test_headers_that_are_none_spoil_their_record_alone():
    payload = placed(0, with_headers(b"\x81\xa1h\xc4\x01v", b"\x01", b"", b"\x93", b"\x80"))
    assert told(payload, [(0, 5)]) == [b"0", (1, 1, InvalidBatch), b"2", (3, 1, InvalidBatch), b"4"]
    ((_, _, headers, _, _),) = pick(payload, [(0, 1)])
    assert list(headers) == [{"h": b"v"}]
    (bad,) = pick(payload, [(3, 1)])
    assert "headers of record 3 of batch 1 are not a map" in bad.error.message


def test_records_of_a_codec_that_is_not_installed_are_not_damaged():
    payload = batch(0, 2) + batch(2, 2, codec=Codec.ZSTD)
    with hidden_codec():
        assert told(payload, [(1, 3)]) == [b"1", (2, 2, MissingCodec)]
    assert told(payload, [(1, 3)]) == [b"1", b"2", b"3"]
