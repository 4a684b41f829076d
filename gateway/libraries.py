"""The libraries of the extra `gateway`, loaded when the gateway starts (decision 063).

Contract: a missing one raises MissingLibrary, whose sentence names the extra. The modules are typed as Any: the rest of
penstock is checked and shipped without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..storage.errors import MissingLibrary, way_to_install


def load(name: str) -> Any:
    """The module `name`: uvloop or hiredis. Raises MissingLibrary."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingLibrary(f"the gateway needs {name}, which is not installed: {way_to_install('gateway')}") from None
