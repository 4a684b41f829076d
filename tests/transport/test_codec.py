"""Messages survive the wire, and nothing else gets through it."""

from __future__ import annotations

import typing

import msgspec
import pytest
from penstock.transport import codec, messages
from penstock.transport.errors import MessageTooLarge, ProtocolError, TooMuchAsked
from penstock.transport.message import LIST_MAX
from support.samples import ANSWERS, BATCH, REQUESTS, TOPIC

DIRECTIONS = [(codec.decode_request, *sample) for sample in REQUESTS] + [
    (codec.decode_answer, *sample) for sample in ANSWERS
]


def packed(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(("decode", "message", "payload"), DIRECTIONS, ids=lambda x: type(x).__name__)
def test_a_message_comes_out_as_it_went_in(decode, message, payload):
    assert decode(codec.frames(message, payload)) == (message, payload)


def test_the_samples_cover_every_message():
    def kinds(union: object) -> set[type]:
        return set(union.__args__)  # pyright: ignore[reportAttributeAccessIssue]

    assert {type(message) for message, _ in REQUESTS} == kinds(messages.Request)
    assert {type(message) for message, _ in ANSWERS} == kinds(messages.Answer)


def test_no_two_messages_share_a_tag_and_every_message_has_a_direction():
    kinds = messages.Message.__subclasses__()
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)
    assert set(kinds) == {type(message) for message, _ in [*REQUESTS, *ANSWERS]}


@pytest.mark.parametrize(("decode", "message", "payload"), DIRECTIONS, ids=lambda x: type(x).__name__)
def test_a_message_cut_short_anywhere_is_refused(decode, message, payload):
    header = codec.encode(message)
    for length in range(len(header)):
        with pytest.raises(ProtocolError):
            decode([header[:length], payload] if payload else [header[:length]])


@pytest.mark.parametrize(("decode", "message", "payload"), DIRECTIONS, ids=lambda x: type(x).__name__)
def test_anything_after_a_message_is_refused(decode, message, payload):
    with pytest.raises(ProtocolError, match="trailing"):
        decode([codec.encode(message) + b"\x00", payload])


def test_a_newer_peer_may_append_fields():
    header = msgspec.msgpack.encode([60, 18, {"a": [1, 2]}, b"new"])
    assert codec.decode_request([header]) == (messages.Stats(18), b"")


def test_an_older_peer_may_leave_out_fields_with_defaults():
    assert codec.decode_request([packed(4, 18)]) == (messages.Ping(18, session=0), b"")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: messages.ListTopics(7, ["t"] * (LIST_MAX + 1)), "names of a ListTopics has more than 16384 entries"),
        (lambda: messages.CreateTopic(7, "t", 1, {str(n): n for n in range(101)}), "settings of a CreateTopic has"),
        (lambda: messages.SettleTasks(7, TOPIC, "g", [messages.Settle(0, 1, 1, [(0, 1)] * (LIST_MAX + 1))]),
         r"settles\[0\]\[3\] of a SettleTasks has"),
    ],
)  # fmt: skip
def test_a_request_that_asks_for_too_much_is_refused_by_its_number(make, message):
    with pytest.raises(TooMuchAsked, match=message) as caught:
        codec.decode_request([codec.encode(make())])
    assert caught.value.request == 7
    for request in (200, 70_000, 2**40):
        with pytest.raises(TooMuchAsked) as caught:
            codec.decode_request([codec.encode(msgspec.structs.replace(make(), request=request))])
        assert caught.value.request == request
    release = codec.encode(messages.Release(7, [0] * (LIST_MAX + 1)))
    with pytest.raises(ProtocolError) as refused:
        codec.decode_request([release])
    assert not isinstance(refused.value, TooMuchAsked), "it has no number to answer to"


def test_no_list_or_map_of_a_request_is_without_a_limit():
    def unlimited(kind: type, place: str) -> list[str]:
        found = []
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            limits = [each for each in getattr(hint, "__metadata__", ()) if each.max_length is not None]
            bare = hint.__origin__ if hasattr(hint, "__metadata__") else hint
            if typing.get_origin(bare) in (list, dict) and not limits:
                found.append(f"{place}.{name}")
            for part in typing.get_args(bare):
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    found += unlimited(part, f"{place}.{name}")
        return found

    assert [each for kind in typing.get_args(messages.Request) for each in unlimited(kind, kind.__name__)] == []


