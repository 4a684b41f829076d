"""Iteration over a range, for threads."""

from __future__ import annotations

from collections.abc import Iterator

from ...storage.batch import Batch
from ..connection.driver import Driver
from .range import RangeCore


def each_batch_of_range(driver: Driver, core: RangeCore) -> Iterator[Batch]:
    """The batches of a range, each checked in the thread that asks for it, without the lock."""
    try:
        while found := driver.run(core.more()):
            for batch in found:
                core.check(batch)
                yield batch
    finally:
        driver.do(core.close)
