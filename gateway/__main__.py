"""`python -m penstock.gateway`: how the supervisor of a broker starts a gateway; see `penstock.broker.beside`."""

from __future__ import annotations

import sys

from ..broker.beside import serve_beside
from .config import GatewayConfig
from .process import run

if __name__ == "__main__":
    sys.exit(serve_beside("penstock.gateway", lambda text, say: run(GatewayConfig.from_json(text), say)))
