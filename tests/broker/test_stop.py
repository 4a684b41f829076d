"""Signals that come together count as one."""

from __future__ import annotations

from penstock.broker.stop import SAME_STOP_S, Stop


def test_signals_within_a_second_are_one() -> None:
    times = iter([5.0, 5.0, 5.0 + SAME_STOP_S - 0.01, 5.0 + SAME_STOP_S, 5.0 + 2 * SAME_STOP_S])
    stop = Stop(lambda: next(times))
    assert (bool(stop), stop.again) == (False, False)
    found = [(stop.tell(), bool(stop), stop.again) for _ in range(5)]
    assert found == [(True, True, False), *[(False, True, False)] * 2, *[(True, True, True)] * 2]
