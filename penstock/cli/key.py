"""`penstock key`: keys by which programs authenticate to a broker over tcp://, and the broker to them.

Contract: a secret is made here and stays in its file; only public halves are shown, and given as arguments. Nothing
here needs a broker, and a running one notices changes of its file within a second.
"""

from __future__ import annotations

import click

from ..broker import access_file
from ..broker.rights import Grant
from ..transport.keys import Key
from .consent import ask, asks_first
from .options import EXPIRY, with_output
from .output import Output
from .scopes import ONLY, text_of
from .user import when

_ACCESS = click.argument("access", type=click.Path(dir_okay=False))
_FILE = click.argument("file", type=click.Path(dir_okay=False))


@click.group
def command() -> None:
    """Make key files; add, list and delete keys of users, in a file that `serve --access` names."""


@command.command(short_help="Make a key file.")
@_FILE
@click.option("--broker", metavar="PUBLIC", default="", help="The broker's public key, for files of programs.")
@with_output
def generate(file: str, broker: str, output: Output) -> None:
    """Make a key in FILE, which must be new and is for you alone, and show its public half.

    The broker has one (`serve --broker-key`), and each program has one, which names the broker's public half.
    """
    key = Key.generate(broker=broker)
    key.write(file)
    output.say("made", key.public, public=key.public, file=file)


@command.command(short_help="Show the public half of a key file.")
@_FILE
@with_output
def show(file: str, output: Output) -> None:
    """Show the public half of the key in FILE, which is no secret."""
    key = Key.read(file)
    output.say("key", key.public, public=key.public, broker=key.broker or None, file=file)


@command.command(short_help="Let a key be a user.")
@_ACCESS
@click.argument("name")
@click.argument("public")
@click.option("--expires", type=EXPIRY, metavar="TIME", help="How long it is valid, as in 30d. Default: for ever.")
@ONLY
@with_output
def add(
    access: str, name: str, public: str, expires: int | None, scope: tuple[Grant, ...], output: Output
) -> None:  # fmt: skip
    """Let programs with the key whose public half is PUBLIC be user NAME. A user may have several."""
    key = access_file.add_key(access, name, public, expires or 0, scope)
    sentence = f"key {key.id} is user {name}'s"
    output.say("added", sentence, id=key.id, user=name, public=public, expires=when(key.expires), file=access)


@command.command("list")
@_ACCESS
@with_output
def list_(access: str, output: Output) -> None:
    """List the keys of ACCESS: their ids, users, public halves, when they expire, and what they are for."""
    content = access_file.read(access)
    found = [(each, when(each.expires), text_of(content.scopes.get(each.id, []))) for each in sorted(content.keys)]
    if output.as_json:
        for each, until, only in found:
            output.json({"id": each.id, "user": each.user, "public": each.public, "expires": until, "only": only})
        return
    rows = [
        [each.id, each.user, each.public, until or "never", ", ".join(only) or "all"] for each, until, only in found
    ]
    output.table(
        ["id", "user", "public", "expires", "only"], rows, empty="no keys yet: penstock key add ACCESS NAME PUBLIC"
    )


@command.command
@_ACCESS
@click.argument("id_", metavar="ID")
@with_output
@asks_first
def delete(access: str, id_: str, asks: bool, output: Output) -> None:
    """Delete the key with this ID from ACCESS. A running broker refuses it within a second, and ends its sessions."""
    if asks:
        ask(f"delete key {id_} from {access}?")
    access_file.delete_key(access, id_)
    output.say("deleted", f"key {id_} deleted from {access}", id=id_, file=access)
