"""The file of users and grants: who may come in, and what each may do there (decision 095).

One line each, after the name of a user: of passwords, tokens, ids of the system's users, CURVE keys, and grants.

    ann:scrypt:N:R:P:SALT:HASH
    ann:token:ID:EXPIRES:HASH
    ann:key:ID:EXPIRES:PUBLIC
    ann:scope:ID:read:topic:orders-*
    ann:uid:1000
    ann:allow:read,write:topic:orders-*
    *:deny:read:topic:secret
    ann:quota:bytes=1000000,requests=500,connections=10,in-flight=100

A token or key with scopes may do what its user may and one of them covers. A grant of `*` concerns all users; a quota
of `*` is of each user without one of its own.
EXPIRES is in seconds since 1970; 0 stands for never.

Contract: the file is readable by its owner alone, and replaced as a whole; two programs that change it take turns. One
that holds up the others for `TURN_S` is told of. What
is not changed stays as it is, comments and the owner too. It holds no secret but hashes. A file with a line that is
none is refused.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..transport.names import RULE, is_name
from . import passwords
from . import tokens as token_lines
from .errors import InvalidUsers
from .passwords import HashedPassword
from .quotas import Quota
from .rights import OPERATIONS, Grant, Principal, in_order, is_pattern
from .tokens import Credential, Token

OTHERS = 0o077
ALL = "*"

TURN_S, LOOK_S = 10.0, 0.02
"""How long a change waits for others to be over, which take some milliseconds; and between two looks."""

Stamp = tuple[int, int, int]
"""Tells one content of the file from another."""

_UID = re.compile(r"uid:(\d{1,10})")
_KEY = re.compile(r"key:([0-9a-f]{8}):(\d{1,12}):([0-9a-f]{64})")
_SCOPE = re.compile(r"scope:([0-9a-f]{8}):([a-z,]+):(.+)")
_GRANT = re.compile(r"(allow|deny):([a-z,]+):(.+)")


class Key(Credential, frozen=True, order=True):
    """The public CURVE key of a user's program, as 32 bytes in hex."""

    public: str


class Access:
    """The content of a file."""

    def __init__(self, stamp: Stamp = (0, 0, 0)) -> None:
        self.stamp = stamp
        self.passwords: dict[str, HashedPassword] = {}
        self.tokens: list[Token] = []
        self.keys: list[Key] = []
        self.uids: dict[int, str] = {}
        self.grants: list[tuple[str, Grant]] = []
        self.quotas: dict[str, Quota] = {}
        self.scopes: dict[str, list[Grant]] = {}  # by the id of a token or key

    @property
    def names(self) -> list[str]:
        """The users."""
        named = (each.user for each in (*self.tokens, *self.keys))
        return sorted({*self.passwords, *self.uids.values(), *named})

    def principal(self, name: str, proof: str = "", credential: str = "") -> Principal:
        """A user with its quota and all grants that concern it, none if it is not there. For `proof` see Principal.

        `credential` is the id of the token or key that it authenticated with, which may have scopes.
        """
        if name not in self.names:
            return Principal(name, (), proof)
        grants = [grant for user, grant in self.grants if user in (name, ALL)]
        quota = self.quotas.get(name, self.quotas.get(ALL))
        return Principal(name, grants, proof, quota, self.scopes.get(credential, ()))

    def take(self, line: str) -> str:
        """Take one line. Returns what is wrong with it, or ""."""
        name, _, rest = line.partition(":")
        if grant := _grant(rest):
            self.grants.append((name, grant))
            return "" if is_name(name) or name == ALL else _NONE
        if quota := _quota(rest):
            is_new = self.quotas.setdefault(name, quota) is quota
            return ("" if is_new else f"the quota of {name} is there twice") if is_name(name) or name == ALL else _NONE
        if not is_name(name):
            return _NONE
        if token := token_lines.parsed(line):
            self.tokens.append(token)
        elif found := _SCOPE.fullmatch(rest):
            grant = _grant(f"allow:{found[2]}:{found[3]}")
            if grant is None:
                return _NONE
            self.scopes.setdefault(found[1], []).append(grant)
        elif found := _UID.fullmatch(rest):
            if self.uids.setdefault(int(found[1]), name) != name:
                return f"user id {found[1]} is there twice"
        elif found := _KEY.fullmatch(rest):
            if any(key.public == found[3] for key in self.keys):
                return f"key {found[3]} is there twice"
            self.keys.append(Key(name, found[1], int(found[2]), found[3]))
        else:
            password = passwords.parsed(rest)
            if not isinstance(password, HashedPassword):
                return password or _NONE
            if name in self.passwords:
                return f"user {name} is there twice"
            self.passwords[name] = password
        return ""


_NONE = "this is not that of a user: write it with penstock user add"


