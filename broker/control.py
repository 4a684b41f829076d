"""Messages between supervisor and broker, one class each, over their own packet socket.

Contract: the broker reports once that it serves or why it cannot; afterwards it only speaks when its keeper
makes no progress, and of its role in a cluster. The supervisor only speaks when there is a new keeper. The end of
either is the end of the socket. Must not know: how processes are started.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct


class ControlMessage(Struct, array_like=True, frozen=True):
    """Base of all messages."""


class Serving(ControlMessage, tag=1, frozen=True):
    """The broker answers on these endpoints, and the keeper watches its board."""

    listen: list[str]
    data: str
    advertise: list[str]  # where others connect to


class StartFailed(ControlMessage, tag=2, frozen=True):
    """The broker ends because it cannot start."""

    code: str
    message: str


class KeeperStuck(ControlMessage, tag=3, frozen=True):
    """This keeper has synced nothing for too long: end it and start another one."""

    pid: int


class NewKeeper(ControlMessage, tag=4, frozen=True):
    """A keeper was started. Comes with its link, the doorbell and the bell back."""

    pid: int


class RoleChanged(ControlMessage, tag=5, frozen=True):
    """What this node of a cluster is from here on."""

    role: str
    term: int


Said = Serving | StartFailed | KeeperStuck | NewKeeper | RoleChanged
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Said)


def encode(message: Said) -> bytes:
    return _ENCODER.encode(message)


def decode(packet: bytes) -> Said:
    return _DECODER.decode(packet)
