"""Records that wait to become a batch: nulls among them."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.storage.embedded import Log
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
