"""Where a log that stands alone begins, once it was truncated: one small checksummed file beside its segments.

Idea: retention removes whole segments, so the first segment says where the log begins. A truncation begins at any
record, so it says in the file `first` where. A partition of a broker has no such file: its log says it.

Contract: a file that is missing, damaged or another log's says 0: more is read then, never less. Must not know: boards,
who reads.
"""

from __future__ import annotations

from .errors import NewerFormat
from .files import Files
from .layout import FIRST, decode_first, encode_first
from .unreadable import read_patiently


def read_first(files: Files, path: str, log_id: bytes) -> int:
    """The first offset of the log in `path` as its file says; 0 without one. Raises NewerFormat."""
    try:
        found = decode_first(read_patiently(files, f"{path}/{FIRST}"))
    except FileNotFoundError:
        return 0
    except NewerFormat as error:
        raise NewerFormat(f"{path}/{FIRST}: {error.message}") from error
    return found[1] if found is not None and found[0] == log_id else 0


def write_first(files: Files, path: str, log_id: bytes, offset: int) -> None:
    """Have the log begin at `offset` from here on, durably. Raises StorageFull, OSError."""
    files.rewrite(f"{path}/{FIRST}", encode_first(log_id, offset))
