"""Failures that came over the wire become errors again, of the class that the broker raised.

Contract: a code that this side does not know (a newer broker's) becomes a RemoteError that keeps it.
Pure. Which errors exist is registered by the floors that raise them (`Error.by_code`).
"""

from __future__ import annotations

from typing import Any

from ..storage.errors import Error
from .errors import TransportError
from .messages import Failure


class RemoteError(TransportError):
    """A failure with a code that this version does not know; `code` and `retry` are as the broker said."""

    code = "remote"

    def __init__(self, message: str, *, code: str = "remote", retry: bool = False) -> None:
        super().__init__(message)
        self.__dict__.update(code=code, retry=retry)


def error_of(failure: Failure) -> Error:
    """The error that a Failure (or an Evicted) stands for, ready to be raised."""
    error = error_from(failure.code, failure.message, retry=failure.retry)
    error.offset = failure.offset
    return error


def error_from(code: str, message: str, *, retry: bool = False) -> Error:
    """The error of a code and a sentence that came over the wire."""
    kind: Any = Error.by_code.get(code)
    return RemoteError(message, code=code, retry=retry) if kind is None else kind(message)
