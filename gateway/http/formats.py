"""How messages leave: as one JSON value, as NDJSON, or as an Arrow stream, as the client's Accept says.

Contract: where the body has no place for the offsets behind the messages, they are in the header `Penstock-Next`, as
JSON. Without pyarrow a client that prefers Arrow gets what it prefers next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from ...storage.arrow import ARROW_COLUMNS, Origin
from ...transport.messages import Topic
from ..consumers import BatchPart
from .operation import JSON, HttpCall, Reply
from .shapes import StoredMessages, stored

if TYPE_CHECKING:
    import pyarrow as pa

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
NEXT = b"penstock-next"

_COLUMNS = (*ARROW_COLUMNS, "partition")

encode = msgspec.json.Encoder().encode


def reply_of(
    call: HttpCall, topic: Topic, parts: Sequence[BatchPart], following: Mapping[int, int]
) -> Reply | StoredMessages:
    """The reply to a request for messages."""
    chosen = call.accepted(*([JSON, LINES, ARROW] if find_spec("pyarrow") else [JSON, LINES]))
    if chosen == JSON:
        return StoredMessages([stored(record) for part in parts for record in part.records()], dict(following))
    headers = ((NEXT, encode(following)), (b"vary", b"accept"))
    if chosen == LINES:
        lines = [encode(stored(record)) for part in parts for record in part.records()]
        return Reply(b"".join(line + b"\n" for line in lines), LINES, headers=headers)
    return Reply(_arrow(topic, parts), ARROW, headers=headers)


def _arrow(topic: Topic, parts: Sequence[BatchPart]) -> bytes:
    import pyarrow as pa

    tables = [_table(topic, part) for part in parts]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema if tables else _schema()) as stream:
        for table in tables:
            stream.write_batch(table)
    return sink.getvalue().to_pybytes()


def _table(topic: Topic, part: BatchPart) -> pa.RecordBatch:
    batch = part.batch
    batch.origin = Origin(topic.name, part.partition)
    first = batch.first_at(part.start)
    table = batch.arrow(_COLUMNS).slice(first, batch.first_at(part.end) - first)
    if not part.hidden:
        return table
    return table.take([at for at, offset in enumerate(table["offset"].to_pylist()) if part.shows(offset)])


def _schema() -> pa.Schema:
    """Of no messages."""
    import pyarrow as pa

    from ...storage.arrow import kit

    kinds = kit()
    return pa.schema(
        [
            ("value", kinds.binary), ("key", kinds.binary), ("offset", kinds.int64), ("timestamp", kinds.time),
            ("headers", kinds.headers), ("partition", kinds.int32),
        ]
    )  # fmt: skip
