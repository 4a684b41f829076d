"""Headers that all records of a batch have: packed once, and the same bytes as one by one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from penstock.storage import columns
from penstock.storage.batch import encode
from penstock.storage.codecs import Codec
from penstock.storage.errors import InvalidBatch
from penstock.storage.header_list import HeaderList

LIMIT = columns.REPEATED_BYTES
VALUES = [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    "headers", [{}, {"h": b"v"}, {"long": b"x" * 20_000}, HeaderList([("a", b"1"), ("a", b"2")]), HeaderList([])]
)
@pytest.mark.parametrize("count", [1, 65, 300])
def test_one_map_for_all_records_is_as_one_for_each(headers: Mapping[str, bytes], count: int, codec: Codec):
    alone = encode(VALUES[:count], headers=headers, codec=codec)
    assert bytes(alone) == bytes(encode(VALUES[:count], headers=[headers] * count, codec=codec))


def test_a_header_that_is_no_bytes_is_refused():
    wrong: dict = {"h": "text"}
    with pytest.raises(InvalidBatch, match="bytes value"):
        encode(VALUES, headers=wrong)


@pytest.mark.parametrize("size", [0, 1, 7, LIMIT - 1, LIMIT, 3 * LIMIT])
@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_a_repeated_value_is_laid_out_as_that_many_values(size: int, count: int):
    if size * count > 1 << 22:
        count = 3
    value = bytes(range(256))[:1] * size
    found, wanted = columns.repeated(value, count), columns.pieces([value] * count)
    assert found.size == wanted.size
    assert columns.join(found.parts, found.size) == columns.join(wanted.parts, wanted.size)
