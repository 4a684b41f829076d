"""The last bytes of a disk are for everything but records, and what records may take is exact."""

from __future__ import annotations

import pytest
from penstock.broker.engine import DiskReserve
from penstock.broker.engine.reserve import HOLDS_S, PLENTY_BYTES, RESERVE_BYTES
from penstock.storage.errors import StorageFull


def test_records_take_what_is_above_the_reserve_and_not_a_byte_more() -> None:
    free, told = [RESERVE_BYTES + 100], []
    reserve = DiskReserve(lambda: free[0], lambda sentence, now_s: told.append((sentence, now_s)))
    reserve.take(60, 1.0)
    free[0] += 1000
    with pytest.raises(StorageFull, match=r"has 16 MiB left.*the last 16 MiB are for acks"):
        reserve.take(41, 2.0)
    reserve.take(40, 3.0)
    assert [at for _, at in told] == [2.0]
    reserve.flushed()
    reserve.take(1100, 4.0)
    free[0] = 5 << 20
    reserve.flushed()
    with pytest.raises(StorageFull, match="has 5 MiB left"):
        reserve.take(1, 5.0)
    assert len(told) == 2


def test_a_look_holds_a_while_where_the_disk_has_plenty() -> None:
    looks, free = [], [RESERVE_BYTES + PLENTY_BYTES + 10]
    reserve = DiskReserve(lambda: looks.append(free[0]) or free[0])
    reserve.take(10, 1.0)
    free[0] = 0
    reserve.flushed()
    reserve.take(0, 1.0 + HOLDS_S * 0.99)
    reserve.take(0, 1.0 + HOLDS_S)
    assert len(looks) == 1, "a turn that began within it has no second look"
    reserve.flushed()
    with pytest.raises(StorageFull, match="has 0 MiB left"):
        reserve.take(1, 1.0 + HOLDS_S)


def test_a_look_that_leaves_less_than_plenty_holds_for_one_turn() -> None:
    looks: list[int] = []
    reserve = DiskReserve(lambda: looks.append(1) or RESERVE_BYTES + PLENTY_BYTES)
    reserve.take(1, 1.0)
    reserve.take(1, 1.0)
    assert len(looks) == 1, "two batches of one turn have one look"
    reserve.flushed()
    reserve.take(1, 1.0)
    assert len(looks) == 2
