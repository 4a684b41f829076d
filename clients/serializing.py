"""Serializers of producers and consumers: between the values that an application has and the bytes that records have.

    client.producer("flights", value="json")
    client.consumer("flights", value=(dumps, loads))
    client.worker("flights", group="mails", value="json")

Idea: the broker knows bytes alone. A producer serializes a value before the record joins a batch; a consumer or a
worker deserializes one when its record is handed out, so a value that it cannot read keeps none before it back.

Contract: a null stays a null, both ways. What a function raises becomes an error that names the record, and the way
past it. Pure, as far as the functions of the application are. Must not know clients.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ..storage.record import Record
from .encoding import ENCODINGS, decode, encode
from .errors import CannotDeserialize, CannotSerialize, InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Sent = TypeVar("Sent", default=bytes)
else:
    from typing import TypeVar

    Sent = TypeVar("Sent")
"""What a producer takes as values: bytes, unless it serializes them."""

T = TypeVar("T")
Encodings = Literal["json", "msgpack"]
Functions = tuple[Callable[[T], bytes], Callable[[bytes], T]]
Serializer = Encodings | Functions[Any]
"""How values become bytes and how bytes become values again: a name, or the two functions."""


class Dumping:
    """Makes bytes of the values of one producer."""

    def __init__(self, topic: str, serializer: Serializer) -> None:
        self._topic = topic
        self._name, self._dumps, _ = _functions(serializer)

    def __call__(self, value: Any) -> bytes | None:
        """The bytes of a value. Raises CannotSerialize."""
        if value is None:
            return None
        try:
            found = self._dumps(value)
        except Exception as error:
            raise CannotSerialize(
                f"a value for topic {self._topic} cannot be written {self._name}: {_said(error)}; the record was not "
                f"sent: {reprlib.repr(value)}"
            ) from error
        if not isinstance(found, (bytes, bytearray, memoryview)):
            raise CannotSerialize(
                f"a value for topic {self._topic} was written {self._name} as {type(found).__name__}, and records have "
                "bytes: give a function that returns bytes (text needs .encode())"
            )
        return bytes(found)


class Loading:
    """Makes values of the bytes that one consumer or worker reads."""

    def __init__(self, serializer: Serializer) -> None:
        self._name, _, self._loads = _functions(serializer)

    def __call__(self, record: Record) -> Record[Any]:
        """The record with its value. Raises CannotDeserialize."""
        if record.value is None:
            return record
        found = self.value_of(record)
        return Record(
            found, record.key, record.headers, record.offset, record.timestamp, record.partition, record.topic
        )

    def value_of(self, record: Record) -> Any:
        """The value of a record, which is no null. Raises CannotDeserialize."""
        value = record.value
        assert value is not None, "a null stays one"
        try:
            return self._loads(value)
        except Exception as error:
            raise CannotDeserialize(
                f"{record.topic}/{record.partition} offset {record.offset}: the value of {len(value)} bytes "
                f"{self.problem(error)}; `record` of this error has it as bytes, and the next call goes on behind it",
                record,
            ) from error

    def problem(self, error: BaseException | None) -> str:
        """What is wrong with a value, as the function said."""
        return f"cannot be read {self._name}: {_said(error)}"


def _functions(serializer: Any) -> tuple[str, Callable[[Any], Any], Callable[[bytes], Any]]:
    """How a serializer is called in messages, and its two functions. Raises InvalidArgument."""
    if isinstance(serializer, str) and serializer in ENCODINGS:
        return f"as {serializer}", partial(encode, serializer), partial(decode, serializer)
    if isinstance(serializer, (tuple, list)) and len(serializer) == 2 and all(map(callable, serializer)):
        dumps, loads = serializer
        return f"by {_named(dumps)} and {_named(loads)}", dumps, loads
    raise InvalidArgument(
        f'value={reprlib.repr(serializer)} is no serializer: "json", "msgpack", or a tuple of two functions, of which '
        "the first makes bytes of a value, and the second a value of bytes"
    )


def _named(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _said(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
