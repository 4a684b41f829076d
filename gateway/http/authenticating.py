"""The principal of a request: the user whose name and password its Basic authorization has, or whose token its Bearer.

Contract: without a users file every request is anyone's. A user that was right once is recognised at once afterwards,
as HTTP clients send their password with each request. A request waits for `CHECK_S` at most while passwords of others
are checked, of which addresses take turns.
"""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Mapping

from ...broker.rights import ANYONE, Principal
from ..users import Users
from .problems import Refusal

CHECK_S = 10.0

CHALLENGE = "WWW-Authenticate", 'Basic realm="penstock", charset="UTF-8", Bearer realm="penstock"'
"""The header of an answer to a request that has not authenticated."""


async def principal_of(users: Users | None, headers: Mapping[bytes, bytes], source: str) -> Principal:
    """The principal of a request with these headers, from an address. Raises Refusal."""
    if users is None:
        return ANYONE
    header = headers.get(b"authorization", b"")
    secret = bearer(header)
    if secret is not None:
        principal = users.verify_token(secret, source)
        if principal is None:
            raise Refusal(401, "unauthenticated", "the token is wrong, or it has expired")
        return principal
    found = credentials(header)
    if found is None:
        raise Refusal(401, "unauthenticated", "send a user and a password as Basic authorization, or a token as Bearer")
    try:
        async with asyncio.timeout(CHECK_S):
            principal = await users.verify(*found, source)
    except TimeoutError:
        raise Refusal(429, "too_busy", "the gateway checks too many passwords: try again") from None
    if principal is None:
        raise Refusal(401, "unauthenticated", "the user or the password is wrong")
    return principal


def bearer(header: bytes) -> str | None:
    """The token of an Authorization header; None if it has none."""
    scheme, _, rest = header.partition(b" ")
    return rest.strip().decode("latin-1") if scheme.lower() == b"bearer" else None


def credentials(header: bytes) -> tuple[str, str] | None:
    """Name and password of an Authorization header; None if it has none."""
    scheme, _, rest = header.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name, separator, password = binascii.a2b_base64(rest.strip(), strict_mode=True).decode().partition(":")
    except ValueError:
        return None
    return (name, password) if separator else None
