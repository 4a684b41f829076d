"""The name and number a write is committed under, so that a repeated write is recognised.

Idea: a streaming query has an id that its checkpoint keeps, and numbers its micro-batches; Spark repeats both after a
crash. A batch write has neither: it gets a name of its own, which makes it one atomic write, or its author gives a
name and version, which makes it one write however often the job is run. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from ..errors import UnknownQuery

NAME_MAX = 200
"""Characters in the name of a transaction."""

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""The properties that Spark gives each task of a streaming query."""


class Epoch(NamedTuple):
    """One write: the name of a transaction, and the number under which it is committed."""

    transaction: str
    number: int


def batch_epoch(transaction: str, version: int | None, unique: str) -> Epoch:
    """The epoch of a batch write: its author's name and version, or a `unique` name, which the broker soon forgets."""
    return Epoch(f"~{unique}", 1) if version is None else Epoch(transaction, version)


def stream_epoch(transaction: str, topic: str, task_property: Callable[[str], str | None]) -> Epoch:
    """The epoch of the task's micro-batch; `task_property` reads what Spark told the task. Raises UnknownQuery."""
    query, batch = task_property(QUERY_ID), task_property(BATCH_ID)
    if batch is None or not (transaction or query):
        raise UnknownQuery(
            "this task does not know which micro-batch of which query it belongs to: write with "
            'df.writeStream...start(), or inside foreachBatch with the options "txnId" and "txnVersion"'
        )
    return Epoch(transaction or query_transaction(str(query), topic), int(batch))


def query_transaction(query: str, topic: str) -> str:
    """The name under which a query commits what it writes to `topic` ("": to those that its rows name)."""
    name = f"{query}.{topic}" if topic else query
    return name if len(name) <= NAME_MAX else f"{query}.{xxh3_64_hexdigest(topic.encode())}"
