"""Outcomes that failed, for a flush to raise unless something else does before.

Idea: a flush raises the first error that no future was asked about. A program that never flushes has no end of errors,
so what was told meanwhile is dropped, and so are the last of too many.

Contract: at most MOST are kept. Must not know what failed.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

MOST = 1024


class FailedOutcome(Protocol):
    """What has an error."""

    @property
    def seen(self) -> bool:
        """Whether the error was raised, or read."""
        ...

    def raise_error(self) -> None:
        """Raise it."""
        ...


F = TypeVar("F", bound=FailedOutcome)


def keep(failed: list[F], added: F) -> None:
    """Keep an outcome for `raise_first`."""
    if len(failed) >= MOST:
        failed[:] = [each for each in failed if not each.seen][: MOST // 2]
    failed.append(added)


def raise_first(failed: list[F]) -> None:
    """Raise the first error that was not seen, and forget the others."""
    found = failed[:]
    failed.clear()
    for each in found:
        if not each.seen:
            each.raise_error()
