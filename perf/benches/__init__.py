"""The benches: one small file each, found by being in this folder.

A bench is a module with one generator `rows(lab)`. It sets something up, yields a `Row`, a `Latency` or a `Curve`
(../lab/rows.py), is resumed when that has been measured, and cleans up.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from ..lab.harness import Lab
from ..lab.rows import Curve, Latency, Row


def names() -> list[str]:
    """Names of all benches."""
    return sorted(module.name for module in iter_modules(__path__))


def about(bench: str) -> str:
    """The first line of a bench's docstring."""
    return (_module(bench).__doc__ or "").partition("\n")[0]


def subject(bench: str) -> str:
    """The system that a bench measures."""
    return getattr(_module(bench), "SUBJECT", "penstock")


def rows(bench: str, lab: Lab) -> Generator[Row | Latency | Curve]:
    """The rows of a bench; files it keeps carry its name."""
    return _module(bench).rows(replace(lab, bench=bench))


def _module(bench: str) -> ModuleType:
    return import_module(f"{__name__}.{bench}")
