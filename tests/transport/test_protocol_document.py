"""PROTOCOL.md and the code say the same: every message, every field in order, every type, every error code."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import penstock.broker.errors
import penstock.storage.errors
import penstock.transport.errors
import pytest
from penstock.broker.engine import NodeConfig
from penstock.broker.engine.producing import judging
from penstock.broker.engine.queues.requests import dead_letter_list
from penstock.broker.engine.streams import ends, fetching_many, reading
from penstock.broker.engine.tables.producers import RECENT
from penstock.broker.engine.tables.queues import settings as queue_settings
from penstock.broker.engine.turns import parked, portions
from penstock.clients.producing.pieces import HEADERS_BYTES_MAX
from penstock.storage.errors import Error
from penstock.transport import (
    barrier_messages,
    codec,
    fetch_messages,
    framing,
    message,
    messages,
    queue_messages,
    range_messages,
    socket_options,
    transaction_messages,
    unix_server,
    zmq_serving,
)
from penstock.transport.producer_session import WINDOW_BATCHES_MAX
from support.samples import REQUESTS

TEXT = Path(messages.__file__).with_name("PROTOCOL.md").read_text()
HEADING = re.compile(r"^#### (?:(\d+) )?(\w+)$", re.MULTILINE)
FIELD = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", re.MULTILINE)
CODE = re.compile(r"^\| `(\w+)` \| (yes|no) \| (.+) \|$", re.MULTILINE)

WORDS = {
    repr(messages.Count): "count",
    repr(messages.Int64): "int",
    repr(messages.Unsigned): "unsigned",
    repr(messages.TopicId): "id",
    repr(messages.Setting): "setting",
    repr(typing.Any): "any",
    repr(str): "text",
    repr(bytes): "bytes",
    repr(bool): "yes/no",
    repr(float): "float",
    repr(bytes | None): "bytes or nothing",
    repr(str | None): "text or nothing",
    repr(messages.Tie | None): "Tie or nothing",
    repr(barrier_messages.BarrierId): "id",
}
STRUCTS = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
STRUCTS = [kind for kind in STRUCTS if kind not in (msgspec.Struct, messages.Message)]


def sections() -> dict[str, tuple[int | None, str]]:
    """Tag and text by the name of each message or part."""
    found = list(HEADING.finditer(TEXT))
    ends = [each.start() for each in found[1:]] + [TEXT.index("\n## 9 ")]
    return {
        each[2]: (int(each[1]) if each[1] else None, TEXT[each.end() : end])
        for each, end in zip(found, ends, strict=True)
    }


def word(annotation: Any) -> str:
    """A type as the document writes it."""
    if repr(annotation) in WORDS:
        return WORDS[repr(annotation)]
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return word(typing.get_args(annotation)[0])
    parts = [word(part) for part in typing.get_args(annotation)]
    if origin is list:
        return f"[{parts[0]}]"
    if origin is tuple:
        return f"({', '.join(parts)})"
    if origin is dict:
        return f"{{{parts[0]}: {parts[1]}}}"
    return annotation.__name__


def default(field: Any) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return "nothing"
    if isinstance(value, (list, dict)):
        return "none"
    if isinstance(value, (str, bytes)):
        return f'"{value if isinstance(value, str) else value.decode()}"'
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def described(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Name and type of each field, as the document should have them."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = msgspec.structs.fields(kind)
    return [(each.name, word(hints[each.name]) + ("" if each.required else f" = {default(each)}")) for each in fields]


def test_every_message_and_part_has_a_section_and_nothing_else_has():
    assert set(sections()) == {kind.__name__ for kind in STRUCTS}


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_a_section_has_the_tag_and_the_fields_in_order_with_their_types(kind):
    tag, text = sections()[kind.__name__]
    assert tag == kind.__struct_config__.tag
    assert [(name, type_) for name, type_, _ in FIELD.findall(text)] == described(kind)


@pytest.mark.parametrize("kind", [type(message) for message, _ in REQUESTS], ids=lambda kind: kind.__name__)
def test_every_request_says_what_answers_it(kind):
    text = sections()[kind.__name__][1]
    assert "Answer: " in text or "No answer" in text


def test_the_table_of_codes_is_the_error_tree():
    """A client written from the document understands an error by its row."""
    modules = {penstock.storage.errors, penstock.transport.errors, penstock.broker.errors}
    names = {module.__name__ for module in modules}
    kinds = {kind for kind in Error.by_code.values() if kind.__module__ in names}
    table = TEXT[TEXT.index("\n## 9 ") : TEXT.index("\n## 10 ")]
    rows = {code: retry for code, retry, _ in CODE.findall(table)}
    assert rows == {kind.code: "yes" if kind.retry else "no" for kind in kinds}


def test_every_code_that_is_named_exists():
    named = set()
    for _, text in sections().values():
        for line in re.findall(r"^Errors: .*(?:\n.+)*", text, re.MULTILINE):
            named |= set(re.findall(r"`([a-z_]+)`", line))
    assert named
    assert named <= set(Error.by_code)


def test_the_limits_are_those_of_the_code():
    mib = 1 << 20
    table = TEXT[TEXT.index("\n## 10 ") : TEXT.index("\n## 11 ")]
    assert f"| frame 1 of a request | {codec.REQUEST_BYTES_MAX // mib} MiB |" in table
    assert f"| frame 1 of an answer | {codec.ANSWER_BYTES_MAX // mib} MiB |" in table
    assert f"`max_frame_bytes` of Welcome, {NodeConfig().max_frame_bytes // mib} MiB by default" in table
    assert f"| one frame on the wire | {socket_options.MESSAGE_BYTES_MAX // mib} MiB by default" in table
    assert f"{NodeConfig().max_record_bytes // mib} MiB by default" in table
    unread, behind = unix_server.UNREAD_BYTES_MAX // mib, unix_server.BEHIND_BYTES // mib
    assert (
        f"| unread by one peer of `unix://` | {unread} MiB and one message; deliveries pause at {behind} MiB, " in table
    )
    ahead = zmq_serving.BEHIND_BYTES // mib
    assert f"| unread by one peer of ZeroMQ | {unread} MiB and one message: what is answered then" in table
    assert f"is `overloaded`; from {ahead} MiB on deliveries pause and its requests are set aside |" in table
    assert f"| messages that wait for one peer of ZeroMQ | {socket_options.SERVER['SNDHWM']}; where neither" in table
    assert f"| connections of a broker | {socket_options.SOCKETS_MAX}, and half of the files" in table
    assert f"no message within {unix_server.SILENCE_S:g} s, and one whose peer leaves over {unread} MiB unread" in TEXT
    assert (
        f"| entries of a list of a request | {message.LIST_MAX:,}; settles {queue_messages.SETTLES_MAX}, known ends "
        f"of a topic {range_messages.ENDS_MAX:,}, columns {messages.COLUMNS_MAX}, "
        f"places of a FetchMany {fetch_messages.PLACES_MAX:,}, "
        f"stages {transaction_messages.STAGES_MAX:,} |"
    ) in table
    most = f"{reading.BYTES_MAX // mib} MiB, but for one batch that is longer"
    assert f"| bytes of one Fetched or FetchedMany | {most} |" in table
    assert (
        f"of each | {parked.EACH_MAX} for one connection, {parked.ALL_MAX:,} in all; AskEnds about "
        f"{ends.TOPICS_MAX:,} topics, FetchMany {fetching_many.PLACES_MAX:,} partitions together for one connection |"
    ) in table
    assert f"of the broker, begun or not | {portions.JOBS_MAX} |" in table
    assert (
        f"At most {dead_letter_list.LIST_MAX} and about {dead_letter_list.LIST_BYTES // mib} MiB of records "
        "are in one answer" in TEXT
    )
    assert (
        f"| headers of a batch; headers of a record, kept by clients | {judging.HEADERS_BYTES_MAX // mib} MiB; "
        f"{HEADERS_BYTES_MAX // mib} MiB, "
    ) in table
    assert f"| entries of a map of settings, or of the headers of a schedule | {message.SETTINGS_MAX};" in table
    assert f"| batches of one producer in flight, per partition | {WINDOW_BATCHES_MAX} |" in table


def test_the_settings_of_queues_are_those_of_the_code():
    table = TEXT[TEXT.index("\n### 8.7 ") : TEXT.index("\n#### Settle\n")]
    found = re.findall(r"^\| ([a-z_]+) \| (.+?) \| (.+?) \| .+ \|$", table, re.MULTILINE)[1:]
    words = {None: "nil", False: "no", "": "empty"}
    defaults = {name: words.get(given, given) for name, given in queue_settings.QueueSettings().named().items()}
    assert {name: type(defaults[name])(given) for name, given, _ in found} == defaults
    ranges = {name: tuple(map(float, allowed.split(" to "))) for name, _, allowed in found if " to " in allowed}
    assert ranges == queue_settings.RANGES


def test_the_example_of_a_framed_message_is_what_a_client_sends():
    (ping,) = framing.framed(codec.frames(messages.Ping(7)))
    shown = f"{ping[:4].hex()} {ping[4:8].hex()} {ping[8:].hex()}"
    assert f"A client that sends `{shown}` has sent Ping(7)." in TEXT


def test_what_producers_may_have_in_flight_is_what_brokers_remember():
    assert WINDOW_BATCHES_MAX <= RECENT


def test_the_document_names_the_version_spoken():
    assert TEXT.startswith(f"# The penstock protocol, version {codec.VERSION}\n")
