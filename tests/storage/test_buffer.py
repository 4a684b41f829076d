"""Records that wait to become a batch: nulls among them."""

from __future__ import annotations

import pytest
from penstock.storage.embedded import Log
from penstock.storage.memory_files import MemoryFiles


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
