"""Which stream groups have members, by topic.

Contract: only stores them. Belongs to one office: claims are not logged, so the next office begins with none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..logs.topics import Topic
    from .coordinator import Membership


class Memberships:
    """The memberships of all topics."""

    def __init__(self) -> None:
        self._by_topic: dict[Topic, dict[str, Membership]] = {}

    def of(self, topic: Topic) -> Mapping[str, Membership]:
        """The memberships of a topic, by group."""
        return self._by_topic.get(topic, {})

    def add(self, topic: Topic, membership: Membership) -> None:
        """A group has its first member."""
        self._by_topic.setdefault(topic, {})[membership.group] = membership

    def remove(self, topic: Topic, group: str) -> None:
        """A group has no members any more."""
        groups = self._by_topic.get(topic, {})
        groups.pop(group, None)
        if not groups:
            self._by_topic.pop(topic, None)
