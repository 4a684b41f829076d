"""The users and grants of a running broker: from a connection's peer to its principal (decision 095).

Idea: sockets say who speaks, as the system or CURVE vouches for it: `uid:1000` or `key:HEX`. The file names the user
behind it. The broker's own user and root, who could read its files and stop it, may do everything, unless a line
`NAME:uid:N` makes them a user like any other. A peer without a user may greet, and do nothing else.

Contract: `refresh` looks at the file once a second at most. One that cannot be used is told of, and what was granted
before stays. Must not know messages.
"""

from __future__ import annotations

import os
import time

from .access_file import Key
from .access_watch import LOOK_S, WatchedAccess
from .diagnostics import say
from .rights import EVERYTHING, Principal

PEERS_MOST = 4096
"""Principals of peers that are remembered."""


class BrokerAccess:
    """See the module."""

    def __init__(self, path: str) -> None:
        """Raises InvalidUsers."""
        self._watched = WatchedAccess(path, say)
        self._look_s = 0.0
        self._use()

    def _use(self) -> None:
        self._file = self._watched.content
        self._peers: dict[str, Principal] = {}
        self._keys = self._valid_keys()

    def refresh(self, now_s: float) -> bool:
        """Use the file as it is now. Returns whether it has changed."""
        if now_s < self._look_s:
            return False
        self._look_s = now_s + LOOK_S
        valid = self._valid_keys()
        has_expired, self._keys = valid != self._keys, valid
        if has_expired:
            self._peers.clear()
        if not self._watched.changed():
            return has_expired
        self._use()
        return True

    def _valid_keys(self) -> dict[str, Key]:
        """Keys that have not expired, by their public halves."""
        now = time.time()
        return {key.public: key for key in self._file.keys if key.valid(now)}

    def of_peer(self, speaker: str) -> Principal:
        """The principal of a peer, as its socket calls it."""
        found = self._peers.get(speaker)
        if found is None:
            if len(self._peers) >= PEERS_MOST:
                self._peers.clear()
            found = self._peers[speaker] = self._of(speaker)
        return found

    def refuses(self, speaker: str) -> str:
        """Why a peer may not even connect, for people; "" if it may."""
        kind, _, public = speaker.partition(":")
        if kind != "key" or public in self._keys:
            return ""
        known = [key.user for key in self._file.keys if key.public == public]
        return f"the key of user {known[0]} has expired" if known else "no user has this key"

    def _of(self, speaker: str) -> Principal:
        kind, _, number = speaker.partition(":")
        if kind == "uid":
            user = self._file.uids.get(int(number))
            if user is not None:
                return self._file.principal(user, speaker)
            owns = int(number) in (os.geteuid(), 0)
            return Principal(speaker, EVERYTHING if owns else ())
        key = self._keys.get(number)
        return Principal(speaker) if key is None else self._file.principal(key.user, speaker, key.id)
