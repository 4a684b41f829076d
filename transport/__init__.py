"""penstock transport: the wire.

`messages` and `codec` define the messages, the sessions their meaning (all pure). `sockets` picks the carrier: ZeroMQ
over ipc and tcp, or plain Unix sockets. They are not re-exported, so that programs without sockets do not load them.
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
