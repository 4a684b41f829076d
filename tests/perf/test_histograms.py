"""Histograms: what goes in comes out, over the wire of agents and out of the files that are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from perf import histograms

AGES = np.array([1, 700, 1_000_000, 1_000_000, 2_000_000_000])


def test_a_histogram_travels_as_text():
    filled = histograms.histogram(AGES)
    assert histograms.percentiles(histograms.decoded(filled.encode().decode())) == histograms.percentiles(filled)
    assert filled.get_total_count() == 5


def test_what_is_beyond_the_longest_is_counted_as_the_longest():
    filled = histograms.histogram(np.array([5, 10 * histograms.LONGEST_NS]))
    assert filled.get_total_count() == 2
    assert histograms.percentiles(filled).most == pytest.approx(histograms.LONGEST_NS / 1e3, rel=1e-3)


def test_nothing_measured_is_nothing():
    assert histograms.percentiles(histograms.histogram(np.array([], dtype=np.int64))).most == 0


def test_a_kept_histogram_is_read_by_the_format_s_own_reader(tmp_path):
    path = tmp_path / "deep" / "run.hlog"
    histograms.keep(path, histograms.histogram(AGES), 2.5, "penstock at 1 k/s")
    reference = HdrHistogram(1, histograms.LONGEST_NS, histograms.DIGITS)
    found = HistogramLogReader(str(path), reference).get_next_interval_histogram()
    assert found.get_total_count() == 5
    assert found.get_value_at_percentile(50) == pytest.approx(1_000_000, rel=1e-3)
    assert path.read_text().startswith("#penstock at 1 k/s\n")
    assert found.get_end_time_stamp() - found.get_start_time_stamp() == pytest.approx(2500, abs=2)
