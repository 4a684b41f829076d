"""Bodies that are Arrow streams: reads one as a table that a producer takes.

Idea: Arrow lets few bytes stand for many, by compression, by dictionaries, runs and views that share a value. Such
columns are refused, so that a table has no more bytes than its body.

Contract: what is no stream, or has columns that cannot be sent, is a Refusal. The import of pyarrow happens when a
body comes.
"""

from __future__ import annotations

import struct
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...storage.errors import way_to_install
from .problems import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER, _DATA, _COMPRESSION = 2, 1, 3
"""Fields of Arrow's tables Message, DictionaryBatch and RecordBatch (Message.fbs)."""


def table_of(body: bytes, most: int) -> pa.Table:
    """The rows of a stream, `most` at most. Raises Refusal."""
    if not find_spec("pyarrow"):
        raise Refusal(415, "unsupported_media_type", f"Arrow needs pyarrow in the gateway: {way_to_install('arrow')}")
    import pyarrow as pa

    try:
        return _read(body, most)
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
        raise _refusal(f"the body is no Arrow stream: {error}") from None


def _refusal(message: str) -> Refusal:
    return Refusal(400, "invalid_request", message)


def _read(body: bytes, most: int) -> pa.Table:
    import pyarrow as pa

    for message in pa.ipc.MessageReader.open_stream(body):
        if _is_compressed(message):
            raise _refusal("the body has compressed buffers: write the stream without compression")
    with pa.ipc.open_stream(body) as stream:
        schema, left = stream.schema, most
        _check(schema)
        batches = []
        for batch in stream:
            left -= batch.num_rows
            if left < 0:
                raise Refusal(413, "too_many_messages", f"a request has at most {most} messages: send them in parts")
            batch.validate(full=True)
            batches.append(batch)
    return pa.Table.from_batches(batches, schema)


def _check(schema: pa.Schema) -> None:
    """Raise Refusal for columns that share a name, or whose bytes do not all stand in the body."""
    if len(set(schema.names)) < len(schema.names):
        raise _refusal(f"the body has columns of one name: {', '.join(schema.names)}")
    for field in schema:
        if field.name != "topic" and not _is_plain(field.type):
            raise _refusal(f"column {field.name!r} has type {field.type}: give it without dictionaries, views and runs")


def _is_plain(kind: Any) -> bool:
    """Whether all bytes of a column stand in the body. Raises UnicodeDecodeError for a name inside that is no text."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if types.is_struct(kind):
        return all(field.name is not None and _is_plain(field.type) for field in kind)
    tests = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_string, types.is_large_string)
    return any(test(kind) for test in (*tests, types.is_null, types.is_integer, types.is_timestamp))


# -- what pyarrow does not say of a message -----------------------------------------------------------------


def _is_compressed(message: Any) -> bool:
    """Whether a batch of records, or of a dictionary, says that its buffers are compressed. Raises struct.error."""
    if message.type not in ("record batch", "dictionary"):
        return False
    data = memoryview(message.metadata)
    (root,) = struct.unpack_from("<I", data)
    batch = _child(data, root, _HEADER)
    if message.type == "dictionary":
        batch = _child(data, batch, _DATA)
    return bool(_field(data, batch, _COMPRESSION))


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a field of a FlatBuffers table stands in it; 0 if it is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, vtable)
    at = 4 + 2 * number
    return struct.unpack_from("<H", data, vtable + at)[0] if at < size else 0


def _child(data: memoryview, table: int, number: int) -> int:
    """Where the table stands to which a field leads."""
    at = table + _field(data, table, number)
    return at + struct.unpack_from("<I", data, at)[0]
