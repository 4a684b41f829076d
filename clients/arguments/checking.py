"""Checks arguments of public verbs against their signatures.

Idea: the annotations of the public verbs are their contract, of few kinds, and each kind has one check. Checks that an
annotation cannot express (a limit of one verb, the broker's state) come later.

Contract: a wrong argument raises InvalidArgument with its name, its value and what is wanted, before anything is done.
A correct call costs half a microsecond per argument; the verbs of `BY_HAND`, which are called per record, check for
themselves. Signatures, documentation and annotations are unchanged.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
import sys
import typing
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ...storage.arguments import INT_MAX, one_of
from ...transport.names import RULE, is_name, shown
from ..errors import InvalidArgument
from .quantities import Duration, Size, event_time, microseconds, seconds, size_bytes

BY_HAND = {
    "Producer": ("send", "send_nowait", "send_many", "send_many_nowait", "place_many", "post"),
    "Sends": ("send_many",),
    "TaskFunction": ("send_many", "messages"),
    "Consumer": ("fetch",),
    "Worker": ("fetch", "ack_nowait", "nack", "reject"),
    "Task": ("nack", "reject"),
}
"""By class: what is called for each record, and what takes a reason, which may be no UTF-8."""

_CHECKED: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()
"""Marks verbs that are checked already, in a base class."""

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)


class Check(NamedTuple):
    """Checks a value: it has one of these types, and then passes `judge`."""

    wants: str
    kinds: tuple[type, ...]
    judge: Callable[[str, Any], object]

    def takes(self, value: Any) -> bool:
        """Whether a value has one of the types. True and False are not numbers."""
        return isinstance(value, self.kinds) and (type(value) is not bool or bool in self.kinds)

    def __call__(self, name: str, value: Any) -> None:
        """Raise InvalidArgument if the value does not pass."""
        if type(value) not in self.kinds and not self.takes(value):
            raise InvalidArgument(f"{name}={reprlib.repr(value)} is not {self.wants}")
        self.judge(name, value)


def checks(kind: K) -> K:
    """Have all verbs of a class check their arguments."""
    by_hand = BY_HAND.get(kind.__name__.removeprefix("Async"), ())
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        if inspect.isfunction(found) and not (name.startswith("_") or name in by_hand or found in _CHECKED):
            if len(inspect.signature(found).parameters) > 1:
                setattr(kind, name, checked(found))
    return kind


def checked(function: F) -> F:
    """Have one function check its arguments."""
    check: Any = _Arguments(function)

    @functools.wraps(function)
    def verb(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    @functools.wraps(function)
    async def async_verb(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return await function(*args, **kwargs)

    found = async_verb if inspect.iscoroutinefunction(function) else verb
    _CHECKED.add(found)
    return typing.cast(F, found)


def check_fields(struct: Any) -> None:
    """Check the fields of a value that people make. Raises InvalidArgument."""
    for name, check in _checks_of(type(struct)):
        check(name, getattr(struct, name))


@functools.cache
def _checks_of(kind: type) -> list[tuple[str, Callable[[str, Any], object]]]:
    """Each field of a class, and its check."""
    return [(name, _check_of(hint)) for name, hint in get_type_hints(kind).items()]


def some_of(name: str, values: Sequence[str], known: Collection[str]) -> None:
    """Raise InvalidArgument unless there are some words, and each is one of those known."""
    for value in values:
        one_of(name, value, known)
    if not values:
        raise InvalidArgument(f"{name}=() reads nothing: name some, or leave it out for all of them")


class _Arguments:
    """The checks of one function, found when it is called first: annotations may be of modules that come later."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_method = next(iter(inspect.signature(function).parameters), "") == "self"
        self._by_place: list[tuple[str, Callable[[str, Any], object]]] | None = None
        self._by_name: dict[str, Callable[[str, Any], object]] = {}
        self._rest: Callable[[str, Any], object] = _unchecked

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        places = self._by_place
        if places is None:
            places = self._learn()
        for (name, check), value in zip(places, args[1:] if self._is_method else args, strict=False):
            check(name, value)
        for name, value in kwargs.items():
            self._by_name.get(name, self._rest)(name, value)

    def _learn(self) -> list[tuple[str, Callable[[str, Any], object]]]:
        hints = _hints_of(self._function)
        places: list[tuple[str, Callable[[str, Any], object]]] = []
        parameters = list(inspect.signature(self._function).parameters.values())
        for parameter in parameters[1:] if self._is_method else parameters:
            name, check = parameter.name, _check_of(hints.get(parameter.name, Any))
            if parameter.kind is parameter.VAR_KEYWORD:
                self._rest = _SETTING if get_origin(hints.get(name)) is typing.Unpack else check
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    places.append((name, check))
                if parameter.kind is not parameter.POSITIONAL_ONLY:
                    self._by_name[name] = check
        self._by_place = places
        return places


