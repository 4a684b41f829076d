"""`penstock restore`: make a data directory of a backup."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from .. import config as configuration
from ..storage import units
from ..storage.errors import StorageError
from ..storage.linux import need_linux
from . import exits
from .options import with_config
from .output import Output
from .progress import progress


class NoBackup(StorageError):
    """A directory without a backup."""

    code = "no_backup"


@click.command
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--data", metavar="DIR", help="The data directory to make. Default: that of the configuration.")
@click.option("--point", metavar="NAME", help="Which point of `--list`. Default: the newest.")
@click.option("--list", "only_list", is_flag=True, help="List the points of DIRECTORY; make nothing.")
@click.option("--check", "only_check", is_flag=True, help="Read and check the point; make nothing.")
@click.option("--access", metavar="FILE", help="Also write the access file of the backup, to a new FILE.")
@click.option("--users", metavar="FILE", help="Also write the users file of the gateway, to a new FILE.")
@with_config
def command(
    directory: Path, data: str | None, point: str | None, only_list: bool, only_check: bool, access: str | None,
    users: str | None, settings: tuple[tuple[str, str], ...], config_file: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Make a data directory of a backup in DIRECTORY.

    Every byte is checked before anything is made. The data directory must be new or empty, or what an earlier restore
    left that was ended. Exit code 5: the backup is damaged, or something was damaged when it was made.
    """
    need_linux("penstock restore")
    from ..storage.backup_point import check_directory, point_names, read_point
    from ..storage.files import Files
    from ..storage.restore import check, check_new_private, restore, restore_private

    files, source, output = Files(), str(directory.resolve()), Output(as_json=as_json)
    names = point_names(files, source)
    if not names or check_directory(files, source) is None:
        raise NoBackup(f"there is no backup in {directory}")
    if only_list:
        return _list(output, source, names)
    chosen = point or names[-1]
    found = read_point(files, source, chosen)
    if only_check:
        with progress(output) as watch:
            check(files, source, found, watch("checking"))
        output.say("checked", f"point {chosen} is whole", point=chosen, bytes=found.size)
        return exits.OK
    target = str(Path(configuration.load({**dict(settings), "data": data}, path=config_file).config.data).resolve())
    private = {name: str(Path(path).absolute()) for name, path in (("access", access), ("users", users)) if path}
    for name, path in private.items():
        check_new_private(files, found, name, path)
    with progress(output) as watch:
        damage = restore(files, source, found, target, progress=watch("restoring"))
    for name, path in private.items():
        restore_private(files, source, found, name, path)
    sentence = f"point {chosen} is restored in {target}: {units.count_text(len(found.logs), 'log')}"
    output.say("restored", sentence, point=chosen, data=target, logs=len(found.logs), damage=damage,
               left_out=found.left_out)  # fmt: skip
    for text in [*damage, *(f"{title} was left out: {reason}" for title, reason in found.left_out.items())]:
        output.note(text)
    for name in sorted({each.name for each in found.private} - set(private)):
        output.note(f"the backup has the {name} file, too: --{name} FILE writes it")
    return exits.DAMAGED if damage or found.left_out else exits.OK


def _list(output: Output, source: str, names: list[str]) -> int:
    from ..storage.backup_point import read_point
    from ..storage.files import Files

    rows, whole = [], True
    for name in names:
        try:
            point = read_point(Files(), source, name)
        except StorageError as error:
            whole = False
            rows.append((name, None, None, None, error.message))
            continue
        made = f"{datetime.fromtimestamp(point.made_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
        state = f"{len(point.left_out)} left out" if point.left_out else "whole"
        rows.append((name, made, len(point.logs), units.size_text(point.size), state))
    if output.as_json:
        for name, made, logs, size, state in rows:
            output.json({"point": name, "made": made, "logs": logs, "size": size, "state": state})
    else:
        output.table(["point", "made", ">logs", ">size", "state"], rows)
    return exits.OK if whole else exits.DAMAGED
