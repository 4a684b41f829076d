"""Whether a lock is free, as another thread sees it."""

from __future__ import annotations

import threading
from typing import Any

PATIENCE_S = 5.0
"""How long a thread that is at work may hold it."""


def is_free(lock: Any) -> bool:
    """Whether another thread gets the lock."""
    found: list[bool] = []

    def look() -> None:
        found.append(lock.acquire(timeout=PATIENCE_S))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]
