"""The one rule about addresses that other machines can reach, for the broker and everything beside it.

Contract: pure. An address is open to others unless it is a path, or of the loopback interface.
"""

from __future__ import annotations

from ..transport.url import Url
from .errors import InsecureListen


def need_closed(
    url: Url, *, guarded: bool, insecure: bool, way_out: str = "", about: str = "without authentication"
) -> None:
    """Refuse an address that other machines can reach, unless clients authenticate or the operator insists.

    Args:
        guarded: clients have to authenticate there.
        way_out: another one than those that every address has.
        about: what makes it dangerous.

    Raises: InsecureListen.
    """
    if url.is_local or guarded or insecure:
        return
    ways = ", ".join(["listen on 127.0.0.1", *([way_out] if way_out else [])])
    raise InsecureListen(f"{url} can be reached from other machines, {about}: {ways}, or allow it with --insecure")
