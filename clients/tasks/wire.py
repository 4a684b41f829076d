"""Messages between a runner and its child processes: msgpack over a pipe.

    child -> runner   Ready once, when it can work
    runner -> child   Order, and Cancelled while that is worked on
    child -> runner   Told (progress) any number of times, then the outcome

Pure: values and bytes.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ..encoding import Encoding
from .outcome import Deferred, Failed, RefusedCall, Returned


class Ready(Struct, tag=True, frozen=True):
    """The child waits for orders."""


class Order(Struct, tag=True, frozen=True):
    """Call one function: the object `function` of `module`, whose app sends to the broker at `url`.

    `headers`: of the task, those that carry the sender's trace context or say what a callback is called with.
    """

    module: str
    function: str
    encoding: Encoding
    value: bytes
    id: str
    attempt: int
    url: str
    headers: dict[str, bytes] = {}


class Cancelled(Struct, tag=True, frozen=True):
    """The task of the latest order was cancelled."""


class Told(Struct, tag=True, frozen=True):
    """Progress of the call."""

    value: bytes


Event = Ready | Told | Returned | Failed | RefusedCall | Deferred

ORDERS = msgspec.msgpack.Decoder(Order | Cancelled)
EVENTS = msgspec.msgpack.Decoder(Event)
encode = msgspec.msgpack.encode
