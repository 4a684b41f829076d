"""How values are cut into batches."""

from __future__ import annotations

import pytest

from perf.systems.batches import BATCH_BYTES, in_batches


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
def test_batches_hold_all_values_in_order(count):
    values = [b"%d" % number for number in range(count)]
    batches = list(in_batches(values, 10))
    assert [value for batch in batches for value in batch] == values
    assert all(len(batch) == 10 for batch in batches[:-1])


@pytest.mark.parametrize(("size", "each"), [(BATCH_BYTES // 4, 4), (BATCH_BYTES, 1), (BATCH_BYTES * 2, 1)])
def test_large_values_make_short_batches(size, each):
    assert [len(batch) for batch in in_batches([bytes(size)] * 8, 1000)] == [each] * (8 // each)
