"""Valid names of topics, groups, members and producers. The rule: PROTOCOL.md, 8.2 (CreateTopic). Pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")

RULE = "1 to 200 characters out of A-Z a-z 0-9 . _ - and no dot at the start"


def is_name(name: str) -> bool:
    """Whether it follows the RULE."""
    return _NAME.fullmatch(name) is not None


def shown(name: str) -> str:
    """A name for people, cut where it is long."""
    return repr(name if len(name) <= 60 else name[:57] + "...")
