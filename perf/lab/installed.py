"""Where the programs and jars are that no package of the system has: perf/install-peers puts them there, and builds.

Contract: outside the checkout. PENSTOCK_PEERS names the directory when it is not ~/.cache/penstock-peers.
"""

from __future__ import annotations

import os
from pathlib import Path


def peers_directory() -> Path:
    """The directory, which may not be there yet."""
    return Path(os.environ.get("PENSTOCK_PEERS") or Path.home() / ".cache" / "penstock-peers")
