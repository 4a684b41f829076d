"""Default names for members and workers."""

from __future__ import annotations

import os
import socket


def made_up_name() -> str:
    """A unique name that shows host and process."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{os.urandom(4).hex()}"
