"""Whatever bytes come, a parser accepts them or raises its one error: nothing else, and never a hang.

Over 300,000 mutated inputs in the default run; PENSTOCK_FUZZ multiplies them. The seed of a failure is in its message.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from penstock.storage import batch
from penstock.storage.codecs import Codec
from penstock.storage.errors import InvalidBatch, StorageError
from penstock.storage.header import CHECKSUM_STRUCT, DIRECTORY_STRUCT, HEADER_BYTES
from penstock.transport import codec
from penstock.transport.errors import InvalidUrl, ProtocolError
from penstock.transport.framing import Inflow, framed
from penstock.transport.url import parse
from support.mutations import mutations
from support.samples import ANSWERS, BATCH, REQUESTS
from xxhash import xxh3_64_intdigest

TIMES = int(os.environ.get("PENSTOCK_FUZZ", "1"))
SLOW_SECONDS = 1.0
"""No small input may take so much of a processor (its time, not the clock's); ordinary ones take microseconds."""

REQUEST_HEADERS = [codec.encode(message) for message, _ in REQUESTS]
ANSWER_HEADERS = [codec.encode(message) for message, _ in ANSWERS]
BATCHES = [
    BATCH,
    bytes(batch.encode([b"x" * 300] * 70)),
    bytes(batch.encode([b"v"], event_times=[1], producer_id=7, producer_epoch=1, first_sequence=5)),
    bytes(batch.encode([b"x" * 300] * 9, keys=[b"k"] * 9, codec=Codec.LZ4)),
    bytes(batch.encode([b"x" * 300] * 9, keys=[b"k"] * 9, codec=Codec.ZSTD)),
    bytes(batch.encode([b"x"] * 5, priorities=[0, 255, 1, 0, 0], not_before=[0, 0, 9, 0, 1], dedup=[b"k"] * 5)),
    bytes(batch.encode_state(b"effects")),
    bytes(batch.encode_raft()),
    bytes(batch.with_effects(BATCH, b"effects")),
]


def attempt(parser: Callable[[Any], object], given: object, allowed: type[Exception], where: str) -> bool:
    """Whether `given` was accepted. Fails on any error but `allowed`, and on slowness."""
    started = time.thread_time()
    try:
        parser(given)
        accepted = True
    except allowed:
        accepted = False
    except BaseException as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error} from {given!r:.300}") from error
    assert time.thread_time() - started < SLOW_SECONDS, f"{where}: slow on {given!r:.200}"
    return accepted


def run(
    parser: Callable[[Any], object], samples: Sequence[bytes], count: int, seed: int, allowed: type[Exception]
) -> int:
    """How many of `count` mutations were accepted."""
    inputs = mutations(samples, count * TIMES, seed)
    return sum(attempt(parser, given, allowed, f"seed {seed}, input {n}") for n, given in enumerate(inputs))


def request(header: bytes) -> object:
    return codec.decode_request([header, BATCH] if header[1:2] == b"\x16" else [header])


def answer(header: bytes) -> object:
    return codec.decode_answer([header, BATCH] if header[1:2] in (b"\x1f", b"\x25") else [header])


def everything(given: bytes) -> None:
    """Read a batch as a broker and then as a reader would, to the last column."""
    found = batch.parse(given)
    found.check()
    for read in (found.values, found.keys, found.headers, found.event_times, found.lengths, found.effects):
        read()


@pytest.mark.parametrize("seed", range(5))
def test_requests(seed):
    accepted = run(request, REQUEST_HEADERS, 20_000, seed, ProtocolError)
    assert 0 < accepted < 20_000 * TIMES


@pytest.mark.parametrize("seed", range(5))
def test_answers(seed):
    accepted = run(answer, ANSWER_HEADERS, 20_000, 100 + seed, ProtocolError)
    assert 0 < accepted < 20_000 * TIMES


