"""Who may connect over tcp:// and ipc:// to a broker with a file of users and grants.

Idea: over tcp:// a peer proves that it has a key of the file; over ipc:// the system says which of its users it
belongs to. Listeners for all clients admit any key that is valid, and any user of the system, as unix:// does. A
listener for the deliveries of one session admits the peer that opened the session.

Contract: implements `Gate`. What it names a peer is what `BrokerAccess` takes. Asks the file as `refresh` last saw it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .refusals import Refusals

if TYPE_CHECKING:
    from ..transport.zmq_curve import Knock
    from .access import BrokerAccess

KEY_BYTES = 32
_LOCAL = re.compile(r"localhost:(\d{1,10}):\d+:\d+")


class Admission:
    """See the module."""

    def __init__(self, access: BrokerAccess) -> None:
        self._access = access
        self._guests: dict[str, str] = {}
        self.refusals = Refusals("refused connections")

    def expect(self, domain: str, speaker: str) -> None:
        """Admit one peer alone to a listener."""
        self._guests[domain] = speaker

    def forget(self, domain: str) -> None:
        """A listener is gone."""
        self._guests.pop(domain, None)

    def admit(self, knock: Knock) -> str:
        """The name of the peer; "" to refuse it."""
        speaker = _speaker(knock)
        guest = self._guests.get(knock.domain)
        if knock.domain.startswith(DELIVERIES) and (guest is None or speaker != guest):
            self.refusals.note(f"{speaker or 'a peer'} at {knock.address} wants the deliveries of a session of another")
            return ""
        if reason := "it has no key" if not speaker else self._access.refuses(speaker):
            self.refusals.note(f"{speaker or 'a peer'} at {knock.address}: {reason}")
            return ""
        return speaker


DELIVERIES = "deliver:"
"""What the domains begin with of listeners for one peer."""


def _speaker(knock: Knock) -> str:
    if knock.mechanism == "CURVE" and len(knock.credential) == KEY_BYTES:
        return f"key:{knock.credential.hex()}"
    local = _LOCAL.fullmatch(knock.address) if knock.mechanism == "NULL" else None
    return f"uid:{local[1]}" if local else ""
