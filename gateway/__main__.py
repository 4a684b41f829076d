"""`python -m penstock.gateway`: how the supervisor of a broker starts a gateway; see `penstock.broker.beside`."""

from __future__ import annotations

import os
import sys

from msgspec import structs

from ..broker.beside import Say, serve_beside
from .config import GatewayConfig
from .process import run


def _run(text: str, say: Say, page: int) -> None:
    run(structs.replace(GatewayConfig.from_json(text), supervisor=os.getppid()), say, page)


if __name__ == "__main__":
    sys.exit(serve_beside("penstock.gateway", _run))