HOSTILE = {
    "no frames": [],
    "three frames": [packed(60, 1), b"", b""],
    "a thousand frames": [packed(60, 1)] * 1000,
    "an empty frame": [b""],
    "an empty array": [packed()],
    "not msgpack": [b"GET / HTTP/1.1\r\n\r\n"],
    "a map instead of an array": [msgspec.msgpack.encode({"tag": 60})],
    "an unknown tag": [packed(999, 1)],
    "a negative tag": [packed(-1, 1)],
    "a text tag": [packed("60", 1)],
    "an answer sent to a broker": [packed(1, 1)],
    "too few fields": [packed(22, 1, TOPIC), BATCH],
    "a text where a number belongs": [packed(60, "1")],
    "a boolean where a number belongs": [packed(60, True)],
    "a float where a number belongs": [packed(60, 1.0)],
    "a negative request": [packed(60, -1)],
    "a number over 63 bits": [packed(60, 2**63)],
    "a short topic id": [packed(12, 1, TOPIC[:15])],
    "a long topic id": [packed(12, 1, TOPIC + b"x")],
    "text that is not UTF-8": [b"\x93\x0d\x01\x91\xa2\xff\xfe"],
    "a nested setting": [packed(10, 1, "t", 1, {"commit": ["durable"]})],
    "a setting of bytes": [packed(10, 1, "t", 1, {"commit": b"durable"})],
    "an extension type": [packed(10, 1, "t", 1, {"commit": msgspec.msgpack.Ext(5, b"x")})],
    "a list announced with two thousand million entries": [b"\x93\x0d\x01\xdd\x7f\xff\xff\xff"],
    "a text announced with two thousand million bytes": [b"\x92\xdb\x7f\xff\xff\xff"],
    "a batch without a message": [b"", BATCH],
    "a produce without its batch": [packed(22, 1, TOPIC, 0)],
    "a produce with an empty batch": [packed(22, 1, TOPIC, 0), b""],
    "a batch where none belongs": [packed(60, 1), BATCH],
    "junk nested a million deep": [b"\x93\x3c\x01" + b"\x91" * 1_000_000],
    "a first frame over the limit": [packed(13, 1, ["x" * 1000] * 1100)],
}


@pytest.mark.parametrize("received", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_broker_refuses(received):
    with pytest.raises(ProtocolError):
        codec.decode_request(received)


def test_a_client_refuses_nesting_and_requests():
    for received in ([b"\x93\x3d\x01\x81\xa1\x61" + b"\x91" * 100_000], [packed(60, 1)]):
        with pytest.raises(ProtocolError):
            codec.decode_answer(received)


def test_what_a_refused_frame_was_is_in_the_error():
    with pytest.raises(ProtocolError, match=r"3 frames; there are one or two"):
        codec.decode_request([b"", b"", b""])
    with pytest.raises(ProtocolError, match=r"Stats carries no batches, but a second frame of 3 bytes"):
        codec.decode_request([packed(60, 1), b"xyz"])
    with pytest.raises(ProtocolError, match=r"over 1048576"):
        codec.decode_request([bytes(codec.REQUEST_BYTES_MAX + 1)])


def test_an_empty_fetch_needs_no_second_frame():
    message = messages.Fetched(1, 5, 0, 5)
    assert len(codec.frames(message)) == 1
    assert codec.decode_answer([codec.encode(message)]) == (message, b"")
    assert codec.decode_answer([codec.encode(message), b""]) == (message, b"")


def test_a_request_that_a_broker_would_refuse_for_its_size_is_not_sent():
    with pytest.raises(MessageTooLarge, match=r"ListTopics takes .* over 1048576"):
        codec.encode(messages.ListTopics(1, ["x" * 1000] * 1100))


def test_a_large_answer_passes():
    message = messages.StatsReply(1, {str(i): i for i in range(200_000)})
    assert codec.decode_answer([codec.encode(message)]) == (message, b"")


def test_views_decode_like_bytes():
    message = messages.Produce(1, TOPIC, 0)
    decoded, payload = codec.decode_request([memoryview(codec.encode(message)), memoryview(BATCH)])
    assert decoded == message
    assert bytes(payload) == BATCH


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (messages.CreateTopic(1, 7, 1, {}), "name: Expected `str`, got `int`"),
        (messages.CreateTopic(1, "t", -1, {}), "partitions: Expected `int` >= 0"),
        (messages.ListTopics(1, ["t", None]), "names[1]: Expected `str`"),
        (messages.CreateTopic(1, "t", 1 << 70, {}), ""),
    ],
)
def test_a_request_that_no_broker_would_take_is_known_before_it_is_sent(message, says):
    with pytest.raises(ProtocolError) as caught:
        codec.check_request(message)
    assert says in caught.value.message


def test_a_request_that_can_be_taken_passes_the_check():
    codec.check_request(messages.CreateTopic(1, "t", 1, {"codec": "lz4"}))
