"""What topics, groups, members and producers may be called.

Idea: one rule for every name, checked before anything else happens, refused with one sentence.
Names that start with two underscores are penstock's own.
"""

from __future__ import annotations

import re

from ....storage.errors import InvalidTopic
from ...errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
RESERVED = "__"
RULE = "1 to 200 characters out of A-Z a-z 0-9 . _ - and no dot at the start"


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless `name` may be given to a new topic."""
    if not _NAME.fullmatch(name):
        raise InvalidTopic(f"topic name {_shown(name)} is not allowed: {RULE}")
    if is_reserved(name):
        raise InvalidTopic(f"topic name {name!r} is not allowed: names starting with __ are reserved for penstock")


def is_reserved(name: str) -> bool:
    """Whether a topic of this name is penstock's own."""
    return name.startswith(RESERVED)


def check_not_reserved(name: str) -> None:
    """Raise InvalidTopic for an internal topic: requests cannot use its id."""
    if is_reserved(name):
        raise InvalidTopic(f"topic {name} is penstock's own: it can be listed by its name, and nothing else")


def check_name(what: str, name: str) -> None:
    """Raise InvalidRequest unless `name` may name a group, member or producer (`what` says which)."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{what} name {_shown(name)} is not allowed: {RULE}")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")
