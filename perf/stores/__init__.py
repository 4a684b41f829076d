"""Embedded stores under one interface (store.py): penstock's Log and its peers. One file each."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from .store import Store


def every_store() -> list[Store]:
    """Every module's STORE in this folder, sorted by module name."""
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules([str(Path(__file__).parent)]))
    return [module.STORE for module in modules if hasattr(module, "STORE")]


def label(store: Store) -> str:
    """Its name in tables, where those that check what they read are not to be taken for the others."""
    return f"{store.name}, checked" if store.checks else store.name
