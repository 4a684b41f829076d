"""Names for members and workers that were given none."""

from __future__ import annotations

import os
import socket


def made_up_name() -> str:
    """A name that tells people where somebody runs, and that nobody else has."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{os.urandom(4).hex()}"
