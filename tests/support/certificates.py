"""Certificates for the doors of a test, of any age, made by `cryptography`: the machine needs no command for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest


def make_certificate(folder: Path, days: float = 2, password: str = "") -> tuple[str, str]:
    """A certificate for localhost that ends in `days`, and its key, as PEM files in `folder`.

    `password` is the key's; "" leaves it open.
    """
    pytest.importorskip("cryptography", reason="needs the extra encryption: pip install '.[dev]'")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    ends = datetime.now(UTC) + timedelta(days=days)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=400))
        .not_valid_after(ends)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        lock = serialization.BestAvailableEncryption(password.encode())
    form = serialization.PrivateFormat.PKCS8
    paths[1].touch(0o600)
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    return str(paths[0]), str(paths[1])
