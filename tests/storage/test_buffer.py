"""Records that wait to become a batch: nulls among them."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.storage import buffer
from penstock.storage.buffer import BATCH_BYTES, RECORD_BYTES_MOST
from penstock.storage.embedded import Log
from penstock.storage.errors import InvalidBatch, RecordTooLarge
from penstock.storage.memory_files import MemoryFiles
from support.interrupts import interrupts


@pytest.mark.parametrize("verb", ["append", "write"])
@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (None, None),
        (None, b"k"),
        ([None], None),
        ([b"one", None, b""], None),
        ([b"one", None, b""], [None, b"k", None]),
        ([None, b"x"] * 100, None),
        ([b"x" * (1 << 20), None] * 5, None),
    ],
)
def test_nulls_are_appended_as_producers_send_them(verb: str, values, keys) -> None:
    with Log("/log", files=MemoryFiles()) as log:
        log.write(b"before")
        single = values is None
        getattr(log, verb)(values, **({"key": keys} if single else {"keys": keys}))
        log.append([b"after"])
        found = log.read(0, max_records=1000)
        assert [record.value for record in found] == [b"before", *([None] if single else values), b"after"]
        if keys:
            assert [record.key for record in found] == [None, *([keys] if single else keys), None]
        assert list(log.values()) == [record.value for record in found]


@pytest.mark.parametrize("commit", ["durable", "written"])
@pytest.mark.parametrize("keys", [None, [b"k", None, b"l"]])
def test_what_is_flushed_stands_once_wherever_ctrl_c_came_and_whoever_flushes_again(commit: Any, keys: Any) -> None:
    for interrupt in interrupts(("storage",), above=20):
        with Log("/log", files=MemoryFiles(), commit=commit) as log:
            log.append(b"before")
            log.write([b"one", b"two", b"three"], keys=keys)
            with interrupt:
                log.flush()
            log.write(b"and no more than that")
            log.flush()
            assert list(log.values()) == [b"before", b"one", b"two", b"three", b"and no more than that"]


@pytest.mark.parametrize("verb", ["append", "write"])
def test_a_record_is_what_it_was_when_it_was_given(verb: str) -> None:
    with Log("/log", files=MemoryFiles()) as log:
        key, headers = bytearray(b"k."), {"n": b"."}
        for number in range(3):
            key[1:] = headers["n"] = b"%d" % number
            getattr(log, verb)(b"v", key, headers=headers)
            getattr(log, verb)([b"v", None], keys=[None, memoryview(key)], headers=[headers, None])
        log.flush()
        headers["n"] = b"later"
        assert [(record.key, dict(record.headers or {})) for record in log] == [
            each
            for number in range(3)
            for each in ((b"k%d" % number, {"n": b"%d" % number}), (None, {"n": b"%d" % number}), (b"k%d" % number, {}))
        ]


@pytest.mark.parametrize("headers", [{"h": "text"}, {"h": None}, {7: b""}, {"\ud800": b""}], ids=ascii)
def test_headers_that_cannot_be_stored_are_refused_when_they_are_given_and_in_the_way_of_nothing(headers: Any) -> None:
    with Log("/log", files=MemoryFiles()) as log:
        for put in (log.write, log.append):
            with pytest.raises((InvalidBatch, UnicodeEncodeError)):
                put(b"x", headers=headers)
            with pytest.raises((InvalidBatch, UnicodeEncodeError)):
                put([b"x", b"y"], headers=[None, headers])
        log.write(b"good")
        log.flush()
        assert list(log.values()) == [b"good"]


def test_keys_and_headers_count_for_what_goes_into_a_batch() -> None:
    with Log("/log", files=MemoryFiles()) as log:
        log.write([b"x"] * 70, headers=[{"h": bytes(1 << 20)}] * 70)
        log.write([b"y"] * 70, keys=[bytes(1 << 20)] * 70)
        assert log.flush() == 140
        assert max(map(len, log.batches())) <= BATCH_BYTES >> 20


@pytest.mark.parametrize("limit", ["16MB", "1GB"])
def test_a_record_that_no_batch_has_room_for_is_refused_when_it_is_given(limit: str) -> None:
    with Log("/log", files=MemoryFiles(), max_record_bytes=limit) as log:
        for given in ({"value": bytes(64 << 20)}, {"value": b"", "key": bytes(64 << 20)}):
            for put in (log.write, log.append):
                with pytest.raises(RecordTooLarge):
                    put(**given)
        log.write(b"", key=bytes(RECORD_BYTES_MOST))
        assert log.flush() == 1


def test_a_batch_has_so_many_records_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "BATCH_RECORDS", 10)
    with Log("/log", files=MemoryFiles()) as log:
        log.append([b""] * 25)
        assert [len(each) for each in log.batches()] == [10, 10, 5]
