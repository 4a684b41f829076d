"""The users of a gateway: a file with a name and a hashed password or token a line (decision 71).

Idea: scrypt makes guessing a password dear, and so it makes every check dear. Checks run in a thread, one at a time,
and a password that was right is remembered by a keyed hash, so that a user's other connections and requests are
answered at once. A wrong one costs the full check each time. Sources take turns (rotation.py), so that one that guesses
passwords does not keep others from logging in.

Tokens (tokens.py) are random, so they are checked by a plain hash.

Contract: the file is readable by its owner alone, and replaced as a whole. A running gateway notices a new file with
the next check; one that cannot be used is logged, and the users of before stay. No password is kept.
Memory: one short hash per user, and one per token.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from ..transport.names import RULE, is_name
from .authorization import Principal
from .errors import InvalidUsers
from .rotation import Rotation
from .tokens import Token, digest_of, fresh, parsed

log = logging.getLogger("penstock.gateway")

COST = (1 << 14, 8, 5)
"""N, r and p of scrypt for new passwords: 16 MiB, and some 0.1 s."""

MEMORY_MAX, WORK_MAX = 1 << 19, 1 << 22
"""Limits of N * r, which is 64 MiB, and of N * r * p: passwords are checked one at a time."""

PRIVATE = 0o600
SALT_BYTES = 16
_OPENSSL_BYTES = 1 << 20
"""Beside what scrypt itself needs."""

_LINE = re.compile(r"([^:]+):scrypt:(\d{1,8}):(\d{1,3}):(\d{1,3}):([0-9a-f]{16,128}):([0-9a-f]{64,256})")

Stamp = tuple[int, int, int]
"""Tells one content of the file from another."""


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
        return hmac.compare_digest(self._hash(password, len(self.digest)), self.digest)

    def _hash(self, password: str, size: int) -> bytes:
        memory = 128 * self.r * (self.n + self.p + 2) + _OPENSSL_BYTES
        return hashlib.scrypt(
            _bytes(password), salt=self.salt, n=self.n, r=self.r, p=self.p, maxmem=memory, dklen=size
        )  # fmt: skip

    def as_text(self) -> str:
        """As it stands behind a name."""
        return f"scrypt:{self.n}:{self.r}:{self.p}:{self.salt.hex()}:{self.digest.hex()}"


class Users:
    """See the module."""

    def __init__(self, path: str) -> None:
        """Use `load`."""
        self._path = path
        self._use(_read(path))
        self._secret = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}  # by name, a keyed hash of a password that was right
        self._rotation = Rotation()

    @classmethod
    def load(cls, path: str) -> Users:
        """The users of a file. Raises InvalidUsers, also for a file without any."""
        users = cls(path)
        if not users._passwords and not users._tokens:
            raise InvalidUsers(f"{path} has no users: penstock user add {path} NAME")
        return users

    def verify_token(self, secret: str) -> Principal | None:
        """The principal of a token; None when it is wrong or has expired."""
        self._refresh()
        token = self._tokens.get(digest_of(secret))
        return Principal(token.user) if token is not None and token.valid(time.time()) else None

    def _use(self, found: _Content) -> None:
        self._stamp, self._passwords = found.stamp, found.passwords
        self._tokens = {token.digest: token for token in found.tokens}

    async def verify(self, name: str, password: str, source: str = "", wrong: int = 0) -> Principal | None:
        """The principal of a name and password; None when they are wrong.

        Sources take turns; callers of one source wait for those that were wrong less often.
        """
        self._refresh()
        if self._was_right(name, password):
            return Principal(name)
        await self._rotation.enter(source, wrong)
        if self._was_right(name, password):  # another connection of the user was checked meanwhile
            self._rotation.leave()
            return Principal(name)
        known = self._passwords.get(name)
        matching = asyncio.get_running_loop().run_in_executor(None, (known or _decoy()).matches, password)

        def finished(_: object) -> None:  # also when the caller was cancelled: the thread went on
            self._rotation.leave()
            if known is not None and self._passwords.get(name) == known and matching.result():
                self._right[name] = self._keyed(password)

        matching.add_done_callback(finished)
        return Principal(name) if await asyncio.shield(matching) and known is not None else None

    def _was_right(self, name: str, password: str) -> bool:
        return hmac.compare_digest(self._right.get(name, b""), self._keyed(password))

    def _keyed(self, password: str) -> bytes:
        return hashlib.blake2b(_bytes(password), key=self._secret, digest_size=32).digest()

    def _refresh(self) -> None:
        """Use the file as it is now."""
        try:
            stamp = _stamp(os.stat(self._path))
        except OSError:
            return
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._use(_read(self._path))
        except InvalidUsers as error:
            log.error("the users file changed and cannot be used, the users of before stay: %s", error.message)
            return
        self._right.clear()


@functools.cache
def _decoy() -> HashedPassword:
    """Checked for unknown names, so that the time does not tell them from known ones."""
    return HashedPassword(*COST, bytes(SALT_BYTES), bytes(32))


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")


# -- the file ----------------------------------------------------------------------------------------------


def names(path: str) -> list[str]:
    """The users of a file. Raises InvalidUsers."""
    found = _read(path)
    return sorted({*found.passwords, *(token.user for token in found.tokens)})


def add(path: str, name: str, password: str) -> bool:
    """Add a user, or replace the password; the file is made unless it is there. Returns whether the user is new.

    Raises InvalidUsers.
    """
    _check_name(name)
    if not password:
        raise InvalidUsers("the password is empty")
    found = _read_or_begin(path)
    is_new = name not in found.passwords
    _write(path, {**found.passwords, name: HashedPassword.of(password)}, found.tokens)
    return is_new


def _check_name(name: str) -> None:
    if not is_name(name):
        raise InvalidUsers(f"{name!r} cannot be the name of a user: {RULE}")


def delete(path: str, name: str) -> None:
    """Delete a user, with its tokens. Raises InvalidUsers."""
    found = _read(path)
    kept = [token for token in found.tokens if token.user != name]
    if found.passwords.pop(name, None) is None and len(kept) == len(found.tokens):
        raise InvalidUsers(f"{path} has no user {name}")
    _write(path, found.passwords, kept)


def tokens(path: str) -> list[Token]:
    """The tokens of a file, by user. Raises InvalidUsers."""
    return sorted(_read(path).tokens)


def add_token(path: str, name: str, expires: int = 0) -> tuple[str, Token]:
    """Add a token of a user, who may have no password. Returns the secret, and what is kept of it.

    It expires so many seconds after 1970; 0: never. Raises InvalidUsers.
    """
    _check_name(name)
    found, (secret, token) = _read_or_begin(path), fresh(name, expires)
    _write(path, found.passwords, [*found.tokens, token])
    return secret, token


def delete_token(path: str, id_: str) -> None:
    """Delete a token by its id. Raises InvalidUsers."""
    found = _read(path)
    kept = [token for token in found.tokens if token.id != id_]
    if len(kept) == len(found.tokens):
        raise InvalidUsers(f"{path} has no token {id_}")
    _write(path, found.passwords, kept)


class _Content(NamedTuple):
    stamp: Stamp
    passwords: dict[str, HashedPassword]
    tokens: list[Token]


def _read_or_begin(path: str) -> _Content:
    return _read(path) if os.path.exists(path) else _Content((0, 0, 0), {}, [])


def _read(path: str) -> _Content:
    try:
        with open(path, encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidUsers(f"the users file {path} cannot be read: {reason}") from error
    if stat.S_IMODE(found.st_mode) & ~PRIVATE:
        raise InvalidUsers(f"{path} is open to other users of this machine: chmod 600 {path}")
    passwords: dict[str, HashedPassword] = {}
    found_tokens: list[Token] = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        token = parsed(line)
        if token is not None and is_name(token.user):
            found_tokens.append(token)
        else:
            name, password = _parsed(line, f"{path}, line {number}")
            if name in passwords:
                raise InvalidUsers(f"{path}, line {number}: user {name} is there twice")
            passwords[name] = password
    return _Content(_stamp(found), passwords, found_tokens)


def _parsed(line: str, place: str) -> tuple[str, HashedPassword]:
    found = _LINE.fullmatch(line)
    if found is None or not is_name(found[1]):
        raise InvalidUsers(f"{place} is not that of a user: write it with penstock user add")
    n, r, p = int(found[2]), int(found[3]), int(found[4])
    if n < 2 or n & (n - 1) or not r or not p:
        raise InvalidUsers(f"{place}: scrypt has no cost of {n}:{r}:{p}")
    if n * r > MEMORY_MAX or n * r * p > WORK_MAX:
        raise InvalidUsers(f"{place}: a cost of {n}:{r}:{p} is too high: it takes over 64 MiB, or half a second")
    return found[1], HashedPassword(n, r, p, bytes.fromhex(found[5]), bytes.fromhex(found[6]))


def _write(path: str, passwords: dict[str, HashedPassword], tokens_: list[Token]) -> None:
    """Replace the file. The temporary one has mode 0600 from the start."""
    text = "".join(f"{name}:{password.as_text()}\n" for name, password in passwords.items())
    text += "".join(f"{token.as_line()}\n" for token in tokens_)
    target = Path(path).resolve()
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InvalidUsers(f"the users file {path} cannot be written: {error.strerror or error}") from error


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ctime_ns, found.st_size, found.st_ino  # ctime: chmod changes it, too
