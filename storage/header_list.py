"""Headers of a record as a list: in an order, with names that repeat and values that are null.

Idea: the headers of nearly all records fit a map, and programs look them up by name. So a list that does not fit one is
such a map too, with the last value of each name, and has its pairs beside it. Whatever hands on the headers of a record
hands on the list.

Contract: values, which never change. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .errors import InvalidBatch

HeaderPair = tuple[str, bytes | None]
"""A name and a value, which may be null."""

GivenHeaders = Mapping[str, bytes] | Sequence[HeaderPair]
"""As programs give them: a map, or a list of pairs."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("these headers cannot be changed: make a dict of them to add some")


class FixedHeaders(dict[str, bytes]):
    """A map that stays as it is."""

    __slots__ = ()

    __setitem__: Any = _refuse
    __delitem__: Any = _refuse
    __ior__: Any = _refuse
    clear: Any = _refuse
    pop: Any = _refuse
    popitem: Any = _refuse
    setdefault: Any = _refuse
    update: Any = _refuse


class HeaderList(FixedHeaders):
    """Headers that do not fit a map. As one they have the last value of each name, and no name whose last is null."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Sequence[HeaderPair]) -> None:
        super().__init__({name: value for name, value in dict(pairs).items() if value is not None})
        self.pairs = tuple(pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, HeaderList):
            return self.pairs == other.pairs
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: Any = None

    def __reduce__(self) -> Any:
        return HeaderList, (self.pairs,)

    def __repr__(self) -> str:
        return f"HeaderList({list(self.pairs)!r})"


def checked_headers(given: Any) -> Mapping[str, bytes]:
    """Headers as records have them: what is a map stays one. Raises InvalidBatch."""
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes, bytearray, memoryview)):
        kind = type(given).__name__
        raise InvalidBatch(f"headers must be names with values as bytes, or a list of such pairs, not {kind}")
    for pair in given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidBatch(f"header {pair!r} must be a pair of a name and a value")
        name, value = pair
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise InvalidBatch(f"header {name!r} must be a str with a bytes value or None, not {type(value).__name__}")
    return of_pairs([(name, value) for name, value in given])


def copied(headers: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Checked headers that their giver may go on to change."""
    return headers if isinstance(headers, HeaderList) else dict(headers)


def of_pairs(pairs: Sequence[HeaderPair]) -> dict[str, bytes]:
    """The headers of checked pairs: a map where they fit one."""
    found = dict(pairs)
    if len(found) == len(pairs) and None not in found.values():
        return found  # pyright: ignore[reportReturnType]
    return HeaderList(pairs)


def pairs_of(headers: Mapping[str, bytes]) -> Sequence[HeaderPair]:
    """Headers as pairs, in their order."""
    return headers.pairs if isinstance(headers, HeaderList) else tuple(headers.items())


def as_map(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """A copy of headers as a map. Raises InvalidBatch for those that do not fit one."""
    if isinstance(headers, HeaderList):
        raise InvalidBatch(f"headers {list(headers.pairs)!r} do not fit a map, which has each name once, and no nulls")
    return {name: bytes(value) for name, value in headers.items()}


def with_more(headers: Mapping[str, bytes], more: Mapping[str, bytes]) -> dict[str, bytes]:
    """Headers with others in place of those of the same names, or behind them."""
    if isinstance(headers, HeaderList):
        return of_pairs([*(pair for pair in headers.pairs if pair[0] not in more), *more.items()])
    return {**headers, **more}
