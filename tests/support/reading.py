"""Reading so many records and then stopping, however slow the machine is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def rows(batch: Any) -> int:
    """Records in a batch of any form."""
    return batch.num_rows if hasattr(batch, "num_rows") else len(batch)


def until(count: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Batches until they hold `count` records."""
    held = 0
    for batch in batches:
        yield batch
        held += rows(batch)
        if held >= count:
            return


def fetched(consumer: Any, count: int) -> list[Any]:
    """Records from as many fetches as it takes."""
    found: list[Any] = []
    while len(found) < count:
        found += consumer.fetch(count - len(found), wait=60)
    return found
