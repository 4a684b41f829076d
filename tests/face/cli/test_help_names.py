"""Commands that help texts name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
from penstock.cli.app import COMMANDS, penstock

NAMED = re.compile(r"(?:`(?:penstock )?|penstock )([a-z]+)((?: [a-z]+)?)")


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), f"{path} {name}")


def texts(command: click.Command) -> list[str]:
    """Without what names no option: click itself fills in the rest."""
    options = [getattr(option, "help", None) or "" for option in command.params]
    return [command.help or "", command.short_help or "", command.epilog or "", *options]


ALL = dict(commands(penstock, "penstock"))


def unknown(text: str) -> list[str]:
    """What a text names as a command of ours, and is none."""
    found = []
    for name, sub in NAMED.findall(text):
        whole = f"penstock {name}{sub}"
        if name in COMMANDS and isinstance(ALL[f"penstock {name}"], click.Group) and sub and whole not in ALL:
            found.append(whole)
    return found


def test_what_help_names_is_there():
    assert len(ALL) > 40
    assert {path: found for path, command in ALL.items() if (found := unknown(" | ".join(texts(command))))} == {}


def test_a_command_that_is_not_there_is_found():
    assert unknown("Stored with the task; `task show` prints it.") == ["penstock task show"]
