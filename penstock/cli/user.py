"""`penstock user`: the users file of a gateway.

Contract: a password is asked for twice at a terminal, without showing it; otherwise it is the first line of standard
input. It is never an argument, which other users of the machine could see. Nothing here needs a broker.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from .consent import ask, asks_first
from .options import with_output
from .output import Output

_FILE = click.argument("file", type=click.Path(dir_okay=False))


@click.group
def command() -> None:
    """Add, list and delete the users of a gateway, in a file that `serve --users` names."""


def _users() -> Any:
    return import_module("..gateway.users", __package__)  # by name: the face does not need the gateway


@command.command(short_help="Add a user, or change a password.")
@_FILE
@click.argument("name")
@with_output
def add(file: str, name: str, output: Output) -> None:
    """Add user NAME to FILE, or change the password. The file is made for you alone; a running gateway notices."""
    is_new = _users().add(file, name, _password(name))
    sentence = f"user {name} is in {file}" if is_new else f"user {name} has another password"
    output.say("added" if is_new else "changed", sentence, user=name, file=file)


def _password(name: str) -> str:
    if sys.stdin.isatty():
        return click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return sys.stdin.readline().rstrip("\r\n")


@command.command("list")
@_FILE
@with_output
def list_(file: str, output: Output) -> None:
    """List the users of FILE."""
    names = _users().names(file)
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
    """Delete user NAME from FILE. Connections that have authenticated stay."""
    if asks:
        ask(f"delete user {name} from {file}?")
    _users().delete(file, name)
    output.say("deleted", f"user {name} deleted from {file}", user=name, file=file)
