"""The users of a gateway, from the file that it shares with the broker (decisions 071 and 095).

Idea: scrypt makes guessing a password dear, and so it makes every check dear. Checks run in a thread, one at a time,
and a password that was right is remembered by a keyed hash, so that a user's other connections and requests are
answered at once. A wrong one costs the full check each time. Sources take turns (rotation.py), so that one that guesses
passwords does not keep others from logging in, and one that was wrong too often is not checked (guessing.py).

Tokens (tokens.py) are random, so they are checked by a plain hash.

Contract: a running gateway notices a new file with the next check, and what it grants with the next request. One that
cannot be used is logged, and the users of before stay. Users may do everything, unless grants are `enforced`; one that
is deleted, nothing more. No password is kept. Memory: one short hash per user, and one per token.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from typing import Any

from ..broker.access_watch import LOOK_S, WatchedAccess
from ..broker.errors import InvalidUsers, Overloaded
from ..broker.passwords import as_bytes, decoy
from ..broker.quotas import Meter, Meters
from ..broker.rights import EVERYTHING, Principal
from ..broker.tokens import digest_of
from .guessing import Guesses
from .rotation import Rotation
from .telling import ToldRefusals

log = logging.getLogger("penstock.gateway")

TOKEN = "token:"
"""What the proof of a principal begins with that showed a token."""


class Users:
    """See the module."""

    def __init__(self, path: str, *, enforced: bool = False) -> None:
        """Use `load`."""
        self._watched = WatchedAccess(path, log.error)
        self._enforced = enforced
        self._use()
        self._looked_s = time.monotonic()
        self._secret = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}  # by name, a keyed hash of a password that was right
        self._rotation = Rotation()
        self._guesses = Guesses()
        self.meters = Meters[Any]()
        """What each user has taken of this gateway."""
        self.refusals = ToldRefusals("refused {} clients", log.warning)
        """Of both doors: who did not authenticate."""

    @classmethod
    def load(cls, path: str, *, enforced: bool = False) -> Users:
        """The users of a file. Raises InvalidUsers, also for a file without any."""
        users = cls(path, enforced=enforced)
        if not users._access.names:
            raise InvalidUsers(f"{path} has no users: penstock user add {path} NAME")
        return users

    def verify_token(self, secret: str, source: str = "") -> Principal | None:
        """The principal of a token; None when it is wrong or has expired."""
        self._refresh()
        token = self._tokens.get(digest_of(secret))
        if token is not None and token.valid(time.time()):
            return self._principal(token.user, token.id)
        self._refused("a wrong token" if token is None else f"token {token.id} of {token.user} has expired", source)
        return None

    def _refused(self, what: str, source: str) -> None:
        """Write to the log that a client was refused."""
        self.refusals.note(f"{what}, from {source or 'a process of this machine'}")

    def current(self, principal: Principal) -> Principal:
        """A principal that has authenticated, with its grants of now.

        A deleted user, or one whose token is gone or has expired, has none.
        """
        if time.monotonic() >= self._looked_s + LOOK_S:
            self._refresh()
        id_ = principal.proof.partition(TOKEN)[2]
        if id_ and not ((token := self._tokens_by_id.get(id_)) and token.valid(time.time())):
            return Principal(principal.name, (), principal.proof)
        return self._principal(principal.name, id_)

    def meter(self, principal: Principal) -> Meter[Any] | None:
        """What a user has taken; None without a quota."""
        quota = self.current(principal).quota if self.has_quotas else None
        return None if quota is None else self.meters.of(principal.name, quota)

    def _principal(self, name: str, token: str = "") -> Principal:
        """A user, who authenticated with a token of this id or with a password."""
        proof = f"{TOKEN}{token}" if token else name
        found = self._principals.get(proof)
        if found is None:
            found = self._access.principal(name, proof, token)
            if not self._enforced and name in self._access.names:
                found = Principal(name, EVERYTHING, proof, found.quota, found.scope)
            self._principals[proof] = found
        return found

    def _use(self) -> None:
        self._access = found = self._watched.content
        self._passwords, self.has_quotas = found.passwords, bool(found.quotas)
        self._tokens = {token.digest: token for token in found.tokens}
        self._tokens_by_id = {token.id: token for token in found.tokens}
        self._principals: dict[str, Principal] = {}

    async def verify(self, name: str, password: str, source: str = "", wrong: int = 0) -> Principal | None:
        """The principal of a name and password; None when they are wrong.

        Sources take turns; callers of one source wait for those that were wrong less often. Raises Overloaded where a
        source was wrong too often.
        """
        self._refresh()
        if self._was_right(name, password):
            return self._principal(name)
        self._check_guesses(source)
        await self._rotation.enter(source, wrong)
        if self._was_right(name, password):  # another connection of the user was checked meanwhile
            self._rotation.leave()
            return self._principal(name)
        try:
            self._check_guesses(source)  # others of this source were wrong meanwhile
        except Overloaded:
            self._rotation.leave()
            raise
        known = self._passwords.get(name)
        matching = asyncio.get_running_loop().run_in_executor(None, (known or decoy()).matches, password)

        def finished(_: object) -> None:  # also when the caller was cancelled: the thread went on
            try:
                if known is None or not matching.result():
                    self._guesses.wrong(source, time.monotonic())  # before the next caller of this source has its turn
                elif self._passwords.get(name) == known:
                    self._right[name] = self._keyed(password)
            finally:
                self._rotation.leave()

        matching.add_done_callback(finished)
        if await asyncio.shield(matching) and known is not None:
            return self._principal(name)
        # A name that is none is often a password or a token that a client sent in its place.
        self._refused(f"user {name!r} with a wrong password" if known else "a name that is no user's", source)
        return None

    def _check_guesses(self, source: str) -> None:
        try:
            self._guesses.check(source, time.monotonic())
        except Overloaded as error:
            self._refused(f"no password was checked: {error.message}", source)
            raise

    def _was_right(self, name: str, password: str) -> bool:
        return hmac.compare_digest(self._right.get(name, b""), self._keyed(password))

    def _keyed(self, password: str) -> bytes:
        return hashlib.blake2b(as_bytes(password), key=self._secret, digest_size=32).digest()

    def _refresh(self) -> None:
        """Use the file as it is now."""
        self._looked_s = time.monotonic()
        if self._watched.changed():
            self._use()
            self._right.clear()
