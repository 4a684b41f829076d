"""Ids of tasks: `topic-partition-offset`, the same for producers and workers.

Contract: read from the right, because topics may hold dashes. A malformed id raises InvalidArgument. Pure.
"""

from __future__ import annotations

import re

from ..errors import InvalidArgument

_ID = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]{0,18})", re.ASCII | re.DOTALL)

OFFSET_MAX = (1 << 63) - 1


def task_id(topic: str, partition: int, offset: int) -> str:
    """The id of one record."""
    return f"{topic}-{partition}-{offset}"


def parse_task_id(text: str) -> tuple[str, int, int]:
    """Topic, partition and offset of an id. Raises InvalidArgument."""
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found[3]) > OFFSET_MAX:
        raise InvalidArgument(f"{text!r} is no id of a task: one is topic-partition-offset, as in mails-0-17")
    return found[1], int(found[2]), int(found[3])
