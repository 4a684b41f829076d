"""What filters say about places."""

from __future__ import annotations

import pytest
from penstock.clients.sql.bounds import Bounds, Span, bounds_of
from penstock.storage.arguments import INT_MAX

MOMENT_US = 1_767_225_600_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Bounds()),
        ("(offset >= 5)", Bounds(offset=Span(5))),
        ("(offset > 5)", Bounds(offset=Span(6))),
        ("(offset <= 5)", Bounds(offset=Span(-INT_MAX, 5))),
        ("(offset < 5)", Bounds(offset=Span(-INT_MAX, 4))),
        ("(offset == -5)", Bounds(offset=Span(-5, -5))),
        ("((offset >= 5) and (offset < 9))", Bounds(offset=Span(5, 8))),
        ("((offset >= 5) and (offset >= 3))", Bounds(offset=Span(5))),
        ("(((offset >= 5) and (partition == 2)) and (offset < 9))", Bounds(Span(5, 8), Span(2, 2))),
        ("(timestamp > 2026-01-01 00:00:00.000000Z)", Bounds(timestamp=Span(MOMENT_US + 1))),
        ("(timestamp <= 2026-01-01 00:00:00Z)", Bounds(timestamp=Span(-INT_MAX, MOMENT_US))),
        ('((key == "5541") and (offset < 9))', Bounds(offset=Span(-INT_MAX, 8))),
        ('((topic == "a) and (offset < 9") and (offset < 7))', Bounds(offset=Span(-INT_MAX, 6))),
        ('((topic == "a\\") and (offset < 3) and (") and (offset < 7))', Bounds(offset=Span(-INT_MAX, 6))),
        ("((is_valid(offset) and (offset > 1)) and is_in(partition, {value_set=int32:[1, 2]}))", Bounds(Span(2))),
        ("((offset < 5) or (offset > 7))", Bounds()),
        ("(((offset < 5) or (offset > 7)) and (partition > 0))", Bounds(partition=Span(1))),
        ("invert((offset < 5))", Bounds()),
        ("(offset < 99999999999999999999)", Bounds()),
        ("(timestamp > 2026-99-01 00:00:00Z)", Bounds()),
        ("((offset < 5)", Bounds()),
    ],
)
def test_only_comparisons_that_must_all_be_true_narrow_the_bounds(text: str, expected: Bounds) -> None:
    assert bounds_of(text) == expected


def test_a_span_holds_both_its_ends_and_nothing_outside() -> None:
    span = Span(2, 4)
    assert [number for number in range(7) if span.holds(number)] == [2, 3, 4]
