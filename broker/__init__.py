"""penstock broker: the rules (`engine`), and the processes around them.

`Supervisor` runs a node (a broker and its keeper) as `ServeConfig` says. Nothing here loads ZeroMQ before a
broker is really started.
"""

from __future__ import annotations

from .config import ServeConfig
from .supervisor import Supervisor

__all__ = ["ServeConfig", "Supervisor"]
