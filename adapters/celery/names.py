"""Topics of queues and exchanges, by their names in AMQP.

Contract: injective. A queue whose name can be a topic's name keeps it, so that `penstock queue` finds it under the name
that the application uses.
"""

from __future__ import annotations

import re
from urllib.parse import quote

GROUP = "celery"
"""The queue group by which workers share the messages of a queue."""

QUOTED, EXCHANGE = "kombu.queue.", "kombu.exchange."

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def queue_topic(queue: str) -> str:
    """The topic that holds the messages of a queue."""
    plain = _PLAIN.fullmatch(queue) and not queue.startswith("kombu.")
    return queue if plain else QUOTED + quoted(queue)


def exchange_topic(exchange: str) -> str:
    """The topic of what is published to an exchange, which temporary queues read."""
    return EXCHANGE + quoted(exchange)


def quoted(name: str) -> str:
    """A name in the letters of topics: others as -XX, each byte of UTF-8."""
    percent = quote(name, safe="").replace("-", "%2D").replace("~", "%7E")
    return percent.replace("%", "-")