def _grant(text: str) -> Grant | None:
    found = _GRANT.fullmatch(text)
    operations = frozenset(found[2].split(",")) if found else frozenset[str]()
    if found is None or not operations <= set(OPERATIONS) or not is_pattern(found[3]):
        return None
    return Grant(found[1] == "deny", operations, found[3])


BOUNDS = {"bytes": "bytes_s", "requests": "requests_s", "connections": "connections", "in-flight": "in_flight"}
"""Names of a quota's bounds in the file, and its fields."""


def _quota(text: str) -> Quota | None:
    found = dict(re.findall(r"([a-z-]+)=([1-9]\d{0,15})(?:,|$)", text.removeprefix("quota:")))
    if not found or not found.keys() <= BOUNDS.keys():
        return None
    quota = Quota(**{BOUNDS[name]: int(bound) for name, bound in found.items()})
    return quota if text == f"quota:{quota_text(quota)}" else None


def quota_text(quota: Quota) -> str:
    """The bounds of a quota as they stand in the file, in their one order."""
    bounds = ((name, getattr(quota, field)) for name, field in BOUNDS.items())
    return ",".join(f"{name}={bound}" for name, bound in bounds if bound)


def as_line(name: str, grant: Grant) -> str:
    """A grant as it stands in the file."""
    return f"{name}:{grant.kind}:{','.join(in_order(grant.operations))}:{grant.pattern}"


# -- reading -------------------------------------------------------------------------------------------------


def read(path: str) -> Access:
    """The content of a file. Raises InvalidUsers."""
    lines, stamp = _lines(path)
    return _parsed(path, lines, stamp)


def stamp_of(path: str) -> Stamp:
    """Changes with the content and the mode of the file. Raises OSError."""
    return _stamp(os.stat(path))


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ctime_ns, found.st_size, found.st_ino  # ctime: chmod changes it, too


