"""`penstock config`: the settings, where each comes from, mistakes in them, and a file to begin with."""

from __future__ import annotations

import difflib
import os
from typing import Any

import click
import msgspec

from .. import config as configuration
from ..storage import units
from ..transport.url import without_user
from .options import with_config
from .output import Output


@click.group
def command() -> None:
    """Show and check the settings, and write a file of them."""


@command.command(short_help="Show every setting, its value, and its source.")
@with_config
def show(settings: tuple[tuple[str, str], ...], config_file: str | None, as_json: bool) -> None:
    """Show every setting, its value, and its source: flag > environment > file > default.

    \b
    flag         of some commands: --set drain_s=5s
    environment  PENSTOCK_ and the name in capitals: PENSTOCK_DRAIN_S=5s
    file         a line in TOML: drain_s = "5s"
                 in --config, else of PENSTOCK_CONFIG, else ~/.config/penstock/config.toml
    """
    loaded = configuration.load(dict(settings), path=config_file)
    output, values = Output(as_json=as_json), list(map(_without_users, loaded.values))
    if as_json:
        for sourced in values:
            output.json(msgspec.structs.asdict(sourced))
        return
    rows = [(sourced.name, _text(sourced), sourced.source, sourced.about) for sourced in values]
    output.table(["setting", "value", "source", "about"], rows)
    _name_strangers(output, loaded)


@command.command(short_help="Find mistakes in the settings.")
@with_config
def check(settings: tuple[tuple[str, str], ...], config_file: str | None, as_json: bool) -> None:
    """Read the settings as `serve` would, look at the addresses and files they name, and make nothing.

    Exit code 2 and one sentence for a mistake.
    """
    from .serve import check_settings

    loaded = configuration.load(dict(settings), path=config_file)
    check_settings(loaded.config)
    output = Output(as_json=as_json)
    given = sum(sourced.source != "default" for sourced in loaded.values)
    output.say(
        "checked", f"the configuration can be used: {given} of {len(loaded.values)} settings are given", given=given
    )
    _name_strangers(output, loaded)


@command.command(short_help="Write a file with every setting as a comment.")
def default() -> None:
    """Write a configuration file to standard output that has every setting as a comment, with its default."""
    from ..config_default import default_file

    click.echo(default_file(os.environ), nl=False)


def _name_strangers(output: Output, loaded: configuration.Loaded) -> None:
    for variable in loaded.strangers:
        output.note(f"the variable {variable} is no setting{_near(variable)}")


def _without_users(sourced: configuration.Sourced) -> configuration.Sourced:
    """No password in an address is shown, though no address of ours has one."""
    value = sourced.value
    if isinstance(value, str) and "://" in value:
        value = without_user(value)
    elif isinstance(value, list | tuple):
        value = [without_user(each) if "://" in str(each) else each for each in value]
    return msgspec.structs.replace(sourced, value=value)


def _text(sourced: configuration.Sourced) -> Any:
    if isinstance(sourced.value, list):
        return ", ".join(sourced.value)
    if sourced.unit == "bytes":
        return units.size_text(sourced.value)
    if sourced.unit == "s":
        return units.time_text(sourced.value)
    return sourced.value if sourced.value != "" else None


def _near(variable: str) -> str:
    names = [f"{configuration.PREFIX}{name.upper()}" for name in configuration.FIELDS]
    near = difflib.get_close_matches(variable, names, n=1)
    return f": did you mean {near[0]}?" if near else ""
