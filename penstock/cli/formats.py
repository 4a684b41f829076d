"""Records as bytes outside of penstock: lines, JSON lines, msgpack, raw. All of them carry any bytes.

    lines   one record per line: the value, without its newline
    json    one JSON object per line: {"value": text, "key": text, "headers": {name: text}}; bytes that are not
            UTF-8 stand in base64 under "value_base64", "key_base64", "headers_base64"
    msgpack one map after the other, nothing between: {"value": bin, "key": bin, "headers": {name: bin}}; text is taken
            for bytes too, as UTF-8
    raw     written as one record, whatever it holds; read back to back, nothing added

Headers that do not fit a map, as a name repeats or a value is null, stand under "header_list" as well: a list of
[name, text] in JSON, with null or {"base64": text} in place of the text, and of [name, bin] in msgpack.

A null in place of a value is null in JSON and nil in msgpack; the others have nothing for it.

Contract: what `json` and `msgpack` write, they read back equal: value, key, headers and timestamp (microseconds UTC).
Topic, partition and offset are ignored, because the broker assigns them. Whatever is read, memory is bounded by
MSGPACK_MOST_BYTES and a line. Pure: no files, no broker.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..storage.errors import Error
from ..storage.header_list import HeaderList, of_pairs
from ..storage.record import Record

Format = Literal["lines", "json", "msgpack", "raw"]
FORMATS: tuple[Format, ...] = ("lines", "json", "msgpack", "raw")

MSGPACK_MOST_BYTES = 80 << 20
"""Limit of buffered msgpack input: a frame of the broker has 64 MiB at most by default."""

HEADERS_MAX = 100_000
"""Entries of a map of a msgpack input."""


class InvalidInput(Error):
    """A part of an input is no record; the message names its line, or its number and byte."""

    code = "invalid_input"


class Entry(Struct, frozen=True):
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    timestamp: int | None = None


class JsonBytes(Struct, forbid_unknown_fields=True):
    """Bytes that are no text, in a JSON line."""

    base64: str


class JsonRecord(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One JSON line."""

    topic: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    headers_base64: dict[str, str] | UnsetType = UNSET
    header_list: list[tuple[str, str | JsonBytes | None]] | UnsetType = UNSET


# -- out -------------------------------------------------------------------------------------------


def writer(form: Format) -> Callable[[Iterable[Record]], bytes]:
    """The function that encodes records."""
    return {"lines": _as_lines, "json": _as_json, "msgpack": _as_msgpack, "raw": _as_raw}[form]


def _as_lines(records: Iterable[Record]) -> bytes:
    values = [record.value or b"" for record in records]
    return b"\n".join([*values, b""]) if values else b""


def _as_raw(records: Iterable[Record]) -> bytes:
    return b"".join([record.value or b"" for record in records])


def _as_json(records: Iterable[Record]) -> bytes:
    return msgspec.json.Encoder().encode_lines([_json_record(record) for record in records])


def _as_msgpack(records: Iterable[Record]) -> bytes:
    import msgpack

    pack = msgpack.Packer().pack
    return b"".join([pack(_msgpack_record(record)) for record in records])