def unframed(given: bytes) -> None:
    """Read a stream in pieces of 48 bytes, as far as it makes sense."""
    inflow, spare, at = Inflow(1 << 12), memoryview(bytearray(48)), 0
    while at < len(given):
        count = 0
        for place in inflow.places(spare):
            piece = given[at : at + len(place)]
            place[: len(piece)] = piece
            at, count = at + len(piece), count + len(piece)
        for message in inflow.take(count, spare):
            assert 1 <= len(message) <= 2


@pytest.mark.parametrize("seed", range(2))
def test_streams(seed):
    frames = [framed([header]) for header in REQUEST_HEADERS] + [framed([REQUEST_HEADERS[0], BATCH])]
    messages = [b"".join(map(bytes, buffers)) for buffers in frames]
    samples = [*messages, b"".join(messages)]
    accepted = run(unframed, samples, 10_000, 500 + seed, ProtocolError)
    assert 0 < accepted < 10_000 * TIMES


@pytest.mark.parametrize("seed", range(4))
def test_batches(seed):
    run(everything, BATCHES, 12_500, 200 + seed, StorageError)


def test_batches_with_headers_that_match_their_checksum():
    """A peer can compute checksums too: damage behind a valid one has to be found by looking."""
    accepted = run(lambda given: everything(signed(bytearray(given))), BATCHES, 30_000, 300, StorageError)
    assert accepted > 0


def test_batches_whose_columns_match_their_checksums_too():
    def resigned(given: bytes) -> None:
        found = bytearray(given)
        for index, column in enumerate(batch.parse(signed(found)).directory()):
            digest = xxh3_64_intdigest(found[column.position : column.position + column.stored_bytes])
            CHECKSUM_STRUCT.pack_into(found, HEADER_BYTES + DIRECTORY_STRUCT.size * index + 16, digest)
        everything(signed(found))

    accepted = run(resigned, BATCHES, 20_000, 301, StorageError)
    assert accepted > 0


def signed(found: bytearray) -> bytes:
    """With a header checksum that matches, as far as there is a header."""
    if len(found) >= HEADER_BYTES:
        header_bytes = int.from_bytes(found[16:20], "little")
        CHECKSUM_STRUCT.pack_into(found, 0, xxh3_64_intdigest(found[8:header_bytes]))
    return bytes(found)


def test_addresses():
    samples = [b"tcp://127.0.0.1:7070", b"tcp://[::1]:0", b"ipc:///run/penstock/a.sock", b"file:///var/x", b"mem://a"]
    run(lambda given: parse(given.decode("latin-1")), samples, 5_000, 400, InvalidUrl)


def test_frames_in_any_number_and_order():
    rng = random.Random(500)
    headers = [*REQUEST_HEADERS, *ANSWER_HEADERS, BATCH, b""]
    for n in range(5_000 * TIMES):
        frames = rng.choices(headers, k=rng.choice((0, 1, 2, 2, 3, 50)))
        for decode in (codec.decode_request, codec.decode_answer):
            attempt(decode, frames, ProtocolError, f"seed 500, input {n}")


def test_values_of_every_kind_in_every_field():
    """Well-formed msgpack with the wrong contents: what a peer with a bug sends."""
    rng = random.Random(600)
    odd = [None, True, -1, 0, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan"), "", "x" * 300, b"", b"\0" * 16, [], [[]]]
    odd += [{}, {"a": {"b": [1]}}, {1: 2}, [[1, 2], [3]], msgspec.msgpack.Ext(1, b"x")]
    for n in range(10_000 * TIMES):
        samples, parser = rng.choice([(REQUEST_HEADERS, request), (ANSWER_HEADERS, answer)])
        fields = list(msgspec.msgpack.decode(rng.choice(samples)))
        fields[rng.randrange(len(fields))] = rng.choice(odd)
        attempt(parser, msgspec.msgpack.encode(fields), ProtocolError, f"seed 600, input {n}")


@pytest.mark.parametrize(
    "sample", BATCHES, ids=["keys", "many", "times", "lz4", "zstd", "queue", "state", "raft", "effects"]
)
def test_a_batch_byte_by_byte(sample):
    everything(sample)
    for length in range(len(sample)):
        assert not attempt(everything, sample[:length], InvalidBatch, f"prefix of {length}")
