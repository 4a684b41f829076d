"""The console over a broker in memory, and a browser without scripts that asks it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from penstock.broker.quotas import Meters
from penstock.broker.rights import EVERYTHING, Grant, Principal
from penstock.clients.aio.driver import AsyncDriver
from penstock.clients.opening import open_connection
from penstock.gateway.holding import HeldBytes
from penstock.gateway.link import BrokerLink

from ..conftest import NEEDS

httpx = pytest.importorskip("httpx", reason=NEEDS)
pytest.importorskip("jinja2", reason=NEEDS)
pytest.importorskip("starlette", reason=NEEDS)

BODY_BYTES = 1 << 20
HOST = "localhost:8080"
FORM = {"content-type": "application/x-www-form-urlencoded"}
SAME_ORIGIN = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}


class OneUser:
    """A users file of which every token is ann's."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.meters: Meters[Any] = Meters()

    def verify_token(self, secret: str, source: str = "") -> Principal | None:
        return self.principal

    def admit(self, peer: Any, principal: Principal, request: int | None = None) -> None:
        return None

    def took(self, peer: Any, size: int) -> None:
        return None

    def current(self, principal: Principal) -> Principal:
        return self.principal

    def forbid(self, principal: Principal, operation: str, about: str) -> str:
        return f"user {principal.name} has no permission to {operation} {about}"


class Door:
    """What handlers see of the HTTP door."""

    users: OneUser | None = None
    origins: tuple[str, ...] = ()
    may_create = True
    ending: Any = None
    page = b"<h1>operations</h1>"

    def __init__(self, link: BrokerLink) -> None:
        self.link = link


class Site:
    """A broker, the console in front of it, and a clock of the sampler that tests set."""

    def __init__(self, url: str) -> None:
        from penstock.gateway.console.console import Console
        from penstock.gateway.console.forms import Forms
        from penstock.gateway.http.app import application
        from penstock.gateway.http.table import TABLE

        self._runner = asyncio.Runner()
        self.now_s = 100.0
        self.link = self.run(_link(url))
        self.door = Door(self.link)
        self.console = Console(self.link)
        self.console.maker.sampler._clock = lambda: self.now_s
        self.forms: Forms = self.console.maker.forms
        self.pages = self.console.pages()
        app = application(self.door, (*TABLE, *self.pages), BODY_BYTES, HeldBytes())  # type: ignore[arg-type]
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=f"http://{HOST}")

    def run(self, waiting: Any) -> Any:
        return self._runner.run(waiting)

    @property
    def broker(self) -> Any:
        """The verbs of an asyncio client; `run` them."""
        return self.link.client

    def be(self, *grants: str) -> None:
        """Ask as ann, with grants like "read topic:a"; without any, as ann who may nothing."""
        found = [Grant(False, frozenset({grant.split()[0]}), grant.split()[1]) for grant in grants]
        self.door.users = OneUser(Principal("ann", found))

    def be_all(self) -> None:
        self.door.users = OneUser(Principal("ann", EVERYTHING))

    def get(self, path: str, **headers: str) -> httpx.Response:
        given = {"authorization": "Bearer x"} if self.door.users is not None else {}
        return self.run(self._client.get(path, headers={**given, **headers}))

    def page(self, path: str) -> str:
        """The page there, which must be."""
        found = self.get(path)
        assert found.status_code == 200, found.text
        return found.text

    def post(
        self, path: str, fields: Any = None, *, headers: dict[str, str] = SAME_ORIGIN, **more: str
    ) -> httpx.Response:
        """Send a form as a page of the console does; `fields` may leave out or change the token."""
        user = self.door.users.principal if self.door.users is not None else Principal("default")
        token = self.forms.token(user)
        given = {"authorization": "Bearer x"} if self.door.users is not None else {}
        sent = {"csrf": token, **more} if fields is None else fields
        return self.run(self._client.post(path, content=urlencode(sent), headers={**FORM, **given, **headers}))

    def later(self, seconds: float = 2.0) -> None:
        self.now_s += seconds

    def close(self) -> None:
        self.run(self._client.aclose())
        self.run(self.link.close())
        self._runner.close()


async def _link(url: str) -> BrokerLink:
    return BrokerLink(AsyncDriver(open_connection(url, timeout=10, name="console", clock=time.monotonic)))


@pytest.fixture
def site(penstock_broker) -> Iterator[Site]:
    found = Site(penstock_broker.url)
    try:
        yield found
    finally:
        found.close()


def words(page: str) -> str:
    """What a page says, without its markup."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())
