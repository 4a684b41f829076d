"""Keys as queues see them."""

from __future__ import annotations

import numpy as np
from penstock.broker.engine.tables.queues.keys import OWN, UNKNOWN, hash_of, hashes, turn_of
from penstock.storage.batch import encode, parse
from xxhash import xxh3_64_intdigest


def test_a_key_is_its_xxh3_and_a_record_without_one_says_so():
    batch = parse(encode([b"1", b"2", b"3"], keys=[b"a", None, b""]))
    assert hashes(batch) == [xxh3_64_intdigest(b"a"), OWN, xxh3_64_intdigest(b"")]
    assert hashes(parse(encode([b"1", b"2"]))) == [OWN, OWN]


def test_no_key_has_a_hash_with_a_meaning():
    assert {UNKNOWN, OWN}.isdisjoint(map(hash_of, [b"", b"a", b"\0" * 8]))


def test_records_without_a_key_stand_apart_on_the_ring_and_those_of_one_key_together():
    places = np.sort(np.array([turn_of(offset, OWN) for offset in range(1000)], np.uint64))
    assert len(np.unique(places)) == 1000
    assert np.diff(places).max() < 2**64 // 300, "no gap of more than three times what is even"
    assert turn_of(1, 99) == turn_of(2, 99) == 99
