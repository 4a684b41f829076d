"""Errors of the wire: invalid messages, invalid addresses, exceeded limits.

Contract: as in `storage/errors.py`: a message names the thing, the value, the limit and the way out. Imports nothing
but the root of the tree.
"""

from __future__ import annotations

from ..storage.errors import Error


class TransportError(Error):
    """Something about the wire."""

    code = "transport"


class ProtocolError(TransportError):
    """Frames that are not a message of this protocol: the peer is hostile, broken or of another world."""

    code = "protocol"


class TooMuchAsked(ProtocolError):
    """A well-formed request with more entries than one request may have. `request` is its number."""

    code = "too_much_asked"

    def __init__(self, message: str, *, request: int = 0) -> None:
        super().__init__(message)
        self.request = request


class MessageTooLarge(TransportError):
    """A message of ours that the other side would refuse: it was not sent."""

    code = "message_too_large"


class InvalidUrl(TransportError, ValueError):
    """An address that cannot be one."""

    code = "invalid_url"


class InvalidKey(TransportError, ValueError):
    """A key, or a file of one, that cannot be used."""

    code = "invalid_key"


class Unauthenticated(TransportError):
    """The broker does not let this client in: one of their keys is wrong, expired or missing."""

    code = "unauthenticated"


class AddressInUse(TransportError):
    """Another process listens there already."""

    code = "address_in_use"


class CannotListen(TransportError):
    """The address is well-formed but this machine will not let us listen on it."""

    code = "cannot_listen"


def none_left(why: str | None) -> CannotListen:
    """Where no socket can be made, for the reason that the system says."""
    return CannotListen(f"no socket left ({why}); raise ulimit -n or close some")


class SessionBroken(TransportError):
    """A producer whose sequence was broken cannot go on; what broke it is in the message."""

    code = "session_broken"


class DeliveryGap(TransportError):
    """A delivery was lost on its way: the session has to be joined again."""

    code = "delivery_gap"
    retry = True


class RemoteError(TransportError):
    """A failure with a code that this version does not know; `code` and `retry` are as the broker said."""

    code = "remote"

    def __init__(self, message: str, *, code: str = "remote", retry: bool = False) -> None:
        super().__init__(message)
        self.__dict__.update(code=code, retry=retry)
