"""Addresses: `unix:///path`, `ipc:///path`, `tcp://host:port`, `tls://host:port`, `file:///directory`, `mem://name`.

Contract: `parse` accepts exactly what the sockets and the embedded clients can use, and says what is wrong
with anything else; `addresses` reads several at once. Pure: nothing is resolved, connected or looked up on disk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product, starmap

import msgspec

from .errors import InvalidUrl

SCHEMES = ("unix", "ipc", "tcp", "file", "mem")
SOCKET_SCHEMES = ("unix", "ipc", "tcp")
DOOR_SCHEMES = ("unix", "tcp", "tls")
"""Of addresses where a gateway or an exporter listens."""

PORT_SCHEMES = ("tcp", "tls")
"""Of addresses with a host and a port; tls is for doors alone, which say so."""

ADDRESSES_MAX = 16
"""Addresses in one list."""

PATH_BYTES_MAX = 107
"""A Unix socket's path, without its closing zero."""

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\*|\[[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9._-]+)?\]")
_USER = re.compile(r"^([^:/@]*://)?+(?!/).*@", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9._-]{0,200}")
_BETWEEN = {"tcp": re.compile(","), "unix": re.compile(",(?=/)"), "ipc": re.compile(",(?=/)")}
"""What stands between two addresses, by scheme; in a path, other commas are part of its name."""

_WILDCARDS = frozenset({"*", "0.0.0.0", "[::]"})
_LOOPBACK = frozenset({"localhost", "[::1]"})
_HOSTS = {"*": ("0.0.0.0", "[::]"), "localhost": ("127.0.0.1", "[::1]")}
"""Hosts of both kinds, as those of one."""


class Url(msgspec.Struct, frozen=True):
    """One address. `host` and `port` are of tcp and tls, `path` of unix, ipc and file, `name` of mem."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    name: str = ""

    def __str__(self) -> str:
        """The address as it is written, in its one form."""
        if self.has_port:
            return f"{self.scheme}://{self.host}:{self.port}"
        return f"{self.scheme}://{self.path or self.name}"

    @property
    def has_port(self) -> bool:
        """Whether it is a host and a port."""
        return self.scheme in PORT_SCHEMES

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine can reach it."""
        return not self.has_port or self.host in _LOOPBACK or self.host.startswith("127.")

    @property
    def is_wildcard(self) -> bool:
        """Listens on every interface: not an address to connect to."""
        return self.host in _WILDCARDS

    def overlaps(self, other: Url) -> bool:
        """Whether they are one place to listen: they have one path, or one port of one host.

        0.0.0.0 is every address of IPv4 and [::] every one of IPv6; * is either, and localhost is both of loopback.
        """
        if not (self.has_port and other.has_port):
            return bool(self.path) and self.path == other.path
        pairs = product(_HOSTS.get(self.host, (self.host,)), _HOSTS.get(other.host, (other.host,)))
        return self.port == other.port != 0 and any(starmap(_meet, pairs))


def _meet(host: str, other: str) -> bool:
    """Whether two hosts, each of one kind of address, have an address in common."""
    one_kind = host.startswith("[") == other.startswith("[")
    return host == other or (one_kind and not _WILDCARDS.isdisjoint((host, other)))


def shown(text: str) -> str:
    """What was given as an address, for people: without a user and password, which no address has."""
    return repr(without_user(text))


def without_user(text: str) -> str:
    """A text as it may be shown that was meant to be an address."""
    return _USER.sub(r"\1...@", text, count=1)


