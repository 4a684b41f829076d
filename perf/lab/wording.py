"""Numbers, bounds and answers as people read them: the cells of every table."""

from __future__ import annotations

from .measured import Bound, Verdict


def amount(value: float, unit: str) -> str:
    """Format a value with 3 digits and its unit; rates as k, M, G."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and unit.endswith("/s"):
            return f"{value / size:.3g} {letter} {unit}"
    return f"{number(value)} {unit}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """Format a ratio, with two decimals if they matter."""
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def bound(asked: Bound, more_is_better: bool, unit: str) -> str:
    """Format a bound, as "≥ 5.00 x best peer" or "≤ 322 ns/record"."""
    sign = "≥" if more_is_better else "≤"
    return f"{sign} {ratio(asked.bound)} x {asked.against}" if asked.against else f"{sign} {amount(asked.bound, unit)}"


def measured(verdict: Verdict, unit: str) -> str:
    """Format the result in the terms of its bound, with the peer's name if that is the best peer."""
    asked = verdict.asked
    if verdict.measured is None:
        return "not judged: absent"
    if not asked.against:
        return amount(verdict.measured, unit)
    return ratio(verdict.measured) + ("" if verdict.against == asked.against else f" x {verdict.against}")


def answer(reached: bool | None) -> str:
    return {True: "yes", False: "NO", None: ""}[reached]
