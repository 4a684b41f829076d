"""Task queues under one interface (queue.py): penstock and its peers, each through its own Python client."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .queue import Queue


def every() -> list[Queue]:
    """Each queue of this folder, present or absent: a module has QUEUES, or only serves the others."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return [queue for module in modules for queue in getattr(module, "QUEUES", [])]


def named(name: str) -> Queue:
    """One of them."""
    return next(queue for queue in every() if queue.name == name)
