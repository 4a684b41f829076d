"""A client of ZeroMQ that asks for much and reads nothing: what the broker holds for it is bounded, others are served,
and once it reads it is served on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from penstock import Key
from penstock.broker import ServeConfig, access_file
from penstock.broker.rights import OPERATIONS, Grant
from penstock.storage.encoding import encode
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.unread import UNREAD_BYTES_MAX
from support.processes import Serving
from support.raw_client import RawClient

ANSWER_BYTES = 4 << 20
ASKED = 60
"""240 MiB of answers."""

SLACK_BYTES = 40 << 20
"""Beside the bound: the answer being made, pages of the log that were read, pools of libraries."""

WAIT_S = 60.0


@contextmanager
def asking(url: str, key: Key | None) -> Iterator[zmq.Socket[bytes]]:
    """A socket of which libzmq reads one message ahead."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        options: dict[int, Any] = {zmq.LINGER: 0, zmq.RCVHWM: 1, zmq.SNDHWM: 0}
        if key is not None:
            keys = {zmq.CURVE_SERVERKEY: key.broker, zmq.CURVE_PUBLICKEY: key.public, zmq.CURVE_SECRETKEY: key._secret}
            options |= {option: bytes.fromhex(text) for option, text in keys.items()}
        for option, value in options.items():
            raw.setsockopt(option, value)
        raw.connect(url)
        yield raw


def ask(raw: zmq.Socket[bytes], request: m.Request) -> None:
    raw.send_multipart(list(codec.frames(request, b"")))


def answer(raw: zmq.Socket[bytes]) -> Any:
    assert raw.poll(WAIT_S * 1000), "an answer is missing"
    return codec.decode_answer(raw.recv_multipart())[0]


def memory(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


@pytest.fixture(params=["ipc", "tcp", "curve"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Serving, Key | None]]:
    settings: dict[str, Any] = {}
    key = None
    if request.param == "curve":
        broker = Key.generate()
        key = Key.generate(broker=broker.public)
        broker.write(tmp_path / "key")
        access_file.add_key(str(tmp_path / "access"), "ann", key.public)
        access_file.add_grant(str(tmp_path / "access"), "ann", Grant(False, frozenset(OPERATIONS), "*"))
        settings = {"access": str(tmp_path / "access"), "broker_key": str(tmp_path / "key")}
    address = f"ipc://{tmp_path}/b" if request.param == "ipc" else "tcp://127.0.0.1:0"
    with Serving(ServeConfig(data=str(tmp_path / "data"), listen=(address,), **settings)) as serving:
        yield serving, key


def test_what_waits_for_a_client_that_does_not_read_is_bounded(place: tuple[Serving, Key | None]):
    serving, key = place
    pid = serving.ready["pids"]["broker"]
    with RawClient(serving.url, key) as good, asking(serving.url, key) as slow:
        topic = good.create_topic("t")
        ask(slow, m.Ping(1))
        answer(slow)
        for number in range(ASKED):  # all of them wait for the record
            ask(slow, m.Fetch(2 + number, topic, 0, 0, -1, ANSWER_BYTES, 50_000))
        deadline = time.monotonic() + WAIT_S
        while good.ask(m.Stats)[0].values["fetch.waiting"] < ASKED:
            assert time.monotonic() < deadline
        before = memory(pid)
        good.produce(topic, bytes(encode([bytes(ANSWER_BYTES - 1000)])))
        for _ in range(20):
            good.ask(m.Ping)
        assert memory(pid) - before < UNREAD_BYTES_MAX + 2 * ANSWER_BYTES + SLACK_BYTES
        answers = [answer(slow) for _ in range(ASKED)]
        kinds = [type(each) for each in answers]
        taken = kinds.count(m.Fetched)
        assert UNREAD_BYTES_MAX // ANSWER_BYTES <= taken < ASKED - 5
        assert {each.code for each in answers if type(each) is m.Failure} == {"overloaded"}
        ask(slow, m.Fetch(1000, topic, 0, 0, -1, ANSWER_BYTES, 0))
        assert type(answer(slow)) is m.Fetched


def test_requests_that_come_one_after_the_other_wait_for_a_client_that_is_behind(place: tuple[Serving, Key | None]):
    """Each is answered in the end, as long as there are not more than are set aside."""
    serving, key = place
    with RawClient(serving.url, key) as good, asking(serving.url, key) as slow:
        topic = good.create_topic("t")
        good.produce(topic, bytes(encode([bytes(ANSWER_BYTES - 1000)])))
        for number in range(ASKED):
            ask(slow, m.Fetch(1 + number, topic, 0, 0, -1, ANSWER_BYTES, 0))
            good.ask(m.Ping)
        assert [answer(slow).request for _ in range(ASKED)] == list(range(1, ASKED + 1))
