"""The plots beside RESULTS.md: ratios as bars, percentiles by load, curves. SVG, the same bytes for the same results.

Colours and greys are legible on white and on black; the background is transparent. Matplotlib is loaded only when
something is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from .measured import Compared, Figure, Grown, Loaded, Measured, median
from .measured import ratio as ratio_of

INK = "#6e7781"
COLOURS = ["#1f83d6", "#e36209", "#2a9d52", "#a55bd1", "#d1495b", "#b08800", "#12a594", "#8d6e63", "#d6409f", "#7c8aa5"]
PERCENTILES = {"p50": "50", "p90": "90", "p99": "99", "p999": "99.9", "most": "max"}
STYLE: Any = {
    "svg.hashsalt": "penstock",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.prop_cycle": f"cycler('color', {COLOURS})",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.transparent": True,
}


@dataclass(frozen=True)
class Plot:
    """One file to be drawn."""

    name: str
    title: str
    draw: Callable[[Any], None]  # onto a matplotlib figure


def of(measured: Measured) -> Iterator[Plot]:
    """The plots of a bench's results."""
    if bars := list(_ratios(measured.figures)):
        yield Plot(
            f"{measured.bench}-ratios.svg",
            f"{measured.bench}: {measured.subject} against the others",
            partial(_bars, bars),
        )
    for name, loads in groupby(measured.latencies, key=lambda row: (row.name, row.durability)):
        title = " ".join(filter(None, name))
        yield Plot(_file(measured.bench, title), title, partial(_percentiles, list(loads), measured.subject))
    for grown in measured.curves:
        yield Plot(_file(measured.bench, grown.name), grown.name, partial(_curve, grown))


def _file(bench: str, title: str) -> str:
    words = re.findall(r"[a-z0-9.]+", title.lower().removeprefix(f"{bench}:"))
    return f"{bench}-{'-'.join(words)}.svg"


def write(directory: Path, results: Sequence[Measured]) -> None:
    """Draw everything, and remove plots of results that are gone."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = {plot.name: plot for measured in results for plot in of(measured)}
    for old in directory.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, plot in drawn.items():
        (directory / name).write_bytes(svg(plot))


def svg(plot: Plot) -> bytes:
    from io import BytesIO

    import matplotlib

    with matplotlib.rc_context(STYLE):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(layout="constrained")
        FigureCanvasSVG(canvas)
        plot.draw(canvas)
        canvas.suptitle(plot.title, fontsize=10)
        out = BytesIO()
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return b"\n".join(line.rstrip() for line in out.getvalue().splitlines()) + b"\n"


# -- bars -----------------------------------------------------------------------------------------

Bar = tuple[str, float, bool]


def _ratios(figures: Sequence[Figure]) -> Iterator[Bar]:
    """How many times as good as each limit and peer penstock is."""
    for figure in figures:
        for other in figure.compared:
            if ratio := ratio_of(other):
                yield _bar_label(figure, other), ratio if figure.more_is_better else 1 / ratio, other.is_peer


def _bar_label(figure: Figure, other: Compared[float]) -> str:
    durability = f" ({figure.durability})" if figure.durability else ""
    return f"{figure.name}{durability} / {other.name}"


def _bars(bars: Sequence[Bar], canvas: Any) -> None:
    canvas.set_size_inches(8, 1 + 0.28 * len(bars))
    axes = canvas.subplots()
    places = range(len(bars))
    colours = [COLOURS[0] if is_peer else INK for _, _, is_peer in bars]
    axes.barh(places, [ratio - 1 for _, ratio, _ in bars], left=1, color=colours, height=0.6)
    axes.set_xscale("log")
    axes.axvline(1, color=INK)
    axes.set_yticks(places, [label for label, _, _ in bars])
    axes.invert_yaxis()
    axes.set_xlabel("times as good as: grey the machine's limit, blue a peer; 1 is even")


# -- percentiles by load --------------------------------------------------------------------------


def _percentiles(loads: Sequence[Loaded], subject: str, canvas: Any) -> None:
    """Draw a panel for each load, with a line for each system."""
    canvas.set_size_inches(1.5 + 2.4 * len(loads), 3.4)
    panels = canvas.subplots(1, len(loads), sharey=True, squeeze=False)[0]
    names = [subject, *dict.fromkeys(other.name for row in loads for other in row.compared if other.is_measured)]
    for axes, row in zip(panels, loads, strict=True):
        lines = {subject: row.samples, **{other.name: other.samples for other in row.compared if other.is_measured}}
        for name, samples in lines.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            values = [median(samples, of) for of in PERCENTILES]
            axes.plot(list(PERCENTILES.values()), values, marker="o", markersize=3, color=colour, label=name)
        axes.set_title(row.load, fontsize=9)
        axes.set_yscale("log")
    panels[0].set_ylabel("us")
    canvas.supxlabel("percentile", fontsize=9)
    canvas.legend(*_labels(panels), loc="outside right center")


def _labels(panels: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """The systems, each once, including those that only some loads have."""
    found = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return list(found.values()), list(found)


# -- curves ---------------------------------------------------------------------------------------


def _curve(grown: Grown, canvas: Any) -> None:
    """The medians as a line, every sample as a dot; axes are logarithmic where a hundredfold has to fit."""
    canvas.set_size_inches(7, 3.6)
    axes = canvas.subplots()
    for series in grown.series:
        (drawn,) = axes.plot(series.xs, series.medians(), label=series.name)
        dots = [(x, y) for x, samples in zip(series.xs, series.samples, strict=True) for y in samples]
        axes.plot(*zip(*dots, strict=True), ".", markersize=4, alpha=0.5, color=drawn.get_color()) if dots else None
    _scale(axes, "x", [x for series in grown.series for x in series.xs])
    _scale(axes, "y", [y for series in grown.series for samples in series.samples for y in samples])
    axes.set_xlabel(grown.x_name)
    axes.set_ylabel(grown.unit)
    axes.legend()


def _scale(axes: Any, axis: str, values: Sequence[float]) -> None:
    if values and min(values) > 0 and max(values) / min(values) >= 100:
        axes.set(**{f"{axis}scale": "log"})
    elif axis == "y":
        axes.set_ylim(bottom=0)
