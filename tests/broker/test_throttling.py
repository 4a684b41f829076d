"""A principal at its quota: its connections sit out, what cannot is refused, and others feel nothing of it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import ServeConfig, access_file
from penstock.broker.errors import NotLent, Overloaded
from penstock.broker.quotas import BURST_S, SIT_OUT_S, Quota
from penstock.broker.rights import EVERYTHING, Principal
from penstock.broker.throttling import ENDING, Throttle
from penstock.transport import codec
from penstock.transport import messages as m
from support.processes import Serving
from support.raw_client import RawClient

BOB = 12345
"""A user of the system that nothing runs as."""

PRODUCE = m.Produce(7, b"t" * 16, 0)


def principal(name: str, **bounds: int) -> Principal:
    return Principal(name, EVERYTHING, quota=Quota(**bounds))


def test_a_debt_is_sat_out_and_then_the_connection_is_released_once():
    throttle, ann = Throttle[str](), principal("ann", bytes_s=100)
    throttle.admit("a", ann, PRODUCE, 100, 10.0)
    assert not throttle.sits_out("a", 10.0)
    throttle.admit("a", ann, PRODUCE, 25, 10.0)
    assert throttle.sits_out("a", 10.0)
    assert (throttle.holds("a"), throttle.next_s(), throttle.pauses) == (True, 10.25, 1)
    assert throttle.released(10.2) == []
    assert throttle.released(10.25) == ["a"]
    assert (throttle.released(10.25), throttle.holds("a"), throttle.next_s()) == ([], False, None)


def test_connections_of_one_user_share_its_quota_and_those_of_others_do_not():
    throttle, ann, bob = Throttle[str](), principal("ann", requests_s=1), principal("bob", requests_s=1)
    for peer, who in (("a", ann), ("b", ann), ("x", bob)):
        throttle.admit(peer, who, PRODUCE, 0, 0.0)
    assert [throttle.sits_out(peer, 0.0) for peer in ("a", "b", "x", "stranger")] == [True, True, False, False]


def test_a_long_debt_is_refused_and_a_connection_sits_out_for_a_bounded_time():
    throttle, ann = Throttle[str](), principal("ann", bytes_s=100)
    throttle.admit("a", ann, PRODUCE, 500, 0.0)
    assert throttle.sits_out("a", 0.0)
    assert throttle.next_s() == SIT_OUT_S
    with pytest.raises(Overloaded) as raised:
        throttle.admit("a", ann, PRODUCE, 500, 1.0)
    assert raised.value.retry_after == 3.0
    assert throttle.refused == 1
    throttle.admit("a", ann, PRODUCE, 500, 3.0)


def test_what_ends_something_is_never_refused_and_what_has_no_answer_neither():
    throttle, ann = Throttle[str](), principal("ann", bytes_s=1, in_flight=1)
    throttle.admit("a", ann, PRODUCE, 100, 0.0)
    for kind in (m.Ping(1), m.Hello(1, 1, 1, ""), m.Credit(1, 1, 1)):
        assert type(kind) in ENDING or not hasattr(kind, "request")
        throttle.admit("a", ann, kind, 0, 0.0)
    with pytest.raises(Overloaded):
        throttle.admit("a", ann, m.Stats(9), 0, 0.0)


def test_requests_in_flight_and_connections_are_bounded():
    throttle, ann = Throttle[str](), principal("ann", in_flight=1, connections=1)
    throttle.admit("a", ann, PRODUCE, 0, 0.0)
    with pytest.raises(Overloaded, match="in flight"):
        throttle.admit("a", ann, m.Stats(9), 0, 0.0)
    with pytest.raises(Overloaded, match="1 connection,"):
        throttle.admit("b", ann, m.Hello(1, 1, 1, ""), 0, 0.0)
    throttle.lost("a")
    throttle.admit("b", ann, m.Stats(9), 0, 0.0)


def test_logs_are_not_lent_to_a_user_whose_bytes_are_counted():
    throttle: Any = Throttle[str]()
    lend = m.Lend(1, b"t" * 16, 0, 5, 0, 0)
    with pytest.raises(NotLent, match="user ann has a quota"):
        throttle.admit("a", principal("ann", bytes_s=1), lend, 0, 0.0)


def test_a_quota_that_changed_is_used_at_once_and_what_is_owed_stays():
    throttle = Throttle[str]()
    throttle.admit("a", principal("ann", requests_s=1), PRODUCE, 0, 0.0)
    throttle.admit("a", principal("ann", requests_s=1000), PRODUCE, 0, 0.0)
    assert not throttle.sits_out("a", 0.1)
    throttle.admit("a", principal("ann", requests_s=1), PRODUCE, 0, 0.1)
    assert throttle.sits_out("a", 0.1)
    throttle.lost("a")
    assert not throttle.holds("a")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can reach, which that of a test's own is not."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o711)
        yield Path(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to connect as two users of the system")
def test_a_flooding_user_is_slowed_down_and_another_one_is_answered_meanwhile(place: Path):
    path, url = str(place / "users"), f"unix://{place}/s"
    access_file.set_uid(path, "bob", BOB)
    access_file.set_quota(path, "bob", Quota(requests_s=100))
    with Serving(ServeConfig(data=str(place / "data"), listen=(url,), board_rows=32, access=path)) as _:
        os.seteuid(BOB)
        try:
            flooding = RawClient(url)
        finally:
            os.seteuid(0)
        calm = RawClient(url)
        flooding.ask(lambda request: m.Hello(request, 1, 1, "flood"))
        begun_s = time.monotonic()
        for number in range(1000, 2000):
            flooding.socket.send(codec.frames(m.Ping(number)))
        for _ in range(200):
            assert isinstance(calm.ask(m.Ping)[0], m.Done)
        answered = 0
        while flooding.socket.receive() is not None:
            answered += 1
        assert answered <= 100 * (BURST_S + time.monotonic() - begun_s) + 1
        assert calm.ask(m.Stats)[0].values["quota.pauses"] > 0
