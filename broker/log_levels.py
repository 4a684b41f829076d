"""How much running processes log: the supervisor tells its children by signals.

Idea: four levels, and a real-time signal for each. A child needs no descriptor for them and no turn of its loop, and
what it waits for goes on.

Contract: a supervisor ignores these signals, and so does a child of it until it listens: they end no process. What is
told before is lost, so it is told to processes that serve. Must not know what is logged.
"""

from __future__ import annotations

import logging
import signal
from typing import get_args

from .diagnostics import Level

SIGNALS = {level: signal.SIGRTMIN + place for place, level in enumerate(get_args(Level))}


def use(level: str) -> None:
    """Log what is of this level or worse, from now on."""
    logging.getLogger().setLevel(level.upper())


def listen() -> None:
    """Follow the supervisor's level. Of the main thread."""
    for level, number in SIGNALS.items():
        signal.signal(number, lambda number, frame, level=level: use(level))
