"""The values that requests and replies hold, as JSON has them.

Idea: a record's bytes are text in JSON where they are UTF-8 (`value`), and base64 where they are not (`value_base64`).
Both can be sent; `json` sends a JSON value, whose bytes are stored as they came.

Contract: unknown fields are refused. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...clients.errors import InvalidArgument
from ...storage.header_list import HeaderList, HeaderPair, of_pairs
from ...storage.record import Record

Partition = Annotated[int, Meta(ge=0, le=(1 << 31) - 1, description="Number of a partition, from 0 on.")]
Offset = Annotated[int, Meta(ge=0, le=(1 << 62), description="Place of a message in its partition, from 0 on.")]
Offsets = Annotated[dict[Partition, Offset], Meta(min_length=1, description="Offsets by partition.")]
Time = Annotated[int, Meta(ge=-(1 << 62), le=(1 << 62), description="Microseconds since 1970, UTC.")]


class HeaderEntry(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A header in a list of them: value, which may be null, or value_base64."""

    name: str
    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = UNSET

    def pair(self) -> HeaderPair:
        """Raises InvalidArgument."""
        if isinstance(self.value_base64, bytes) and self.value is UNSET:
            return self.name, self.value_base64
        if self.value is UNSET or self.value_base64 is not UNSET:
            raise InvalidArgument(f"header {self.name!r} has one of value and value_base64")
        return self.name, self.value.encode() if isinstance(self.value, str) else None


class NewMessage(Struct, forbid_unknown_fields=True):
    """A message to be appended: exactly one of value, value_base64 and json, and what else there is.

    A value of null is no value.
    """

    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    key: str | None = None
    key_base64: bytes | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, bytes] | None = None
    header_list: list[HeaderEntry] | None = None
    timestamp: Time | None = None
    partition: Partition | None = None

    def bytes_of_value(self) -> bytes | None:
        """Raises InvalidArgument."""
        text, value, json = self.value, self.value_base64, self.json
        if text is not UNSET and value is UNSET and json is UNSET:
            return text.encode() if isinstance(text, str) else None
        if isinstance(value, bytes) and text is UNSET and json is UNSET:
            return value
        if isinstance(json, msgspec.Raw) and text is UNSET and value is UNSET:
            return bytes(json)
        raise InvalidArgument("a message has exactly one of value, value_base64 and json")

    def bytes_of_key(self) -> bytes | None:
        """Raises InvalidArgument."""
        if self.key is None:
            return self.key_base64
        if self.key_base64 is not None:
            raise InvalidArgument("a message has one of key and key_base64")
        return self.key.encode()

    def bytes_of_headers(self) -> dict[str, bytes] | None:
        """Raises InvalidArgument."""
        if self.header_list is not None:
            if self.headers is not None or self.headers_base64 is not None:
                raise InvalidArgument("a message has one of headers and header_list")
            return of_pairs([entry.pair() for entry in self.header_list]) or None
        if self.headers is None and self.headers_base64 is None:
            return None
        found = {name: text.encode() for name, text in (self.headers or {}).items()}
        for name, content in (self.headers_base64 or {}).items():
            if name in found:
                raise InvalidArgument(f"header {name!r} is in headers and in headers_base64")
            found[name] = content
        return found


class MessageRun(Struct, frozen=True):
    """Where messages are that stand one behind the other."""

    partition: int
    offset: Annotated[int, Meta(description="Of the first one.")]
    count: int


class MessagePlaces(Struct, frozen=True):
    """Where messages were appended: within a partition in the order in which they came."""

    count: int
    runs: list[MessageRun]


class StoredMessage(Struct, frozen=True, omit_defaults=True):
    """A message: text where it is UTF-8, and otherwise base64. A value of null is no value."""

    partition: int
    offset: int
    timestamp: Annotated[int, Meta(description="Event time if the producer gave one, else when it was appended; us.")]
    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = UNSET
    key: str | UnsetType = UNSET
    key_base64: bytes | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    headers_base64: dict[str, bytes] | UnsetType = UNSET
    header_list: Annotated[
        list[HeaderEntry] | UnsetType, Meta(description="All headers in order, where names repeat or values are null.")
    ] = UNSET


class StoredMessages(Struct, frozen=True):
    """Messages, and the offsets behind them: what `commit` takes when they are done."""

    messages: list[StoredMessage]
    next: dict[int, int]


def stored(record: Record) -> StoredMessage:
    """A record as JSON has it."""
    fields: dict[str, Any] = {}
    put(fields, "value", record.value)
    if record.key is not None:
        put(fields, "key", record.key)
    if record.headers:
        _put_headers(fields, record.headers)
    return StoredMessage(record.partition, record.offset, record.timestamp, **fields)


def put(fields: dict[str, Any], name: str, content: bytes | None) -> None:
    """Add bytes to the fields of a reply: as text, or under the name for base64."""
    try:
        fields[name] = None if content is None else content.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = content


