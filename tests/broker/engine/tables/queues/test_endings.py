"""Up to where records ended long enough ago, held against a memory of every single one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.broker.engine.tables.queues import endings
from penstock.broker.engine.tables.queues.endings import MINUTE_US, Endings

END = 1000


@given(
    ended=st.lists(st.tuples(st.integers(0, 3 * MINUTE_US), st.integers(0, 300), st.integers(1, 50)), max_size=60),
    ages=st.lists(st.integers(0, 200 * MINUTE_US), min_size=1, max_size=5),
    first=st.integers(0, 400),
    most=st.sampled_from([4, 16, 512]),
)
def test_nothing_is_forgettable_that_ended_later_and_what_ended_a_minute_earlier_is(
    ended: list[tuple[int, int, int]], ages: list[int], first: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endings, "MOST", most)
        found, known, now_us = Endings(), {}, 0
        for passed_us, offset, count in ended:
            now_us += passed_us
            found.note(now_us, offset, count)
            known.update(dict.fromkeys(range(offset, offset + count), now_us))
        found.forget_below(first)
        assert len(found.entries) <= most + 1
        assert found.entries == sorted(set(found.entries))
        loaded = Endings(found.entries, first)
        for before_us in ages:
            low = found.forgettable(before_us, END)
            assert low == loaded.forgettable(before_us, END)
            late = [offset for offset, time_us in known.items() if offset >= first and time_us >= before_us]
            assert low <= min(late, default=END)
            latest_us = max(known.values(), default=0)
            if latest_us + MINUTE_US <= before_us - MINUTE_US:
                assert low == END, "nothing ended since"


def test_work_in_order_is_forgettable_record_by_record_to_the_minute() -> None:
    found = Endings()
    for offset in range(100):
        found.note(offset * MINUTE_US, offset, 1)
    assert [found.forgettable(minute * MINUTE_US, END) for minute in (0, 1, 50, 99, 100)] == [0, 1, 50, 99, END]
    assert found.next_us(5 * MINUTE_US) == 6 * MINUTE_US


def test_a_straggler_that_was_carried_forward_holds_nothing_back() -> None:
    found = Endings()
    found.note(MINUTE_US, 50, 10)
    found.forget_below(40)
    found.note(9 * MINUTE_US, 7, 3)
    assert found.forgettable(5 * MINUTE_US, END) == END
    found.note(9 * MINUTE_US, 30, 20)
    assert found.forgettable(5 * MINUTE_US, END) == 40
