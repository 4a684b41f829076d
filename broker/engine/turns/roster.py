"""What an office knows of a partition or a topic and does not log: sealed stages, readers, stream groups with members.

Contract: only stores it, by key. Belongs to one office. Nothing is left of an owner without entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

Owner = TypeVar("Owner")
Key = TypeVar("Key")
Value = TypeVar("Value")

NONE: Mapping[Any, Any] = {}


class Roster(Generic[Owner, Key, Value]):
    """Entries of all partitions, or of all topics."""

    def __init__(self) -> None:
        self.by_owner: dict[Owner, dict[Key, Value]] = {}
        """Those with entries."""

    def of(self, owner: Owner) -> Mapping[Key, Value]:
        """The entries of one owner."""
        return self.by_owner.get(owner, NONE)

    def add(self, owner: Owner, key: Key, value: Value) -> None:
        """Add an entry."""
        self.by_owner.setdefault(owner, {})[key] = value

    def remove(self, owner: Owner, key: Key) -> None:
        """Remove an entry, if it is there."""
        entries = self.by_owner.get(owner, {})
        entries.pop(key, None)
        if not entries:
            self.by_owner.pop(owner, None)