# -- what annotations say ---------------------------------------------------------------------------------


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters. What is returned may be of an extra, which is not imported here."""
    given = SimpleNamespace(__annotations__={k: v for k, v in function.__annotations__.items() if k != "return"})
    return get_type_hints(given, inspect.unwrap(function).__globals__)


def _unchecked(name: str, value: Any) -> None:
    """Accept anything."""


def _check_of(hint: Any, beside: str = "") -> Callable[[str, Any], object]:
    """The check of an annotation; `beside` is a word allowed instead."""
    if isinstance(hint, typing.Hashable) and hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (typing.Union, UnionType):
        return _either(inner)
    if origin is typing.Literal:
        wants = f"one of {', '.join(map(repr, inner))}"
        return Check(wants, (str,), lambda name, value: one_of(name, value, inner, beside))
    if origin is Callable or hint is Callable:
        return Check("a function", (Callable,), _unchecked)  # type: ignore[arg-type]  # it is an ABC
    if origin in (Iterable, Sequence, list) or inner[1:] == (...,):
        return _many(origin, _check_of(inner[0]))
    if origin is Mapping:
        return _mapping(*map(_check_of, inner))
    if origin is tuple:
        return _row(list(map(_check_of, inner)))
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        hint = origin  # one of its kinds, as Task[int]: which one does not show in a value
    if isinstance(hint, type) and hint is not Any and not getattr(hint, "_is_protocol", False):
        return Check(f"{'an' if hint.__name__[0] in 'AEIO' else 'a'} {hint.__name__}", (hint,), _unchecked)
    return _unchecked


def _either(hints: Sequence[Any]) -> Callable[[str, Any], object]:
    """A union's check: it applies the members that take the value's type, of which one must pass."""
    some = [hint for hint in hints if hint is not NoneType]
    if set(get_args(Duration)) < set(some):
        some = [*(hint for hint in some if hint not in get_args(Duration)), Duration]
    whole = reduce(or_, some)
    options = [_SIMPLE[whole]] if whole in _SIMPLE else list(map(_check_of, some))
    if not all(isinstance(option, Check) for option in options):
        return _unchecked
    known = typing.cast(list[Check], options)
    others = "".join(f", or {option.wants}" for option in known if str not in option.kinds)
    if others and len(known) > 1:  # then a wrong word is told of them
        known = [typing.cast(Check, _check_of(hint, others)) for hint in some]
    wants = " or ".join(option.wants for option in known)
    is_optional = NoneType in hints

    def judge(name: str, value: Any) -> None:
        fitting = [option for option in known if option.takes(value)]
        for option in fitting[:-1]:
            with suppress(InvalidArgument):
                option.judge(name, value)
                return
        if fitting:
            fitting[-1].judge(name, value)

    kinds = tuple(kind for option in known for kind in option.kinds)
    return Check(wants, (*kinds, NoneType) if is_optional else kinds, judge)


def _many(origin: Any, check: Callable[[str, Any], object]) -> Check:
    wants = f"a list in which each is {check.wants}" if isinstance(check, Check) else "a list"

    def judge(name: str, value: Any) -> None:
        if isinstance(value, (str, bytes, bytearray)):
            raise InvalidArgument(f"{name}={reprlib.repr(value)} is one value, not {wants}")
        if isinstance(value, (list, tuple)) and not fits_all(value):
            for number, each in enumerate(value):
                check(f"{name}[{number}]", each)

    def fits_all(value: Sequence[Any]) -> bool:
        """Whether their types say enough, which is looked at without a step of Python for each."""
        return isinstance(check, Check) and check.judge is _unchecked and set(map(type, value)) <= set(check.kinds)

    return Check(wants, (origin,), judge)


def _mapping(of_key: Callable[[str, Any], object], of_value: Callable[[str, Any], object]) -> Check:
    def judge(name: str, value: Any) -> None:
        for key, each in value.items():
            of_key(f"a key of {name}", key)
            of_value(f"{name}[{reprlib.repr(key)}]", each)

    return Check("a mapping", (Mapping,), judge)


def _row(checks_: Sequence[Callable[[str, Any], object]]) -> Check:
    def judge(name: str, value: Any) -> None:
        if len(value) != len(checks_):
            raise InvalidArgument(f"{name}={reprlib.repr(value)} is not a tuple of {len(checks_)}")
        for number, (check, each) in enumerate(zip(checks_, value, strict=True)):
            check(f"{name}[{number}]", each)

    return Check(f"a tuple of {len(checks_)}", (tuple, list), judge)


def check_name(name: str, value: str) -> None:
    """Raise InvalidArgument unless `value` may name a group, a worker or a producer."""
    if not is_name(value):
        raise InvalidArgument(f"{name}={shown(value)} is not allowed as a name: {RULE}")


# -- what values have to be -------------------------------------------------------------------------------


def text(name: str, value: str) -> None:
    """Raise InvalidArgument for what cannot be sent or stored."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{name}={value!a} is no text that can be written as UTF-8") from None


def _count(name: str, value: int) -> None:
    if not 0 <= value <= INT_MAX:
        raise InvalidArgument(f"{name}={value} is {'below 0' if value < 0 else 'over 64 bits'}")


def _number(name: str, value: float) -> None:
    if not 0 <= value <= sys.float_info.max:
        raise InvalidArgument(f"{name}={value!r} is not a number from 0 on")


def _setting(name: str, value: Any) -> None:
    if isinstance(value, str):
        text(name, value)
    elif isinstance(value, int) and not -INT_MAX <= value <= INT_MAX:
        raise InvalidArgument(f"{name}={value} is over 64 bits")


count = Check("an int", (int,), _count)
_BYTES = Check("bytes; text needs .encode()", (bytes, bytearray, memoryview), _unchecked)
_SETTING = Check("a number, a text, a timedelta or None", (bool, int, float, str, timedelta, NoneType), _setting)

_SIMPLE: dict[Any, Check] = {
    str: Check("a str", (str,), text),
    int: count,
    float: Check("a number", (int, float), _number),
    bool: Check("True or False", (bool,), _unchecked),
    bytes: _BYTES,
    datetime: Check("a datetime", (datetime,), lambda name, value: microseconds(value, name)),
    Duration: Check(
        'a number of seconds, a timedelta, or a text like "30s"',
        (int, float, timedelta, str),
        lambda name, value: seconds(value, name),
    ),
    Size: Check('a number of bytes, or a text like "64MB"', (int, str), lambda name, value: size_bytes(value, name)),
    int | datetime: Check(
        "a datetime with a zone, or microseconds UTC", (int, datetime), lambda name, value: event_time(value)
    ),
}
