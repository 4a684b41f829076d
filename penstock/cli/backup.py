"""`penstock backup`: copy a data directory, served or not, as a point in time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from .. import config as configuration
from ..storage import units
from ..storage.linux import need_linux
from . import exits
from .options import with_config
from .output import Output
from .progress import progress

PRIVATE = ("access", "users")
"""Settings that name files of users, which a backup contains."""


@click.command
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--data", metavar="DIR", help="The data directory. Default: that of the configuration.")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Remove points but the newest N. Default: none.")
@click.option("--access", metavar="FILE", help="The access file, to copy it, too. Default: that of the configuration.")
@click.option("--users", metavar="FILE", help="The users file of the gateway, likewise.")
@with_config
def command(
    directory: Path, data: str | None, keep: int | None, access: str | None, users: str | None,
    settings: tuple[tuple[str, str], ...], config_file: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Back up a data directory into DIRECTORY, as a new point beside those that are there.

    Run it as the broker's user, beside the broker or without one. All logs are as they were at one moment, and only
    what the newest point does not have is copied. Exit code 5: what cannot be read is left out.
    """
    need_linux("penstock backup")
    from ..broker.system import set_file_limit
    from ..clients.backing_up import back_up

    config = configuration.load(
        {**dict(settings), "data": data, "access": access, "users": users}, path=config_file
    ).config
    source, target = (str(path.absolute()) for path in (Path(config.data).resolve(), directory.resolve()))
    if Path(target).is_relative_to(source):
        raise click.BadParameter(f"{directory} lies inside the data directory", param_hint="DIRECTORY")
    output, begun = Output(as_json=as_json), time.monotonic()
    set_file_limit()  # every file that is needed is open at once
    private = {name: str(Path(path).resolve()) for name in PRIVATE if (path := getattr(config, name))}
    with progress(output) as watch:
        made = back_up(
            source, target, keep=keep or 0, timeout_s=config.timeout_s, progress=watch("backing up"), private=private
        )
    values: dict[str, Any] = {
        "point": made.name, "directory": target, "data": source, "logs": len(made.point.logs),
        "bytes": made.point.size, "copied_bytes": made.copied, "seconds": round(time.monotonic() - begun, 3),
        "left_out": made.point.left_out,
    }  # fmt: skip
    sentence = (
        f"point {made.name}: {units.count_text(len(made.point.logs), 'log')}, {units.size_text(made.point.size)}, "
        f"{units.size_text(made.copied)} copied"
    )
    output.say("backed_up", sentence, **values)
    for title, reason in made.point.left_out.items():
        output.note(f"{title} is left out: {reason}")
    return exits.DAMAGED if made.point.left_out else exits.OK
