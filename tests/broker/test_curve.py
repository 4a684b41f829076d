"""Users over tcp:// and ipc://: keys that are right, wrong, expired, withdrawn and missing, against a real broker."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock import Key
from penstock.broker import ServeConfig, access_file
from penstock.broker.quotas import Quota
from penstock.broker.rights import Grant
from penstock.errors import Forbidden, InsecureListen, InvalidKey, Unauthenticated
from penstock.transport import messages as m
from penstock.transport.zmq_connecting import ClientSocket
from penstock.transport.zmq_sockets import Context
from support.processes import Serving
from support.raw_client import RawClient

ALL = Grant(False, frozenset(["see", "read", "write", "manage"]), "*")
TIMEOUT_S = 20.0


@dataclass
class Place:
    """A broker with users, and what clients need."""

    running: Serving
    access: str
    broker: Key
    tcp: str
    ipc: str

    def key(self, user: str, expires: int = 0) -> Key:
        """A new key of a user who may do everything."""
        made = Key.generate(broker=self.broker.public)
        self.add(made, user, expires)
        return made

    def add(self, key: Key, user: str, expires: int = 0) -> str:
        """Let a key be a user. Returns its id."""
        added = access_file.add_key(self.access, user, key.public, expires)
        access_file.add_grant(self.access, user, ALL)
        return added.id

    def connect(self, key: Any, url: str = "") -> penstock.Client:
        return penstock.connect(url or self.tcp, key=key, timeout=TIMEOUT_S)


def config_of(tmp_path: Path, **changes: Any) -> ServeConfig:
    given: dict[str, Any] = {"listen": ("tcp://127.0.0.1:0", f"ipc://{tmp_path}/i"), "board_rows": 32}
    return ServeConfig(data=str(tmp_path / "data"), **{**given, **changes})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    tmp_path = tmp_path_factory.mktemp("curve")
    access, broker = str(tmp_path / "access"), Key.generate()
    access_file.add_key(access, "first", Key.generate().public)
    broker.write(tmp_path / "broker.key")
    running = Serving(config_of(tmp_path, access=access, broker_key=str(tmp_path / "broker.key")))
    tcp, ipc = running.ready["listen"]
    yield Place(running, access, broker, tcp, ipc)
    running.close()


def until(is_so: Callable[[], Any]) -> Any:
    """Ask again and again."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := is_so()):
        assert time.monotonic() < deadline
    return found


def connected(place: Place, key: Any) -> penstock.Client:
    """A client, once the broker has read its file anew."""

    def attempt() -> penstock.Client | None:
        try:
            return place.connect(key)
        except Unauthenticated:
            return None

    return until(attempt)


def connected_briefly(place: Place) -> penstock.Client:
    """A client whose key is good for four seconds; for longer where the machine is too busy to connect in four."""
    for seconds in (4, 32):
        expires = int(time.time()) + seconds
        key = place.key(f"brief-{seconds}", expires)
        while time.time() < expires:
            try:
                return place.connect(key)
            except Unauthenticated:
                continue
    raise AssertionError("no connection before its key had expired")


def said(place: Place, text: str) -> bool:
    return re.search(text, place.running.errors()) is not None


# -- who gets in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["push", "control"])
def test_a_key_of_the_file_is_its_user_and_records_come_over_its_own_endpoint(
    place: Place, delivery: Any, tmp_path: Path
):
    key = place.key("ann")
    key.write(tmp_path / "ann.key")
    with connected(place, key), place.connect(str(tmp_path / "ann.key")) as client:
        client.create_topic(f"t-{delivery}")
        with client.producer(f"t-{delivery}") as producer:
            producer.send(b"x" * 100_000)
        with client.consumer(f"t-{delivery}", start="earliest", delivery=delivery) as consumer:
            (record,) = consumer.fetch(wait=TIMEOUT_S)
    assert bytes(record.value) == b"x" * 100_000


