"""Histograms: what goes in comes out, over the wire of agents and out of the files that are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from perf.load import histograms

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


def test_kept_histograms_are_read_by_the_format_s_own_reader(tmp_path):
    path = tmp_path / "deep" / "run.hlog"
    histograms.Log(path, "of an earlier measurement").add(histograms.histogram(AGES), 1.0)
    log = histograms.Log(path, "penstock at 1 k/s")
    log.add(histograms.histogram(AGES), 2.5)
    log.add(histograms.histogram(AGES[:1]), 2.5)
    reader = HistogramLogReader(str(path), HdrHistogram(1, histograms.LONGEST_NS, histograms.DIGITS))
    found = [reader.get_next_interval_histogram(), reader.get_next_interval_histogram()]
    assert [interval.get_total_count() for interval in found] == [5, 1]
    assert reader.get_next_interval_histogram() is None
    assert found[0].get_value_at_percentile(50) == pytest.approx(1_000_000, rel=1e-3)
    assert found[0].get_end_time_stamp() - found[0].get_start_time_stamp() == pytest.approx(2500, abs=2)
    assert path.read_text().startswith("#penstock at 1 k/s\n")
