"""Messages for backups: how far every log is committed at one moment. Normative text: PROTOCOL.md, section 8.10.

Pure: values only.
"""

from __future__ import annotations

from msgspec import Struct

from .message import Count, Message, TopicId


class Checkpoint(Message, tag=62, frozen=True):
    """Asks how far every log is committed, all at one moment. Answered by Checkpointed."""

    request: Count


class LogPlace(Struct, array_like=True, frozen=True, gc=False):
    """One log: the last batch that is applied, and the first offset, as one moment had them.

    `needed`: the first batch that is read though it may lie below that, staged or carried forward; 0 for none.

    The catalogue's has no `name`, and zeros for a topic.
    """

    name: str
    topic: TopicId
    partition: Count
    log_id: bytes
    seq: Count
    first: Count
    needed: Count = 0


class Checkpointed(Message, tag=63, frozen=True):
    """Every log that is open. `unavailable`: why others are not, by topic and number."""

    request: Count
    logs: list[LogPlace]
    unavailable: dict[str, str]
