"""Valid names of topics, groups, members and producers.

Idea: one rule for every name, checked before anything else happens. Names that start with two underscores are reserved
for penstock.
"""

from __future__ import annotations

from ....storage.errors import InvalidTopic
from ....transport.names import RULE, is_name, shown
from ...errors import InvalidRequest

RESERVED = "__"


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless `name` may be given to a new topic."""
    if not is_name(name):
        raise InvalidTopic(f"topic name {shown(name)} is not allowed: {RULE}")
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
    if not is_name(name):
        raise InvalidRequest(f"{what} name {shown(name)} is not allowed: {RULE}")
