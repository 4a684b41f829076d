"""Encodes values as JSON or msgpack, never pickle, and decodes them.

Contract: decoding returns what was encoded, as far as the encoding goes: JSON has no bytes (refused), no tuples
(lists) and only text keys; a type hint restores them, as well as dates, UUIDs, dataclasses and Structs. Pure: values
in, bytes out.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

Encoding = Literal["json", "msgpack"]
ENCODINGS: tuple[Encoding, ...] = ("json", "msgpack")

_BYTES = (bytes, bytearray, memoryview)


def encode(encoding: Encoding, value: Any) -> bytes:
    """Encode `value`. Raises ValueError that names what cannot be encoded."""
    try:
        if encoding == "msgpack":
            return msgspec.msgpack.encode(value)
        plain = msgspec.to_builtins(value, builtin_types=_BYTES)
        return json.dumps(plain, default=_refuse, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        raise ValueError(str(error)) from error


def _refuse(value: Any) -> Any:
    """Encode values that json does not know; only bytes are left here."""
    raise TypeError(f'{type(value).__name__} cannot be written as JSON: take "msgpack" instead')


def decode(encoding: Encoding, data: bytes) -> Any:
    """Decode a value. Raises ValueError."""
    try:
        return msgspec.msgpack.decode(data) if encoding == "msgpack" else msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is no {encoding}: {error}") from error


def is_known(hint: Any) -> bool:
    """Whether `fitted` can tell if a value is of this type; not so for a type variable."""
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return False
    return True


def fitted(value: Any, hint: Any) -> Any:
    """Convert a decoded value to the wanted type. Raises ValueError."""
    try:
        return msgspec.convert(value, hint, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # of the application: a dataclass may check itself in any way
        raise ValueError(f"{type(error).__name__}: {error}") from error
