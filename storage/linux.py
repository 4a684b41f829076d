"""The error for platforms other than Linux."""

from __future__ import annotations

import sys

from .errors import NeedsLinux


def need_linux(what: str) -> None:
    """Raise NeedsLinux elsewhere; `what` begins the sentence."""
    if sys.platform != "linux":
        raise NeedsLinux(
            f"{what} needs Linux, and this is {sys.platform}: use mem:// here, or tcp:// to a broker that runs on Linux"
        )
