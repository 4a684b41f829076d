"""What a filter says about offsets, partitions and times: parts of a topic that need not be read.

Idea: the filter comes as the text of an Arrow expression, `((offset >= 5) and (timestamp < 2026-01-01 00:00:00Z))`.
Comparisons of a column with a constant that are all to be true narrow the bounds; everything else is passed over.

Contract: bounds hold every record that the filter may accept, so text that is not understood widens them only. The
filter is still applied to what is read. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ...storage.arguments import INT_MAX

_COMPARISON = re.compile(r"(offset|partition|timestamp) (==|>=|<=|>|<) (-?\d[-\d:. Z]*)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(NamedTuple):
    """Whole numbers from `least` to `most`."""

    least: int = -INT_MAX
    most: int = INT_MAX

    def narrowed(self, sign: str, number: int) -> Span:
        """Those of them for which `x sign number` is true."""
        least, most = {
            "==": (number, number), ">=": (number, INT_MAX), ">": (number + 1, INT_MAX),
            "<=": (-INT_MAX, number), "<": (-INT_MAX, number - 1),
        }[sign]  # fmt: skip
        return Span(max(self.least, least), min(self.most, most))

    def holds(self, number: int) -> bool:
        """Whether `number` is one of them."""
        return self.least <= number <= self.most


class Bounds(NamedTuple):
    """Where records that a filter may accept are; times in microseconds UTC."""

    offset: Span = Span()
    partition: Span = Span()
    timestamp: Span = Span()


def bounds_of(text: str) -> Bounds:
    """The bounds that an expression's text says."""
    found = Bounds()
    for part in _all_of(text.strip()):
        match = _COMPARISON.fullmatch(part)
        if match is None:
            continue
        column, sign, constant = match.groups()
        number = _microseconds(constant) if column == "timestamp" else _whole(constant)
        if number is not None:
            found = found._replace(**{column: getattr(found, column).narrowed(sign, number)})
    return found


def _all_of(text: str) -> Iterator[str]:
    """The expressions that must all be true for `text` to be."""
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1]
    place = _top_level_and(text)
    if place < 0:
        yield text
    else:
        yield from _all_of(text[:place])
        yield from _all_of(text[place + len(" and ") :])


def _closing(text: str) -> int:
    """Where the parenthesis that begins `text` is closed; -1: nowhere."""
    return next((place for place, depth in _depths(text) if depth == 0), -1)


def _top_level_and(text: str) -> int:
    """Where the first ` and ` outside of parentheses and quotes begins; -1 without one."""
    return next((place for place, depth in _depths(text) if depth == 0 and text.startswith(" and ", place)), -1)


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """Each place outside of quotes, with how many parentheses are open behind it."""
    depth, quoted, escaped = 0, False, False
    for place, letter in enumerate(text):
        if quoted:
            quoted = letter != '"' or escaped
            escaped = letter == "\\" and not escaped
            continue
        quoted = letter == '"'
        depth += (letter in "([{") - (letter in ")]}")
        if not quoted:
            yield place, depth


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,19}", text) else None


def _microseconds(text: str) -> int | None:
    """Of a time as Arrow writes it."""
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(microseconds=1)
