"""Passwords as scrypt hashes (decision 071): dear to guess from a stolen file, and dear to check.

Contract: no password is kept. A check takes a tenth of a second, in which other threads run.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

COST = (1 << 14, 8, 5)
"""N, r and p of scrypt for new passwords: 16 MiB, and some 0.1 s."""

MEMORY_MAX, WORK_MAX = 1 << 19, 1 << 22
"""Limits of N * r, which is 64 MiB, and of N * r * p: passwords are checked one at a time."""

NUL = "\0"
"""No password has it: HMAC, of which scrypt is made, takes a short key with more of them behind for the same key."""

SALT_BYTES = 16
_OPENSSL_BYTES = 1 << 20
"""Beside what scrypt itself needs."""

_TEXT = re.compile(r"scrypt:(\d{1,8}):(\d{1,3}):(\d{1,3}):([0-9a-f]{16,128}):([0-9a-f]{64,256})")


class HashedPassword(NamedTuple):
    """A password as the file has it. N, r and p are scrypt's."""

    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, password: str) -> HashedPassword:
        """Hash a new password."""
        unfinished = cls(*COST, secrets.token_bytes(SALT_BYTES), b"")
        return unfinished._replace(digest=unfinished._hash(password, 32))

    def matches(self, password: str) -> bool:
        """Whether this is the password. Takes a tenth of a second; other threads run meanwhile."""
        is_same = hmac.compare_digest(self._hash(password, len(self.digest)), self.digest)
        return is_same and NUL not in password

    def _hash(self, password: str, size: int) -> bytes:
        memory = 128 * self.r * (self.n + self.p + 2) + _OPENSSL_BYTES
        return hashlib.scrypt(
            as_bytes(password), salt=self.salt, n=self.n, r=self.r, p=self.p, maxmem=memory, dklen=size
        )  # fmt: skip

    def as_text(self) -> str:
        """As it stands behind a name."""
        return f"scrypt:{self.n}:{self.r}:{self.p}:{self.salt.hex()}:{self.digest.hex()}"


def parsed(text: str) -> HashedPassword | str | None:
    """The password of a text, or what is wrong with its cost; None if it is another text."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    n, r, p = int(found[1]), int(found[2]), int(found[3])
    if n < 2 or n & (n - 1) or not r or not p:
        return f"scrypt has no cost of {n}:{r}:{p}"
    if n * r > MEMORY_MAX or n * r * p > WORK_MAX:
        return f"a cost of {n}:{r}:{p} is too high: it takes over 64 MiB, or half a second"
    return HashedPassword(n, r, p, bytes.fromhex(found[4]), bytes.fromhex(found[5]))


@functools.cache
def decoy() -> HashedPassword:
    """Checked for unknown names, so that the time does not tell them from known ones."""
    return HashedPassword(*COST, bytes(SALT_BYTES), bytes(32))


def as_bytes(password: str) -> bytes:
    """A password as it is hashed."""
    return password.encode("utf-8", "surrogateescape")
