"""The doors of a broker with users, each as a way to show something and to ask one question."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import penstock
import pytest
from penstock import Key
from penstock.broker import ServeConfig, access_file
from penstock.broker.rights import OPERATIONS, Grant
from penstock.errors import Forbidden, Unauthenticated
from penstock.exporter import ExporterConfig
from penstock.gateway.config import GatewayConfig
from penstock.transport import messages as m
from support.processes import Serving
from support.raw_client import RawClient

SERVED, REFUSED, FORBIDDEN = "served", "not let in", "let in, and may do nothing"
ANY = "tcp://127.0.0.1:0"
ALL = Grant(False, frozenset(OPERATIONS), "*")
WAIT_S = 40.0
NEVER, LONG_AGO = 0, 1

Ask = Callable[[], str]
"""One question over a connection that is open, and what became of it."""


class Given(NamedTuple):
    """What a user shows, and how the file calls it."""

    secret: Any
    id: Any = ""


class Place:
    """A broker with users and all doors, and a file of users that it does not have."""

    def __init__(self, folder: Path) -> None:
        self.access, self.elsewhere = str(folder / "access"), str(folder / "elsewhere")
        self.broker = Key.generate()
        self.broker.write(folder / "broker.key")
        access_file.add_password(self.access, "first", "x")
        beside: dict[str, Any] = {"url": "", "users": self.access, "grants": True}
        config = ServeConfig(
            data=str(folder / "data"), listen=(f"unix://{folder}/s", f"ipc://{folder}/i", ANY), board_rows=64,
            access=self.access, broker_key=str(folder / "broker.key"),
            gateway=GatewayConfig(resp=(ANY,), http=(ANY,), **beside).to_json(),
            exporter=ExporterConfig(metrics=(ANY,), **beside).to_json(),
        )  # fmt: skip
        self.running = Serving(config)
        ready = self.running.ready
        self.urls = {each.partition(":")[0]: each for each in ready["listen"]}
        self.ports = {door: int(ready[door][0].rpartition(":")[2]) for door in ("resp", "http", "metrics")}
        self._users = 0
        with RawClient(self.urls["unix"]) as client:
            self.topic = client.create_topic("t")
            client.ask(lambda request: m.SetQueue(request, self.topic, "g", {}))

    def user(self, path: str = "", *grants: Grant) -> str:
        """A user that no other test has."""
        self._users += 1
        name = f"user{self._users}"
        for grant in grants:
            access_file.add_grant(path or self.access, name, grant)
        return name

    def close(self) -> None:
        self.running.close()


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline


# -- the doors --------------------------------------------------------------------------------------------------


class Door(ABC):
    """A way in. `expires`: what is shown there may have an end; `stranger`: what becomes of one who shows nothing."""

    expires: ClassVar[bool] = True
    stranger: ClassVar[str] = REFUSED

    def __init__(self, place: Place, number: int) -> None:
        self.place = place
        self.source = f"127.0.1.{number}"  # wrong passwords count by address

    @abstractmethod
    def give(self, path: str, user: str, expires: int) -> Given:
        """Let a user of a file in with something new."""

    @abstractmethod
    def revoke(self, user: str, given: Given) -> None: ...

    @abstractmethod
    def made_up(self, given: Given) -> Any:
        """What looks like the right thing and is none."""

    @abstractmethod
    def connect(self, shown: Any) -> Any:
        """A context with an Ask. `shown`: None for nothing."""

    def right(self, *grants: Grant) -> tuple[str, Given]:
        """A user of the broker's file who gets in; the broker has read the file by then."""
        user = self.place.user("", *grants)
        given = self.give(self.place.access, user, NEVER)
        until(lambda: self.once(given.secret) != self.stranger)
        return user, given

    def once(self, shown: Any) -> str:
        with self.connect(shown) as ask:
            return ask()


@contextmanager
def as_user(number: int) -> Iterator[None]:
    """The kernel tells the other side which effective user connected."""
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


class SystemsUsers(Door):
    """unix:// and ipc://, where the kernel says who a peer is."""

    expires, stranger = False, FORBIDDEN
    scheme: ClassVar[str]
    _numbers: ClassVar[Iterator[int]] = iter(range(30_000, 40_000))

    def __init__(self, place: Place, number: int) -> None:
        super().__init__(place, number)
        if os.geteuid() != 0:
            pytest.skip("only root can connect as another user of the system")

    def give(self, path: str, user: str, expires: int) -> Given:
        number = next(self._numbers)
        access_file.set_uid(path, user, number)
        return Given(number, number)

    def right(self, *grants: Grant) -> tuple[str, Given]:
        if grants:
            return super().right(*grants)
        user = self.place.user()
        return user, self.give(self.place.access, user, NEVER)  # to those without a line it is as to strangers

    def revoke(self, user: str, given: Given) -> None:
        access_file.delete_uid(self.place.access, given.id)

    def made_up(self, given: Given) -> int:
        return next(self._numbers)

    @contextmanager
    def connect(self, shown: int | None) -> Iterator[Ask]:
        with as_user(next(self._numbers) if shown is None else shown):
            client = penstock.connect(self.place.urls[self.scheme], timeout=WAIT_S)
        with client:
            yield lambda: native(client)


class Unix(SystemsUsers):
    scheme = "unix"


