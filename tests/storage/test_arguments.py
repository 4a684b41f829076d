"""What a `Log` is given: refused where it is given, by name and with what is wanted, before anything is touched."""

from __future__ import annotations

import math
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.storage.arguments import INT_MAX, size_bytes, whole
from penstock.storage.embedded import Log
from penstock.storage.errors import Error, InvalidArgument, InvalidBatch
from penstock.storage.memory_files import MemoryFiles

OPENING = [
    ("commit", "durabel", "did you mean 'durable'"),
    ("commit", None, "'durable', 'written'"),
    ("segment_bytes", -5, "below 4096"),
    ("segment_bytes", 4095, "below 4096"),
    ("segment_bytes", (4 << 30) + 1, "over 4294967296"),
    ("segment_bytes", 1.5, "no size"),
    ("segment_bytes", True, "no size"),
    ("segment_bytes", b"64MB", "no size"),
    ("flush_records", 0, "from 1"),
    ("flush_records", True, "from 1"),
    ("flush_records", 1.0, "from 1"),
    ("flush_records", "7", "from 1"),
    ("flush_seconds", 0, "longer than 0"),
    ("flush_seconds", -1, "0 seconds or more"),
    ("flush_seconds", math.inf, "a hundred years"),
    ("flush_seconds", math.nan, "a hundred years"),
    ("flush_seconds", "soon", "no.* a time"),
    ("flush_seconds", b"1s", "no time"),
    ("flush_seconds", {}, "no time"),
    ("max_record_bytes", 0, "below 1"),
    ("max_record_bytes", (1 << 30) + 1, "over 1073741824"),
    ("path", None, "a str or a Path"),
    ("path", b"log", "a str or a Path"),
    ("path", "lo\0g", "a str or a Path"),
    ("path", "\ud800", "a str or a Path"),
]


@pytest.mark.parametrize(("name", "value", "wants"), OPENING, ids=lambda given: repr(given)[:20])
def test_a_log_is_not_opened_with_what_cannot_be(name, value, wants) -> None:
    files = MemoryFiles()
    with pytest.raises(InvalidArgument, match=f"^{name}.*{wants}"):
        Log(**{"path": "/log", "files": files, name: value})
    with Log("/log", files=files) as log:  # nothing of it was taken
        assert log.append(b"one") == 0


@pytest.mark.parametrize("least_and_most", [("4KB", 1), ("4GB", 1 << 30)])
def test_a_log_is_opened_with_what_is_just_possible(least_and_most) -> None:
    segment_bytes, record_bytes = least_and_most
    with Log("/log", files=MemoryFiles(), segment_bytes=segment_bytes, max_record_bytes=record_bytes) as log:
        assert log.append(b"1") == 0


READING = [
    (lambda log: log.read(None), "offset=None"),
    (lambda log: log.read(0.0), "offset=0.0"),
    (lambda log: log.read(True), "offset=True"),
    (lambda log: log.read(1 << 63), "offset=9223372036854775808.*of 64 bits"),
    (lambda log: log.read(0, 0), "max_records=0"),
    (lambda log: log.read(0, "5"), "max_records='5'"),
    (lambda log: log.seek(None), "where=None"),
    (lambda log: log.seek(0.5), "where=0.5"),
    (lambda log: log.seek("middle"), "where='middle'.*an offset or a datetime"),
    (lambda log: log.seek(datetime(2026, 1, 1)), "has no zone"),
    (lambda log: log.batches([]), r"format=\[\]"),
    (lambda log: log.batches("arow"), "did you mean 'arrow'"),
]


@pytest.mark.parametrize(("verb", "told"), READING, ids=range(len(READING)))
def test_reading_refuses_what_cannot_be(verb, told) -> None:
    with Log("/log", files=MemoryFiles()) as log:
        log.append([b"one", b"two"])
        with pytest.raises(InvalidArgument, match=told):
            verb(log)
        assert [record.value for record in log.read(0)] == [b"one", b"two"]


RECORDS: list[tuple[dict[str, Any], str]] = [
    ({"value": 5}, "not int"),
    ({"value": {b"one": b"two"}}, "not dict"),
    ({"value": iter([b"one"])}, "not list_iterator"),
    ({"value": b"one", "headers": True}, "not bool"),
    ({"value": b"one", "headers": 5}, "not int"),
    ({"value": [b"one"], "keys": True}, "keys must be a list"),
    ({"value": [b"one"], "keys": {b"k": 1}}, "keys must be a list"),
    ({"value": [b"one"], "headers": 5}, "headers must be a list"),
    ({"value": [b"one"], "headers": {"a": b"b"}}, "headers must be a list"),
    ({"value": [b"one"], "headers": [5]}, "not int"),
]


@pytest.mark.parametrize("verb", ["append", "write"])
@pytest.mark.parametrize(("record", "told"), RECORDS, ids=range(len(RECORDS)))
def test_writing_refuses_what_is_no_record(record, told, verb) -> None:
    with Log("/log", files=MemoryFiles()) as log:
        with pytest.raises(InvalidBatch, match=told):
            getattr(log, verb)(**record)
        assert log.append(b"after") == 0


def test_whole_numbers_are_told_with_their_range() -> None:
    assert [whole("n", 0), whole("n", 7, 7, 7), whole("n", INT_MAX)] == [0, 7, INT_MAX]
    for value in (6, 8, None, 7.0, True, SimpleNamespace()):
        with pytest.raises(InvalidArgument, match=r"^n=.* from 7 to 7$"):
            whole("n", value, 7, 7)
    with pytest.raises(InvalidArgument, match=r"from 0$"):
        whole("n", INT_MAX + 1)
    with pytest.raises(InvalidArgument, match=r"of 64 bits to 5$"):
        whole("n", 6, -INT_MAX, 5)


def test_sizes_have_their_ends() -> None:
    assert [size_bytes("1KB", "n", 1024, 1024), size_bytes(0)] == [1024, 0]
    for value in (1023, 1025):
        with pytest.raises(Error, match=r"^n="):
            size_bytes(value, "n", 1024, 1024)
