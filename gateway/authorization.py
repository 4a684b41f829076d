"""Who may do what: one question that every door asks before it does anything.

Idea: a door knows its peer as a Principal and names the operation and what it is about. Today every principal that has
authenticated may do everything; what each may do is decided here, and nowhere else.

Pure.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Operation = Literal["read", "write", "manage"]
"""Reading records and positions; appending, and moving positions; creating and deleting."""


class Principal(Struct, frozen=True):
    """A peer of a door, by the name it authenticated under."""

    name: str


ANYONE = Principal("default")
"""The peer of a door without users."""


def authorize(principal: Principal, operation: Operation, resource: str) -> bool:
    """Whether `principal` may do `operation` to `resource`, the name of a topic, or "" for all of them."""
    return True
