"""The topics of one page of an answer about all of them.

Idea: an answer is made and sent in one turn, and its size has a limit. So what is said of all topics comes in pages, in
the order of their names, and each page but the last says behind which name to go on.

Contract: iterating gives topics that are there at that moment, while the page has room. A caller says what it puts
there. Internal topics are on none. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .topics import Topic, Topics

PAGE = 1000
"""Descriptions of partitions, and topics without any, on one page: some 400 KB. The last topic may exceed it."""


class TopicPage:
    """See the module. `next` is the name to go on behind; "" when that was all."""

    def __init__(self, topics: Topics, after: str) -> None:
        self.next = ""
        self._topics = topics
        self._names = topics.names
        self._at = bisect_right(self._names, after)
        self._room = PAGE

    def take(self, descriptions: int) -> None:
        """Use so much of the page's room."""
        self._room -= descriptions

    def __iter__(self) -> Iterator[Topic]:
        while self._at < len(self._names):
            if self._room <= 0:
                self.next = self._names[self._at - 1]
                return
            topic = self._topics.by_name.get(self._names[self._at])
            self._at += 1
            self.take(1)
            if topic is not None:  # not deleted meanwhile
                yield topic
