"""A broker and a gateway in processes of their own, and clients of Redis and HTTP that talk to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.broker import ServeConfig, access_file
from support import npm
from support.certificates import make_certificate
from support.processes import Serving, spawn
from support.sources import ROOT

NEEDS = "needs the extra gateway and the clients redis and httpx: pip install '.[dev]'"
LIBRARIES = ("hiredis", "httptools", "httpx", "jinja2", "redis", "starlette", "uvicorn", "uvloop")


class GatewayProcess:
    """`penstock gateway`, as a program runs it."""

    def __init__(
        self,
        url: str,
        *resp: str,
        http: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        asked = [("--resp", address) for address in resp or (() if http else ("tcp://127.0.0.1:0",))]
        places = [word for place in [*asked, *(("--http", address) for address in http)] for word in place]
        command = [sys.executable, "-m", "penstock", "gateway", "--json", "--url", url, *places, *options]
        variables = {f"PENSTOCK_{name.upper()}": value for name, value in (settings or {}).items()}
        environment = {**os.environ, **variables}
        self.process = spawn(command, signal.SIGTERM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1].decode())
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def port(self) -> int:
        return next(int(url.rpartition(":")[2]) for url in self.ready["resp"] if url.startswith("t"))

    @property
    def http_url(self) -> str:
        return next(url.replace("tcp", "http", 1) for url in self.ready["http"] if url.startswith("tcp"))

    def errors(self) -> str:
        """What was said on standard error since this was asked last."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        return (self.process.stderr.read() or b"").decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        assert b"Traceback" not in errors, errors.decode()
        return self.process.returncode


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A short path, as Unix sockets need it."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def broker(folder: Path) -> Iterator[Serving]:
    with Serving(ServeConfig(data=str(folder / "data"), listen=(f"unix://{folder}/b",))) as serving:
        yield serving


@pytest.fixture(scope="session")
def gateway(broker: Serving, folder: Path) -> Iterator[GatewayProcess]:
    for name in LIBRARIES:
        pytest.importorskip(name, reason=NEEDS)
    process = GatewayProcess(
        broker.url, "tcp://127.0.0.1:0", f"unix://{folder}/r", http=("tcp://127.0.0.1:0", f"unix://{folder}/h")
    )
    try:
        yield process
    finally:
        assert process.stop() == 0


@pytest.fixture(scope="session")
def secure(broker: Serving, certificate: tuple[str, str]) -> Iterator[GatewayProcess]:
    """A gateway whose doors speak TLS."""
    settings = {"tls_certificate": certificate[0], "tls_key": certificate[1]}
    gateway = GatewayProcess(broker.url, "tls://127.0.0.1:0", http=("tls://localhost:0",), settings=settings)
    try:
        yield gateway
    finally:
        assert gateway.stop() == 0


@pytest.fixture(scope="session")
def guarded(broker: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with a user: ann, by the password "s3cret word"."""
    path = str(tmp_path_factory.mktemp("users") / "users")
    access_file.add_password(path, "ann", "s3cret word")
    process = GatewayProcess(broker.url, options=("--users", path))
    try:
        yield process
    finally:
        assert process.stop() == 0


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the TypeScript client with what it needs for development, compiled."""
    sources = ROOT / "clients" / "typescript"
    copy = npm.installed(sources, tmp_path_factory.mktemp("typescript") / "penstock", "the TypeScript client")
    npm.succeed(npm.COMPILER, cwd=copy)
    return copy


Connect = Callable[..., Any]


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def connect(gateway: GatewayProcess, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make clients of redis-py of one version of RESP."""
    import redis

    made: list[Any] = []

    def client(**options: Any) -> Any:
        place = {} if "unix_socket_path" in options else {"port": gateway.port}
        made.append(redis.Redis(**{**place, "protocol": request.param, **options}))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture
def resp(connect: Connect) -> Any:
    """A client of redis-py."""
    return connect()


@pytest.fixture
def native(broker: Serving) -> Iterator[penstock.Client]:
    with penstock.connect(broker.url) as client:
        yield client


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A name of this test alone."""
    return "t" + format(abs(hash(request.node.nodeid)) % 10**9) + str(os.getpid())
