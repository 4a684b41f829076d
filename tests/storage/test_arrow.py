"""Batches as Arrow: which columns there are. An extra: without pyarrow, everything else works and the error says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from penstock.storage.arrow import ARROW_COLUMNS, is_fast, kit
from penstock.storage.batch import Origin, encode, parse
from penstock.storage.embedded import Log
from penstock.storage.errors import MissingLibrary


def test_without_pyarrow_the_error_names_the_extra_and_the_rest_works(tmp_path: Path, monkeypatch):
    is_fast()  # decides once per process; not here
    kit.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    with Log(tmp_path / "log") as log:
        log.append([b"one", b"two"])
        with pytest.raises(MissingLibrary, match=r"\.\[arrow\]"):
            next(log.batches("arrow"))
        log.seek("earliest")
        assert [record.value for record in log] == [b"one", b"two"]


ROWS = encode([b"a", b"b", b"c"], keys=[b"k", None, b""], event_times=[1, 2, 3])


def test_columns_come_in_the_order_in_which_they_are_asked_for():
    pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    batch = parse(ROWS)
    assert batch.arrow().schema.names == ["value", "key", "offset", "timestamp", "headers"]
    assert batch.arrow(["offset", "value"]).to_pydict() == {"offset": [0, 1, 2], "value": [b"a", b"b", b"c"]}


def test_a_batch_that_was_told_where_it_is_from_says_so():
    pa = pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    batch = parse(ROWS)
    batch.origin = Origin("flüge", 300)
    found = batch.arrow(["topic", "partition"])
    found.validate(full=True)
    assert found.schema.equals(pa.schema({"topic": pa.dictionary(pa.int32(), pa.string()), "partition": pa.int32()}))
    assert found.to_pydict() == {"topic": ["flüge"] * 3, "partition": [300] * 3}
    assert batch.arrow().schema.names == list(ARROW_COLUMNS)
    assert batch.arrow().schema.metadata is None


@pytest.mark.parametrize(
    ("origin", "names", "says"),
    [
        (None, ["valeu"], "'valeu' is no column in Arrow: there are value, key, offset, timestamp, headers$"),
        (None, ["priority"], "'priority' is no column in Arrow"),
        (None, [], "name some"),
        (None, ["topic"], "these batches say no topic"),
        (None, ["value", "partition"], "these batches say no partition"),
        (Origin("t", 0, ("value",)), ["value", "key"], "column 'key' was left out of the range"),
        (Origin("t", 0, ("value",)), ["timestamp"], "column 'timestamp' was left out of the range"),
        (Origin("t", 0, ("value", "priority")), None, "'priority' is no column in Arrow"),
    ],
)
def test_columns_that_are_not_there_are_refused(origin, names, says):
    batch = parse(ROWS)
    batch.origin = origin
    with pytest.raises(ValueError, match=says):
        batch.arrow(names)


def test_a_batch_of_a_range_has_the_columns_that_were_asked_for():
    pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    batch = parse(ROWS)
    batch.origin = Origin("t", 0, ("key", "offset"))
    assert batch.arrow().to_pydict() == {"key": [b"k", None, b""], "offset": [0, 1, 2]}
    assert batch.arrow(["partition", "offset"]).num_columns == 2, "these are not stored"
