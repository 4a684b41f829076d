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
        self._users: dict[str, Principal] = {}
        self._peers: dict[str, Principal] = {}

    def refresh(self, now_s: float) -> bool:
        """Use the file as it is now. Returns whether it has changed."""
        if now_s < self._look_s:
            return False
        self._look_s = now_s + LOOK_S
        if self._file.keys:
            self._peers.clear()  # keys expire
        if not self._watched.changed():
            return False
        self._use()
        return True

    def of_peer(self, speaker: str) -> Principal:
        """The principal of a peer, as its socket calls it."""
        found = self._peers.get(speaker)
        if found is None:
            if len(self._peers) >= PEERS_MOST:
                self._peers.clear()
            found = self._peers[speaker] = self._of(speaker)
        return found

    def of_name(self, name: str) -> Principal:
        """A principal by the name that `of_peer` gave it."""
        return self.of_peer(name) if ":" in name else self._user(name)

    def _of(self, speaker: str) -> Principal:
        kind, _, number = speaker.partition(":")
        if kind == "uid":
            user = self._file.uids.get(int(number))
            if user is not None:
                return self._user(user)
            owns = int(number) in (os.geteuid(), 0)
            return Principal(speaker, EVERYTHING if owns else ())
        key = next((key for key in self._file.keys if key.public == number and key.valid(time.time())), None)
        return Principal(speaker) if key is None else self._user(key.user)

    def _user(self, name: str) -> Principal:
        found = self._users.get(name)
        if found is None:
            found = self._users[name] = self._file.principal(name)
        return found
