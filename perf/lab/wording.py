"""Numbers, bounds and answers as people read them: the cells of every table."""

from __future__ import annotations

from .measured import Bound, Verdict


def amount(value: float, unit: str) -> str:
    """3 digits and the unit; rates as k, M, G."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and unit.endswith("/s"):
            return f"{value / size:.3g} {letter} {unit}"
    return f"{number(value)} {unit}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """Two decimals where they say something."""
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def bound(asked: Bound, more_is_better: bool, unit: str) -> str:
    """A bound, as "≥ 5.00 x best peer" or "≤ 322 ns/record"."""
    sign = "≥" if more_is_better else "≤"
    return f"{sign} {ratio(asked.bound)} x {asked.against}" if asked.against else f"{sign} {amount(asked.bound, unit)}"


def measured(verdict: Verdict, unit: str) -> str:
    """The result, in the terms of the bound; with the peer's name, where the bound is the best peer."""
    asked = verdict.asked
    if verdict.measured is None:
        return "not judged: absent"
    if not asked.against:
        return amount(verdict.measured, unit)
    return ratio(verdict.measured) + ("" if verdict.against == asked.against else f" x {verdict.against}")


def answer(reached: bool | None) -> str:
    return {True: "yes", False: "NO", None: ""}[reached]
