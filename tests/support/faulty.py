"""A fault in a module, in this process: what imports it from now on gets the faulty one.

Contract: to be called before the module is imported. The file stays as it is, and no bytecode of the fault is kept.
"""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from typing import Any

from support.sources import ROOT


def break_module(file: str, old: str, new: str) -> None:
    """In `file`, a path below the project, `old` becomes `new`."""
    path, get_code = str(ROOT / file), SourceFileLoader.get_code

    def broken(loader: SourceFileLoader, name: str) -> Any:
        if loader.path != path:
            return get_code(loader, name)
        return compile((ROOT / file).read_text().replace(old, new), path, "exec")

    SourceFileLoader.get_code = broken  # pyright: ignore[reportAttributeAccessIssue]
