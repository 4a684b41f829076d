"""Which web pages may send requests: browsers send them for any page, also to addresses of the machine they run on.

Idea: a page says where it is from (`Origin`). Its own gateway's page may do everything, a page of an allowed origin
too, any other one may change nothing. A page that has its name point at this machine claims to be the gateway's own, so
a door without users answers over loopback only to names of loopback.

Contract: requests that no browser sends have no Origin, and are not concerned. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .problems import Refusal

READS = frozenset({"GET", "HEAD", "OPTIONS"})

_LOOPBACK = re.compile(r"(?:localhost|[\w.-]+\.localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.ASCII)


def check_origin(method: str, scheme: str, headers: Mapping[bytes, bytes], allowed: Sequence[str]) -> None:
    """Refuse what a page from elsewhere would change. Raises Refusal."""
    origin = headers.get(b"origin")
    if origin is None or method in READS or "*" in allowed:
        return
    own = scheme.encode() + b"://" + headers.get(b"host", b"")
    if origin != own and origin.decode("latin-1") not in allowed:
        raise Refusal(
            403, "foreign_origin", "pages of this origin may change nothing here: allow it with --set cors=ORIGIN"
        )


def check_host(address: str, headers: Mapping[bytes, bytes]) -> None:
    """Refuse a name of elsewhere for a connection to `address`, one of this machine's own. Raises Refusal."""
    host = headers.get(b"host")
    if host is not None and is_loopback(address) and not _LOOPBACK.fullmatch(host.decode("latin-1").lower()):
        raise Refusal(403, "foreign_host", "this gateway is at localhost: other names need users (--users)")


def is_loopback(address: str) -> bool:
    """Whether an IP address is one that only this machine reaches."""
    return address.startswith("127.") or address == "::1"
