"""Bearer tokens of users: secrets that programs send in place of a password.

Idea: a token is 256 random bits, so a plain hash of it is safe to keep, and cheap to check with each request.

Contract: the token itself is known once, when it is made. Times are seconds since 1970.
"""

from __future__ import annotations

import hashlib
import re
import secrets

from msgspec import Struct

PREFIX = "penstock_"
"""What tokens begin with, so that scanners for secrets find them."""

TOKEN_BYTES = 32
_LINE = re.compile(r"([^:]+):token:([0-9a-f]{8}):(\d{1,12}):([0-9a-f]{64})")


class Credential(Struct, frozen=True, order=True):
    """What a user's program shows, as the users file has it; `id` names it to people."""

    user: str
    id: str
    expires: int  # 0: never

    def valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return not self.expires or now < self.expires


class Token(Credential, frozen=True, order=True):
    """A token, of which the file has a hash."""

    digest: str

    def as_line(self) -> str:
        """As it stands in the file."""
        return f"{self.user}:token:{self.id}:{self.expires}:{self.digest}"


def fresh(user: str, expires: int) -> tuple[str, Token]:
    """A new token of a user: the secret, and what is kept of it."""
    secret = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    return secret, Token(user, secrets.token_hex(4), expires, digest_of(secret))


def digest_of(secret: str) -> str:
    """The hash under which a token is known."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def parsed(line: str) -> Token | None:
    """The token of a line, None if it is another line."""
    found = _LINE.fullmatch(line)
    return None if found is None else Token(found[1], found[2], int(found[3]), found[4])
