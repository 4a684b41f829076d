"""Retry rules of a task function: how often, after which delay, and after which exceptions.

Idea: a worker applies the rule of the function, or of the call, to what the function raises. The settings of the queue
are the limit above it, which the broker applies also where a worker dies.

Pure: values only; randomness is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from msgspec import Struct

from ..arguments.checking import check_fields
from ..arguments.quantities import Duration, seconds
from ..errors import InvalidArgument

DOUBLINGS_MAX = 64
"""Beyond this, every delay is at its limit."""

Exceptions = tuple[type[BaseException], ...]


class Retry(Struct, frozen=True):
    """Attempts and the time between them.

    Attempt n + 1 follows `backoff * 2 ** (n - 1)` after attempt n failed, `max_backoff` at most; a random part of up to
    `jitter` (0 to 1) is taken off. After `max_attempts` the task is dead-lettered; None: it is retried for ever.
    `only`: exceptions after which it is retried, where not after every one; `never`: those after which it is not. Other
    exceptions dead-letter the task at once. A timeout is a TimeoutError. The death of a worker or of its process is no
    exception and is retried.
    """

    max_attempts: int | None = 20
    backoff: Duration = 1.0
    max_backoff: Duration = 300.0
    jitter: float = 0.5
    only: Exceptions | None = None
    never: Exceptions = ()

    def __post_init__(self) -> None:
        for name in ("only", "never"):
            _check_exceptions(name, getattr(self, name))
        check_fields(_Numbers(self.max_attempts, self.backoff, self.max_backoff, self.jitter))
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidArgument(f"max_attempts={self.max_attempts!r} is below 1: a task is tried once at least")
        if not 0 <= self.jitter <= 1:
            raise InvalidArgument(f"jitter={self.jitter!r} is not a share from 0 to 1")

    def settings(self) -> dict[str, Any]:
        """Settings for a queue group."""
        return {
            "max_attempts": self.max_attempts,
            "backoff_s": seconds(self.backoff, "backoff"),
            "backoff_max_s": seconds(self.max_backoff, "max_backoff"),
            "jitter": float(self.jitter),
        }

    def rule(self) -> RetryRule:
        """The same, as workers apply it and as a record carries it."""
        only = None if self.only is None else [name_of(kind) for kind in self.only]
        return RetryRule(**self.settings(), only=only, never=[name_of(kind) for kind in self.never])


class _Numbers(Struct, frozen=True):
    """The fields of Retry that `check_fields` knows."""

    max_attempts: int | None
    backoff: Duration
    max_backoff: Duration
    jitter: float


class RetryRule(Struct, frozen=True, kw_only=True):
    """A Retry with its times in seconds and its exceptions by name."""

    max_attempts: int | None
    backoff_s: float
    backoff_max_s: float
    jitter: float
    only: list[str] | None = None
    never: list[str] = []

    def used_up(self, attempt: int) -> bool:
        """Whether a task whose attempt failed has no further one."""
        return self.max_attempts is not None and attempt >= self.max_attempts

    def retries(self, kinds: Collection[str]) -> bool:
        """Whether a failure is retried; `kinds` are the names of its exception's classes, none without an exception."""
        if not kinds:
            return True
        if not set(self.never).isdisjoint(kinds):
            return False
        return self.only is None or not set(self.only).isdisjoint(kinds)

    def delay_s(self, attempt: int, chance: Callable[[], float]) -> float:
        """The delay after an attempt that failed; `chance` is a random number from 0 up to 1."""
        pause_s = min(self.backoff_max_s, self.backoff_s * 2.0 ** min(attempt - 1, DOUBLINGS_MAX))
        return pause_s * (1 - self.jitter * chance())

    def encoded(self) -> bytes:
        """As a header has it."""
        return msgspec.json.encode(self)


_DECODER = msgspec.json.Decoder(RetryRule)


def rule_from(header: bytes) -> RetryRule:
    """The rule that a header has. Raises ValueError."""
    return _DECODER.decode(header)


def name_of(kind: type[BaseException]) -> str:
    """The name of an exception, the same in every process."""
    return f"{kind.__module__}.{kind.__qualname__}"


def names_of(error: BaseException) -> list[str]:
    """The names of an exception's class and of those that it derives from."""
    return [name_of(kind) for kind in type(error).__mro__ if issubclass(kind, BaseException)]


def _check_exceptions(name: str, given: object) -> None:
    if given is None and name == "only":
        return
    if not isinstance(given, tuple) or not all(map(_is_exception, given)):
        raise InvalidArgument(f"{name}={given!r} is not a tuple of exceptions, as in (OSError, ValueError)")
    if name == "only" and not given:
        raise InvalidArgument("only=() retries after no exception: give max_attempts=1, or leave it out")


def _is_exception(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, BaseException)
