"""`penstock quota`: how much each user of a file may take.

Contract: changes the file as a whole; a running broker or gateway uses it within a second. Nothing here needs a broker.
"""

from __future__ import annotations

import click

from ..broker import access_file
from ..broker.quotas import Quota
from .consent import ask, asks_first
from .options import SIZE, with_output
from .output import Output

_FILE = click.argument("file", type=click.Path(dir_okay=False))
_NAME = click.argument("name")
_COUNT = click.IntRange(min=0)


@click.group
def command() -> None:
    """Bound what users take, in a file that `serve --access` names. Without a quota, a user is not counted."""


@command.command("set", short_help="Give a user a quota.")
@_FILE
@_NAME
@click.option("--bytes", "bytes_s", type=SIZE, default=0, help="Sent and received in a second, e.g. 1MB.")
@click.option("--requests", "requests_s", type=_COUNT, default=0, help="In a second.")
@click.option("--connections", type=_COUNT, default=0, help="At once.")
@click.option("--in-flight", "in_flight", type=_COUNT, default=0, help="Requests that are not answered.")
@with_output
def set_(file: str, name: str, bytes_s: int, requests_s: int, connections: int, in_flight: int, output: Output) -> None:
    """Give user NAME this quota in place of the one before, or each user that has none of its own, with "*"."""
    quota = Quota(bytes_s, requests_s, connections, in_flight)
    access_file.set_quota(file, name, quota)
    text = access_file.quota_text(quota)
    output.say("set", f"quota of {name}: {text}", user=name, quota=text, file=file)


@command.command("list", short_help="List the quotas.")
@_FILE
@with_output
def list_(file: str, output: Output) -> None:
    """List the quotas of FILE; that of * is of each user without one of its own."""
    found = sorted(access_file.read(file).quotas.items())
    if output.as_json:
        for name, quota in found:
            output.json({"user": name, **{field: getattr(quota, field) for field in access_file.BOUNDS.values()}})
        return
    fields = access_file.BOUNDS.values()
    rows = [[name, *(str(getattr(quota, field) or "") for field in fields)] for name, quota in found]
    headings = ["user", "bytes/s", "requests/s", "connections", "in flight"]
    output.table(headings, rows, empty="no quotas yet: penstock quota set --help")


@command.command(short_help="Take a quota away.")
@_FILE
@_NAME
@with_output
@asks_first
def delete(file: str, name: str, asks: bool, output: Output) -> None:
    """Take the quota of NAME, or of *, away."""
    if asks:
        ask(f"delete the quota of {name} from {file}?")
    access_file.delete_quota(file, name)
    output.say("deleted", f"quota of {name} deleted", user=name, file=file)
