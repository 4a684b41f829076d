"""A RabbitMQ server of our own: rabbitmq-server of Debian as a plain process, for quorum queues and for streams.

Everything is under the given directory, and every listener is on 127.0.0.1 with a port of its own: AMQP, streams, the
Erlang distribution (which a node cannot do without), and epmd, the distribution's directory of names, which would
otherwise be started as a daemon that outlives its node. Schedulers do not spin while they have nothing to do, which is
RabbitMQ's default and is said again here because an idle server must cost the others nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import servers

LIBRARY = "/usr/lib/rabbitmq/lib"
DEBIAN = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The script behind the one on the path: that one changes to the user `rabbitmq` and to the system's directories."""

CONFIGURATION = """
listeners.tcp.1 = {host}:{amqp}
stream.listeners.tcp.1 = {host}:{stream}
stream.advertised_host = {host}
stream.advertised_port = {stream}
log.console = true
log.console.level = warning
log.file = false
disk_free_limit.absolute = 100MB
"""
BUSY_WAIT = "+sbwt none +sbwtdcpu none +sbwtdio none"


@dataclass(frozen=True)
class Ports:
    """The ports of one server."""

    amqp: int
    stream: int
    distribution: int
    epmd: int


def absent(package: str) -> str:
    return servers.absence("rabbitmq-server", package) or servers.absence("epmd", package)


def version() -> dict[str, str]:
    """Version from the name of the code directory: asking the server takes a second of Erlang."""
    found = [path.name.partition("-")[2] for path in Path(LIBRARY).glob("rabbitmq_server-*")]
    return {"rabbitmq-server": ", ".join(found) or "unknown"}


@contextmanager
def serve(directory: Path) -> Iterator[Ports]:
    """Run a node with the stream plugin; yields its ports once both answer."""
    ports = Ports(*(servers.free_port() for _ in range(4)))
    (directory / "rabbitmq.conf").write_text(
        CONFIGURATION.format(host=servers.LOOPBACK, amqp=ports.amqp, stream=ports.stream)
    )
    (directory / "enabled_plugins").write_text("[rabbitmq_stream].\n")
    epmd = [servers.program("epmd"), "-address", servers.LOOPBACK, "-port", str(ports.epmd)]
    server = DEBIAN if Path(DEBIAN).exists() else servers.program("rabbitmq-server")
    environment = _environment(directory, ports)
    with (
        servers.running(epmd, directory / "epmd.log", [ports.epmd]),
        servers.running([server], directory / "rabbitmq.log", [ports.amqp, ports.stream], environment),
    ):
        yield ports


def _environment(directory: Path, ports: Ports) -> dict[str, str]:
    distribution = "-kernel inet_dist_use_interface {127,0,0,1}"
    return {
        "HOME": str(directory),  # the Erlang cookie is written there
        "ERL_EPMD_ADDRESS": servers.LOOPBACK,
        "ERL_EPMD_PORT": str(ports.epmd),
        "RABBITMQ_NODENAME": f"peer-{ports.amqp}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": servers.LOOPBACK,
        "RABBITMQ_NODE_PORT": str(ports.amqp),
        "RABBITMQ_DIST_PORT": str(ports.distribution),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none.conf"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        # Without a proxy shell in between, so that the process we started is the one that serves.
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_START_ARGS": "-noinput -start_epmd false",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{BUSY_WAIT} {distribution}",
    }
