"""Message systems under one interface (system.py): penstock, its peers, and bare sockets. One file each (README.md)."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .system import System


def every() -> list[System]:
    """Each system of this folder, present or absent: a module has a SYSTEM, or SYSTEMS, or only serves the others."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return [system for module in modules for system in _offered(module)]


def _offered(module: object) -> list[System]:
    single = getattr(module, "SYSTEM", None)
    return [*getattr(module, "SYSTEMS", []), *([single] if single else [])]
