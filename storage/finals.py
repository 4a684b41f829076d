"""Finals: for each record of a queue group that ended with a result or reason, the seq of the batch that has it.

    finals-<group>                   header: whose, and how far it is durable
    finals-<group>-<first offset>    one word for each of CHUNK offsets: outcome and seq; zeros say nothing

Idea: a sparse array by offset beside the log, so that one read finds a task however long ago it ended. It is only an
index into the log: the reader of a word reads the batch it names and trusts only that batch. Most records are acked
without a result and have no word.

Contract: words are written when a batch is applied, without a sync, and are complete for every process of the same
boot. `settle` makes them durable up to a seq. Words of another boot are complete up to that seq; the node that opens
them rewrites the rest from the log (`covered` says from where), or everything if a file is missing, cut short, or has
nothing but zeros. No checksum covers the words: zeros among others are not told from words that never were. No file
stays open between calls.
Must not know: what a queue is, what a batch says.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from .errors import Corrupt, NewerFormat, is_damage
from .layout import SEQ_BITS, SEQ_LIMIT

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Mapping  # pyright: ignore[reportAttributeAccessIssue]

    from .files import Files

MAGIC = 0x464B4E50  # "PNKF" in the file
VERSION = 1
CHUNK = 1 << 20
"""Offsets in one file. Retention removes whole files."""

EVERYTHING = SEQ_LIMIT
"""`covered` where processes of this boot wrote all words."""

UNKNOWN_BOOT = bytes(16)

FINALS = np.dtype(
    [
        ("checksum", "<u8"),  # xxh3_64 of the rest
        ("magic", "<u4"),
        ("version", "<u4"),
        ("log_id", "V16"),
        ("boot_id", "V16"),  # the boot of the machine whose processes wrote all words since `through`
        ("through", "<i8"),  # words of batches up to this seq are durable
        ("chunks", "<u8"),  # which files of words there are: xxh3_64 of their first offsets and sizes; 0 = none
    ]
)
_STRUCT = struct.Struct("<QII16s16sqQ")
FINALS_BYTES = 64
assert FINALS.itemsize == _STRUCT.size == FINALS_BYTES

PREFIX = "finals-"
_WORD = np.dtype("<i8")
_FIRST_BYTES = 4096
"""The size of a new file of words."""
_BLANK = "has nothing but zeros: its words are lost"
_PIECE_BYTES = 64 << 10
_NAME = re.compile(rf"{PREFIX}[0-9a-f]{{32}}(-[0-9]{{20}})?")


class Outcome(IntEnum):
    """How a record ended, if it has a word. Stored: never renumber."""

    RESULT = 1
    DISCARDED = 2
    CANCELLED = 3


class Final(NamedTuple):
    """A decoded word: the outcome, and the seq of the batch with the details."""

    outcome: Outcome
    seq: int


class Header(NamedTuple):
    """A decoded header."""

    log_id: bytes
    boot_id: bytes
    through: int
    chunks: int = 0


def encode_header(header: Header) -> bytes:
    """FINALS_BYTES bytes."""
    body = _STRUCT.pack(0, MAGIC, VERSION, *header)[8:]
    return struct.pack("<Q", xxh3_64_intdigest(body)) + body


def decode_header(data: bytes) -> Header | None:
    """None for anything that does not verify. Raises NewerFormat."""
    if len(data) < FINALS_BYTES:
        return None
    checksum, magic, version, log_id, boot_id, through, chunks = _STRUCT.unpack_from(data)
    if magic != MAGIC or xxh3_64_intdigest(data[8:FINALS_BYTES]) != checksum:
        return None
    if version > VERSION:
        raise NewerFormat(f"these finals have format version {version}, this penstock reads {VERSION}; upgrade it")
    return Header(log_id, boot_id, through, chunks)


def digest(chunks: Mapping[int, int]) -> int:
    """The `chunks` field of a header, for files that begin at these offsets, each with its size."""
    return xxh3_64_intdigest(np.array(sorted(chunks.items()), _WORD).tobytes()) if chunks else 0


def _room_for(end: int) -> int:
    """The size of a file whose words reach to `end`: it grows seldom, for the header says it."""
    return max(_FIRST_BYTES, 1 << (end - 1).bit_length())


def word(final: Final) -> int:
    """A final as a number."""
    return final.outcome << SEQ_BITS | final.seq


def final_of(value: int) -> Final | None:
    """Decode a word; None if empty, or unknown to this version."""
    outcome, seq = value >> SEQ_BITS, value & (SEQ_LIMIT - 1)
    return Final(Outcome(outcome), seq) if outcome in set(Outcome) else None


def is_blank(files: Files, path: str) -> bool:
    """Whether a file of words has none: it was made for one, so they are lost."""
    with files.open(path) as file:
        size = file.size()
        return size > 0 and not any(
            (piece := file.pread(_PIECE_BYTES, position)) != bytes(len(piece))
            for position in range(0, size, _PIECE_BYTES)
        )


def problems(files: Files, directory: str) -> tuple[list[str], list[OSError]]:
    """Problems of the finals in a directory, a sentence each: the next start rewrites all of them. And why files could
    not be read."""
    found: list[str] = []
    unread: list[OSError] = []
    for name in sorted(files.listdir(directory)):
        path, match = f"{directory}/{name}", _NAME.fullmatch(name)
        if match is None or not files.is_file(path):
            continue
        try:
            if match[1] is None and decode_header(files.read(path)) is None:
                found.append(f"{path}: its header does not verify")
            elif match[1] and is_blank(files, path):
                found.append(f"{path} {_BLANK}")
        except FileNotFoundError:
            continue  # retention, or the end of its group, took it meanwhile
        except OSError as error:
            unread.append(error)
    return found, unread


class FinalFiles:
    """The finals of one log's groups, as files in its directory. `boot_id`: of this machine now."""

    def __init__(self, files: Files, directory: str, log_id: bytes, boot_id: bytes) -> None:
        self._files = files
        self._directory = directory
        self._log_id = log_id
        self._boot_id = boot_id
        self._stands: dict[str, int] = {}  # groups whose header says this boot, each with its `through`
        self._chunks: dict[str, dict[int, int]] = {}  # the sizes of their files, by first offset

    def covered(self, group: str) -> int:
        """Words of batches up to this seq are all there; EVERYTHING where this boot wrote them. Raises NewerFormat.

        Without a header, or with a file that the disk cannot read, all of them are removed: they are written anew, and
        over a bad sector that would fail.
        """
        try:
            return self._covered(group)
        except OSError as error:
            if not is_damage(error):
                raise
            if self._names(group) or not isinstance(error, FileNotFoundError):
                self.drop(group)
            return 0

    def _covered(self, group: str) -> int:
        header = decode_header(self._files.read(self._path(group)))
        known = self._sizes(group)
        if header is None or header.log_id != self._log_id or header.chunks != digest(known):
            return 0
        if any(is_blank(self._files, f"{self._directory}/{name}") for name in self._names(group)):
            return 0
        if header.boot_id == self._boot_id != UNKNOWN_BOOT:
            self._stands[group], self._chunks[group] = header.through, known
            return EVERYTHING
        return header.through

    def stand(self, group: str, through: int) -> None:
        """Declare that this boot's processes write all words from now on; words up to `through` are durable."""
        self._chunks[group] = self._sizes(group)
        self._write_header(group, through)

    def write(self, group: str, rows: Iterable[tuple[int, np.ndarray]]) -> None:
        """Put words in: (first offset, words of the records from there on), each row with one write.

        Raises OSError, StorageFull.
        """
        if group not in self._stands:
            self.covered(group)  # which removes what cannot be read
            self.stand(group, 0)
        by_chunk: dict[int, list[tuple[int, memoryview]]] = {}
        for first, words in rows:
            data = memoryview(words.astype(_WORD, copy=False).tobytes())
            while len(data):
                start = first % CHUNK
                size = min(len(data), (CHUNK - start) * _WORD.itemsize)
                by_chunk.setdefault(first - start, []).append((start * _WORD.itemsize, data[:size]))
                data, first = data[size:], first + CHUNK - start
        grown: dict[int, int] = {}
        for chunk, pieces in by_chunk.items():
            size, end = self._chunks[group].get(chunk, 0), max(position + len(data) for position, data in pieces)
            if end > size:
                grown[chunk] = _room_for(end)
                if end < grown[chunk]:
                    pieces.append((grown[chunk] - 1, memoryview(b"\0")))
            self._put(self._path(group, chunk), pieces, size)
        if grown:
            self._chunks[group] |= grown
            self._write_header(group, self._stands[group])

    def read(self, group: str, offset: int) -> Final | None:
        """The word of a record; None if it has none. Raises Corrupt when its file is gone, cut short or blank."""
        start = offset % CHUNK
        path = self._path(group, offset - start)
        size, position = self._chunks.get(group, {}).get(offset - start, 0), start * _WORD.itemsize
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            if size:
                raise Corrupt(f"{path} is gone", path=path) from None
            return None
        try:
            data = file.pread(_WORD.itemsize, position)
        finally:
            file.close()
        if len(data) == _WORD.itemsize:
            if not any(data) and is_blank(self._files, path):
                raise Corrupt(f"{path} {_BLANK}", path=path)
            return final_of(int.from_bytes(data, "little"))
        if position < size:
            raise _cut_short(path, size)
        return None

    def settle(self, group: str, seq: int) -> None:
        """Sync all words, those of batches up to `seq`. Raises OSError: the next opening rewrites them."""
        for name in self._names(group):
            self._files.sync(f"{self._directory}/{name}")
        self._write_header(group, seq)
        self._files.sync(self._path(group))
        self._files.sync_dir(self._directory)

    def distrust(self, group: str) -> None:
        """Words are missing: have the next opening rewrite all of them."""
        self._stands.pop(group, None)
        if self._files.exists(self._path(group)):
            self._files.unlink(self._path(group))

    def drop(self, group: str) -> None:
        """Remove the files of a deleted group."""
        self.distrust(group)
        for name in self._names(group):
            self._files.unlink(f"{self._directory}/{name}")
        self._chunks.pop(group, None)
        self._files.sync_dir(self._directory)

    def trim(self, group: str, first: int) -> None:
        """Remove what lies wholly below offset `first`."""
        gone = [name for name in self._names(group) if _first_of(name) + CHUNK <= first]
        for name in gone:
            self._files.unlink(f"{self._directory}/{name}")
        if gone and group in self._stands:
            for name in gone:
                self._chunks[group].pop(_first_of(name), None)
            self._write_header(group, self._stands[group])

    def _put(self, path: str, pieces: Iterable[tuple[int, Buffer]], size: int = 0) -> None:
        """Write into a file that has `size` bytes at least. Raises Corrupt if it has fewer."""
        file = self._files.open(path, write=True) if self._files.exists(path) else self._files.create(path)
        try:
            if file.size() < size:
                raise _cut_short(path, size)
            for position, data in pieces:
                file.pwritev([data], position)
        finally:
            file.close()

    def _write_header(self, group: str, through: int) -> None:
        header = Header(self._log_id, self._boot_id, through, digest(self._chunks.setdefault(group, {})))
        self._put(self._path(group), [(0, encode_header(header))])
        self._stands[group] = through

    def _path(self, group: str, first: int | None = None) -> str:
        name = f"{self._directory}/{PREFIX}{xxh3_128_hexdigest(group.encode())}"
        return name if first is None else f"{name}-{first:020d}"

    def _names(self, group: str) -> list[str]:
        prefix = self._path(group).rpartition("/")[2] + "-"
        listed = self._files.listdir(self._directory)
        return [name for name in listed if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()]

    def _sizes(self, group: str) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for name in self._names(group):
            with self._files.open(f"{self._directory}/{name}") as file:
                sizes[_first_of(name)] = file.size()
        return sizes


def _cut_short(path: str, size: int) -> Corrupt:
    return Corrupt(f"{path} is cut short: it had {size} bytes", path=path)


def _first_of(name: str) -> int:
    return int(name.rpartition("-")[2])
