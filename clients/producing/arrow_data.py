"""Recognises Arrow data: objects of any library that implement the Arrow PyCapsule interface.

Contract: nothing is imported to find out. pyarrow's arrays, tables, batches and readers implement it, as do the frames
of polars, pandas and DuckDB.
"""

from __future__ import annotations

from typing import Any, Protocol


class ArrowStream(Protocol):
    """A table, a chunked array, or a reader of batches."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """An array or a record batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any: ...


ArrowData = ArrowStream | ArrowArray


def is_arrow(given: object) -> bool:
    """Whether it is Arrow data."""
    kind = type(given)
    return hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")
