"""Signals that ask a command to end in good order.

Contract: the first is noted, and the command ends when it can; one that comes a second later has its usual effect.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ..broker.stop import Stop


@contextmanager
def noted(*numbers: int) -> Iterator[Stop]:
    """Note these signals. The handlers there were before are restored at the end, and before a later signal acts."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: object) -> None:
        stop.tell()
        if stop.again:
            restore()
            signal.raise_signal(number)

    for number in numbers:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
