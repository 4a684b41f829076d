"""A certificate that is renewed is used by the doors that run; one that cannot be used changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.exporter import ExporterConfig
from penstock.gateway.config import GatewayConfig
from penstock.gateway.errors import InvalidCertificate
from penstock.gateway.tls import Certificate, server_context
from support.certificates import make_certificate
from support.processes import Serving

from .conftest import LIBRARIES, NEEDS

WAIT_S = 40.0
ANY = "tls://127.0.0.1:0"


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Another certificate for localhost, and its key."""
    return make_certificate(tmp_path_factory.mktemp("renewed"))


@pytest.fixture
def files(certificate: tuple[str, str], tmp_path: Path) -> tuple[str, str]:
    """A certificate that may be written over."""
    return str(shutil.copy(certificate[0], tmp_path / "c.pem")), str(shutil.copy(certificate[1], tmp_path / "k.pem"))


def replace(path: str, content: str) -> None:
    shutil.copy(content, f"{path}.new")
    os.replace(f"{path}.new", path)


def shown_by(context: ssl.SSLContext) -> bytes:
    """The certificate that a context shows in a handshake, which needs no socket."""
    client_context = ssl.create_default_context()
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.getpeercert(binary_form=True) or b""


def der(path: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(path).read_text())


def test_it_is_used_from_the_next_handshake_once_both_files_have_come(
    files: tuple[str, str], renewed: tuple[str, str], caplog: pytest.LogCaptureFixture
):
    watched = Certificate(*files)
    contexts = [watched.context(protocol) for protocol in ("", "http/1.1")]
    before = der(files[0])

    def shown() -> list[bytes]:
        return [shown_by(each) for each in contexts if each is not None]

    for _ in range(2):
        watched.look()
    assert shown() == [before] * 2
    replace(files[0], renewed[0])
    watched.look()
    replace(files[1], renewed[1])
    watched.look()
    assert shown() == [before] * 2, "it has just changed"
    watched.look()
    assert shown() == [der(renewed[0])] * 2
    assert not caplog.records


@pytest.mark.parametrize("change", ["nonsense", "gone", "of another key"])
def test_one_that_cannot_be_used_is_told_of_once_and_the_one_before_stays(
    files: tuple[str, str], renewed: tuple[str, str], caplog: pytest.LogCaptureFixture, change: str
):
    watched, before = Certificate(*files), der(files[0])
    context = watched.context()
    assert context is not None
    if change == "gone":
        os.unlink(files[0])
    elif change == "nonsense":
        Path(files[0]).write_text("none")
    else:
        replace(files[0], renewed[0])
    for _ in range(4):
        watched.look()
        assert shown_by(context) == before
    (told,) = caplog.messages
    assert told.startswith(f"the certificate changed and cannot be used, the one before stays: {files[0]}")
    replace(files[0], renewed[0])
    replace(files[1], renewed[1])
    for _ in range(2):
        watched.look()
    assert shown_by(context) == der(renewed[0])


def test_a_new_key_that_all_users_can_read_is_used_once_its_mode_is_right(
    files: tuple[str, str], renewed: tuple[str, str], caplog: pytest.LogCaptureFixture
):
    watched, before = Certificate(*files), der(files[0])
    context = watched.context()
    assert context is not None
    replace(files[0], renewed[0])
    replace(files[1], renewed[1])
    os.chmod(files[1], 0o644)
    for _ in range(3):
        watched.look()
    assert shown_by(context) == before
    (told,) = caplog.messages
    assert told.endswith(f"chmod o= {files[1]}")
    os.chmod(files[1], 0o640)
    for _ in range(2):
        watched.look()
    assert shown_by(context) == der(renewed[0])


def test_without_files_there_is_nothing_to_look_at():
    nothing = Certificate("", "")
    nothing.look()
    assert nothing.context() is None


@pytest.fixture
def ports(files: tuple[str, str], tmp_path: Path) -> Iterator[dict[str, int]]:
    """Of the doors that speak TLS."""
    for name in LIBRARIES:
        pytest.importorskip(name, reason=NEEDS)
    secure = {"url": "", "tls_certificate": files[0], "tls_key": files[1]}
    config = ServeConfig(
        data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/s",), board_rows=64,
        gateway=GatewayConfig(resp=(ANY,), http=(ANY,), **secure).to_json(),
        exporter=ExporterConfig(metrics=(ANY,), **secure).to_json(),
    )  # fmt: skip
    with Serving(config) as running:
        doors = ("resp", "http", "metrics")
        yield {door: int(running.ready[door][0].rpartition(":")[2]) for door in doors}


def connection(port: int, trusted: str) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    return ssl.create_default_context(cafile=trusted).wrap_socket(plain, server_hostname="localhost")


def test_all_doors_show_it_and_connections_that_are_open_stay(
    ports: dict[str, int], files: tuple[str, str], certificate: tuple[str, str], renewed: tuple[str, str]
):
    with connection(ports["resp"], certificate[0]) as opened:
        replace(files[0], renewed[0])
        replace(files[1], renewed[1])
        deadline = time.monotonic() + WAIT_S
        for port in ports.values():
            while not is_trusted(port, renewed[0]):
                assert time.monotonic() < deadline
        opened.sendall(b"PING\r\n")
        assert opened.recv(100) == b"+PONG\r\n"
    with connection(ports["metrics"], renewed[0]) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert scraper.recv(100).startswith(b"HTTP/1.1 200 OK")


def is_trusted(port: int, trusted: str) -> bool:
    try:
        connection(port, trusted).close()
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_a_key_that_goes_once_it_was_read_is_one_that_cannot_be_read(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error would end the look-out for certificates, without a word."""

    def gone(path: str) -> os.stat_result:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", gone)
        with pytest.raises(InvalidCertificate, match="cannot be read: No such file"):
            server_context(*files)
