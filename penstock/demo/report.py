"""What a consumer reports when it is done, and the file it stands in."""

from __future__ import annotations

from array import array
from pathlib import Path

import msgspec

from .tally import Totals, Trace


class Seen(msgspec.Struct):
    """All records that one consumer saw."""

    totals: dict[str, Totals]
    trace: Trace


class _File(msgspec.Struct):
    """The same, with the trace's columns as bytes."""

    totals: dict[str, Totals]
    columns: list[bytes]


def save(seen: Seen, path: Path) -> None:
    columns = [getattr(seen.trace, name).tobytes() for name in Trace.__struct_fields__]
    path.write_bytes(msgspec.msgpack.encode(_File(seen.totals, columns)))


def load(path: Path) -> Seen:
    stored = msgspec.msgpack.decode(path.read_bytes(), type=_File)
    return Seen(stored.totals, Trace(*(array("Q", column) for column in stored.columns)))
