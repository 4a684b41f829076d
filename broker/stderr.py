"""Standard error of the broker's processes: sentences for the operator.

Contract: saying something never ends a process. When the reader of a pipe has left, or the disk behind a redirection is
full, the sentence is dropped.
"""

from __future__ import annotations

import os
import sys


def say(line: str) -> None:
    """Write a line to standard error, or drop it."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)  # what is still buffered would fail again when Python exits
        os.dup2(null, sys.stderr.fileno())
        os.close(null)
    except OSError:
        pass  # the next line is tried again: a disk may have room then
