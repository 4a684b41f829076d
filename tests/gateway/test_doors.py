"""What comes in by one door goes out by every other, byte for byte, keys and headers included."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from support.npm import succeed

from .conftest import GatewayProcess

BINARY = bytes(range(256)) + b"\r\n$-1\r\n\r\n"
ARROW, LINES, BYTES = "application/vnd.apache.arrow.stream", "application/x-ndjson", "application/octet-stream"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Parts(NamedTuple):
    """A record, without its place."""

    value: bytes | None
    key: bytes | None = None
    headers: dict[str, bytes] = {}

    @property
    def fields(self) -> list[tuple[str, bytes]]:
        """Fields of a stream's entry: what is null is not there."""
        pairs = [("value", self.value), ("key", self.key), *self.headers.items()]
        return [(name, content) for name, content in pairs if content is not None]

    @classmethod
    def of(cls, fields: Iterable[tuple[str, bytes]]) -> Parts:
        """The record that an entry is."""
        found = dict(fields)
        return cls(found.pop("value", None), found.pop("key", None), found)

    @property
    def fits_a_head(self) -> bool:
        """Whether key and headers are what the head of an HTTP request can carry."""
        contents = [name.encode() + content for name, content in self.headers.items()]
        return self.value is not None and all(map(bytes.isalnum, contents)) and (self.key or b"").isascii()


RECORDS = [
    Parts(b""),
    Parts(None, b"deleted"),
    Parts(None, b"", {"h": b""}),
    Parts(None, BINARY, {"h": BINARY}),
    Parts(b"", b""),
    Parts(b"", b"", {"": b""}),
    Parts(b"plain", b"table 7", {"day": b"1"}),
    Parts("Zoë\0\n".encode(), "ключ".encode(), {"ü\n": "é".encode()}),
    Parts(BINARY, BINARY, {"h": BINARY, "empty": b""}),
    Parts(b"\xff", b"\xfe", {"x": b"\xfd"}),
    Parts(b'{"a": 1}', b"null", {"value ": b"v", "Key": b"k"}),
    Parts(b"\n", b"a\nb", {f"h{number}": b"%d" % number for number in range(300)}),
    Parts(b"x" * 300_000, b"k" * 10_000, {"h": b"y" * 10_000}),
]


class Doors(NamedTuple):
    native: Any
    resp: Any
    http: Any
    node: Callable[..., str] | None  # door.mjs


# -- in -------------------------------------------------------------------------------------------------


