"""Cuts values into batches as their sender would: at most so many, of about so many bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BATCH_BYTES = 512 << 10  # with its framing, within what every server takes in one piece by default


def in_batches(values: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """Consecutive slices; the first value stands for the size of all, as values of one load are alike."""
    step = max(1, min(most, BATCH_BYTES // max(1, len(values[0])))) if values else 1
    for start in range(0, len(values), step):
        yield values[start : start + step]
