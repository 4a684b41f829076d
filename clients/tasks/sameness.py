"""Checks whether an argument would reach its function unchanged, and names the annotation that would make it so.

Idea: encodings have fewer types than Python. A value with a type hint comes back as that type, one without as the
encoding's type, and only there a change would be silent.

Contract: pure. Values that differ by `==` or by type are not the same; two NaN are.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any

OPEN = frozenset({Any, object, list, dict, tuple, set, frozenset})
"""Hints that say nothing of what is in a value."""

KINDS_MAX = 4
"""Types of elements that an annotation is made of."""


def leaves_open(hint: Any) -> bool:
    """Whether a value that fits a hint may still be of several types."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return False
    if origin is typing.Annotated:
        return leaves_open(inner[0])
    return any(map(leaves_open, inner)) if inner else (origin or hint) in OPEN


def is_same(given: Any, found: Any) -> bool:
    """Whether a value survived the round trip unchanged."""
    if type(given) is not type(found):
        return False
    if isinstance(given, dict):
        pairs = zip(given.items(), found.items(), strict=False)
        return len(given) == len(found) and all(is_same(one, other) for one, other in pairs)
    if isinstance(given, (list, tuple)):
        return len(given) == len(found) and all(map(is_same, given, found))
    return bool(given == found) or (given != given and found != found)


def annotation(given: Any, works: Callable[[Any], bool]) -> str:
    """The annotation of a parameter that would bring a value back, as it is written; "" where none does."""
    try:
        hint = _hint(given)
        return _written(hint) if works(hint) else ""
    except (TypeError, ValueError):  # no hint, or one that the encoding has no values of
        return ""


def _hint(given: Any) -> Any:
    kind = type(given)
    if kind is dict:
        return dict[_union(given), _union(given.values())] if given else dict
    if kind is tuple:
        return tuple[tuple(map(_hint, given))] if given else tuple
    if kind in (list, set, frozenset):
        many: Any = kind
        return many[_union(given)] if given else many
    return kind


def _union(given: Iterable[Any]) -> Any:
    kinds: list[Any] = []
    for each in given:
        if (kind := _hint(each)) not in kinds:
            kinds.append(kind)
        if len(kinds) > KINDS_MAX:
            return Any
    return reduce(or_, kinds)


def _written(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
