"""Asks before a command destroys something.

Contract: only a person at a terminal is asked. Anything else, and --json, has to give --yes: the command is refused
with a usage error before anything is tried. --json never means yes.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import click

from .options import F
from .output import Output

YES = click.option("--yes", is_flag=True, help="Do not ask. Needed with --json, and without a terminal.")


def has_to_ask(yes: bool, output: Output) -> bool:
    """Whether a person has to be asked. Raises click.UsageError where none can be."""
    if not yes and (output.as_json or not sys.stdin.isatty()):
        raise click.UsageError("this cannot be undone, and there is no terminal to ask at: give --yes")
    return not yes


def asks_first(function: F) -> F:
    """Give a destructive command --yes, and `asks`: whether it has to `ask`. To be placed below `with_session`,
    or `with_output`."""

    @functools.wraps(function)
    def command(*args: Any, yes: bool, **given: Any) -> Any:
        output: Output = given["output"] if "output" in given else given["session"].output
        return function(*args, asks=has_to_ask(yes, output), **given)

    return YES(command)  # type: ignore[return-value]


def ask(question: str) -> None:
    """Ask on standard error. Raises click.Abort unless the answer is yes."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # ^C leaves the cursor behind the question
        raise
    if not agreed:
        raise click.Abort
