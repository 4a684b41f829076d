"""Histograms by number of bits: what they count, how they travel, and what is read out of them."""

from __future__ import annotations

import pytest
from penstock.storage.histogram import BUCKETS, Histogram, quantile, shown


def noted(*values: int) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.note(value)
    return histogram


def test_a_value_is_counted_by_its_number_of_bits():
    assert noted(0, 1, 2, 3, 4).values() == [10, 1, 1, 2, 1]
    assert noted((1 << (BUCKETS - 1)) - 1).counts[-1] == 1


def test_an_empty_one_travels_as_its_sum():
    assert noted().values() == [0]
    assert shown(0, [0, 0]) == [0]


@pytest.mark.parametrize(("share", "bound"), [(0.0, 0), (0.2, 0), (0.21, 1), (0.4, 1), (0.5, 3), (0.8, 3), (1.0, 1023)])
def test_a_quantile_is_a_bound_of_its_bucket(share, bound):
    assert quantile(noted(0, 1, 2, 3, 700).values(), share) == bound


def test_there_is_no_quantile_of_nothing():
    assert quantile([0], 0.5) == 0
