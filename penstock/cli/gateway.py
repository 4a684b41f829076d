"""`penstock gateway`: serve Redis clients, as a client of a broker that runs here or elsewhere.

Contract for programs: under --json one line {"event": "ready", "resp": [...], "broker": ..., "pids": {...}} on standard
output when it serves; 0 after a drain on SIGTERM or ^C; anything else is a failure with one line on standard error.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from .options import Invocation, with_session
from .standard_streams import unread_is_fine


@click.command
@click.option(
    "--resp",
    metavar="URL",
    multiple=True,
    required=True,
    help="Where Redis clients connect: unix:///path or tcp://host:port (0: any); repeatable.",
)
@click.option("--users", metavar="FILE", default="", help="Users that clients have to be; see `penstock user add`.")
@click.option("--insecure", is_flag=True, help="Allow addresses that other machines can reach, without users.")
@click.option("--no-create", is_flag=True, help="A record for a topic that is not there is an error.")
@with_session
def command(*, resp: tuple[str, ...], users: str, insecure: bool, no_create: bool, session: Invocation) -> None:
    """Serve Redis clients until SIGTERM or ^C, which answer what has arrived. The broker may be restarted meanwhile."""
    gateway = import_module("..gateway.process", __package__)  # by name: it comes with an extra
    config = gateway.GatewayConfig(
        url=session.url, resp=resp, users=users or session.config.users, insecure=insecure, may_create=not no_create,
        timeout_s=session.config.timeout_s, drain_s=session.config.drain_s,
    )  # fmt: skip

    def ready(event: dict[str, Any]) -> None:
        with unread_is_fine():
            sentence = f"Redis clients connect to {', '.join(event['resp'])}; ^C ends it"
            session.output.say(event.pop("event"), sentence, **event)

    gateway.run(config, ready)
