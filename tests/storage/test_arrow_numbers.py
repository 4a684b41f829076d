"""Numbers between Arrow and numpy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")

from penstock.storage.arrow_numbers import array_of, filled, numbers_of, present_in, value_offsets  # noqa: E402

KINDS = [pa.int8(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_go_there_and_back_without_a_copy(kind):
    numbers = np.arange(7, dtype=f"<i{kind.bit_width // 8}")
    array = array_of(numbers, kind)
    array.validate(full=True)
    assert array.type == kind
    assert array.buffers()[1].address == numbers.ctypes.data
    assert numbers_of(array).tolist() == list(range(7))
    assert numbers_of(array.slice(2, 3)).tolist() == [2, 3, 4]
    assert np.shares_memory(numbers_of(array), numbers)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_numbers_are_no_numbers(kind):
    assert numbers_of(pa.array([], kind)).tolist() == []
    assert len(array_of(np.empty(0, f"<i{kind.bit_width // 8}"), kind)) == 0


@pytest.mark.parametrize("first", [0, 1, 7, 8, 9])
@pytest.mark.parametrize("count", [0, 1, 8, 13])
def test_what_is_present_is_told_of_slices_too(first: int, count: int):
    found = [None if number % 3 == 1 else b"%d" % number for number in range(30)]
    array = pa.array(found, pa.binary()).slice(first, count)
    assert present_in(array).tolist() == [one is not None for one in found[first : first + count]]


def test_without_a_bitmap_all_are_present_or_none():
    assert present_in(pa.array([b"a", b"b"])).tolist() == [True, True]
    assert present_in(pa.nulls(2)).tolist() == [False, False]


def test_nulls_are_filled_also_in_slices():
    array = pa.array([9, None, 3, None, None], pa.int64())
    assert filled(array[1:4], -1).to_pylist() == [-1, 3, -1]
    assert filled(array[1:3], -1).to_pylist() == [-1, 3]
    assert filled(array[:1], -1).to_pylist() == [9]


def test_offsets_of_a_slice_are_those_of_its_values():
    assert value_offsets(pa.array([b"a", b"bcd", b"", b"e"], pa.binary())[1:3]).tolist() == [1, 4, 4]


def test_pandas_is_not_imported():
    pytest.importorskip("pandas", reason="pandas is not installed, so nothing could import it")
    program = """
import sys, numpy, pyarrow
from penstock.storage.arrow_numbers import array_of, numbers_of, present_in
array = array_of(numpy.arange(3), pyarrow.int64())
assert numbers_of(array).sum() == 3 and present_in(array).all()
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
