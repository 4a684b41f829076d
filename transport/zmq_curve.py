"""CURVE of ZeroMQ: who encrypts with which key, and the socket that asks whether a peer may connect (RFC 27, "ZAP").

Idea: libzmq asks one REP socket of a context about each connection to a listener with a domain, before its first
message. The answer names the peer from then on: each of its messages carries the name (`ServerSocket.speaker`).

Contract: a listener with a domain refuses all where nothing answers (ZAP_ENFORCE_DOMAIN). A gate that raises refuses.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

import zmq

from .errors import CannotListen, InvalidKey
from .keys import Key
from .zmq_keys import public_of
from .zmq_socket import NOBLOCK, Socket, SocketOwner

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_SELF_CHECK = b"self-check"

Security = dict[int, int | bytes]
"""Options of a socket by number."""

ANYONE: Security = {zmq.ZAP_DOMAIN: b"anyone", zmq.ZAP_ENFORCE_DOMAIN: 0}
"""Of a listener that lets any peer in that speaks ZMTP 3. libzmq refuses earlier versions where there is a domain, and
4.3.5 keeps 17 KiB of each peer of ZMTP 1.0 that has left where there is none. No socket is asked about this one."""

log = logging.getLogger("penstock.transport")


class Knock(NamedTuple):
    """A connection that is being made: to which listener, from where, and what vouches for it."""

    domain: str
    address: str  # of tcp the host; of ipc localhost:UID:GID:PID, as the system says
    mechanism: str  # CURVE or NULL
    credential: bytes  # the public key, of CURVE


class Gate(Protocol):
    """Decides about connections."""

    def admit(self, knock: Knock) -> str:
        """The name of the peer behind a connection; "" to refuse it."""
        ...


class Guarded(NamedTuple):
    """What a context needs to listen to known peers alone: its own key (for tcp), and a gate."""

    key: Key | None
    gate: Gate


def of_client(key: Key) -> Security:
    """For a socket that connects. Raises InvalidKey."""
    if not key.broker:
        raise InvalidKey(
            "the key names no broker: make it with penstock key generate FILE --broker PUBLIC, or add a line "
            "`broker PUBLIC`, where PUBLIC is what penstock key show says of the broker's key file"
        )
    secret = bytes.fromhex(key.secret)
    return {
        zmq.CURVE_SERVERKEY: bytes.fromhex(key.broker),
        zmq.CURVE_PUBLICKEY: public_of(secret),
        zmq.CURVE_SECRETKEY: secret,
    }


def of_listener(guarded: Guarded, domain: str, *, encrypted: bool) -> Security:
    """For a socket that listens. Raises CannotListen."""
    known: Security = {zmq.ZAP_DOMAIN: domain.encode()}
    if not encrypted:
        return known
    if guarded.key is None:
        raise CannotListen("over tcp:// clients authenticate by keys, so the broker needs its own (--broker-key)")
    return {**known, zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: bytes.fromhex(guarded.key.secret)}


class GateSocket(Socket):
    """Asks a gate for libzmq. `answer` is to be called whenever `fd` is readable."""

    def __init__(self, context: SocketOwner, gate: Gate) -> None:
        """Raises CannotListen."""
        super().__init__(context, context.raw_socket(zmq.REP, {"LINGER": 0}, 1 << 16))
        self._gate = gate
        self.raw.bind(_ENDPOINT)

    def answer(self) -> None:
        """Answer all that is asked."""
        while True:
            try:
                frames = self.raw.recv_multipart(NOBLOCK)
            except zmq.Again:
                return
            self.raw.send_multipart(self._answer(frames), NOBLOCK)

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        version, request, domain, address, _, mechanism, *credentials = [*frames, *[b""] * (6 - len(frames))]
        if domain == _SELF_CHECK:
            return [version, request, b"200", b"", b"", b""]
        knock = Knock(domain.decode(), address.decode(), mechanism.decode(), credentials[0] if credentials else b"")
        try:
            name = self._gate.admit(knock) if version == _VERSION else ""
        except Exception as error:
            log.error("a connection is refused, since deciding about it failed", exc_info=error)
            name = ""
        # 400 is what clients hear of, at once; they do not try again by themselves then.
        return [version, request, b"200" if name else b"400", b"", name.encode(), b""]

    def check(self) -> None:
        """Raise CannotListen unless a question is answered."""
        asking = self._context.raw_socket(zmq.REQ, {"LINGER": 0}, 1 << 16)
        try:
            asking.connect(_ENDPOINT)
            asking.send_multipart([_VERSION, b"1", _SELF_CHECK, b"", b"", b"NULL"], NOBLOCK)
            self.answer()
            if not asking.poll(0) or asking.recv_multipart(NOBLOCK)[2] != b"200":
                raise CannotListen("the socket that decides about connections does not answer, so all would be refused")
        finally:
            asking.close(0)
