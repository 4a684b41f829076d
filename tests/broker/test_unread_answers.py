"""A client that asks for much and reads nothing: what the broker holds for it is bounded, others are served, and it is
served on once it reads. Nothing is held for one that is gone."""

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
from penstock.transport.zmq_serving import BEHIND_BYTES
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


SMALL_ANSWERS = 10_000
"""Of 3 KB at most: more than libzmq and the kernel take."""


def test_a_client_that_can_be_told_nothing_any_more_is_cut_off_and_begins_anew(place: tuple[Serving, Key | None]):
    """An answer that is neither given nor refused would be waited for without end, and so would one's partitions."""
    serving, key = place
    with RawClient(serving.url, key) as good, asking(serving.url, key) as slow:
        topic = good.create_topic("t")
        good.produce(topic, bytes(encode([bytes(2000)])))
        ask(slow, m.Ping(1))
        answer(slow)
        for number in range(2, SMALL_ANSWERS):
            ask(slow, m.Fetch(number, topic, 0, 0, -1, ANSWER_BYTES, 0))
        deadline = time.monotonic() + WAIT_S
        while not good.ask(m.Stats)[0].values["answers.dropped"]:
            assert time.monotonic() < deadline
        with slow.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED) as connected:
            while not connected.poll(0):  # it hears of it once it has read
                assert time.monotonic() < deadline, "it is told nothing, and stays connected"
                slow.poll(1) and slow.recv_multipart()
            slow.disable_monitor()
        last = 0
        while last < SMALL_ANSWERS:  # what it had asked for before may be too much once more
            assert time.monotonic() < deadline
            ask(slow, m.Ping(SMALL_ANSWERS))
            while slow.poll(1000):
                last = max(last, answer(slow).request)


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


SESSIONS = 40
"""With endless credit, on a topic whose records are as large as the largest answers."""


def join(number: int, topic: bytes) -> m.Join:
    return m.Join(number, topic, "", "", "control", m.EARLIEST, [], 300_000, 1 << 60, 1 << 60)


def await_memory(good: RawClient, pid: int, most: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while (held := memory(pid)) > most:
        assert time.monotonic() < deadline, f"{held >> 20} MiB are held, over {most >> 20}"
        good.ask(m.Ping)


def test_sessions_of_one_connection_that_does_not_read_share_its_bound_and_hold_nothing_once_it_is_gone(
    place: tuple[Serving, Key | None],
):
    serving, key = place
    pid = serving.ready["pids"]["broker"]
    with RawClient(serving.url, key) as good:
        topic = good.create_topic("t")
        with asking(serving.url, key) as slow:
            for number in range(1, SESSIONS + 1):
                ask(slow, join(number, topic))
                assert type(answer(slow)) is m.Joined
            before = memory(pid)
            for _ in range(3):
                good.produce(topic, bytes(encode([bytes(ANSWER_BYTES - 1000)])))
            deadline = time.monotonic() + WAIT_S
            while good.ask(m.Stats)[0].values["sessions.blocked"] < SESSIONS - 5:
                assert time.monotonic() < deadline
            assert memory(pid) - before < BEHIND_BYTES + ANSWER_BYTES + SLACK_BYTES
        await_memory(good, pid, before + SLACK_BYTES)


def test_sessions_whose_connection_has_closed_hold_nothing(tmp_path: Path):
    url = f"unix://{tmp_path}/b"
    with Serving(ServeConfig(data=str(tmp_path / "data"), listen=(url,))) as serving, RawClient(url) as good:
        pid = serving.ready["pids"]["broker"]
        topic = good.create_topic("t")
        for _ in range(3):
            good.produce(topic, bytes(encode([bytes(ANSWER_BYTES - 1000)])))
        before = memory(pid)
        for _ in range(SESSIONS):
            with RawClient(url) as slow:
                assert type(slow.ask(lambda number: join(number, topic))[0]) is m.Joined
        await_memory(good, pid, before + SLACK_BYTES)
        assert good.ask(m.Stats)[0].values["sessions.open"] == SESSIONS
