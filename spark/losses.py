"""Handles lost records: fail the query, or warn and go on (option `failOnDataLoss`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .errors import DataLoss

log = logging.getLogger("penstock.spark")

GOING_ON = "; going on without them"
"""The end of a warning."""

WAY_OUT = "option failOnDataLoss=false goes on without them"


def settle(losses: Sequence[str], fail: bool) -> None:
    """Raise DataLoss when there are any and `fail`; else warn of each."""
    if losses and fail:
        raise DataLoss(f"{'; '.join(losses)} ({WAY_OUT})")
    for loss in losses:
        log.warning("%s%s", loss, GOING_ON)
