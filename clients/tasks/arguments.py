"""Encodes the arguments of a task function, and decodes them.

The value of a task is an array of two: the positional arguments as an array, the named ones as a map. So a worker or
sender in another language needs nothing of Python.

Contract: a call with arguments that the function would not take, or would receive changed, is refused where it is
sent, with the argument's name; a worker decodes arguments to the types of the signature. Pure: values in, bytes out.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, get_type_hints

from ..encoding import Encoding, decode, encode, fitted, is_known
from ..errors import InvalidArgument
from .sameness import annotation, is_same, leaves_open

Call = tuple[list[Any], dict[str, Any]]
"""Positional and named arguments."""


class Arguments:
    """Packs and checks the arguments of one function."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self.name = name
        self._signature = inspect.signature(function)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """Types by parameter, looked up at the first call: they may be defined below the function."""
        try:
            hints = get_type_hints(self._function)
        except NameError:
            return {}  # names for the type checker only: then values are as their encoding has them
        return {name: hint for name, hint in hints.items() if hint is not Any and is_known(hint)}

    def takes(self, name: str) -> bool:
        """Whether a call may name this argument."""
        kinds = (parameter.kind for parameter in self._signature.parameters.values())
        return name in self._signature.parameters or inspect.Parameter.VAR_KEYWORD in kinds

    @property
    def hint_of_first(self) -> Any:
        """The type of the only positional argument of a call; None if it cannot be called with one."""
        hints = self.positional_hints(1)
        return None if hints is None else hints[0]

    @cached_property
    def _open(self) -> set[str]:
        """Parameters whose values may be of several types."""
        return {name for name in self._signature.parameters if leaves_open(self._hints.get(name, Any))}

    def positional_hints(self, count: int) -> tuple[Any, ...] | None:
        """The types of so many positional arguments, Any where none is known; None if it cannot be called with them."""
        try:
            self._signature.bind(*[None] * count)
        except TypeError:
            return None
        kinds = inspect.Parameter
        hints = [
            self._hints.get(name, Any)
            for name, parameter in self._signature.parameters.items()
            if parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        ]
        rest = [name for name, one in self._signature.parameters.items() if one.kind is kinds.VAR_POSITIONAL]
        hints += [self._hints.get(name, Any) for name in rest] * max(count - len(hints), 0)
        return tuple(hints[:count])

    def pack(self, encoding: Encoding, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Encode a call. Raises InvalidArgument that names the argument."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArgument(f"{self.name} cannot be called with these arguments: {error}") from None
        try:
            packed = encode(encoding, [args, kwargs])
        except ValueError as error:
            raise InvalidArgument(self._culprit(encoding, args, kwargs) or f"{self.name}: {error}") from None
        try:
            found_args, found_kwargs = self.unpack(encoding, packed)
        except ValueError as error:
            raise InvalidArgument(f"{self.name}: {error}") from None
        found = self._signature.bind(*found_args, **found_kwargs).arguments
        for name in self._open.intersection(given):
            if not is_same(given[name], found[name]):
                raise InvalidArgument(self._changed(encoding, name, given[name], found[name]))
        return packed

    def _changed(self, encoding: Encoding, name: str, given: Any, found: Any) -> str:
        """An argument that would arrive changed, and the annotation that prevents it."""
        kind = self._signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            keys = range(len(given)) if isinstance(given, tuple) else given
            given, found = next((given[at], found[at]) for at in keys if not is_same(given[at], found[at]))

        def works(hint: Any) -> bool:
            return is_known(hint) and is_same(given, fitted(decode(encoding, encode(encoding, given)), hint))

        hint = annotation(given, works)
        way_out = f"annotate it as {name}: {hint}" if hint else "send what it has words for, or a dataclass"
        return (
            f"argument {name!r} of {self.name} would arrive as {reprlib.repr(found)}, not as {reprlib.repr(given)}, "
            f"because {encoding} has no other word for it and the function does not say its type: {way_out}"
        )

    def _culprit(self, encoding: Encoding, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Name the argument that cannot be encoded, and why."""
        for name, value in self._signature.bind(*args, **kwargs).arguments.items():
            try:
                encode(encoding, value)
            except ValueError as error:
                return f"argument {name!r} of {self.name} cannot be sent: {error}"
        return ""

    def unpack(self, encoding: Encoding, data: bytes) -> Call:
        """Decode a call. Raises ValueError with a sentence that names the argument."""
        found = decode(encoding, data)
        if not (isinstance(found, list) and len(found) == 2 and isinstance(found[0], list)):
            raise ValueError("its value is not an array of positional arguments and a map of named ones")
        if not isinstance(found[1], dict) or not all(isinstance(name, str) for name in found[1]):
            raise ValueError("the second part of its value is not a map of named arguments")
        return self.bound(found[0], found[1])

    def bound(self, args: list[Any], kwargs: dict[str, Any]) -> Call:
        """The call with these arguments, converted to the types of the function. Raises ValueError as `unpack`."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ValueError(f"it cannot be called with these arguments: {error}") from None
        for name, value in bound.arguments.items():
            if name in self._hints:
                bound.arguments[name] = self._fitted(name, value)
        return list(bound.args), bound.kwargs

    def _fitted(self, name: str, value: Any) -> Any:
        hint, kind = self._hints[name], self._signature.parameters[name].kind
        try:
            if kind is inspect.Parameter.VAR_POSITIONAL:
                return tuple(fitted(each, hint) for each in value)
            if kind is inspect.Parameter.VAR_KEYWORD:
                return {key: fitted(each, hint) for key, each in value.items()}
            return fitted(value, hint)
        except ValueError as error:
            raise ValueError(f"argument {name!r} does not fit: {error}") from None

    # -- results ------------------------------------------------------------------------------------

    def pack_result(self, encoding: Encoding, result: Any) -> bytes:
        """Pack a return value: no bytes for None. Time and attempt are stored all the same.

        Raises ValueError.
        """
        return b"" if result is None else encode(encoding, result)

    def unpack_result(self, encoding: Encoding, data: bytes | None) -> Any:
        """Decode a result. Raises ValueError."""
        if not data:
            return None
        found = decode(encoding, data)
        return fitted(found, self._hints["return"]) if "return" in self._hints else found
