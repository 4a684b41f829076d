"""Refuses to pickle or copy objects that are bound to this process, and says what to pass on instead.

Contract: pickling and deep copies raise Unpicklable, a TypeError, as Python raises for locks and sockets. Pure: knows
nothing of the objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from .errors import Unpicklable

K = TypeVar("K", bound=type)


def unpicklable(instead: str) -> Callable[[K], K]:
    """Make a class and its subclasses refuse to be pickled. `instead` completes "pass on ..."."""

    def refuse(thing: Any, protocol: int = 0) -> NoReturn:
        name = type(thing).__name__
        article = "an" if name[0] in "AEIOU" else "a"
        raise Unpicklable(
            f"{article} {name} is bound to a connection of this process, and is neither pickled nor copied: "
            f"pass on {instead}"
        )

    def decorated(kind: K) -> K:
        kind.__reduce_ex__ = refuse
        return kind

    return decorated
