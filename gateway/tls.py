"""TLS for doors: contexts of a certificate and its key, which follow the files.

Contract: TLS 1.2 at least. A certificate that cannot be used raises InvalidCertificate, with the file that is wrong. So
does a key that every user of the machine can read; its group may, since programs of Debian share keys by a group.
A renewed one counts from the next handshake, and connections that are open stay. One that cannot be used is told of
once, and the one before stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
from contextlib import suppress

from ..broker.access_file import Stamp, stamp_of
from .errors import InvalidCertificate

log = logging.getLogger("penstock.gateway")

LOOK_S = 1.0
"""Between two looks at the files."""


class Certificate:
    """See the module. Without files there is no TLS."""

    def __init__(self, certificate: str, key: str) -> None:
        """Raises InvalidCertificate."""
        server_context(certificate, key)
        self._files = certificate, key
        self._contexts: list[ssl.SSLContext] = []
        self._used = self._seen = self._stamps()

    def context(self, protocol: str = "") -> ssl.SSLContext | None:
        """As of `server_context`, kept up to date by `look`."""
        made = server_context(*self._files, protocol)
        if made is not None:
            self._contexts.append(made)
        return made

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Use files that have changed, but not since the look before: one of two is written first."""
        stamps = self._stamps()
        is_calm, self._seen = stamps == self._seen, stamps
        if stamps == self._used or not is_calm:
            return
        self._used = stamps
        try:
            server_context(*self._files)  # a context that fails to load files is left without any
            for context in self._contexts:
                _load(context, *self._files)
        except InvalidCertificate as error:
            log.error("the certificate changed and cannot be used, the one before stays: %s", error.message)
        else:
            log.info("the certificate has changed, and is used from now on")

    def _stamps(self) -> list[Stamp | None]:
        return [_stamp(path) for path in self._files]


def _stamp(path: str) -> Stamp | None:
    """As `stamp_of`; None while the file is not there."""
    try:
        return stamp_of(path)
    except OSError:
        return None


def server_context(certificate: str, key: str, protocol: str = "") -> ssl.SSLContext | None:
    """The context of two PEM files: the certificate (with those that it needs behind it), and its key. None without.

    `protocol` is what clients that ask for one are told (ALPN).

    Raises InvalidCertificate.
    """
    if not certificate and not key:
        return None
    if not certificate or not key:
        raise InvalidCertificate("TLS needs a certificate and its key: set both tls_certificate and tls_key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if protocol:
        context.set_alpn_protocols([protocol])
    _load(context, certificate, key)
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
        is_open = os.stat(key).st_mode & stat.S_IROTH
    except ssl.SSLError as error:
        raise InvalidCertificate(
            f"{certificate} and {key} are no certificate and its key in PEM: {error.reason or error}"
        ) from error
    except OSError as error:
        raise InvalidCertificate(f"{certificate} or {key} cannot be read: {error.strerror}") from error
    if is_open:  # last: it is known to be a key
        raise InvalidCertificate(f"the key {key} is open to all users of this machine: chmod o= {key}")


def valid_until(certificate: str, key: str) -> float:
    """When the certificate of two PEM files ends, in seconds since 1970.

    A handshake in memory finds it, since `ssl` shows a certificate only to its peer. The client in it trusts the
    file, also where another authority has signed the certificate.

    Raises InvalidCertificate if it cannot be used, or not by a client of today: it has ended, or is not valid yet.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    server = server_context(certificate, key)
    if server is None:
        raise InvalidCertificate("no certificate is set: set tls_certificate and tls_key")
    client.load_verify_locations(certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (asking, answering, asking):  # hello, certificate, its check
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise InvalidCertificate(f"clients refuse {certificate}: {error.verify_message}") from error
    shown = asking.getpeercert()
    assert shown is not None, "the handshake has a certificate after its second message"
    return ssl.cert_time_to_seconds(str(shown["notAfter"]))


def _no_password() -> str:
    raise InvalidCertificate("the key has a password: decrypt it, and keep it readable by its owner alone")