def test_the_variable_names_the_key_file(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place_key = place.key("ann")
    place_key.write(tmp_path / "key")
    connected(place, place_key).close()
    monkeypatch.setenv("PENSTOCK_KEY", str(tmp_path / "key"))
    with place.connect(None) as client:
        client.ping()


def test_over_ipc_the_system_says_who_a_client_is(place: Place):
    with place.connect(None, place.ipc) as client:
        client.create_topic("over-ipc")
        with client.producer("over-ipc") as producer:
            producer.send(b"x")
        with client.consumer("over-ipc", start="earliest", delivery="push") as consumer:
            assert len(consumer.fetch(wait=TIMEOUT_S)) == 1
    assert os.stat(place.ipc.removeprefix("ipc://")).st_mode & 0o777 == 0o666


def test_each_way_not_to_get_in_ends_at_once_in_one_error_that_says_what_to_do(place: Place):
    other = Key.generate()
    expired = place.key("late", expires=1)
    for key, words in (
        (Key.generate(broker=place.broker.public), "does not accept this key.*penstock key add"),
        (expired, "has expired"),
        (Key(place.key("ann").secret, broker=other.public), "compare its line `broker`"),
        (None, "wants a key.*PENSTOCK_KEY"),
    ):
        begun_s = time.monotonic()
        with pytest.raises(Unauthenticated, match=words) as caught:
            penstock.connect(place.tcp, key=key, timeout=60.0)
        assert time.monotonic() - begun_s < 30.0, "long before the timeout"
        assert place.tcp in caught.value.message
    with pytest.raises(InvalidKey, match="names no broker"):
        place.connect(Key.generate())
    until(lambda: said(place, r"refused connections: \d+, the last: key:[0-9a-f]{64} at 127.0.0.1: "))
    assert other.secret not in place.running.errors()


def test_each_way_not_to_get_in_is_the_same_with_several_addresses(place: Place):
    """The first handshake that fails does not tell whether a node is leaving or refuses us, so its node is not left."""
    several = f"{place.tcp},{place.tcp.replace('127.0.0.1', 'localhost')}"
    for key, words in (
        (Key.generate(broker=place.broker.public), "does not accept this key"),
        (Key(place.key("ann").secret, broker=Key.generate().public), "compare its line `broker`"),
        (None, "wants a key.*PENSTOCK_KEY"),
    ):
        begun_s = time.monotonic()
        with pytest.raises(Unauthenticated, match=words):
            penstock.connect(several, key=key, timeout=60.0)
        assert time.monotonic() - begun_s < 30.0, "long before the timeout"


def test_the_log_says_that_a_key_has_expired(place: Place):
    expired = place.key("late", expires=1)
    with pytest.raises(Unauthenticated):
        place.connect(expired)
    until(lambda: said(place, f"key:{expired.public} at 127.0.0.1: (the key of user late has expired|no user)"))


def test_a_key_for_a_broker_without_users_is_one_clear_error(tmp_path: Path):
    running = Serving(config_of(tmp_path, listen=("tcp://127.0.0.1:0",)))
    try:
        with pytest.raises(Unauthenticated, match=r"takes no keys.*--broker-key"):
            penstock.connect(running.url, key=Key.generate(broker=Key.generate().public), timeout=60.0)
        penstock.connect(running.url, timeout=TIMEOUT_S).close()
    finally:
        running.close()


# -- keys that change -----------------------------------------------------------------------------------------


def test_keys_rotate_with_an_overlap_and_a_withdrawn_one_loses_its_sessions(place: Place):
    old, new = Key.generate(broker=place.broker.public), Key.generate(broker=place.broker.public)
    old_id = place.add(old, "rot")
    with connected(place, old) as client:
        client.create_topic("rotated")
        consumer = client.consumer("rotated", start="earliest", delivery="push")
        with client.producer("rotated") as producer:
            producer.send(b"1")
        assert [bytes(each.value) for each in consumer.fetch(wait=TIMEOUT_S)] == [b"1"]
        place.add(new, "rot")
        with connected(place, new) as newer:
            access_file.delete_key(place.access, old_id)
            with pytest.raises(Forbidden):
                list(iter(lambda: consumer.fetch(wait=TIMEOUT_S), None))
            with pytest.raises(Forbidden, match="no user of the broker's file, or not any more"):
                client.create_topic("more")
            with newer.producer("rotated") as producer:
                producer.send(b"2")
            with newer.consumer("rotated", start="earliest") as consumer:
                assert len(consumer.fetch(max_records=2, wait=TIMEOUT_S)) > 0
    with pytest.raises(Unauthenticated):
        place.connect(old)


def test_a_key_that_expires_takes_its_connection_along(place: Place):
    with connected_briefly(place) as client, pytest.raises(Forbidden):
        list(iter(client.stats, None))


# -- what is of others ----------------------------------------------------------------------------------------


def join(client: RawClient, topic: bytes, delivery: str) -> m.Joined:
    answer, _ = client.ask(
        lambda request: m.Join(request, topic, "", "", delivery, m.EARLIEST, [], 30_000, 1 << 20, 1000)
    )
    assert isinstance(answer, m.Joined), answer
    return answer


def test_a_stolen_session_is_of_no_use_and_its_deliveries_go_to_its_own_key_alone(place: Place):
    ann, eve = place.key("ann"), place.key("eve")
    also_ann = place.key("ann")
    connected(place, also_ann).close()
    with RawClient(place.tcp, ann) as owner:
        topic = owner.create_topic("stolen")
        joined = join(owner, topic, "push")
        for thief in (eve, also_ann):
            with RawClient(place.tcp, thief) as other:
                other.ask(lambda request: m.Leave(request, joined.session))
                answer, _ = other.ask(lambda request: m.Ping(request, joined.session))
                assert answer.code == "unknown_session"
            with Context(key=thief) as context:
                # A PULL says nothing; a DEALER would hear of the refusal in the same handshake.
                assert refusal(context.client(joined.endpoint)) != ""
        answer, _ = owner.ask(lambda request: m.Ping(request, joined.session))
        assert not isinstance(answer, m.Failure), "it is still its owner's"
    until(lambda: said(place, "wants the deliveries of a session of another"))


def refusal(socket: ClientSocket) -> str:
    """Why a connection was refused, once it was."""
    deadline = time.monotonic() + TIMEOUT_S
    while not socket.refusal and time.monotonic() < deadline and not socket.connected:
        socket.poll(1.0)
    return socket.refusal


# -- what does not start --------------------------------------------------------------------------------------


def test_a_broker_with_users_needs_a_key_of_its_own_for_tcp(tmp_path: Path):
    with pytest.raises(InsecureListen, match="penstock key generate FILE"):
        ServeConfig(data="/x", listen=("tcp://127.0.0.1:1",), access="/a", insecure=True).addresses()
    guarded = ServeConfig(data="/x", listen=("tcp://0.0.0.0:1",), access="/a", broker_key="/k")
    assert guarded.addresses() == ("tcp://0.0.0.0:1",), "no --insecure is needed"
    ServeConfig(data="/x", listen=("ipc:///x/i",), access="/a").addresses()


def test_a_broker_does_not_start_with_a_key_file_that_others_can_read(tmp_path: Path):
    path = tmp_path / "key"
    Key.generate().write(path)
    os.chmod(path, 0o640)
    access_file.add_key(str(tmp_path / "access"), "ann", Key.generate().public)
    config = config_of(tmp_path, access=str(tmp_path / "access"), broker_key=str(path))
    made = Serving(config, wait=False)
    try:
        assert made.process.wait(TIMEOUT_S) == 1
        assert "chmod 600" in made.errors()
    finally:
        made.close()


# -- quotas ---------------------------------------------------------------------------------------------------


def test_connections_that_have_ended_are_no_part_of_a_quota(place: Place) -> None:
    key = place.key("counted")
    access_file.set_quota(place.access, "counted", Quota(connections=2))
    connected(place, key).close()
    for _ in range(6):
        with place.connect(key) as one, place.connect(key) as other:
            one.ping()
            other.ping()
