"""Columns of values for tests."""

from __future__ import annotations

import numpy as np
from penstock.storage.columns import EndToEnd


def end_to_end(values: list[bytes]) -> EndToEnd:
    """Values inside a larger block."""
    return EndToEnd(b"before" + b"".join(values) + b"behind", np.cumsum([len("before"), *map(len, values)]))
