"""The public half of a key of CURVE. ZeroMQ is loaded for it.

Contract: pure.
"""

from __future__ import annotations

import zmq
from zmq.utils import z85


def public_of(secret: bytes) -> bytes:
    """The public half of a secret key; both as 32 bytes."""
    return z85.decode(zmq.curve_public(z85.encode(secret)))