def parse(text: str, *, schemes: tuple[str, ...] = SCHEMES) -> Url:
    """The address that `text` names. Raises InvalidUrl."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in schemes:
        wanted = ", ".join(f"{name}://" for name in schemes)
        raise InvalidUrl(f"{shown(text)} does not start with one of {wanted}")
    return _PARSERS[scheme](text, rest)


def addresses(text: str) -> list[str]:
    """The addresses that `text` names: one of any scheme, or several as in tcp://a:7070,b:7070 and unix:///a,/b.

    Raises InvalidUrl.
    """
    scheme, separator, rest = text.partition("://")
    if scheme not in _BETWEEN or len(parts := _BETWEEN[scheme].split(rest)) == 1:
        parse(text)
        return [text]
    found = list(dict.fromkeys(f"{scheme}{separator}{part.removeprefix(f'{scheme}://')}" for part in parts))
    if len(found) > ADDRESSES_MAX:
        raise InvalidUrl(f"{shown(text)} names {len(found)} addresses; the limit is {ADDRESSES_MAX}")
    for address in found:
        connect_url(address)
    return found


def listen_url(text: str) -> Url:
    """An address to listen on: unix, ipc, or tcp with any port (0: whatever is free). Raises InvalidUrl."""
    return parse(text, schemes=SOCKET_SCHEMES)


def connect_url(text: str) -> Url:
    """An address to connect a socket to: unix, ipc, or tcp of one host and port. Raises InvalidUrl."""
    return _definite(text, "connect to one host", "connect to the port that the broker reported")


def advertise_url(text: str) -> Url:
    """An address to tell others, who connect to it: unix, ipc, or tcp of one host and port. Raises InvalidUrl."""
    host, port = (f"advertise the {part} that clients connect to" for part in ("host", "port"))
    return _definite(text, host, port)


def _definite(text: str, host: str, port: str) -> Url:
    """An address of one socket; `host` and `port` say what to give where it names none. Raises InvalidUrl."""
    url = parse(text, schemes=SOCKET_SCHEMES)
    if url.is_wildcard:
        raise InvalidUrl(f"{shown(text)} names every interface; {host}")
    if url.scheme == "tcp" and not url.port:
        raise InvalidUrl(f"{shown(text)} has port 0; {port}")
    return url


def reachable(endpoint: str, via: str) -> str:
    """`endpoint` as seen by a client connected to `via`: a wildcard host becomes the host it already talks to."""
    url = parse(endpoint, schemes=SOCKET_SCHEMES)
    seen = parse(via, schemes=SOCKET_SCHEMES)
    if not url.is_wildcard or seen.scheme != "tcp":
        return endpoint
    return f"tcp://{seen.host}:{url.port}"


def local_address(listen: Sequence[str]) -> str:
    """Where processes of this machine reach a listener at all of `listen`: a Unix socket, if there is one."""
    address = min(listen, key=lambda each: not each.startswith("unix"))
    url = parse(address, schemes=SOCKET_SCHEMES)
    return f"tcp://{'[::1]' if url.host == '[::]' else '127.0.0.1'}:{url.port}" if url.is_wildcard else address


def any_host(endpoint: str) -> str:
    """`endpoint` on the host that each client is connected to, where it is tcp; see `reachable`."""
    url = parse(endpoint, schemes=SOCKET_SCHEMES)
    return f"tcp://*:{url.port}" if url.scheme == "tcp" else endpoint


def has_translated_ports(listener: str, advertised: Sequence[str]) -> bool:
    """Whether clients reach `listener` through other ports: then they cannot reach a port opened beside it."""
    url = parse(listener, schemes=SOCKET_SCHEMES)
    ports = {found.port for found in map(advertise_url, advertised) if found.scheme == "tcp"}
    return url.scheme == "tcp" and bool(ports) and url.port not in ports


def _port(text: str, rest: str) -> Url:
    scheme = text.partition("://")[0]
    if "@" in rest:
        raise InvalidUrl(
            f"{shown(text)} names a user, which no address does: clients authenticate by a key, see PENSTOCK_KEY"
        )
    host, separator, port = rest.rpartition(":")
    if not separator or not _HOST.fullmatch(host):
        raise InvalidUrl(f"{shown(text)} is not {scheme}://HOST:PORT (an IPv6 host stands in brackets)")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise InvalidUrl(f"{shown(text)} has port {port!r}; ports are 0 to 65535")
    return Url(scheme, host=host, port=int(port))


def _socket_path(text: str, rest: str) -> Url:
    path = _absolute(text, rest)
    if len(path.encode()) > PATH_BYTES_MAX:
        raise InvalidUrl(f"{shown(text)} has a path over {PATH_BYTES_MAX} bytes, the limit of Unix sockets; shorten it")
    return Url(text.partition("://")[0], path=path)


def _file(text: str, rest: str) -> Url:
    return Url("file", path=_absolute(text, rest))


def _mem(text: str, rest: str) -> Url:
    if not _NAME.fullmatch(rest):
        raise InvalidUrl(f"{shown(text)} has a name with other characters than letters, digits, '.', '_' and '-'")
    return Url("mem", name=rest)


def _absolute(text: str, path: str) -> str:
    """Relative paths mean something else in every process, and names after '@' carry no permissions."""
    if not path.startswith("/"):
        raise InvalidUrl(f"{shown(text)} needs an absolute path: {text.partition('://')[0]}:///directory/name")
    if "\0" in path or not path.isprintable():
        raise InvalidUrl(f"{shown(text)} has characters that no path should have")
    if path.endswith("/") and path.strip("/") == "":
        raise InvalidUrl(f"{shown(text)} names the root directory; name something below it")
    return path


_PARSERS = {"tcp": _port, "tls": _port, "unix": _socket_path, "ipc": _socket_path, "file": _file, "mem": _mem}
