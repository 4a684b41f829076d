"""Dump: a log as JSON lines, one per batch or one per record.

Idea: the same walk as `verify`, printed instead of judged. Damage and the end of the log are lines too, so that
nothing is left out silently.

Contract: reads only, takes no lock, safe beside a running broker. Every line is one JSON object with a "type":
segment, batch, record, kept (a record carried forward), staged (a record that has a number in its stage, and no
offset), damage, end. Bytes that are UTF-8 are text under their name ("value"), others base64 under the name with
"_base64" appended.

Must not know: what effects mean.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import msgspec

from . import log_ids
from .batch import Codec, ColumnId, Kind
from .errors import InvalidBatch, MissingCodec
from .files import Files
from .header_list import HeaderList
from .layout import SegmentName
from .record import records
from .recovery import end_offset_of
from .scan import Bad, Good, Segments, Tail, look, scan


def dump(files: Files, directory: str, *, with_records: bool = False, start: int = 0) -> Iterator[dict[str, Any]]:
    """The lines of a log as dictionaries of plain values.

    Args:
        with_records: one line per record behind the line of its batch.
        start: leave out batches that end at or before this offset.

    Raises:
        FileNotFoundError: there is no such directory, and it is no partition's. NewerFormat: a newer penstock wrote it.
    """
    segments = look(files, directory)
    if not files.exists(directory) and log_ids.own_id(directory) is None:
        raise FileNotFoundError(f"there is no log in {directory}")
    shown: SegmentName | None = None
    for found in scan(files, directory, segments):
        match found:
            case Good():
                if end_offset_of(found.batch) <= start and start:
                    continue
                if shown != found.segment:
                    shown = found.segment
                    yield _segment(segments, shown)
                yield from _batch(found, with_records, start)
            case Bad():
                yield {"type": "damage", **msgspec.to_builtins(found)}
            case Tail():
                yield {"type": "end", **msgspec.to_builtins(found)}


def _segment(segments: Segments, name: SegmentName) -> dict[str, Any]:
    page = segments.pages[name]
    line: dict[str, Any] = {
        "type": "segment",
        "file": name.segment_file,
        "base_seq": name.base_seq,
        "generation": name.generation,
        "log_id": segments.log_id.hex(),
        "size": page.size,
    }
    if page.header is not None:
        line["base_offset"] = page.header.base_offset
    if page.mark is not None:
        line["durable_seq"], line["clean"] = page.mark.seq, page.mark.clean
    return line


def _batch(found: Good, with_records: bool, start: int) -> Iterator[dict[str, Any]]:
    batch = found.batch
    yield {
        "type": "batch",
        "seq": batch.seq,
        "kind": _name(Kind, batch.kind),
        "base_offset": batch.base_offset,
        "records": batch.record_count,
        "term": batch.term,
        "append_time_us": batch.append_time_us,
        "position": found.position,
        "bytes": batch.batch_bytes,
        "producer_id": f"{batch.producer_id:#018x}",
        "producer_epoch": batch.producer_epoch,
        "first_sequence": batch.first_sequence,
        "columns": [
            {
                "id": _name(ColumnId, c.id),
                "codec": _name(Codec, c.codec),
                "bytes": c.stored_bytes,
                "raw_bytes": c.raw_bytes,
            }
            for c in batch.directory()
        ],
    }
    if with_records and batch.kind == Kind.RECORDS:
        yield from _records(found, "record", start)
    if with_records and batch.kind == Kind.KEPT:
        yield from _kept(found)
    if with_records and batch.kind == Kind.STAGED:
        yield from _staged(found)


def _records(found: Good, type_: str, start: int) -> Iterator[dict[str, Any]]:
    try:
        decoded = records(found.batch, start=start)
    except (MissingCodec, InvalidBatch) as error:
        yield {
            "type": "damage",
            "file": found.segment.segment_file,
            "position": found.position,
            "reason": error.message,
        }
        return
    for record in decoded:
        line: dict[str, Any] = {"type": type_, "offset": record.offset, "timestamp": record.timestamp}
        _put(line, "value", record.value)
        if record.key is not None:
            _put(line, "key", record.key)
        if record.headers:
            line["headers"] = {}
            for name, value in record.headers.items():
                _put(line["headers"], name, value)
        if isinstance(record.headers, HeaderList):
            line["header_list"] = [_put({"name": name}, "value", value) for name, value in record.headers.pairs]
        yield line


def _kept(found: Good) -> Iterator[dict[str, Any]]:
    """Kept records, each with the time at which it was appended."""
    times = found.batch.append_times().tolist()
    for number, line in enumerate(_records(found, "kept", 0)):
        yield {**line, "append_time_us": times[number]} if "offset" in line else line


def _staged(found: Good) -> Iterator[dict[str, Any]]:
    """Records of a stage; what counts them is not an offset."""
    first = found.batch.first_sequence - found.batch.base_offset
    for line in _records(found, "staged", 0):
        if "offset" in line:
            line = {"type": "staged", "sequence": first + line.pop("offset"), **line}
        yield line


def _put(line: dict[str, Any], name: str, value: bytes | None) -> dict[str, Any]:
    """The line, with bytes as text or in base64."""
    try:
        line[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        line[f"{name}_base64"] = b64encode(value or b"").decode()
    return line


def _name(names: type[Kind] | type[ColumnId] | type[Codec], value: int) -> str | int:
    """The name of a known value in lower case; an unknown one stays a number."""
    return names(value).name.lower() if value in names._value2member_map_ else value
