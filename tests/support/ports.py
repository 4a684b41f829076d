"""Ports that are free, for what cannot listen at any: a node's address for peers, which all nodes are told before.

Contract: they are free at the time of the call. They are not in the range that the system hands out by itself, so that
no other test takes them meanwhile; which ones are tried first depends on the process.
"""

from __future__ import annotations

import os
import random
import socket

_LOWEST, _HIGHEST = 12_000, 30_000


def port_pairs(count: int) -> list[int]:
    """Ports that are free, each as is the next one."""
    found: list[int] = []
    for port in random.Random(os.getpid()).sample(range(_LOWEST, _HIGHEST, 2), 1000):
        try:
            with socket.socket() as one, socket.socket() as following:
                one.bind(("127.0.0.1", port))
                following.bind(("127.0.0.1", port + 1))
                found.append(port)
        except OSError:
            continue
        if len(found) == count:
            return found
    raise AssertionError(f"of 1,000 pairs of ports not {count} are free")