def _msgpack_record(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    fields["timestamp"] = record.timestamp
    if record.key is not None:
        fields["key"] = record.key
    fields["value"] = record.value
    if record.headers:
        fields["headers"] = dict(record.headers)
    if isinstance(record.headers, HeaderList):
        fields["header_list"] = record.headers.pairs
    return fields


def _json_record(record: Record) -> JsonRecord:
    line = JsonRecord(record.topic, record.partition, record.offset, record.timestamp)
    if record.value is None:
        line.value = None
    else:
        line.value, line.value_base64 = _text_or_base64(record.value)
    if record.key is not None:
        line.key, line.key_base64 = _text_or_base64(record.key)
    for name, content in record.headers.items():
        text, encoded = _text_or_base64(content)
        if text is not UNSET:
            line.headers = {**(line.headers or {}), name: text}
        elif encoded is not UNSET:
            line.headers_base64 = {**(line.headers_base64 or {}), name: encoded}
    if isinstance(record.headers, HeaderList):
        line.header_list = [(name, _json_value(content)) for name, content in record.headers.pairs]
    return line


def _json_value(content: bytes | None) -> str | JsonBytes | None:
    if content is None:
        return None
    text, encoded = _text_or_base64(content)
    return text if isinstance(text, str) else JsonBytes(str(encoded))


def json_fields(record: Record) -> dict[str, Any]:
    """The fields of a JSON line, to which others may be added."""
    return msgspec.to_builtins(_json_record(record))


def json_bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    """A field with bytes: as text, or in base64 under another name."""
    if content is None:
        return {name: None}
    text, encoded = _text_or_base64(content)
    return {name: text} if isinstance(text, str) else {f"{name}_base64": str(encoded)}


def shown(content: bytes | None, *, most: int = 100) -> str:
    """Bytes for people: as text, escaped if they are none, cut after `most` characters; "null" for a null."""
    if content is None:
        return "null"
    text = content.decode(errors="backslashreplace")
    text = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _text_or_base64(content: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, b64encode(content).decode()


# -- in --------------------------------------------------------------------------------------------


def entries(form: Format, chunks: Iterable[bytes], *, name: str, key_separator: bytes = b"") -> Iterator[list[Entry]]:
    """Records of an input in chunks; each list has the records that a chunk completed.

    Args:
        name: of the input, for errors.
        key_separator: of lines: what stands before its first occurrence is the key.

    Raises: InvalidInput.
    """
    if form == "raw":
        yield [Entry(b"".join(chunks))]
        return
    if form == "msgpack":
        yield from _unpacked(chunks, name)
        return
    number = 0
    for lines in _lines(chunks):
        if form == "json":
            yield [_parse(line, f"{name} line {number + at}") for at, line in enumerate(lines, 1) if line.strip()]
        else:
            yield [_split(line, key_separator, f"{name} line {number + at}") for at, line in enumerate(lines, 1)]
        number += len(lines)


def _unpacked(chunks: Iterable[bytes], name: str) -> Iterator[list[Entry]]:
    """Records of concatenated maps. Raises InvalidInput with the record's number and the byte where it begins."""
    import msgpack

    unpacker = msgpack.Unpacker(max_buffer_size=MSGPACK_MOST_BYTES, max_map_len=HEADERS_MAX, max_array_len=HEADERS_MAX)
    number, fed, begin = 1, 0, 0

    def bad(reason: str) -> InvalidInput:
        return InvalidInput(f"{name}: record {number}, which begins at byte {begin}, {reason}")

    for chunk in chunks:
        found: list[Entry] = []
        fed += len(chunk)
        try:
            unpacker.feed(chunk)
            while True:
                found.append(_entry(unpacker.unpack()))
                number, begin = number + 1, unpacker.tell()
        except msgpack.OutOfData:
            yield found
        except msgpack.BufferFull:
            pass  # what is held is too much, as below
        except (ValueError, TypeError) as error:
            reason = str(error) or "these bytes mean nothing in msgpack"
            raise bad(f"is not a msgpack record: {reason} (at byte {unpacker.tell()})") from error
        if fed - begin > MSGPACK_MOST_BYTES:
            raise bad(f"takes more than {MSGPACK_MOST_BYTES >> 20} MB: no broker takes such a record")
    if begin != fed:
        raise bad(f"is cut short: the input ends at byte {fed}")


class MsgpackRecord(Struct, forbid_unknown_fields=True):
    """One map."""

    value: Any
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp: int | None = None
    key: Any = None
    headers: dict[str, Any] = {}
    header_list: list[tuple[str, Any]] | None = None


def _entry(content: Any) -> Entry:
    """The record of a map. Raises TypeError, msgspec.ValidationError."""
    found = msgspec.convert(content, MsgpackRecord)
    headers = {name: _content(name, value) for name, value in found.headers.items()}
    if found.header_list is not None:
        headers = of_pairs(
            [(name, None if value is None else _content(name, value)) for name, value in found.header_list]
        )
    key = None if found.key is None else _content("key", found.key)
    value = None if found.value is None else _content("value", found.value)
    return Entry(value, key, headers or None, found.timestamp)


def _content(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(f"{name} is neither bytes nor text but {type(value).__name__}")
    return value


def _lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Whole lines; the last one counts without a newline, too."""
    rest: list[bytes] = []
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*rest, head]).split(b"\n")
            rest = []
        rest.append(tail)
    last = b"".join(rest)
    if last:
        yield [last]


def _split(line: bytes, separator: bytes, place: str) -> Entry:
    if not separator:
        return Entry(line)
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidInput(f"{place} holds no key separator {shown(separator)}")
    return Entry(value, key)


_DECODER = msgspec.json.Decoder(JsonRecord)


def _parse(line: bytes, place: str) -> Entry:
    try:
        found = _DECODER.decode(line)
        value = _bytes("value", found.value, found.value_base64)
        if found.value is UNSET and found.value_base64 is UNSET:
            raise ValueError('it has neither "value" nor "value_base64"')
        headers = {name: text.encode() for name, text in (found.headers or {}).items()}
        headers |= {
            name: _decoded(f"headers_base64.{name}", text) for name, text in (found.headers_base64 or {}).items()
        }
        if isinstance(found.header_list, list):
            headers = of_pairs([(name, _listed(name, value)) for name, value in found.header_list])
        timestamp = None if found.timestamp is UNSET else found.timestamp
        return Entry(value, _bytes("key", found.key, found.key_base64), headers or None, timestamp)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{place} is not a JSON record: {error}") from error


def _bytes(name: str, text: str | UnsetType | None, encoded: str | UnsetType) -> bytes | None:
    if isinstance(encoded, str):
        if isinstance(text, str):
            raise ValueError(f'its "{name}" is given twice, as text and as base64')
        return _decoded(f"{name}_base64", encoded)
    return text.encode() if isinstance(text, str) else None


def _listed(name: str, value: str | JsonBytes | None) -> bytes | None:
    if isinstance(value, JsonBytes):
        return _decoded(f"header_list.{name}", value.base64)
    return None if value is None else value.encode()


def _decoded(name: str, encoded: str) -> bytes:
    try:
        return b64decode(encoded, validate=True)
    except ValueError as error:
        raise ValueError(f'its "{name}" is not base64') from error
