"""What a message's header says about when and how soon it goes out.

Contract: pure. A task of Celery with an ETA stays at the broker until then, so that no worker holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

PRIORITY_MOST = 9
"""As in AMQP: 0 to 9."""


def eta_of(message: Mapping[str, Any]) -> datetime | None:
    """The ETA of a task of Celery; None when there is none, or none with a zone, which its worker waits for."""
    text = (message.get("headers") or {}).get("eta")
    if not isinstance(text, str):
        return None
    try:
        eta = datetime.fromisoformat(text)
    except ValueError:
        return None
    return eta.astimezone(UTC) if eta.tzinfo is not None else None


def priority_of(message: Mapping[str, Any], most_urgent: int) -> int:
    """The priority as penstock has it, higher first. `most_urgent` is 9 as in AMQP, or 0 as with Redis."""
    given = message["properties"].get("priority") or 0
    priority = min(max(int(given), 0), PRIORITY_MOST)
    return PRIORITY_MOST - priority if most_urgent == 0 else priority


def accepting(
    kind: str, pattern: str | None, routing_key: str, match: Callable[[str, str], Any]
) -> Callable[[str], bool]:
    """Whether a binding of an exchange of this kind wants a message, by the message's routing key."""
    if kind == "fanout":
        return lambda _: True
    if kind == "topic" and pattern is not None:
        return lambda key: bool(match(pattern, key))
    return lambda key: key == routing_key
