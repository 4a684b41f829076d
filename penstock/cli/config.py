"""`penstock config`: the settings and where each comes from."""

from __future__ import annotations

import difflib
from typing import Any

import click
import msgspec

from .. import config as configuration
from ..storage import units
from .options import with_config
from .output import Output


@click.group
def command() -> None:
    """Show the settings and where each comes from."""


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
    output = Output(as_json=as_json)
    if as_json:
        for sourced in loaded.values:
            output.json(msgspec.structs.asdict(sourced))
        return
    rows = [(sourced.name, _text(sourced), sourced.source, sourced.about) for sourced in loaded.values]
    output.table(["setting", "value", "source", "about"], rows)
    for variable in loaded.strangers:
        output.note(f"the variable {variable} is no setting{_near(variable)}")


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
