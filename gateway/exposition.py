"""The text format of Prometheus, version 0.0.4: what a scrape answers.

Idea: a metric is a name, a kind, a sentence and samples, written as lines. It is little enough that a library would
cost more than it saves: prometheus_client takes tens of microseconds for each series of a scrape.

Contract: every line ends with a newline; label values are escaped. A histogram's buckets are cumulative. Must not know
what is measured. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order in which they are written."""

BITS = range(5, 27)
"""Buckets of every histogram: 31 to 67,108,863, so 31 us to 67 s, or 31 bytes to 64 MiB."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metric(NamedTuple):
    """One metric. Samples of a histogram are its values as they travel: see `penstock.storage.histogram`."""

    name: str
    kind: str  # counter, gauge or histogram
    about: str
    samples: Sequence[tuple[Labels, float | Sequence[int]]]
    scale: float = 1.0  # what one unit of a histogram's values is, in the unit of its name


def text(metrics: Iterable[Metric]) -> str:
    """All metrics that have samples."""
    lines: list[str] = []
    for metric in metrics:
        if metric.samples:
            lines.append(f"# HELP {metric.name} {metric.about}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            for labels, value in metric.samples:
                if isinstance(value, int | float):
                    lines.append(f"{metric.name}{_braces(labels)} {value!r}")
                else:
                    lines += _histogram(metric, labels, value)
    return "\n".join([*lines, ""])


def _histogram(metric: Metric, labels: Labels, values: Sequence[int]) -> Iterable[str]:
    """The same buckets at each scrape, as Prometheus needs them: those of some bits end below 2 to their power."""
    name, counts = metric.name, values[1:]
    for bits in BITS:
        bound = f"{((1 << bits) - 1) * metric.scale:g}"
        yield f"{name}_bucket{_braces((*labels, ('le', bound)))} {sum(counts[: bits + 1])}"
    yield f"{name}_bucket{_braces((*labels, ('le', '+Inf')))} {sum(counts)}"
    yield f"{name}_sum{_braces(labels)} {values[0] * metric.scale!r}"
    yield f"{name}_count{_braces(labels)} {sum(counts)}"


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"
