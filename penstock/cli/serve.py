"""`penstock serve`: run a broker until told to stop.

Contract for programs: under --json one line {"event": "ready", "listen": [...], "advertise": [...], "data": ...,
"pids": {...}} on standard output when it serves (and again when a child was replaced, since pids change), with
"resp": [...] and "http": [...] where a gateway listens, "metrics": [...] where an exporter does; with --cluster a line
{"event": "role", "role": "leader", "follower" or "candidate", "term": 4} whenever either changes; 0 after a drain on
SIGTERM or ^C; anything else is a failure with one line on standard error.
"""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import config as configuration
from ..address import check_private
from ..storage.linux import need_linux
from ..transport.apart import need_apart
from ..transport.free_addresses import need_free
from ..transport.url import DOOR_SCHEMES, parse
from .options import hand_down_key, with_config
from .output import Output
from .reloading import Reloading
from .standard_streams import tell

if TYPE_CHECKING:
    from ..broker.cluster_config import ClusterConfig
    from ..broker.config import ServeConfig
    from ..broker.diagnostics import DiagnosticOptions

_ENGINE = (
    "max_frame_bytes", "max_record_bytes", "max_topics", "max_partitions", "max_producers", "max_dedup_keys",
    "max_schedules", "max_barriers", "max_barrier_bytes", "max_stages", "max_transactions", "max_sessions",
    "producer_expiry_s", "stage_expiry_s", "transaction_expiry_s", "group_expiry_s", "handover_s",
)  # fmt: skip

DOORS = ("resp", "http", "metrics")
"""Settings with addresses of the processes beside the broker."""

CLUSTER_FRAME_BYTES = 4 << 20
"""The largest batch of a cluster that does not say."""

SPARE_BYTES = 1 << 20
"""Of a frame between nodes: what the broker itself appends in a turn."""


