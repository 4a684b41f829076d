"""What Spark's Python workers spend on us beside the work."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from penstock.spark.workers import freeze


@pytest.fixture
def looked_through():
    """Garbage collection that looks at everything; afterwards at little, as before."""
    gc.unfreeze()
    freeze.cache_clear()
    yield
    gc.freeze()
    freeze.cache_clear()


@pytest.mark.usefixtures("looked_through")
def test_what_a_worker_has_when_it_begins_is_not_looked_through_for_garbage():
    freeze()
    first = gc.get_freeze_count()
    assert first > 10_000
    later = [[] for _ in range(1000)]
    freeze()
    assert gc.get_freeze_count() <= first, f"{len(later)} lists that came later stay for good"


def test_numbers_become_columns_without_pandas():
    """Half a second of each worker would go for it."""
    program = """
import sys
import pyarrow as pa
from penstock.spark.rows import Rows
from penstock.storage.batch import Stamp, encode, parse, stamp

encoded = encode([b"v"] * 3, keys=[b"k"] * 3)
header = stamp(encoded, Stamp(1, 0, 1, bytes(16), 1000, 0))
fields = [
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
    ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32()),
]
rows = Rows(pa.schema(fields), [name for name, _ in fields], "flights", 3)
batch = parse(bytes(header) + bytes(encoded[len(header):]))
found = [*rows.add(batch, 0, 3), *rows.rest()]
assert sum(out.num_rows for out in found) == 3
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