def _lines(path: str) -> tuple[list[str], Stamp]:
    try:
        with open(path, encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidUsers(f"the users file {path} cannot be read: {reason}") from error
    if found.st_mode & OTHERS:
        raise InvalidUsers(f"{path} is open to other users of this machine: chmod 600 {path}")
    return lines, _stamp(found)


def _parsed(path: str, lines: list[str], stamp: Stamp = (0, 0, 0)) -> Access:
    access = Access(stamp)
    for number, line in enumerate(lines, 1):
        wrong = "" if not line or line.startswith("#") else access.take(line)
        if wrong:
            raise InvalidUsers(f"{path}, line {number}: {wrong}")
    return access


# -- changing ------------------------------------------------------------------------------------------------


def add_password(path: str, name: str, password: str) -> bool:
    """Add a user, or replace the password; the file is made unless it is there. Returns whether the user is new.

    Raises InvalidUsers, as all of these do.
    """
    _check_name(name)
    if not password:
        raise InvalidUsers("the password is empty")
    if passwords.NUL in password:
        raise InvalidUsers("the password has a NUL character, which none may have")
    line = f"{name}:{HashedPassword.of(password).as_text()}"
    return not _change(path, lambda old: old.startswith(f"{name}:scrypt:"), line)


def delete_user(path: str, name: str) -> None:
    """Delete a user, with all that it has."""
    if name == ALL or not _change(path, lambda old: old.startswith(f"{name}:")):
        raise InvalidUsers(f"{path} has no user {name}")


def add_token(path: str, name: str, expires: int = 0, scope: Sequence[Grant] = ()) -> tuple[str, Token]:
    """Add a token of a user, who may have no password. Returns the secret, and what is kept of it.

    `scope`: what it is for, of all that the user may do; nothing stands for everything.
    """
    _check_name(name)
    secret, token = token_lines.fresh(name, expires)
    _change(path, lambda old: False, token.as_line(), *_scope_lines(token, scope))
    return secret, token


def _scope_lines(credential: Credential, scope: Sequence[Grant]) -> Iterator[str]:
    for grant in scope:
        _check_grant(grant)
        yield f"{credential.user}:scope:{credential.id}:{','.join(in_order(grant.operations))}:{grant.pattern}"


def _is_scope(line: str, id_: str) -> bool:
    found = _SCOPE.fullmatch(line.partition(":")[2])
    return found is not None and found[1] == id_


def delete_token(path: str, id_: str) -> None:
    """Delete a token by its id."""

    def goes(old: str) -> bool:
        return bool((token := token_lines.parsed(old)) and token.id == id_) or _is_scope(old, id_)

    if not _change(path, goes):
        raise InvalidUsers(f"{path} has no token {id_}")


def add_key(path: str, name: str, public: str, expires: int = 0, scope: Sequence[Grant] = ()) -> Key:
    """Let a program with this public CURVE key be a user. `public`: 64 digits in hex. `scope`: see add_token."""
    _check_name(name)
    key = Key(name, secrets.token_hex(4), expires, public)
    if _KEY.fullmatch(f"key:{key.id}:{expires}:{public}") is None:
        raise InvalidUsers(f"{public!r} is no public key: 64 digits in hex")
    _change(path, lambda old: False, f"{name}:key:{key.id}:{expires}:{public}", *_scope_lines(key, scope))
    return key


def delete_key(path: str, id_: str) -> None:
    """Delete a key by its id."""

    def goes(old: str) -> bool:
        return bool((found := _KEY.fullmatch(old.partition(":")[2])) and found[1] == id_) or _is_scope(old, id_)

    if not _change(path, goes):
        raise InvalidUsers(f"{path} has no key {id_}")


def set_uid(path: str, name: str, uid: int) -> None:
    """Let a user of the system, by its number, be this user."""
    _check_name(name)
    _change(path, lambda old: old.endswith(f":uid:{uid}") and old.count(":") == 2, f"{name}:uid:{uid}")


def delete_uid(path: str, uid: int) -> None:
    """Let a user of the system be no user of the file any more."""
    if not _change(path, lambda old: old.endswith(f":uid:{uid}") and old.count(":") == 2):
        raise InvalidUsers(f"{path} has no user id {uid}")


def add_grant(path: str, name: str, grant: Grant) -> bool:
    """Allow or deny something. Returns whether it is new."""
    if name != ALL:
        _check_name(name)
    _check_grant(grant)
    line = as_line(name, grant)
    return not _change(path, line.__eq__, line)


def _check_grant(grant: Grant) -> None:
    if not grant.operations or not grant.operations <= set(OPERATIONS):
        raise InvalidUsers(f"operations are some of {', '.join(OPERATIONS)}")
    if not is_pattern(grant.pattern):
        raise InvalidUsers(
            f"{grant.pattern!r} is no resource: topic:T, group:T/G, producer:T/P, schedule:T/S, transaction:X or node; "
            "a * at the end stands for all that begin alike"
        )


def delete_grant(path: str, name: str, grant: Grant) -> None:
    """Take a grant back."""
    line = as_line(name, grant)
    if not _change(path, line.__eq__):
        raise InvalidUsers(f"{path} has no line {line}")


def set_quota(path: str, name: str, quota: Quota) -> None:
    """Give a user, or with * each that has none of its own, this quota in place of the one before."""
    if name != ALL:
        _check_name(name)
    line = f"{name}:quota:{quota_text(quota)}"
    if _quota(line.partition(":")[2]) is None:
        raise InvalidUsers("a quota has bounds, of 1 or more each")
    _change(path, lambda old: old.startswith(f"{name}:quota:"), line)


def delete_quota(path: str, name: str) -> None:
    """Take a quota away."""
    if not _change(path, lambda old: old.startswith(f"{name}:quota:")):
        raise InvalidUsers(f"{path} has no quota of {name}")


def _check_name(name: str) -> None:
    if not is_name(name):
        raise InvalidUsers(f"{name!r} cannot be the name of a user: {RULE}")


def _change(path: str, goes: Callable[[str], bool], *added: str) -> bool:
    """Take lines out and add others. Returns whether some went."""
    with _alone(path) as directory:
        before = _lines(path)[0] if not added or os.path.exists(path) else []
        _parsed(path, before)
        after = [line for line in before if line.startswith("#") or not goes(line)]
        _parsed(path, [*after, *added])
        if added or len(after) < len(before):
            _write(path, "".join(f"{line}\n" for line in (*after, *added)))
            os.fsync(directory)
        return len(after) < len(before)


@contextmanager
def _alone(path: str) -> Iterator[int]:
    """One change of a file at a time. Gives its directory's descriptor."""
    place = Path(path).resolve().parent
    try:
        directory = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidUsers(f"the users file {path} cannot be written: {error.strerror or error}") from error
    try:
        deadline = time.monotonic() + TURN_S
        while not _locked(directory):
            if time.monotonic() > deadline:
                raise InvalidUsers(
                    f"the users file {path} cannot be written: another program holds a lock of {place}, which any user "
                    "can take who may list it; lslocks names the program"
                )
            time.sleep(LOOK_S)
        yield directory
    finally:
        os.close(directory)


def _locked(directory: int) -> bool:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(path: str, text: str) -> None:
    """Replace the file, which stays its owner's. The temporary one has mode 0600 from the start."""
    target = Path(path).resolve()
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if target.exists() and (owner := _owner(os.stat(target))) != _owner(os.fstat(descriptor)):
                    os.fchown(descriptor, *owner)
                os.fsync(descriptor)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InvalidUsers(f"the users file {path} cannot be written: {error.strerror or error}") from error


def _owner(found: os.stat_result) -> tuple[int, int]:
    return found.st_uid, found.st_gid
