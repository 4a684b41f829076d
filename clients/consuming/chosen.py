"""Chooses topics by their names and by patterns: what `client.consumer([...])` is given.

    ["alarms", "sensor-*"]          * any characters, ? one, [ab] one of these: of no name, so a pattern is told by them

Contract: a topic that is named has to be there; those of a pattern come and go. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from ...broker.errors import UnknownTopic
from ..errors import InvalidArgument

WILD = re.compile(r"[*?\[]")


class Chosen:
    """See the module."""

    def __init__(self, topics: Sequence[str]) -> None:
        """Raises InvalidArgument."""
        if not topics:
            raise InvalidArgument('topics=[] reads nothing: name some, or give a pattern like "sensor-*"')
        self.topics = list(dict.fromkeys(topics))
        self.named = {each for each in topics if not WILD.search(each)}
        patterns = [each for each in self.topics if each not in self.named]
        self.has_patterns = bool(patterns)
        self._pattern = re.compile("|".join(map(translate, patterns)) or "(?!)")

    def among(self, present: Iterable[str]) -> list[str]:
        """The topics to be read of those that are there, in their order. Raises UnknownTopic for what is missing."""
        found = [name for name in present if name in self.named or self._pattern.match(name)]
        missing = sorted(self.named.difference(found))
        if missing:
            some = f"topic{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
            raise UnknownTopic(f"missing {some}: create what is missing first, or choose by a pattern")
        return found

    def __str__(self) -> str:
        return f"topics {', '.join(self.topics)}"
