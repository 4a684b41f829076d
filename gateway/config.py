"""The settings of a gateway process.

Idea: one frozen struct, made by the command line or handed down, as JSON, by the supervisor of a broker.
Contract: `addresses` refuses what the gateway must not open: an address that other machines can reach needs users, or
`insecure`, as the broker's do, and one of TLS needs a certificate. A door of the gateway has a field of its name, with
its addresses. Pure.
"""

from __future__ import annotations

from itertools import chain

import msgspec
from msgspec import Struct

from ..broker.exposure import need_closed
from ..transport.apart import need_apart
from ..transport.url import DOOR_SCHEMES, Url, parse
from .errors import InvalidCertificate

DOORS = ("resp", "http")


class GatewayConfig(Struct, frozen=True, kw_only=True):
    """Settings of one gateway. Times in seconds."""

    url: str  # of the broker
    resp: tuple[str, ...] = ()  # unix://, tcp:// and tls:// addresses of the RESP door
    http: tuple[str, ...] = ()  # the same of the HTTP door
    users: str = ""  # the users file; "" lets any client in
    grants: bool = False  # users may do what the file grants them, not everything
    cors: tuple[str, ...] = ()  # origins whose pages may use the HTTP door; "*" for any
    tls_certificate: str = ""  # of tls:// addresses, and of tcp:// ones of the HTTP door; PEM files
    tls_key: str = ""
    insecure: bool = False  # allow addresses that other machines can reach, without users
    may_create: bool = True  # a first record makes its topic
    timeout_s: float = 30.0  # for the broker to answer
    supervisor: int = 0  # whose children are the broker's processes; 0: elsewhere
    drain_s: float = 10.0  # SIGTERM: for clients to get what they wait for

    def addresses(self) -> dict[str, list[Url]]:
        """The addresses to listen on, by door. Raises InvalidUrl, InsecureListen, InvalidCertificate."""
        found = {door: [parse(address, schemes=DOOR_SCHEMES) for address in getattr(self, door)] for door in DOORS}
        need_apart((f"--{door}", url) for door, urls in found.items() for url in urls)
        for url in chain.from_iterable(found.values()):
            need_closed(url, guarded=bool(self.users), insecure=self.insecure, way_out="name a users file")
            if url.scheme == "tls" and not self.tls_certificate:
                raise InvalidCertificate(f"{url} needs a certificate: set tls_certificate and tls_key")
        return {door: urls for door, urls in found.items() if urls}

    def to_json(self) -> str:
        """The settings as one argument of a command."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> GatewayConfig:
        """The inverse of `to_json`."""
        return msgspec.json.decode(text, type=cls)