def by_native(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    with doors.native.producer(topic) as producer:
        for each in records:
            producer.send(each.value, key=each.key, headers=each.headers)


def by_resp(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    for each in records:
        doors.resp.execute_command("XADD", topic, "*", *(word for pair in each.fields for word in pair))


def by_typescript(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    entries = [[(name, coded(content)) for name, content in each.fields] for each in records]
    doors.node("in", topic, given=json.dumps(entries))


def post(doors: Doors, topic: str, content: Any, kind: str, **more: Any) -> None:
    headers = {"content-type": kind, **more.pop("headers", {})}
    answer = doors.http.post(f"/api/v1/queues/{topic}/messages", content=content, headers=headers, **more)
    assert answer.status_code == 201, answer.text


def coded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def as_base64(each: Parts) -> dict[str, Any]:
    headers = {name: coded(content) for name, content in each.headers.items()}
    key = {} if each.key is None else {"key_base64": coded(each.key)}
    value = {"value": None} if each.value is None else {"value_base64": coded(each.value)}
    return {**value, "headers_base64": headers, **key}


def as_text(each: Parts) -> dict[str, Any]:
    """With text where it is UTF-8."""
    found: dict[str, Any] = {}
    for name, content in (("value", each.value), ("key", each.key)):
        if content is not None:
            found |= text_of(name, content)
        elif name == "value":
            found[name] = None
    for name, content in each.headers.items():
        for field, text in text_of("headers", content).items():
            found.setdefault(field, {})[name] = text
    return found


def text_of(name: str, content: bytes) -> dict[str, str]:
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": coded(content)}


def by_json(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    post(doors, topic, json.dumps([as_text(each) for each in records]), "application/json")


def by_base64(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    for each in records:
        post(doors, topic, json.dumps(as_base64(each)), "application/json")


def by_lines(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    post(doors, topic, "\n".join(json.dumps(as_text(each), ensure_ascii=False) for each in records).encode(), LINES)


def by_bytes(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    for each in records:
        headers = {f"Penstock-Header-{name}": content.decode() for name, content in each.headers.items()}
        params = {} if each.key is None else {"key": each.key.decode()}
        post(doors, topic, each.value, BYTES, headers=headers, params=params)


def by_arrow(doors: Doors, topic: str, records: Sequence[Parts]) -> None:
    columns = {
        "value": pa.array([each.value for each in records], pa.binary()),
        "key": pa.array([each.key for each in records], pa.binary()),
        "headers": pa.array([list(each.headers.items()) for each in records], HEADERS),
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (batch := pa.record_batch(columns)).schema) as writer:
        writer.write_batch(batch)
    post(doors, topic, sink.getvalue().to_pybytes(), ARROW)


# -- out ------------------------------------------------------------------------------------------------


def from_native(doors: Doors, topic: str) -> list[Parts]:
    return [Parts(each.value, each.key, dict(each.headers)) for each in doors.native.read(topic, 0, 0)]


def from_resp(doors: Doors, topic: str) -> list[Parts]:
    entries = [fields for _, fields in doors.resp.xrange(topic)]
    return [Parts.of((name.decode(), content) for name, content in fields.items()) for fields in entries]


def from_typescript(doors: Doors, topic: str) -> list[Parts]:
    entries = json.loads(doors.node("out", topic))
    return [Parts.of((name, base64.b64decode(content)) for name, content in fields) for fields in entries]


def get(doors: Doors, topic: str, kind: str) -> Any:
    asked = {"params": {"max_messages": 1000}, "headers": {"accept": kind}}
    return doors.http.get(f"/api/v1/queues/{topic}/messages", **asked).raise_for_status()


def parts_of(message: dict[str, Any]) -> Parts:
    headers = {name: text.encode() for name, text in message.get("headers", {}).items()}
    headers |= {name: base64.b64decode(text) for name, text in message.get("headers_base64", {}).items()}
    return Parts(bytes_of(message, "value"), bytes_of(message, "key"), headers)


def bytes_of(message: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in message:
        return base64.b64decode(message[f"{name}_base64"])
    return None if message.get(name) is None else message[name].encode()


def from_json(doors: Doors, topic: str) -> list[Parts]:
    return list(map(parts_of, get(doors, topic, "application/json").json()["messages"]))


def from_lines(doors: Doors, topic: str) -> list[Parts]:
    return [parts_of(json.loads(line)) for line in get(doors, topic, LINES).content.split(b"\n")[:-1]]


def from_arrow(doors: Doors, topic: str) -> list[Parts]:
    rows = pa.ipc.open_stream(get(doors, topic, ARROW).content).read_all().to_pylist()
    return [
        Parts(row["value"], row["key"], {each["key"]: each["value"] for each in row["headers"] or ()}) for row in rows
    ]


WAYS_IN = [by_native, by_resp, by_typescript, by_json, by_base64, by_lines, by_bytes, by_arrow]
WAYS_OUT = [from_native, from_resp, from_typescript, from_json, from_lines, from_arrow]


def typescript_client(package: Path, gateway: GatewayProcess) -> Callable[..., str]:
    """Run door.mjs over the package and the gateway."""
    place = {"PACKAGE": str(package / "dist/src/index.js"), "PENSTOCK": f"tcp://127.0.0.1:{gateway.port}"}
    return partial(succeed, "node", str(Path(__file__).with_name("door.mjs")), cwd=package, **place)


@pytest.mark.parametrize("way_out", WAYS_OUT)
@pytest.mark.parametrize("way_in", WAYS_IN)
def test_what_comes_in_by_one_door_goes_out_by_every_other(
    gateway, native, connect, key, request, way_in: Callable[..., None], way_out: Callable[..., list[Parts]]
) -> None:
    import httpx

    records = [each for each in RECORDS if way_in is not by_bytes or each.fits_a_head]
    assert len(records) >= 3
    native.create_topic(key)
    with httpx.Client(base_url=gateway.http_url, timeout=60, trust_env=False) as http:
        typescript = {by_typescript, from_typescript} & {way_in, way_out}
        node = typescript_client(request.getfixturevalue("package"), gateway) if typescript else None
        doors = Doors(native, connect(), http, node)
        way_in(doors, key, records)
        assert way_out(doors, key) == records
