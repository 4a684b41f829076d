"""Standard streams that are closed, or whose reader has left.

Contract: writing to standard output whose reader has left raises BrokenPipeError, which ends a command (`app.py`)
unless printing is not its work. Standard error without a reader never ends a command. A service waits for no reader.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, TextIO

STANDARD_OUTPUT = 1
"""Its descriptor."""


def open_closed() -> None:
    """Open closed standard streams (`>&-`) on /dev/null: else the next file gets their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(opened := os.open(os.devnull, os.O_RDWR), number)
            if opened != number:
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))


def binary_stdout() -> BinaryIO:
    """Standard output for bytes, after the text printed so far."""
    sys.stdout.flush()
    return sys.stdout.buffer


def to_stderr(line: str) -> None:
    """Write a line to standard error, or drop it if the reader has left."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        drop(sys.stderr)


@contextmanager
def unread_is_fine() -> Iterator[None]:
    """For services: they keep working when the reader of their output has left, and when its disk is full."""
    try:
        yield
    except BrokenPipeError:
        drop(sys.stdout)
    except OSError as error:  # the next line is tried again: a disk may have room then
        from ..broker.diagnostics import say

        say(f"standard output cannot be written: {(error.strerror or str(error)).lower()}")


def tell(write: Callable[[], object]) -> None:
    """For services: write to standard output, unless its pipe is full since nothing reads it. The log says so then."""
    from ..broker.diagnostics import say
    from ..broker.pipes import PATIENCE_S, has_room

    with unread_is_fine():
        if has_room(STANDARD_OUTPUT, PATIENCE_S):
            write()
        else:
            say("standard output is not read: an event is left out there")


def drop(stream: TextIO) -> None:
    """Give a stream whose reader has left to /dev/null: what is still buffered would fail again when Python exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
