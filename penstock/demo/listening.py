"""Reads the messages of the demo's processes and displays them, until a condition holds."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence

from .display import Display
from .errors import DemoError
from .roles import Role

LOOK_S = 0.1
"""Between two looks at whether it is so."""

QUIET_S = 60.0
"""No record moved for so long: something is stuck."""


def listen(roles: Sequence[Role], display: Display, until: Callable[[], bool], *, quiet_s: float = QUIET_S) -> None:
    """Read messages of `roles` and show them until `until` is true. Raises a role's error, and DemoError when stuck."""
    moved, moved_at = -1, time.monotonic()
    while not until():
        ready, _, _ = select.select([role for role in roles if not role.done], [], [], LOOK_S)
        for role in ready:
            role.hear()
        display.refresh()
        total = sum(role.records for role in roles)
        if total != moved:
            moved, moved_at = total, time.monotonic()
        elif time.monotonic() - moved_at > quiet_s:
            where = ", ".join(f"{role.name}: {role.records:,}" for role in roles)
            raise DemoError(f"no record moved for {quiet_s:.0f} s ({where})")


def all_done(roles: Sequence[Role]) -> bool:
    """Whether all roles are done."""
    return all(role.done for role in roles)
