"""Codecs: round trips, bounds on what a hostile column may inflate to, and a missing library."""

from __future__ import annotations

import builtins
import random
from collections.abc import Iterator
from typing import Any

import pytest
from penstock.storage import codecs
from penstock.storage.codecs import Codec, compress, inflate
from penstock.storage.errors import InvalidBatch, MissingCodec

REAL = [Codec.LZ4, Codec.ZSTD]
TEXT = b"the same words again and again, " * 200


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    codecs._functions.cache_clear()
    yield
    codecs._functions.cache_clear()


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, random.Random(1).randbytes(5000)], ids=["empty", "one", "text", "noise"]
)
def test_what_goes_in_comes_out(codec: Codec, data: bytes) -> None:
    stored = compress(codec, data)
    assert inflate(codec, stored, len(data)) == data
    assert inflate(codec, memoryview(stored), len(data), limit=len(data)) == data


@pytest.mark.parametrize("codec", REAL)
def test_text_becomes_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) // 10


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("claimed", [0, 1, len(TEXT) - 1, len(TEXT) + 1, 10 * len(TEXT)])
def test_a_column_that_inflates_to_another_size_than_stated_is_refused(codec: Codec, claimed: int) -> None:
    with pytest.raises(InvalidBatch):
        inflate(codec, compress(codec, TEXT), claimed)


@pytest.mark.parametrize("codec", REAL)
def test_nothing_is_inflated_beyond_the_limit(codec: Codec) -> None:
    with pytest.raises(InvalidBatch, match="over the limit of 100"):
        inflate(codec, compress(codec, TEXT), len(TEXT), limit=100)


def test_a_bomb_is_stopped_at_the_size_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of zeros claim to be 10 bytes: never more than a little over 10 are made."""
    import zstandard

    bomb, made = compress(Codec.ZSTD, bytes(64 << 20)), []
    real = zstandard.ZstdDecompressor

    class Watched:
        def stream_reader(self, stored: bytes) -> Any:
            reader = real().stream_reader(stored)

            class Reader:
                def read(self, size: int) -> bytes:
                    made.append(size)
                    return reader.read(size)

            return Reader()

    codecs._functions.cache_clear()
    monkeypatch.setattr(zstandard, "ZstdDecompressor", Watched)
    with pytest.raises(InvalidBatch):
        inflate(Codec.ZSTD, bomb, 10)
    assert made == [11]


@pytest.mark.parametrize("codec", REAL)
def test_every_truncation_and_every_flipped_bit_is_refused_or_has_the_stated_size(codec: Codec) -> None:
    data = TEXT[:300]
    stored = compress(codec, data)
    mutants = [stored[:length] for length in range(len(stored))]
    for position in range(len(stored) * 8):
        flipped = bytearray(stored)
        flipped[position // 8] ^= 1 << position % 8
        mutants.append(bytes(flipped))
    for mutant in mutants:
        try:
            assert len(inflate(codec, mutant, len(data))) == len(data)
        except InvalidBatch:
            continue


@pytest.mark.parametrize("codec", [3, 77, 255])
def test_an_unknown_codec_names_the_known_ones(codec: int) -> None:
    with pytest.raises(InvalidBatch, match=r"lz4.*zstd"):
        inflate(codec, b"", 0)


@pytest.mark.parametrize(("codec", "module"), [(Codec.LZ4, "lz4"), (Codec.ZSTD, "zstandard")])
def test_a_missing_library_says_how_to_install_it(codec: Codec, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == module:
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingCodec, match=r"pip install '\.\[codecs\]'"):
        compress(codec, b"x")
