"""HdrHistograms of latencies: made from ages, read as percentiles, kept as .hlog files that other tools read.

Contract: values are nanoseconds with three significant digits, and nothing is dropped: longer values count as the
longest.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from ..lab.rows import Percentiles

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogWriter

LONGEST_NS = 3600 * 1_000_000_000
DIGITS = 3


def histogram(ages_ns: np.ndarray) -> HdrHistogram:
    """A histogram of all ages."""
    from hdrh.histogram import HdrHistogram

    filled = HdrHistogram(1, LONGEST_NS, DIGITS)
    for age, count in zip(*np.unique(np.clip(ages_ns, 1, LONGEST_NS), return_counts=True), strict=True):
        filled.record_value(int(age), int(count))
    return filled


def decoded(text: str) -> HdrHistogram:
    """Decode the text of a histogram's `encode`."""
    from hdrh.histogram import HdrHistogram

    return HdrHistogram.decode(text)


def percentiles(filled: HdrHistogram) -> Percentiles:
    """The percentiles in tables."""
    at = {percent: filled.get_value_at_percentile(percent) / 1e3 for percent in (50.0, 90.0, 99.0, 99.9)}
    return Percentiles(at[50.0], at[90.0], at[99.0], at[99.9], filled.get_max_value() / 1e3)


class Log:
    """One .hlog file: an interval for every run of one kind."""

    def __init__(self, path: Path, about: str) -> None:
        """Begins a new file, replacing one of an earlier measurement."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        with self._path.open("w") as file:
            writer = _writer(file)
            writer.output_comment(about)
            writer.output_log_format_version()
            writer.output_legend()

    def add(self, filled: HdrHistogram, seconds: float) -> None:
        """Append the run that has just ended."""
        now_ms = time.time_ns() // 1_000_000
        filled.set_start_time_stamp(now_ms - int(seconds * 1000))
        filled.set_end_time_stamp(now_ms)
        with self._path.open("a") as file:
            _writer(file).output_interval_histogram(filled)


def _writer(file: TextIO) -> HistogramLogWriter:
    from hdrh.log import HistogramLogWriter

    return HistogramLogWriter(file)