class Ipc(SystemsUsers):
    scheme = "ipc"


def native(client: penstock.Client) -> str:
    try:
        client.stats()
    except Forbidden:
        return FORBIDDEN
    return SERVED


class Keys(Door):
    """tcp://, where programs have keys."""

    def give(self, path: str, user: str, expires: int) -> Given:
        key = Key.generate(broker=self.place.broker.public)
        return Given(key, access_file.add_key(path, user, key.public, expires).id)

    def revoke(self, user: str, given: Given) -> None:
        access_file.delete_key(self.place.access, given.id)

    def made_up(self, given: Given) -> Key:
        return Key.generate(broker=self.place.broker.public)

    @contextmanager
    def connect(self, shown: Key | None) -> Iterator[Ask]:
        try:
            client = penstock.connect(self.place.urls["tcp"], key=shown, timeout=WAIT_S)
        except Unauthenticated:
            yield lambda: REFUSED
            return
        with client:
            yield lambda: native(client)


class Passwords(Door):
    """A door whose users have passwords."""

    expires = False

    def give(self, path: str, user: str, expires: int) -> Given:
        password = os.urandom(8).hex()
        access_file.add_password(path, user, password)
        return Given((user, password))

    def revoke(self, user: str, given: Given) -> None:
        access_file.add_password(self.place.access, user, "another")

    def made_up(self, given: Given) -> tuple[str, str]:
        return given.secret[0], "made-up"


class Resp(Passwords):
    @contextmanager
    def connect(self, shown: tuple[str, str] | None) -> Iterator[Ask]:
        with closing(RespPeer(self.place, self.source, shown)) as peer:
            yield lambda: peer.outcome("XLEN t")


class RespPeer:
    """A connection of Redis' protocol."""

    def __init__(self, place: Place, source: str, shown: tuple[str, str] | None) -> None:
        address = ("127.0.0.1", place.ports["resp"])
        self._socket = socket.create_connection(address, timeout=WAIT_S, source_address=(source, 0))
        self._lines = self._socket.makefile("rb")
        if shown is not None:
            assert self.ask(f"AUTH {shown[0]} {shown[1]}").startswith(("+OK", "-WRONGPASS"))

    def ask(self, command: str) -> str:
        self._socket.sendall(command.encode() + b"\r\n")
        return self._lines.readline().decode()

    def outcome(self, command: str) -> str:
        answer = self.ask(command)
        return {"-NOAUTH": REFUSED, "-NOPERM": FORBIDDEN}.get(answer.split()[0], SERVED)

    def next_like(self, pattern: str) -> str:
        """The next line of the answer that is so."""
        return next(line.strip().decode() for line in self._lines if re.fullmatch(pattern, line.strip().decode()))

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Http(Door):
    """A door of HTTP, where each request says who it is from."""

    path: ClassVar[str] = "/stats"
    port: ClassVar[str] = "http"

    @contextmanager
    def connect(self, shown: Any) -> Iterator[Ask]:
        with closing(self.peer()) as peer:
            yield lambda: outcome(request(peer, self.header(shown), "GET", self.path)[0])

    def peer(self) -> HTTPConnection:
        return HTTPConnection(
            "127.0.0.1", self.place.ports[self.port], timeout=WAIT_S, source_address=(self.source, 0)
        )  # fmt: skip

    @abstractmethod
    def header(self, shown: Any) -> dict[str, str]: ...


def request(peer: HTTPConnection, headers: dict[str, str], method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """The status and body of an answer. A body that is text is a form."""
    kind = "application/x-www-form-urlencoded" if isinstance(body, str) else "application/json"
    sent = body if isinstance(body, str) else None if body is None else json.dumps(body)
    peer.request(method, path, sent, headers | ({} if body is None else {"content-type": kind}))
    answer = peer.getresponse()
    return answer.status, answer.read()


def outcome(status: int) -> str:
    return {200: SERVED, 401: REFUSED, 403: FORBIDDEN}[status]


class Basic(Passwords, Http):
    def header(self, shown: tuple[str, str] | None) -> dict[str, str]:
        return {} if shown is None else {"authorization": "Basic " + b64encode(":".join(shown).encode()).decode()}


class Bearer(Http):
    def give(self, path: str, user: str, expires: int) -> Given:
        secret, token = access_file.add_token(path, user, expires)
        return Given(secret, token.id)

    def revoke(self, user: str, given: Given) -> None:
        access_file.delete_token(self.place.access, given.id)

    def made_up(self, given: Given) -> str:
        return given.secret[:-1] + ("a" if given.secret[-1] != "a" else "b")

    def header(self, shown: str | None) -> dict[str, str]:
        return {} if shown is None else {"authorization": f"Bearer {shown}"}


class Console(Basic):
    path = "/console/topics/t"


class MetricsBasic(Basic):
    path, port = "/metrics", "metrics"


class MetricsBearer(Bearer):
    path, port = "/metrics", "metrics"


DOORS: dict[str, type[Door]] = {
    "unix": Unix, "ipc": Ipc, "tcp": Keys, "resp": Resp, "http basic": Basic, "http bearer": Bearer,
    "console": Console, "metrics basic": MetricsBasic, "metrics bearer": MetricsBearer,
}  # fmt: skip
