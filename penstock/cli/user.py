"""`penstock user`: the users of a broker and its gateway.

Contract: a password is asked for twice at a terminal, without showing it; otherwise it is the first line of standard
input. It is never an argument, which other users of the machine could see. A token is shown once, on standard output.
Nothing here needs a broker.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from ..broker import access_file
from ..broker.rights import Grant
from .consent import ask, asks_first
from .options import EXPIRY, with_output
from .output import Output
from .scopes import ONLY, text_of

_FILE = click.argument("file", type=click.Path(dir_okay=False))


@click.group
def command() -> None:
    """Add, list and delete users and their tokens, in a file that `serve --users` or `serve --access` names."""


@command.command(short_help="Add a user, or change a password.")
@_FILE
@click.argument("name")
@with_output
def add(file: str, name: str, output: Output) -> None:
    """Add user NAME to FILE, or change the password. The file is made for you alone; a running gateway notices."""
    is_new = access_file.add_password(file, name, _password(name))
    sentence = f"user {name} is in {file}" if is_new else f"user {name} has another password"
    output.say("added" if is_new else "changed", sentence, user=name, file=file)


def _password(name: str) -> str:
    if sys.stdin.isatty():
        return click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    try:
        return sys.stdin.readline().rstrip("\r\n")
    except UnicodeDecodeError:  # whose text would show a byte of it
        raise click.UsageError("the password is not UTF-8: give it as text") from None


@command.command("list")
@_FILE
@with_output
def list_(file: str, output: Output) -> None:
    """List the users of FILE."""
    names = access_file.read(file).names
    if output.as_json:
        for name in names:
            output.json({"user": name})
        return
    output.table(["user"], [[name] for name in names], empty="no users yet: penstock user add FILE NAME")


@command.command
@_FILE
@click.argument("name")
@with_output
@asks_first
def delete(file: str, name: str, asks: bool, output: Output) -> None:
    """Delete user NAME from FILE, and all that it has. Its connections to a running gateway may do nothing more."""
    if asks:
        ask(f"delete user {name} from {file}?")
    access_file.delete_user(file, name)
    output.say("deleted", f"user {name} deleted from {file}", user=name, file=file)


@command.command("token")
@_FILE
@click.argument("name")
@click.option("--expires", type=EXPIRY, metavar="TIME", help="How long it is valid, e.g. 30d. Default: until revoked.")
@ONLY
@with_output
def token_(file: str, name: str, expires: int | None, scope: tuple[Grant, ...], output: Output) -> None:
    """Make a token of user NAME, which HTTP clients send as Bearer, and show it this once.

    The file is made for you alone; a running gateway notices. The user needs no password.
    """
    secret, token = access_file.add_token(file, name, expires or 0, scope)
    output.say("made", secret, token=secret, id=token.id, user=name, file=file, expires=when(token.expires))


@command.command("tokens")
@_FILE
@with_output
def tokens_(file: str, output: Output) -> None:
    """List the tokens of FILE: their ids, when they expire, and what they are for."""
    access = access_file.read(file)
    found = [(each, text_of(access.scopes.get(each.id, []))) for each in sorted(access.tokens)]
    if output.as_json:
        for each, only in found:
            output.json({"id": each.id, "user": each.user, "expires": when(each.expires), "only": only})
        return
    rows = [[each.id, each.user, when(each.expires) or "never", ", ".join(only) or "all"] for each, only in found]
    output.table(["id", "user", "expires", "only"], rows, empty="no tokens yet: penstock user token FILE NAME")


@command.command
@_FILE
@click.argument("id_", metavar="ID")
@with_output
@asks_first
def revoke(file: str, id_: str, asks: bool, output: Output) -> None:
    """Delete the token with this ID from FILE; the next request that sends it is refused."""
    if asks:
        ask(f"delete token {id_} from {file}?")
    access_file.delete_token(file, id_)
    output.say("revoked", f"token {id_} deleted from {file}", id=id_, file=file)


@command.command(short_help="Say which user of the system a user is.")
@_FILE
@click.argument("name")
@click.argument("uid", type=click.IntRange(min=0))
@with_output
def uid(file: str, name: str, uid: int, output: Output) -> None:
    """Let processes of the system's user UID, a number, be user NAME when they connect over a Unix socket.

    Without a line of its own, the user that runs the broker may do everything, as root may, and others nothing.
    """
    access_file.set_uid(file, name, uid)
    output.say("set", f"user id {uid} is {name}", user=name, uid=uid, file=file)


@command.command("no-uid", short_help="Take a user of the system out.")
@_FILE
@click.argument("uid", type=click.IntRange(min=0))
@with_output
def no_uid(file: str, uid: int, output: Output) -> None:
    """Let the system's user UID be no user of FILE any more."""
    access_file.delete_uid(file, uid)
    output.say("deleted", f"user id {uid} is no user", uid=uid, file=file)


CALENDAR_END = 253_402_300_799
"""The end of the year 9999; a file may say more."""


def when(expires: int) -> str | None:
    """A time of expiry for people and programs; None for never."""
    return datetime.fromtimestamp(min(expires, CALENDAR_END), UTC).isoformat() if expires else None
