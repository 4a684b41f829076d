"""Runs: large immutable parts of a state, each in a file of its own beside the snapshots that name it.

Idea: a snapshot is written as a whole, which is too costly for large parts that never change. Those are written once,
under a number, and snapshots name number and checksum.

Contract: a run is durable before a snapshot that names it has its name (`sync`, then `snapshots.commit`). `load`
returns exactly the requested bytes or raises Corrupt: then no snapshot that names the run can be used. Must not know:
what the bytes mean, which snapshots there are.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

from .errors import Corrupt, Error, is_damage

if TYPE_CHECKING:
    from .files import Files

MAGIC = 0x4E524E50  # "PNRN" in the file
VERSION = 1

RUN = np.dtype(
    [
        ("header_checksum", "<u8"),  # xxh3_64 of the rest of the header
        ("magic", "<u4"),
        ("version", "<u4"),
        ("number", "<i8"),
        ("log_id", "V16"),
        ("body_bytes", "<u8"),
        ("body_checksum", "<u8"),  # xxh3_64 of the body
        ("reserved", "V8"),
    ]
)
_STRUCT = struct.Struct("<QIIq16sQQ8x")
RUN_BYTES = 64
assert RUN.itemsize == _STRUCT.size == RUN_BYTES

_PREFIX = "run-"


def file_name(number: int) -> str:
    """The name of a run's file."""
    return f"{_PREFIX}{number:020d}"


def number_of(name: str) -> int | None:
    """The number that a file name says, None when it is not a run's."""
    digits = name.removeprefix(_PREFIX)
    return int(digits) if name.startswith(_PREFIX) and len(digits) == 20 and digits.isdecimal() else None


def encode_header(number: int, body: bytes, log_id: bytes) -> bytes:
    """The 64 bytes that go before the body."""
    rest = _STRUCT.pack(0, MAGIC, VERSION, number, log_id, len(body), xxh3_64_intdigest(body))[8:]
    return xxh3_64_intdigest(rest).to_bytes(8, "little") + rest


def decode(data: bytes, number: int, checksum: int, log_id: bytes, path: str = "") -> bytes:
    """The body of a run's file. Raises Corrupt unless it is the one that was asked for."""
    fields, found, body = _whole(data, path)
    if fields != [number, log_id] or found != checksum:
        raise Corrupt(f"{path} holds another run than the snapshot names", path=path)
    return body


def check(files: Files, path: str) -> None:
    """Raise Corrupt unless a run's file is whole, whichever it is."""
    _whole(bytes(files.read(path)), path)


def _whole(data: bytes, path: str) -> tuple[list[int | bytes], int, bytes]:
    """Number and log id, checksum, and body of a run's file. Raises Corrupt unless it is whole."""
    if len(data) < RUN_BYTES:
        raise Corrupt(f"{path} has {len(data)} bytes, the header of a run alone has {RUN_BYTES}", path=path)
    found, magic, version, *fields, body_bytes, body_checksum = _STRUCT.unpack_from(data)
    if magic != MAGIC or version != VERSION or xxh3_64_intdigest(data[8:RUN_BYTES]) != found:
        raise Corrupt(f"the header of {path} is damaged", path=path)
    body = data[RUN_BYTES : RUN_BYTES + body_bytes]
    if xxh3_64_intdigest(body) != body_checksum:
        raise Corrupt(f"the body of {path} does not match its checksum", path=path)
    return fields, body_checksum, body


def sync(files: Files, directory: str, numbers: Iterable[int]) -> None:
    """Make runs durable. Raises OSError; one that is gone already is fine."""
    for number in numbers:
        path = f"{directory}/{file_name(number)}"
        if files.exists(path):
            files.sync(path)


class RunFiles:
    """The runs of one log. `unsynced` are numbers of those that were written and may not be durable."""

    def __init__(self, files: Files, directory: str, log_id: bytes) -> None:
        self._files = files
        self._directory = directory
        self._log_id = log_id
        self.unsynced: list[int] = []

    def save(self, number: int, body: bytes) -> int:
        """Write a run; it is durable once `sync` was there. Returns its checksum. Raises StorageFull, OSError."""
        path = f"{self._directory}/{file_name(number)}"
        with self._files.create_anew(path, RUN_BYTES + len(body)) as file:  # one left there is of a state that was lost
            file.pwritev([encode_header(number, body, self._log_id), body], 0)
        self.unsynced.append(number)
        return xxh3_64_intdigest(body)

    def load(self, number: int, checksum: int) -> bytes:
        """The body of a run. Raises Corrupt when it is missing, damaged, or another; StorageFull, OSError."""
        path = f"{self._directory}/{file_name(number)}"
        try:
            data = self._files.read(path)
        except OSError as error:
            if not is_damage(error):
                raise
            raise Corrupt(
                f"{path} is missing or cannot be read, and a snapshot names it: {error.strerror}", path=path
            ) from error
        return decode(data, number, checksum, self._log_id, path)

    def synced(self, numbers: Collection[int]) -> None:
        """Note that runs are durable."""
        self.unsynced = [number for number in self.unsynced if number not in numbers]

    def drop(self, keep: Collection[int]) -> None:
        """Remove all runs but these, as far as they can be removed now."""
        with suppress(Error, OSError):  # the rest goes with a later call
            for name in self._files.listdir(self._directory):
                number = number_of(name)
                if number is not None and number not in keep:
                    self._files.unlink(f"{self._directory}/{name}")
