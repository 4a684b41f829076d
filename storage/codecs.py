"""Compression of single columns: by the client, never by the broker.

Contract: inflating is bounded by the raw size that the directory states and by a limit, and what comes out
must have exactly that size. The libraries are extras, imported when a codec is first used.
Pure but for those imports.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING

from .errors import InvalidBatch, MissingCodec, way_to_install

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

RAW_BYTES_MAX = 256 * 2**20
"""No column is inflated beyond this, whatever its directory says."""


class Codec(IntEnum):
    """How a column is stored. Only value, key and headers may be anything but NONE."""

    NONE = 0
    LZ4 = 1  # one LZ4 block, no frame: the raw size stands in the directory
    ZSTD = 2  # one Zstandard frame


def compress(codec: int, data: Buffer) -> bytes:
    """`data` as stored under `codec`. Raises InvalidBatch for an unknown codec, MissingCodec without its library."""
    return _functions(codec)[0](data)


def inflate(codec: int, stored: Buffer, raw_bytes: int, limit: int = RAW_BYTES_MAX) -> bytes:
    """The raw bytes of a compressed column. Raises InvalidBatch unless they are exactly `raw_bytes`, within `limit`."""
    if raw_bytes > limit:
        raise InvalidBatch(f"a column would inflate to {raw_bytes} bytes, over the limit of {limit}")
    raw = _functions(codec)[1](stored, raw_bytes)
    if len(raw) != raw_bytes:
        raise InvalidBatch(f"a column inflated to {len(raw)} bytes, its directory says {raw_bytes}")
    return raw


@cache
def _functions(codec: int) -> tuple[Callable[[Buffer], bytes], Callable[[Buffer, int], bytes]]:
    try:
        if codec == Codec.LZ4:
            return _lz4()
        if codec == Codec.ZSTD:
            return _zstd()
    except ImportError:
        name = Codec(codec).name.lower()
        raise MissingCodec(f"codec {name} is not installed: {way_to_install('codecs')}") from None
    known = ", ".join(f"{known.value} ({known.name.lower()})" for known in Codec)
    raise InvalidBatch(f"codec {codec} is unknown; known are {known}")


def _lz4() -> tuple[Callable[[Buffer], bytes], Callable[[Buffer, int], bytes]]:
    from lz4.block import LZ4BlockError, compress, decompress

    def inflate(stored: Buffer, raw_bytes: int) -> bytes:
        try:
            return decompress(stored, uncompressed_size=raw_bytes)
        except LZ4BlockError as error:
            raise InvalidBatch(f"a column is not valid lz4 ({error})") from None

    return lambda data: compress(data, store_size=False), inflate


def _zstd() -> tuple[Callable[[Buffer], bytes], Callable[[Buffer, int], bytes]]:
    from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

    def inflate(stored: Buffer, raw_bytes: int) -> bytes:
        try:
            reader = ZstdDecompressor().stream_reader(stored)
            return reader.read(raw_bytes + 1)
        except ZstdError as error:
            raise InvalidBatch(f"a column is not valid zstd ({error})") from None

    return lambda data: ZstdCompressor(level=3).compress(data), inflate
