"""Messages come out of a stream as they went in, wherever it is torn, and nothing else comes out of one."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Sequence

import pytest
from penstock.transport.errors import ProtocolError
from penstock.transport.framing import JOIN_BYTES_MAX, PREFIX_BYTES, Inflow, framed

SPARE_BYTES = 64
"""Small, so that most messages do not fit in one read."""

MESSAGES: list[list[bytes]] = [
    [b"x"],
    [b"header", b"payload"],
    [b"\x00" * 8],
    [b"h" * 63, b"p" * 200],
    [b"h" * 300],
    [b"", b"only a second"],
    [b"h", b"p" * 56],
]


def stream(messages: Iterable[Sequence[bytes]]) -> bytes:
    return b"".join(bytes(buffer) for message in messages for buffer in framed(message))


def feed(inflow: Inflow, data: bytes, spare: memoryview) -> list[list[bytes]]:
    """Bring bytes as a kernel would: no more than there is room for at a time."""
    found: list[list[bytes]] = []
    while data:
        here = 0
        for place in inflow.places(spare):
            part = data[here : here + len(place)]
            place[: len(part)] = part
            here += len(part)
        found += [[bytes(frame) for frame in message] for message in inflow.take(here, spare)]
        data = data[here:]
    return found


def read(pieces: Iterable[bytes], *, max_bytes: int = 1 << 20) -> list[list[bytes]]:
    inflow, spare = Inflow(max_bytes), memoryview(bytearray(SPARE_BYTES))
    return [message for piece in pieces for message in feed(inflow, piece, spare)]


def test_the_bytes_are_those_of_the_protocol():
    assert stream([[b"\x93\x04\x07\x00"]]) == bytes.fromhex("04000000 00000000 93040700")
    assert stream([[b"\x92\x16", b"batch"]]) == bytes.fromhex("02000000 05000000 9216") + b"batch"
    assert stream([[bytes(0x01020304)]])[:PREFIX_BYTES] == bytes.fromhex("04030201 00000000")


def test_messages_come_out_as_they_went_in():
    assert read([stream(MESSAGES)]) == MESSAGES


def test_a_stream_may_be_torn_at_every_byte():
    data = stream(MESSAGES)
    for at in range(len(data) + 1):
        assert read([data[:at], data[at:]]) == MESSAGES
    assert read(data[at : at + 1] for at in range(len(data))) == MESSAGES


def test_a_stream_may_be_torn_anywhere_any_number_of_times():
    rng = random.Random(7)
    for _ in range(500):
        messages = [MESSAGES[rng.randrange(len(MESSAGES))] for _ in range(rng.randrange(1, 9))]
        data = stream(messages)
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
        assert read(data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)) == messages


def test_an_empty_second_frame_is_none():
    assert read([stream([[b"x", b""]])]) == [[b"x"]]


def test_large_frames_are_handed_to_the_kernel_as_they_are():
    payload = bytearray(JOIN_BYTES_MAX)
    buffers = framed([b"header", payload])
    assert buffers[-1] is payload
    assert len(framed([b"header", bytes(100)])) == 1


def test_a_large_frame_is_received_in_memory_of_its_own_that_cannot_change():
    inflow, spare = Inflow(1 << 20), memoryview(bytearray(SPARE_BYTES))
    payload = bytes(range(256)) * 4
    data = stream([[b"header", payload]])
    spare[:] = data[:SPARE_BYTES]
    assert inflow.take(SPARE_BYTES, spare) == []
    rest, behind = inflow.places(spare)
    assert len(rest) == len(data) - SPARE_BYTES  # what is missing goes where it belongs
    rest[:] = data[SPARE_BYTES:]
    behind[:3] = b"\x01\x00\x00"
    ((_, found),) = inflow.take(len(rest) + 3, spare)
    assert isinstance(found, memoryview)
    assert found.readonly
    spare[:] = bytes(SPARE_BYTES)
    assert found == payload
    assert feed(inflow, b"\x00" + bytes(4) + b"y", spare) == [[b"y"]]  # the torn prefix behind it was kept


def test_more_than_two_frames_cannot_be_sent():
    with pytest.raises(ValueError, match="3 frames"):
        framed([b"", b"", b""])


@pytest.mark.parametrize("sizes", [(101, 0), (1, 101), (0xFFFFFFFF, 0xFFFFFFFF)])
def test_a_frame_over_the_limit_is_refused_by_its_prefix_before_memory_is_taken(sizes):
    first, second = sizes
    prefix = first.to_bytes(4, "little") + second.to_bytes(4, "little")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="frames are up to 100"):
            read([prefix], max_bytes=100)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_frames_of_the_limit_are_taken():
    assert read([stream([[bytes(100), bytes(100)]])], max_bytes=100) == [[bytes(100), bytes(100)]]
