"""How many Python calls something takes: what it costs, whatever else the machine does."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def calls(act: Callable[[], object]) -> int:
    """Python calls of it, while the collector rests: what that frees of earlier tests is no call of this."""
    count = 0

    def counted(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
