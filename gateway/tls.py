"""TLS for doors: a context of a certificate and its key.

Contract: TLS 1.2 at least. A certificate that cannot be used raises InvalidCertificate, with the file that is wrong.
"""

from __future__ import annotations

import ssl

from .errors import InvalidCertificate


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
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidCertificate(
            f"{certificate} and {key} are no certificate and its key in PEM: {error.reason or error}"
        ) from error
    except OSError as error:
        raise InvalidCertificate(f"{certificate} or {key} cannot be read: {error.strerror}") from error
    return context


def _no_password() -> str:
    raise InvalidCertificate("the key has a password: decrypt it, and keep it readable by its owner alone")
