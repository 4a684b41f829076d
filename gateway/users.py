"""The users of a gateway, from the file that it shares with the broker (decisions 071 and 095).

Idea: scrypt makes guessing a password dear, and so it makes every check dear. Checks run in a thread, one at a time,
and a password that was right is remembered by a keyed hash, so that a user's other connections and requests are
answered at once. A wrong one costs the full check each time. Sources take turns (rotation.py), so that one that guesses
passwords does not keep others from logging in, and one that was wrong too often is not checked (guessing.py).

Tokens (tokens.py) are random, so they are checked by a plain hash.

Contract: a running gateway notices a new file with the next check, and what it grants with the next request. One that
cannot be used is logged, and the users of before stay. Users may do everything, unless grants are `enforced`. One that
is deleted may do nothing more, and neither may one whose password has changed, or whose token is gone. No password is
kept. Memory: one short hash per user, and one per token.
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
from ..broker.rights import EVERYTHING, Principal, shown
from ..broker.tokens import digest_of
from .guessing import Guesses
from .refused import Reason, RefusedCounts
from .rotation import Rotation
from .telling import ToldRefusals

log = logging.getLogger("penstock.gateway")

TOKEN, PASSWORD = "token:", "password:"
"""What the proof of a principal begins with: of one that showed a token, its id; a password, its user and salt."""


class Users:
    """See the module."""

    def __init__(self, path: str, *, enforced: bool = False, refused: RefusedCounts | None = None) -> None:
        """Use `load`."""
        self.refused = refused or RefusedCounts()
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
        self.refusals = ToldRefusals("refused clients", log.warning)
        """Of both doors: who did not authenticate."""
        self.forbidden = ToldRefusals("forbidden requests", log.warning)
        """What grants did not allow."""

    @classmethod
    def load(cls, path: str, *, enforced: bool = False, refused: RefusedCounts | None = None) -> Users:
        """The users of a file, whose refusals count in `refused`. Raises InvalidUsers, also for one without any."""
        users = cls(path, enforced=enforced, refused=refused)
        if not users._access.names:
            raise InvalidUsers(f"{path} has no users: penstock user add {path} NAME")
        return users

    def verify_token(self, secret: str, source: str = "") -> Principal | None:
        """The principal of a token; None when it is wrong or has expired."""
        self._refresh()
        token = self._tokens.get(digest_of(secret))
        if token is not None and token.valid(time.time()):
            return self._principal(token.user, f"{TOKEN}{token.id}")
        self._refuse("a wrong token" if token is None else f"token {token.id} of {token.user} has expired", source)
        return None

    def _refuse(self, what: str, source: str, reason: Reason = "credentials") -> None:
        """Count a client that was refused, and write so to the log."""
        self.refused.add(reason)
        self.refusals.note(f"{what}, from {source or 'a process of this machine'}")

    def forbid(self, principal: Principal, operation: str, about: str) -> str:
        """Count what a user asked for that grants do not allow, and write it to the log. Returns it for the user."""
        self.refused.add("grants")
        sentence = f"user {principal.name} has no permission to {operation} {shown(about)}"
        self.forbidden.note(sentence)
        return sentence

    def current(self, principal: Principal) -> Principal:
        """A principal that has authenticated, with its grants of now.

        One that does not stand any more has none.
        """
        self._look()
        if principal.proof.startswith(TOKEN) and not self._is_shown(principal):
            return Principal(principal.name, (), principal.proof)
        return self._principal(principal.name, principal.proof)

    def stands(self, principal: Principal) -> bool:
        """Whether a principal that has authenticated could do so again: no deleted user, none whose password has
        changed, and none whose token is gone or has expired."""
        self._look()
        return self._is_shown(principal)

    def _is_shown(self, principal: Principal) -> bool:
        if not principal.proof.startswith(TOKEN):
            return principal.proof == self._proof_of(principal.name)
        token = self._tokens_by_id.get(principal.proof.removeprefix(TOKEN))
        return token is not None and token.valid(time.time())

    def meter(self, principal: Principal) -> Meter[Any] | None:
        """What a user has taken; None without a quota."""
        quota = self.current(principal).quota if self.has_quotas else None
        return None if quota is None else self.meters.of(principal.name, quota)

    def admit(self, peer: Any, principal: Principal, request: int | None = None) -> Meter[Any] | None:
        """Let a peer of a user ask, within the user's quota: the meter that counts it, None without one.

        `request` is in flight until the meter hears that it is answered. Raises Overloaded.
        """
        meter = self.meter(principal)
        if meter is None:
            self.meters.lost(peer)  # it may have been another user's
            return None
        try:
            meter.check_debt(time.monotonic(), 0.0)
            self.meters.connect(peer, meter)
            if request is not None:
                meter.begin(peer, request)
        except Overloaded:
            self.refused.add("quota")
            raise
        return meter

    def took(self, peer: Any, size: int) -> Meter[Any] | None:
        """Count bytes of a peer that was let in. Returns its meter; None without one."""
        meter = self.meters.by_peer.get(peer)
        if meter is not None:
            meter.take(size, time.monotonic(), 0)
        return meter

    def _principal(self, name: str, proof: str) -> Principal:
        """A user, by the token or password that it showed."""
        found = self._principals.get(proof)
        if found is None:
            found = self._principals[proof] = self._made(name, proof)
        return found

    def _made(self, name: str, proof: str) -> Principal:
        if not proof.startswith(TOKEN) and proof != self._proof_of(name):
            return Principal(name, (), proof)  # a password that has changed, or whose user was deleted
        found = self._access.principal(name, proof, proof.partition(TOKEN)[2])
        if self._enforced or name not in self._access.names:
            return found
        return Principal(name, EVERYTHING, proof, found.quota, found.scope)

    def _proof_of(self, name: str) -> str:
        """What a user has shown that knows its password; each password that is set has a salt of its own."""
        known = self._passwords.get(name)
        return "" if known is None else f"{PASSWORD}{name}:{known.salt.hex()}"

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
            return self._principal(name, self._proof_of(name))
        self._check_guesses(source)
        await self._rotation.enter(source, wrong)
        if self._was_right(name, password):  # another connection of the user was checked meanwhile
            self._rotation.leave()
            return self._principal(name, self._proof_of(name))
        try:
            self._check_guesses(source)  # others of this source were wrong meanwhile
            known = self._passwords.get(name)
            matching = asyncio.get_running_loop().run_in_executor(None, (known or decoy()).matches, password)
        except BaseException:  # also where the system starts no thread now
            self._rotation.leave()
            raise

        def finished(_: object) -> None:  # also when the caller was cancelled: the thread went on
            try:
                if known is None or not matching.result():
                    self._guesses.wrong(source, time.monotonic())  # before the next caller of this source has its turn
                elif self._passwords.get(name) == known:
                    self._right[name] = self._keyed(password)
            finally:
                self._rotation.leave()

        matching.add_done_callback(finished)
        if await asyncio.shield(matching) and known is not None and self._passwords.get(name) == known:
            return self._principal(name, self._proof_of(name))
        # A name that is none is often a password or a token that a client sent in its place.
        self._refuse(f"user {name!r} with a wrong password" if known else "a name that is no user's", source)
        return None

    def _check_guesses(self, source: str) -> None:
        try:
            self._guesses.check(source, time.monotonic())
        except Overloaded as error:
            self._refuse(f"no password was checked: {error.message}", source, "guesses")
            raise

    def _was_right(self, name: str, password: str) -> bool:
        return hmac.compare_digest(self._right.get(name, b""), self._keyed(password))

    def _keyed(self, password: str) -> bytes:
        return hashlib.blake2b(as_bytes(password), key=self._secret, digest_size=32).digest()

    def _look(self) -> None:
        """Use the file as it was a moment ago."""
        if time.monotonic() >= self._looked_s + LOOK_S:
            self._refresh()

    def _refresh(self) -> None:
        """Use the file as it is now."""
        self._looked_s = time.monotonic()
        if self._watched.changed():
            self._use()
            self._right.clear()
