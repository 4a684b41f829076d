"""penstock transport: the wire.

`messages` and `codec` say what travels, the sessions what it means (all pure), `zmq_sockets` carries it.
The sockets are not re-exported: who needs none should not load ZeroMQ.
"""

from .codec import VERSION, decode_answer, decode_request, encode, frames
from .errors import AddressInUse, CannotListen, InvalidUrl, MessageTooLarge, ProtocolError, TransportError
from .url import Url

__all__ = [
    # messages and frames
    "VERSION",
    "decode_answer",
    "decode_request",
    "encode",
    "frames",
    # addresses
    "Url",
    # errors
    "AddressInUse",
    "CannotListen",
    "InvalidUrl",
    "MessageTooLarge",
    "ProtocolError",
    "TransportError",
]