@click.command
@click.option("--data", metavar="DIR", help="Data directory. Default: a directory of this user.")
@click.option(
    "--listen",
    metavar="URL",
    multiple=True,
    help="unix:///path, ipc:///path or tcp://host:port (0: any); repeatable. Default: a Unix socket of this user.",
)
@click.option(
    "--advertise",
    metavar="URL",
    multiple=True,
    help="An address that others connect to, behind containers or NAT; repeatable. Default: those of --listen.",
)
@click.option(
    "--resp",
    metavar="URL",
    multiple=True,
    help="Where Redis clients connect, to a gateway beside the broker: unix:///path, tcp:// or tls://host:port.",
)
@click.option(
    "--http",
    metavar="URL",
    multiple=True,
    help="Where HTTP clients connect, to the same gateway, likewise.",
)
@click.option(
    "--metrics",
    metavar="URL",
    multiple=True,
    help="Where Prometheus scrapes /metrics, from an exporter beside the broker: unix:///path, tcp:// or tls://.",
)
@click.option("--users", metavar="FILE", help="Users that clients of the gateway have to be; see `penstock user add`.")
@click.option(
    "--access", metavar="FILE", help="Users, and what each may do here and at the gateway; see `penstock acl add`."
)
@click.option("--broker-key", metavar="FILE", help="The broker's key, for tcp:// with --access, and between nodes.")
@click.option("--cluster", metavar="NAME", help="Be a member of this cluster, with --node and --peer.")
@click.option("--node", type=click.IntRange(1, 255), metavar="NUMBER", help="The number of this node in its cluster.")
@click.option(
    "--peer",
    metavar="NUMBER=URL",
    multiple=True,
    help="Where a node of the cluster hears the others, at this port and the next; for each node, the same on all.",
)
@click.option(
    "--peer-listen", metavar="URL", help="Where this node hears the others, if not at its --peer: tcp://*:7171."
)
@click.option("--insecure", is_flag=True, default=None, help="Allow addresses that other machines can reach.")
@click.option(
    "--no-create", is_flag=True, default=None, help="A record for a topic that is not there is an error at the gateway."
)
@click.option("--parent", type=int, metavar="PID", help="Drain when this process ends.")
@with_config
def command(
    *, data: str | None, listen: tuple[str, ...], advertise: tuple[str, ...], resp: tuple[str, ...],
    http: tuple[str, ...], metrics: tuple[str, ...], users: str | None, access: str | None,
    broker_key: str | None, cluster: str | None, node: int | None, peer: tuple[str, ...], peer_listen: str | None,
    insecure: bool | None, no_create: bool | None, parent: int | None,
    settings: tuple[tuple[str, str], ...], config_file: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Run a broker until SIGTERM or ^C, which drain it: what was acknowledged is on disk either way."""
    need_linux("penstock serve")
    own: dict[str, Any] = {
        "data": data, "listen": list(listen) or None, "advertise": list(advertise) or None,
        "resp": list(resp) or None, "http": list(http) or None, "metrics": list(metrics) or None,
        "users": users, "access": access, "broker_key": broker_key, "insecure": insecure, "no_create": no_create,
        "cluster": cluster, "node": node, "peer": list(peer) or None, "peer_listen": peer_listen,
    }  # fmt: skip

    flags = {**dict(settings), **{name: value for name, value in own.items() if value is not None}}
    load = partial(configuration.load, flags, environ=dict(os.environ), path=config_file)  # before a key is handed down
    loaded = load()
    output = Output(as_json=as_json)
    if loaded.source("listen") == "default":
        _make_private(Path(loaded.config.listen[0].removeprefix("unix://")).parent)

    from ..broker import Supervisor
    from ..broker.diagnostics import begin, say
    from ..broker.system import die_with_parent

    if parent is not None and not die_with_parent(parent):
        raise click.UsageError(f"--parent {parent} is not the process that started this one")
    greeted = False

    def on_event(event: dict[str, Any]) -> None:
        nonlocal greeted
        if as_json:
            tell(partial(output.json, event))
        elif event["event"] == "role":
            tell(partial(output.fields, [("role", f"{event['role']} in term {event['term']}")]))
        elif not greeted:
            tell(partial(_greet, output, event))
        greeted = True

    hand_down_key(loaded.config)
    config = serve_config(loaded.config)
    begin("supervisor", config.log)
    reloading = Reloading(loaded.config, load, output, say)
    return Supervisor(config).run(on_event, lambda: _served(reloading(), config.log))


def _served(live: dict[str, Any], log: DiagnosticOptions) -> dict[str, Any]:
    """Settings that change now, as the supervisor calls them."""
    from msgspec.structs import replace

    others = {name: value for name, value in live.items() if name != "log_level"}
    return others if others == live else {**others, "log": replace(log, level=live["log_level"])}


def check_settings(config: configuration.Config) -> None:
    """Raise what `serve` and its processes would about addresses and files, before anything is made."""
    from ..broker import access_file
    from ..transport.keys import Key

    serve_config(config)
    if users := users_file(config):
        access_file.read(users)
    if config.broker_key:
        Key.read(config.broker_key)
    door_settings(config)


def serve_config(config: configuration.Config) -> ServeConfig:
    """The supervisor's configuration, whose addresses are apart and free. Raises what is wrong with it."""
    from ..broker.config import ServeConfig
    from ..broker.keeper.core import KeeperOptions

    made = ServeConfig(
        data=str(Path(config.data).absolute()),
        listen=tuple(config.listen),
        advertise=tuple(config.advertise),
        access=_absolute(config.access),
        broker_key=_absolute(config.broker_key),
        insecure=config.insecure,
        board_rows=config.board_rows,
        mapped_readers=config.mapped_readers,
        drain_s=config.drain_s,
        keeper_timeout_s=config.keeper_timeout_s,
        gateway=_gateway(config) if config.resp or config.http else "",
        exporter=_exporter(config) if config.metrics else "",
        log=log_options(config),
        keeper=KeeperOptions(lazy_s=config.lazy_s, scrub_s=config.scrub_s, scrub_most=config.scrub_bytes_s),
        cluster=cluster_config(config),
        node=_limits(config),
    )
    made.addresses()
    doors = [(f"--{door}", parse(address, schemes=DOOR_SCHEMES)) for door in DOORS for address in getattr(config, door)]
    need_apart([*made.places(), *doors])
    need_free(url for _, url in doors)
    return made


def cluster_config(config: configuration.Config) -> ClusterConfig | None:
    """The cluster that the broker is a member of. Raises InvalidConfig, InvalidPeers."""
    from ..broker.cluster_config import ClusterConfig, peers_of

    if not config.cluster:
        if config.peer or config.node or config.peer_listen:
            raise configuration.InvalidConfig(
                "--node, --peer and --peer-listen are of a member of a cluster: name it with --cluster, or leave them "
                "out"
            )
        return None
    if not config.node:
        raise configuration.InvalidConfig(f"--cluster {config.cluster}: say which node this is with --node")
    return ClusterConfig(name=config.cluster, node=config.node, peers=peers_of(config.peer), listen=config.peer_listen)


def _limits(config: configuration.Config) -> dict[str, Any]:
    """The limits of the engine. A cluster's batches are smaller: acknowledgements of all come in one order."""
    found = {name: getattr(config, name) for name in _ENGINE}
    if config.cluster and config.max_frame_bytes == configuration.FRAME_BYTES:
        found["max_frame_bytes"] = CLUSTER_FRAME_BYTES
    if config.cluster:
        _check_frames(found["max_frame_bytes"], len(config.listen))
    return found


def _check_frames(frame_bytes: int, listeners: int) -> None:
    """Raise InvalidConfig where a turn may take more than fits into a frame between nodes: it is one entry."""
    from ..broker.intake import TURN_BYTES
    from ..broker.peers.messages import FRAME_BYTES_MAX

    most = (FRAME_BYTES_MAX - SPARE_BYTES - TURN_BYTES) // max(listeners, 1)
    if frame_bytes > most:
        raise configuration.InvalidConfig(
            f"max_frame_bytes={frame_bytes} is over {most}, which is the most for a node of a cluster with --listen "
            f"addresses: {listeners}: nodes could not send each other what comes in together; lower it"
        )


def _gateway(config: configuration.Config) -> str:
    """The settings of the gateway; the supervisor knows where the broker is.

    Raises InvalidUrl, InsecureListen, MissingLibrary, InvalidUsers, InvalidCertificate.
    """
    gateway = import_module("..gateway.config", __package__)  # by name: it comes with an extra
    users = _absolute(users_file(config))
    settings = gateway.GatewayConfig(
        url="", resp=tuple(config.resp), http=tuple(config.http), users=users, grants=bool(config.access),
        insecure=config.insecure, drain_s=config.drain_s / 3,  # before the supervisor ends it
        **door_settings(config),
    )  # fmt: skip
    doors = settings.addresses()
    import_module("..gateway.libraries", __package__).check(doors)  # before anything is made
    if users:
        import_module("..gateway.users", __package__).Users.load(users)
    return settings.to_json()


def log_options(config: configuration.Config) -> DiagnosticOptions:
    """Where the processes log. Raises InvalidConfig."""
    from ..broker.diagnostics import DiagnosticOptions

    _check_log_dir(config.log_dir)
    return DiagnosticOptions(
        level=config.log_level, format=config.log_format, files=config.log_files, file_bytes=config.log_file_bytes,
        directory=_absolute(config.log_dir), age_s=config.log_age_s,
    )  # fmt: skip


def _check_log_dir(given: str) -> None:
    place = Path(_absolute(given) or ".")
    found = next(each for each in (place, *place.parents) if each.exists())
    if given and not (found.is_dir() and os.access(found, os.W_OK | os.X_OK)):
        raise configuration.InvalidConfig(
            f"log_dir={given} cannot be used: {found} is no directory that this user can write; name another one, or "
            "leave it out to log to standard error"
        )


def _exporter(config: configuration.Config) -> str:
    """The settings of the exporter.

    Raises InvalidUrl, InsecureListen, InvalidUsers, InvalidCertificate.
    """
    from ..exporter import ExporterConfig
    from ..gateway.tls import server_context
    from ..gateway.users import Users

    file = users_file(config)
    users, certificate, key = (_absolute(each) for each in (file, config.tls_certificate, config.tls_key))
    settings = ExporterConfig(
        url="", metrics=tuple(config.metrics), partitions=config.metrics_partitions, most=config.metrics_most,
        insecure=config.insecure, data=_absolute(config.data), users=users, grants=bool(config.access),
        tls_certificate=certificate, tls_key=key,
    )  # fmt: skip
    server_context(certificate, key)
    if users:
        Users.load(users)
    settings.addresses()
    return settings.to_json()


def _absolute(path: str) -> str:
    """A path for processes that run elsewhere; "" for none."""
    return str(Path(path).absolute()) if path else ""


def users_file(config: configuration.Config) -> str:
    """The file that has the users of a gateway; "" without one. Raises InvalidConfig."""
    if config.users and config.access and config.users != config.access:
        raise configuration.InvalidConfig(
            f"users={config.users} and access={config.access}: users and grants are one file: name it with access"
        )
    return config.access or config.users


def door_settings(config: configuration.Config) -> dict[str, Any]:
    """The settings of the gateway's doors. Raises InvalidCertificate."""
    certificate, key = _absolute(config.tls_certificate), _absolute(config.tls_key)
    import_module("..gateway.tls", __package__).server_context(certificate, key)
    return {
        "cors": tuple(config.cors), "may_create": not config.no_create, "tls_certificate": certificate,
        "tls_key": key, "timeout_s": config.timeout_s,
    }  # fmt: skip


def _greet(output: Output, event: dict[str, Any]) -> None:
    lines = [("listening on", address) for address in event["listen"]]
    if event["advertise"] != event["listen"]:
        lines += [("advertised as", address) for address in event["advertise"]]
    lines += [("Redis clients on", address) for address in event.get("resp", ())]
    lines += [("HTTP clients on", address) for address in event.get("http", ())]
    lines += [("metrics on", address) for address in event.get("metrics", ())]
    output.fields([*lines, ("data in", event["data"]), ("broker", f"pid {event['pids']['broker']}, ^C ends it")])


def _make_private(directory: Path) -> None:
    """Create the default socket directory, for our user alone."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(directory)
