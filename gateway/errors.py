"""What the gateway refuses before it serves. Pure."""

from __future__ import annotations

from ..storage.errors import Error


class GatewayError(Error):
    """Base of the gateway's errors."""

    code = "gateway_error"


class InvalidCertificate(GatewayError, ValueError):
    """A certificate or a key that TLS cannot use; the message names the file."""

    code = "invalid_certificate"
