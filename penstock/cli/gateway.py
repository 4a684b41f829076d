"""`penstock gateway`: serve clients of Redis and of HTTP, as a client of a broker that runs here or elsewhere.

Contract for programs: under --json one line {"event": "ready", "resp": [...], "http": [...], "broker": ..., "pids":
{...}} on standard output when it serves, with the doors that were asked for; 0 after a drain on SIGTERM or ^C; anything
else is a failure with one line on standard error.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
from msgspec import structs

from ..broker.diagnostics import begin
from .options import Invocation, with_session, with_settings
from .serve import door_settings, log_options, users_file
from .standard_streams import unread_is_fine


@click.command
@click.option(
    "--resp",
    metavar="URL",
    multiple=True,
    help="Where Redis clients connect: unix:///path, tcp:// or tls://host:port (0: any).",
)
@click.option("--http", metavar="URL", multiple=True, help="Where HTTP clients connect, likewise.")
@click.option("--users", metavar="FILE", default="", help="Users that clients have to be; see `penstock user add`.")
@click.option("--access", metavar="FILE", default="", help="Users, and what each may do; see `penstock acl add`.")
@click.option("--insecure", is_flag=True, help="Allow addresses that other machines can reach, without users.")
@click.option("--no-create", is_flag=True, help="A record for a topic that is not there is an error.")
@with_settings
@with_session
def command(
    *,
    resp: tuple[str, ...],
    http: tuple[str, ...],
    users: str,
    access: str,
    insecure: bool,
    no_create: bool,
    session: Invocation,
) -> None:
    """Serve clients of Redis and HTTP until SIGTERM or ^C, which answer what has arrived.

    The broker may be restarted meanwhile.
    """
    if not resp and not http:
        raise click.UsageError("nothing to serve: name an address with --resp or --http")
    gateway = import_module("..gateway.process", __package__)  # by name: it comes with an extra
    begin("gateway", log_options(session.config))
    given = structs.replace(
        session.config, users=users or session.config.users, access=access or session.config.access,
        no_create=no_create or session.config.no_create, insecure=insecure or session.config.insecure,
    )  # fmt: skip
    config = gateway.GatewayConfig(
        url=session.url, resp=resp, http=http, users=users_file(given), grants=bool(given.access),
        insecure=given.insecure, **door_settings(given), drain_s=given.drain_s,
    )  # fmt: skip

    def ready(event: dict[str, Any]) -> None:
        with unread_is_fine():
            places = [
                f"{name} clients connect to {', '.join(event[door])}"
                for door, name in (("resp", "Redis"), ("http", "HTTP"))
                if door in event
            ]
            session.output.say(event.pop("event"), f"{'; '.join(places)}; ^C ends it", **event)

    gateway.run(config, ready)
