"""The libraries of the extra `gateway`, loaded when the gateway starts (decision 063).

Contract: a missing one raises MissingLibrary, whose sentence names the extra. The modules are typed as Any: the rest of
penstock is checked and shipped without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..storage.errors import MissingLibrary, way_to_install

OF_DOORS = {"resp": ("uvloop", "hiredis"), "http": ("uvloop", "httptools", "jinja2", "starlette", "uvicorn")}
"""What each door needs."""


def load(name: str) -> Any:
    """The module `name`. Raises MissingLibrary."""
    try:
        return import_module(name)
    except ImportError:
        raise _missing(name) from None


def check(doors: Iterable[str]) -> None:
    """Raise MissingLibrary unless all that doors need is installed. Loads nothing."""
    for name in dict.fromkeys(name for door in doors for name in OF_DOORS[door]):
        if find_spec(name) is None:
            raise _missing(name)


def _missing(name: str) -> MissingLibrary:
    return MissingLibrary(f"the gateway needs {name}, which is not installed: {way_to_install('gateway')}")