def _put_headers(fields: dict[str, Any], headers: Mapping[str, bytes]) -> None:
    for name, content in headers.items():
        try:
            fields.setdefault("headers", {})[name] = content.decode()
        except UnicodeDecodeError:
            fields.setdefault("headers_base64", {})[name] = content
    if isinstance(headers, HeaderList):
        fields["header_list"] = [_entry(name, content) for name, content in headers.pairs]


def _entry(name: str, content: bytes | None) -> HeaderEntry:
    fields: dict[str, Any] = {}
    put(fields, "value", content)
    return HeaderEntry(name, **fields)


# -- topics and consumers ---------------------------------------------------------------------------------


class QueueInfo(Struct, frozen=True):
    """A topic as a queue of messages."""

    name: str
    id: str
    partitions: int
    count_pushed: Annotated[int, Meta(description="Messages ever appended.")]
    records: Annotated[int, Meta(description="Messages that can be read.")]
    size_bytes: int
    is_ready: Annotated[bool, Meta(description="Whether every partition can be read and appended to.")]


class QueueList(Struct, frozen=True):
    queues: list[QueueInfo]


class ConsumerPlace(Struct, frozen=True, omit_defaults=True):
    """A consumer in one partition. `next_offset`: of the message that it reads next."""

    partition: int
    next_offset: int
    lag: int
    note: Annotated[str, Meta(description="What the latest commit left there; of getConsumer alone.")] = ""


class ConsumerInfo(Struct, frozen=True):
    """A consumer of a queue."""

    name: str
    lag: Annotated[int, Meta(description="Messages that it has yet to commit.")]
    members: Annotated[list[str], Meta(description="Processes that share it now over the native protocol.")]
    partitions: list[ConsumerPlace]


class ConsumerList(Struct, frozen=True):
    consumers: list[ConsumerInfo]


class CommitBody(Struct, forbid_unknown_fields=True):
    """Where a consumer goes on: the `next` of the messages that are done, or some of it."""

    next: Offsets
    note: Annotated[str, Meta(max_length=4096, description="Stands beside these offsets until they move again.")] = ""


class SeekBody(Struct, forbid_unknown_fields=True):
    """Where a consumer goes: to an end, or to the first message appended at or after a time."""

    to: Annotated[str, Meta(description='"earliest", "latest" or a time like 2026-11-23T08:00:00Z', max_length=64)]


class ConsumerOffsets(Struct, frozen=True):
    """Where a consumer reads next, by partition."""

    next: dict[int, int]


def start_of(text: str) -> Literal["earliest", "latest"] | datetime:
    """An end, or a time, as clients of penstock take it. Raises InvalidArgument."""
    if text == "earliest" or text == "latest":
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f'{text!r} is not "earliest", "latest" or a time like 2026-11-23T08:00:00Z') from None
    if found.tzinfo is None:
        raise InvalidArgument(f"{text!r} has no zone: end it with Z for UTC")
    return found


Setting = str | int | float | bool | None


class NewTopic(Struct, forbid_unknown_fields=True):
    """A topic to be made."""

    name: Annotated[str, Meta(max_length=200, description="1 to 200 of A-Z a-z 0-9 . _ -, no dot at the start.")]
    partitions: Annotated[int, Meta(ge=1, le=1 << 20)] = 1
    if_missing: Annotated[bool, Meta(description="One that is there, and is the same, is no error.")] = False
    settings: Annotated[dict[str, Setting], Meta(description="As of `penstock topic create`.")] = {}


class TopicChange(Struct, forbid_unknown_fields=True):
    """Changes of a topic."""

    partitions: Annotated[int, Meta(ge=1, le=1 << 20, description="Grow to so many.")] | None = None
    settings: dict[str, Setting] = {}


class TrimBody(Struct, forbid_unknown_fields=True):
    """Which messages go; exactly one rule."""

    partition: Annotated[Partition, Meta(description="Of this one alone.")] | None = None
    records: Annotated[int, Meta(ge=0, le=1 << 62, description="So many stay, per partition.")] | None = None
    before_offset: Offset | None = None
    before: Annotated[str, Meta(description='Those before a time; "latest": all.', max_length=64)] | None = None


class TrimmedBody(Struct, frozen=True):
    """A partition that began at `before` and begins at `first`; how many messages each group lost unfinished."""

    partition: int
    before: int
    first: int
    lost: dict[str, int]


class PartitionInfo(Struct, frozen=True):
    """One partition: offsets from `first` on and below `end` can be read."""

    partition: int
    first: int
    end: int
    size_bytes: int
    state: str


class TopicInfo(Struct, frozen=True):
    """A topic, with its settings."""

    name: str
    id: str
    settings: dict[str, Any]
    partitions: list[PartitionInfo]


class Health(Struct, frozen=True):
    """Whether the gateway runs, and whether it can serve; `reasons` say why it cannot."""

    status: str
    version: str
    live: bool
    ready: bool
    reasons: list[str]
