"""One table of credentials over all doors: what is right, missing, wrong, expired, foreign or revoked is the same
everywhere, and what one user has begun is of no use to another who knows its id."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import penstock
import pytest
from penstock import Key
from penstock.broker import access_file
from penstock.broker.peers.gate import shared
from penstock.broker.peers.greeting import PeerIdentity
from penstock.broker.peers.links import PeerLinks
from penstock.transport import messages as m
from penstock.transport.zmq_sockets import Context
from support.ports import port_pairs
from support.raw_client import RawClient

from .conftest import LIBRARIES, NEEDS
from .ways_in import (
    ALL,
    DOORS,
    FORBIDDEN,
    LONG_AGO,
    NEVER,
    REFUSED,
    SERVED,
    WAIT_S,
    Bearer,
    Door,
    Http,
    Passwords,
    Place,
    RespPeer,
    SystemsUsers,
    as_user,
    request,
    until,
)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    for name in LIBRARIES:
        pytest.importorskip(name, reason=NEEDS)
    with tempfile.TemporaryDirectory() as folder, closing(Place(Path(folder))) as made:
        os.chmod(folder, 0o711)  # other users of the system reach the sockets, and no file
        yield made


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, place: Place) -> Door:
    return DOORS[request.param](place, [*DOORS].index(request.param) + 1)


# -- the table --------------------------------------------------------------------------------------------------


def test_the_right_one_lets_its_user_in_and_no_further_than_its_grants(door: Door):
    _, given = door.right(ALL)
    assert door.once(given.secret) == SERVED
    _, given = door.right()
    assert door.once(given.secret) == FORBIDDEN


def missing(door: Door) -> Any:
    return None


def wrong(door: Door) -> Any:
    return door.made_up(door.right(ALL)[1])


def foreign(door: Door) -> Any:
    user = door.place.user(door.place.elsewhere, ALL)
    return door.give(door.place.elsewhere, user, NEVER).secret


def expired(door: Door) -> Any:
    if not door.expires:
        pytest.skip("what is shown there has no end")
    given = door.give(door.place.access, door.place.user("", ALL), LONG_AGO)
    door.right(ALL)  # so that the file was read since
    return given.secret


def of_another_kind(door: Door) -> Any:
    """A password in place of a token, and so on: the secret is known to the file, and shown as something else."""
    user = door.place.user("", ALL)
    if isinstance(door, Passwords):
        return user, access_file.add_token(door.place.access, user)[0]
    access_file.add_password(door.place.access, user, "secret")
    if isinstance(door, Bearer):
        return "secret"
    pytest.skip("it shows nothing that could be a password")


@pytest.mark.parametrize("shown", [missing, wrong, foreign, expired, of_another_kind], ids=lambda each: each.__name__)
def test_no_other_one_lets_anybody_in(door: Door, shown: Callable[[Door], Any]):
    assert door.once(shown(door)) == door.stranger


def test_one_that_is_revoked_ends_what_is_open_and_lets_nobody_in(door: Door):
    user, given = door.right(ALL)
    _, other = door.right(ALL)
    with door.connect(given.secret) as ask, door.connect(other.secret) as ask_other:
        assert (ask(), ask_other()) == (SERVED, SERVED)
        door.revoke(user, given)
        until(lambda: ask() != SERVED)
        assert ask_other() == SERVED
        assert door.once(given.secret) == door.stranger


# -- what another has begun ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["unix", "ipc", "tcp"], indirect=True)
def test_a_session_is_of_no_use_to_others(door: Door):
    owner, thief = door.right(ALL)[1].secret, door.right(ALL)[1].secret

    def join(request: int) -> m.Join:
        return m.Join(request, door.place.topic, "", "", "control", m.EARLIEST, [], 30_000, 1 << 20, 1000)

    with raw(door, owner) as first, raw(door, thief) as second:
        session = first.ask(join)[0].session
        second.ask(lambda request: m.Leave(request, session))
        assert second.ask(lambda request: m.Ping(request, session))[0].code == "unknown_session"
        assert not isinstance(first.ask(lambda request: m.Ping(request, session))[0], m.Failure)


@contextmanager
def raw(door: Door, shown: Any) -> Iterator[RawClient]:
    with ExitStack() as stack:
        if isinstance(door, SystemsUsers):
            with as_user(shown):
                client = stack.enter_context(RawClient(door.place.urls[door.scheme]))
                client.ask(m.Ping)
        else:
            client = stack.enter_context(RawClient(door.place.urls["tcp"], shown))
        yield client


def produce(place: Place, value: bytes) -> None:
    with penstock.connect(place.urls["unix"]) as client, client.producer("t") as producer:
        producer.send(value)


@pytest.mark.parametrize("door", ["resp"], indirect=True)
def test_entries_that_a_consumer_of_redis_has_are_of_no_use_to_others(door: Door):
    owner, guest = door.right(ALL)[1].secret, door.right()[1].secret
    produce(door.place, b"x")
    with ExitStack() as stack:
        peers = [stack.enter_context(closing(RespPeer(door.place, door.source, each))) for each in (owner, guest, None)]
        peers[0].ask("XGROUP CREATE t redis 0")
        peers[0].ask("XREADGROUP GROUP redis mine COUNT 1 STREAMS t >")
        entry = peers[0].next_like(r"\d+-\d+")
        peers[0].next_like("x")
        for command in (f"XACK t redis {entry}", f"XCLAIM t redis theirs 0 {entry}", "XPENDING t redis"):
            assert [each.outcome(command) for each in peers[1:]] == [FORBIDDEN, REFUSED]
        assert peers[0].ask(f"XACK t redis {entry}") == ":1\r\n"


@pytest.mark.parametrize("door", ["http basic", "http bearer"], indirect=True)
def test_a_lease_is_of_no_use_to_others(door: Http):
    owner, guest = (door.header(each.secret) for _, each in (door.right(ALL), door.right()))
    produce(door.place, b"x")
    with closing(door.peer()) as peer:
        asked = {"queue": "t", "group": "g", "worker": "w"}
        task = json.loads(request(peer, owner, "POST", "/tasks/lease", asked)[1])["tasks"][0]
        settled = {"group": "g", "lease": task["lease"]}
        for verb in ("ack", "nack", "extend", "release"):
            path = f"/tasks/{task['id']}/{verb}"
            assert [request(peer, each, "POST", path, settled)[0] for each in (guest, {})] == [403, 401]
        assert request(peer, owner, "POST", f"/tasks/{task['id']}/ack", settled)[0] in (200, 204)


@pytest.mark.parametrize("door", ["console"], indirect=True)
def test_a_form_of_the_console_is_of_no_use_to_others(door: Http):
    owner, thief = (door.header(each.secret) for _, each in (door.right(ALL), door.right(ALL)))
    with closing(door.peer()) as peer:
        page = request(peer, owner, "GET", "/console/queues/t/g")[1].decode()
        token = re.findall(r'name="csrf" value="([0-9a-f]+)"', page)[0]
        form = urlencode({"csrf": token})
        path = "/console/queues/t/g/pause"
        assert [request(peer, each, "POST", path, form)[0] for each in (thief, {}, owner)] == [403, 401, 200]
        assert request(peer, owner, "POST", "/console/queues/t/g/resume", form)[0] == 200


# -- between nodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["the cluster's", "one of its own", "one for another cluster", "none"])
def test_only_who_has_the_key_of_the_cluster_is_a_node(shown: str):
    key = Key.generate()
    keys = {
        "the cluster's": Key(key.secret, broker=key.public), "one of its own": Key.generate(broker=key.public),
        "one for another cluster": Key(key.secret, broker=Key.generate().public), "none": None,
    }  # fmt: skip
    peers = {node: f"tcp://127.0.0.1:{port}" for node, port in enumerate(port_pairs(3), 1)}
    own, guarded = shared(key, lambda line: None)
    identity = PeerIdentity(
        cluster="c", node=1, uuid=bytes(16), incarnation=1, peers=peers, advertise=("tcp://x:1",)
    )  # fmt: skip
    with Context(key=own, guarded=guarded) as here, Context(key=keys[shown]) as there:
        links = PeerLinks(identity, here, peers[1], say=lambda line: None)
        peer = there.client(peers[1])
        deadline = time.monotonic() + WAIT_S
        while not (peer.connected or peer.refusal) and time.monotonic() < deadline:
            links.flush(time.monotonic())
            links.take()
            with suppress(InterruptedError):
                peer.poll(0.01)
        links.close()
    assert (peer.connected, bool(peer.refusal)) == (shown == "the cluster's", shown != "the cluster's")
